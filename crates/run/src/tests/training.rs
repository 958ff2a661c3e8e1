//! Training steps on ranks against the reference.

use std::collections::BTreeMap;

use kernels::Array;
use lower::Origin;
use planner_ir::{DType, Op, Phase, State, StateKind, Type};

use super::priced::priced;
use super::regression::{OPTIMIZERS, Parallel, Regression, Sums};
use super::{programs, some_numbers};
use crate::{Outcome, Place, Reference, RunError, Session, not_finite};

/// How many steps are run.
const STEPS: usize = 3;

type Inputs = BTreeMap<String, Array>;

/// The weights of a regression, in f32 as in a model file.
fn weights(regression: &Regression) -> BTreeMap<String, Array> {
    let [_, inputs, hidden, outputs] = regression.extents;
    let weight = |(name, shape): (&str, [u64; 2])| {
        (name.to_owned(), scaled(some_numbers(name, &Type::new(DType::F32, shape))))
    };
    [("up", [inputs, hidden]), ("down", [hidden, outputs])].map(weight).into()
}

/// An eighth of it.
fn scaled(array: Array) -> Array {
    let eighth = Array::of([], &[0.125_f32]).unwrap();
    let eighth = kernels::evaluate(&Op::Cast(array.dtype()), &[&eighth]).unwrap().remove(0);
    kernels::evaluate(&Op::Binary(planner_ir::Binary::Mul), &[&array, &eighth]).unwrap().remove(0)
}

fn micro_batches(regression: &Regression, step: usize) -> Vec<Inputs> {
    let [rows, inputs, _, outputs] = regression.extents;
    let batch = |number: u64| {
        let given = |name: &str, columns: u64| {
            let type_ = Type::new(regression.dtype, [rows, columns]);
            (name.to_owned(), scaled(some_numbers(&format!("{name}{step}.{number}"), &type_)))
        };
        BTreeMap::from([given("x", inputs), given("y", outputs)])
    };
    (0..regression.micro_batches).map(batch).collect()
}

fn step_inputs(step: usize) -> Inputs {
    let number = |name: &str, it: f32| (name.to_owned(), Array::of([], &[it]).unwrap());
    BTreeMap::from([number("rate", 0.25), number("step", f32::from(u8::try_from(step + 1).unwrap()))])
}

fn assert_close(what: &str, found: &Array, expected: &Array, tolerance: f64) {
    assert_eq!(found.type_(), expected.type_(), "{what}");
    let (found, expected) = (found.to_floats().unwrap(), expected.to_floats().unwrap());
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let near = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
        assert!(near, "{what}[{place}] is {found}, expected {expected}");
    }
}

/// What all devices received for moves of which phase, by the plan's transfers in order.
fn received(outcome: &Outcome) -> Vec<(usize, u64)> {
    let of = |&(origin, bytes): &(Origin, u64)| match origin {
        Origin::Move { transfer, .. } => (transfer, bytes),
        other => panic!("{other}"),
    };
    outcome.received.iter().map(of).collect()
}

/// Runs some steps on ranks and on one device: the last step's outcome.
fn check(regression: Regression, tolerance: f64) -> Outcome {
    let sketch = regression.sketch();
    let programs = programs(&sketch.plan);
    let weights = weights(&regression);
    let mut reference = Reference::new(&sketch.plan.graph, &weights).unwrap();
    let mut session = Session::new(programs, &weights).unwrap();
    let in_another_order = super::programs(&priced(&sketch.plan, 5));
    let mut beside = Session::new(in_another_order, &weights).unwrap();
    let mut last = None;
    for step in 0..STEPS {
        let (micro_batches, inputs) = (micro_batches(&regression, step), step_inputs(step));
        let expected = reference.train(&micro_batches, &inputs).unwrap();
        let outcome = session.train(&micro_batches, &inputs).unwrap();
        assert!(outcome.updated);
        let what = format!("{regression:?}, step {step}");
        let same = beside.train(&micro_batches, &inputs).unwrap();
        assert!(same.outputs == outcome.outputs, "{what}");
        assert_close(&format!("loss of {what}"), &outcome.outputs["loss"], &expected["loss"], tolerance);
        for state in session.states() {
            let name = format!("{} {} of {what}", state.kind.name(), state.name);
            let found = session.gather(&state).unwrap();
            assert_close(&name, &found, reference.state(&state).unwrap(), tolerance);
            assert!(beside.gather(&state).unwrap() == found, "{name}");
        }
        session.check_replicas().unwrap();
        last = Some(outcome);
    }
    last.unwrap()
}

fn devices(parallel: Parallel) -> &'static [u64] {
    if parallel == Parallel::DataTensor { &[4] } else { &[1, 2, 4] }
}

/// Weights are square, so that nothing but its place tells what a product adds to from its factors.
#[test]
fn gradients_that_products_add_are_those_of_one_device() {
    for parallel in [Parallel::Data, Parallel::Zero1, Parallel::Tensor, Parallel::DataTensor] {
        for &devices in devices(parallel) {
            for micro_batches in [1, 3] {
                let regression = Regression {
                    sums: Sums::Added,
                    extents: [8; 4],
                    optimizer: OPTIMIZERS[1],
                    ..Regression::new(parallel, devices, micro_batches)
                };
                check(regression, 1e-5);
            }
        }
    }
}

#[test]
fn every_parallelism_trains_as_one_device_does() {
    for parallel in Parallel::ALL {
        for &devices in devices(parallel) {
            for micro_batches in [1, 3] {
                for optimizer in OPTIMIZERS {
                    let regression =
                        Regression { optimizer, ..Regression::new(parallel, devices, micro_batches) };
                    check(regression, 1e-5);
                }
            }
        }
    }
}

#[test]
fn narrow_parameters_have_masters() {
    for parallel in Parallel::ALL {
        let regression = Regression { dtype: DType::BF16, ..Regression::new(parallel, 4, 3) };
        let outcome = check(regression, 0.05);
        assert!(outcome.updated);
    }
}

#[test]
fn values_larger_than_a_piece_are_updated_in_place() {
    let extents = [8, 96, 128, 96];
    for parallel in Parallel::ALL {
        check(Regression { extents, ..Regression::new(parallel, 4, 2) }, 1e-4);
    }
}

#[test]
fn bytes_are_those_of_the_textbook() {
    for (devices, micro_batches) in [(2, 1), (2, 3), (4, 1), (4, 3)] {
        let others = devices - 1;
        let total = |parallel: Parallel| -> u64 {
            let outcome = check(Regression::new(parallel, devices, micro_batches), 1e-5);
            received(&outcome).iter().map(|(_, bytes)| bytes).sum()
        };
        let [up, down] = Regression::new(Parallel::Data, devices, micro_batches).parameter_bytes();
        let parameters = up + down;
        // The loss, a number of four bytes, is summed over all devices once.
        let loss = 2 * others * 4;
        // A sum over n devices: each receives (n - 1) / n of the whole to make its part of it, and
        // as much to have the parts of the others.
        assert_eq!(total(Parallel::Data), 2 * others * parameters + loss);
        assert_eq!(total(Parallel::Zero1), others * parameters + others * parameters + loss);
        assert_eq!(total(Parallel::Zero2), micro_batches * others * parameters + others * parameters + loss);
        // Parameters are gathered for the forward and the backward pass; the backward pass does
        // not need the first one's, for inputs have no gradients.
        let gathered = others * parameters + others * down;
        assert_eq!(total(Parallel::Zero3), micro_batches * (gathered + others * parameters) + loss);
        // One sum of [rows, outputs] in each forward pass.
        assert_eq!(total(Parallel::Tensor), micro_batches * 2 * others * 8 * 4 * 4);
    }
}

fn session(regression: &Regression) -> Session {
    Session::new(programs(&regression.sketch().plan), &weights(regression)).unwrap()
}

#[test]
fn a_step_goes_on_from_replaced_states_on_another_number_of_ranks() {
    let first = Regression::new(Parallel::Zero3, 4, 3);
    let mut whole = session(&first);
    for step in 0..2 {
        whole.train(&micro_batches(&first, step), &step_inputs(step)).unwrap();
    }
    let second = Regression::new(Parallel::Zero1, 2, 3);
    let mut resumed = session(&second);
    for state in whole.states() {
        let gathered = BTreeMap::from([(state.name.clone(), whole.gather(&state).unwrap())]);
        resumed.set(&state, &gathered).unwrap();
    }
    let expected = whole.train(&micro_batches(&first, 2), &step_inputs(2)).unwrap();
    let found = resumed.train(&micro_batches(&first, 2), &step_inputs(2)).unwrap();
    assert_close("loss", &found.outputs["loss"], &expected.outputs["loss"], 1e-6);
    for state in whole.states() {
        let (found, expected) = (resumed.gather(&state).unwrap(), whole.gather(&state).unwrap());
        assert_close(&state.name, &found, &expected, 1e-5);
    }
}

#[test]
fn a_step_repeated_from_the_same_states_has_the_same_bits() {
    let regression = Regression::new(Parallel::Zero2, 4, 3);
    let (mut one, mut other) = (session(&regression), session(&regression));
    for step in 0..STEPS {
        for session in [&mut one, &mut other] {
            session.train(&micro_batches(&regression, step), &step_inputs(step)).unwrap();
        }
    }
    for state in one.states() {
        assert!(one.gather(&state).unwrap() == other.gather(&state).unwrap());
    }
}

#[test]
fn a_loss_that_is_not_finite_changes_nothing_and_is_traced() {
    for parallel in Parallel::ALL {
        let regression = Regression::new(parallel, 4, 3);
        let sketch = regression.sketch();
        let mut session = session(&regression);
        session.train(&micro_batches(&regression, 0), &step_inputs(0)).unwrap();
        let states = |session: &Session| -> BTreeMap<State, Array> {
            session
                .states()
                .into_iter()
                .map(|state| (state.clone(), session.gather(&state).unwrap()))
                .collect()
        };
        let before = states(&session);
        let trace = |session: &mut Session, micro_batches: &[Inputs]| {
            let outcome = session.train(micro_batches, &step_inputs(1)).unwrap();
            assert!(!outcome.updated);
            assert!(!outcome.outputs["loss"].to_floats().unwrap()[0].is_finite());
            assert!(before == states(session));
            let weights = weights(&regression);
            let inputs = step_inputs(1);
            not_finite(&sketch.plan.graph, &weights, &before, micro_batches, &inputs).unwrap().unwrap()
        };
        let good = micro_batches(&regression, 1);
        let with = |name: &str, value: f32| {
            let mut bad = good.clone();
            let given = bad[1].get_mut(name).unwrap();
            let place = 4 * 5;
            given.bytes_mut()[place..place + 4].copy_from_slice(&value.to_le_bytes());
            bad
        };
        let found = trace(&mut session, &with("y", f32::NAN));
        assert_eq!((found.place, found.micro_batch), (Place::Given("y".to_owned()), Some(1)));
        // The square is too large.
        let found = trace(&mut session, &with("y", 1e30));
        assert_eq!(found.to_string(), "`node3` (forward) in micro-batch 1");
        let Place::Operation { phase, .. } = found.place else { panic!("{found}") };
        assert_eq!(phase, Phase::Forward);
        // The session goes on.
        assert!(session.train(&good, &step_inputs(1)).unwrap().updated);
        let weights = weights(&regression);
        let nothing = not_finite(&sketch.plan.graph, &weights, &before, &good, &step_inputs(1));
        assert_eq!(nothing.unwrap(), None);
    }
}

#[test]
fn steps_that_are_given_the_wrong_things_are_refused() {
    let regression = Regression::new(Parallel::Zero1, 2, 3);
    let mut session = session(&regression);
    let batches = micro_batches(&regression, 0);
    let error = session.train(&batches[..2], &step_inputs(0)).unwrap_err();
    assert_eq!(error.to_string(), "2 micro-batches are given, expected 3");
    let error = session.train(&batches, &BTreeMap::new()).unwrap_err();
    assert!(matches!(error, RunError::Missing(_)));
    let gradient = State { kind: StateKind::Gradient, name: "up".to_owned() };
    let error = session.gather(&gradient).unwrap_err();
    assert_eq!(error.to_string(), "there is no gradient of `up` that lasts from step to step");
    let parameter = State { kind: StateKind::Parameter, ..gradient };
    let other = Array::zeros(Type::new(DType::F32, [2])).unwrap();
    let other = BTreeMap::from([(parameter.name.clone(), other)]);
    assert!(matches!(session.set(&parameter, &other), Err(RunError::Type(..))));
}

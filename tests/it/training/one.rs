//! Steps on one device: what recipes mean.

use driver::pipeline::{Training, parameters};
use plan::{Precision, Recompute, Roles};
use planner_ir::{DType, Source, State, StateKind};
use run::Reference;

use super::against::apart;
use super::cases::{Arrays, Case, SGD, all, floats, gpt2, parted};
use kernels::Array;

/// A step of plain descent: outputs, and the parameters (their masters, if they have any).
fn one_step(case: &Case, training: &Training, micro_batches: &[Arrays], rate: f32) -> (Arrays, Arrays) {
    let prepared = case.prepared(training, micro_batches);
    planner_ir::verify(&prepared.graph).unwrap();
    let mut device = Reference::new(&prepared.graph, &case.file).unwrap();
    let rate = Array::of::<f32>(vec![], &[rate]).unwrap();
    let outputs = device.train(micro_batches, &Arrays::from([(train::RATE.to_owned(), rate)])).unwrap();
    let narrow = training.recipe.precision == Precision::Bf16;
    let wanted = if narrow { StateKind::Master } else { StateKind::Parameter };
    let after = prepared.graph.values.iter().filter_map(|value| match &value.source {
        Source::State(State { kind, name }) if *kind == wanted => {
            let state = State { kind: *kind, name: name.clone() };
            Some((name.clone(), device.state(&state).unwrap().clone()))
        }
        _ => None,
    });
    (outputs, after.collect())
}

#[test]
fn micro_batches_make_the_step_of_the_whole_batch() {
    let case = gpt2();
    let training = case.training(SGD, Recompute::Nothing);
    // The examples have different numbers of labels that count.
    let [(whole, expected), (outputs, found)] =
        [1, 2].map(|parts| one_step(&case, &training, &parted(&case.batch(0), parts), 0.1));
    let [loss, mean] = [&outputs, &whole].map(|it| floats(&it[train::LOSS])[0]);
    assert!((loss - mean).abs() < 1e-5, "{loss} and {mean}");
    for (name, expected) in &expected {
        assert!(apart(&floats(&found[name]), &floats(expected), 0.0) < 1e-5, "{name}");
    }
}

/// As in PyTorch with losses summed, and divided by the number of labels of the whole step.
#[test]
fn micro_batches_without_a_label_change_nothing() {
    let case = gpt2();
    let training = case.training(SGD, Recompute::Nothing);
    let mut parts = parted(&case.batch(0), 2);
    let (whole, expected) = one_step(&case, &training, &parts[..1], 0.1);
    let shape = parts[1]["labels"].shape().to_vec();
    let none = vec![-100; floats(&parts[1]["labels"]).len()];
    parts[1].insert("labels".to_owned(), Array::of::<i64>(shape, &none).unwrap());
    for parts in [parts.clone(), parts.into_iter().rev().collect()] {
        let (outputs, found) = one_step(&case, &training, &parts, 0.1);
        assert_eq!(outputs[train::LOSS], whole[train::LOSS]);
        for (name, expected) in &expected {
            assert!(apart(&floats(&found[name]), &floats(expected), 0.0) < 1e-6, "{name}");
        }
    }
}

#[test]
fn gradients_are_scaled_down_to_the_largest_norm() {
    let case = gpt2();
    let gradients = case.parameters.keys().filter_map(|name| case.expected("grad", name));
    let norm = gradients.flatten().map(|it| it * it).sum::<f64>().sqrt();
    for most in [norm / 3.0, norm * 3.0] {
        let mut training = case.training(SGD, Recompute::Nothing);
        training.recipe.clip = Some(most);
        let (outputs, found) = one_step(&case, &training, &[case.batch(0)], 1.0);
        let stated = floats(&outputs[train::NORM])[0];
        assert!((stated - norm).abs() < 1e-4 * norm, "norm {stated}, expected {norm}");
        for (name, after) in &found {
            let (before, gradient) =
                (floats(&run::whole(&case.file, name).unwrap()), case.expected("grad", name).unwrap());
            let scale = (most / norm).min(1.0);
            let expected: Vec<f64> = before.iter().zip(&gradient).map(|(p, g)| p - scale * g).collect();
            assert!(apart(&floats(after), &expected, 0.0) < 1e-4, "{name}");
        }
    }
}

#[test]
fn a_model_in_bf16_is_near_one_in_f32_and_keeps_masters() {
    let case = gpt2();
    let mut training = case.training(SGD, Recompute::Nothing);
    training.recipe.precision = Precision::Bf16;
    let (outputs, found) = one_step(&case, &training, &[case.batch(0)], 0.1);
    let expected = case.oracle["loss0"].as_f64().unwrap();
    let loss = floats(&outputs[train::LOSS])[0];
    assert!((loss - expected).abs() < 2e-2 * expected, "{loss}, expected {expected}");
    assert!((loss - expected).abs() > 1e-6 * expected, "{loss} is not of less precision");
    for (name, after) in &found {
        assert_eq!(after.dtype(), DType::F32);
        let gradient = case.expected("grad", name).unwrap();
        let before = floats(&run::whole(&case.file, name).unwrap());
        let moved: Vec<f64> = before.iter().zip(floats(after)).map(|(p, after)| (p - after) / 0.1).collect();
        // Sums over a few elements of eight bits each can be further off.
        let allowed = if gradient.len() < 20 { 0.5 } else { 0.06 };
        assert!(apart(&moved, &gradient, 1e-3) < allowed + 10.0 * case.noise(name), "{name}");
    }
}

/// Nobody says what the parameters are: what PyTorch trains is trained, and nothing else.
#[test]
fn what_pytorch_trains_is_found_in_the_file() {
    for path in all() {
        let case = Case::load(&path);
        let imported = case.imported(&case.batch(0));
        let found = parameters::roles(&case.file, &imported, &Roles::default()).unwrap();
        let title = &case.title;
        for (name, why) in found.trained.iter().map(|it| (&it.name, it.why)) {
            // The exporter has computed 1 + the scales of norms: these are trained in their place.
            let folded = !case.parameters.contains_key(name) && why == train::Because::Norm;
            let is_copy = found.roles.ties.iter().any(|tie| tie.copy == *name);
            // PyTorch keeps these sines as they are; in this file they are random numbers under a parameter's name.
            let untold = title.starts_with("whisper/") && name.ends_with("encoder.embed_positions.weight");
            let is_trained = folded || is_copy || untold || case.expected("grad", name).is_some();
            assert!(is_trained, "{title}: `{name}` is trained: {}", why.in_words());
        }
        for constant in &found.roles.constants {
            let is_trained = case.expected("grad", &constant.name).is_some();
            assert!(!is_trained, "{title}: `{}` is not trained: {}", constant.name, constant.why);
        }
        // All copies of a parameter are one.
        for (name, (parameter, _)) in &case.parameters {
            let others = case.parameters.iter().filter(|(it, (other, _))| *it != name && other == parameter);
            for (other, _) in others {
                let one =
                    |tie: &plan::Tie| [&tie.copy, &tie.original].iter().all(|it| [name, other].contains(it));
                assert!(found.roles.ties.iter().any(one), "{title}: `{name}` and `{other}` are not one");
            }
        }
        let several = |tie: &plan::Tie| case.parameters[&tie.copy].0 != case.parameters[&tie.original].0;
        assert!(!found.roles.ties.iter().any(several), "{title}: {:?}", found.roles.ties);
    }
}

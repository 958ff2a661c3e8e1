//! Plans run on ranks, and held against what PyTorch computed.

use plan::Plan;
use planner_ir::{Graph, Optimizer, State, StateKind};
use run::{Outcome, Session};

use super::cases::{Case, floats, parted, step_inputs};
use crate::corpus::check_bytes;

/// How far a loss may be off, relative to it.
const LOSS: f64 = 2e-4;
/// How far a gradient may be off, relative to its norm and besides what PyTorch's own is.
const GRADIENT: f64 = 2e-4;
/// How far a parameter may be off, relative to its norm.
const PARAMETER: f64 = 5e-4;
/// How far what steps changed of a parameter may be off, relative to the norm of the change.
const CHANGE: f64 = 1e-2;
/// A gradient that PyTorch's own is this far off from is rounding noise, of which optimizers make
/// steps.
const NOISE: f64 = 1e-2;

/// What an oracle has of an optimizer.
struct Oracle {
    /// What it is called.
    kind: &'static str,
    rate: f32,
    /// After which steps it has the parameters.
    marks: &'static [usize],
    /// What the first moment after the first step is of the gradient.
    share: f64,
}

impl Case {
    /// Holds three steps against PyTorch: each loss, the gradient of every parameter, the parameters
    /// after one and three steps; and what is received against the plan. Plain descent has no oracle of its own: its first step is held
    /// against the gradients.
    pub(super) fn check_training(&self, plan: &Plan, optimizer: Optimizer, parts: u64) -> Result<(), String> {
        let bytes = |outcome: &Outcome| check_bytes(plan, &outcome.received);
        self.check_session(self.session(plan)?, &plan.graph, optimizer, parts, &bytes)
    }

    /// The same of programs made ready, of a step that takes inputs like this one.
    pub(super) fn check_session(
        &self,
        session: Session,
        graph: &Graph,
        optimizer: Optimizer,
        parts: u64,
        bytes: &dyn Fn(&Outcome) -> Result<(), String>,
    ) -> Result<(), String> {
        let oracle = match optimizer {
            Optimizer::Sgd { .. } => return self.check_descent(session, graph, parts),
            Optimizer::Momentum { .. } => Oracle { kind: "sgd", rate: 0.05, marks: &[3], share: 1.0 },
            Optimizer::AdamW { beta1, .. } => {
                Oracle { kind: "adamw", rate: 1e-3, marks: &[1, 3], share: 1.0 - beta1.0 }
            }
        };
        self.check_steps(session, graph, &oracle, parts, bytes)
    }

    fn check_steps(
        &self,
        mut session: Session,
        graph: &Graph,
        oracle: &Oracle,
        parts: u64,
        bytes: &dyn Fn(&Outcome) -> Result<(), String>,
    ) -> Result<(), String> {
        let kind = oracle.kind;
        for number in 1..=3 {
            let Some(expected) = self.oracle[format!("{kind}_losses")][number - 1].as_f64() else {
                println!("{}: {kind} diverges in PyTorch, too: step {number} is left out", self.title);
                break;
            };
            let inputs = step_inputs(graph, oracle.rate, number);
            let outcome = session
                .train(&parted(&self.batch(number - 1), parts), &inputs)
                .map_err(|error| format!("not run: {error}"))?;
            bytes(&outcome)?;
            let loss = floats(&outcome.outputs[train::LOSS])[0];
            if (loss - expected).abs() > LOSS * expected.abs() {
                return Err(format!("{kind} step {number}: loss {loss}, expected {expected}"));
            }
            if number == 1 {
                self.check_moments(&session, oracle.share)?;
            }
            if oracle.marks.contains(&number) {
                self.check_parameters(&session, &format!("{kind}{number}"))?;
            }
        }
        session.check_replicas().map_err(|error| format!("replicas differ: {error}"))
    }

    /// Holds the gradients, as the first moments after the first step show them, against the oracle.
    fn check_moments(&self, session: &Session, share: f64) -> Result<(), String> {
        for name in trained(session) {
            let state = State { kind: StateKind::FirstMoment, name };
            let moment = session.gather(&state).map_err(|error| error.to_string())?;
            let found: Vec<f64> = floats(&moment).iter().map(|it| it / share).collect();
            self.check_gradient(&state.name, &found, 0.0)?;
        }
        Ok(())
    }

    /// Holds the gradients, as a step of plain descent shows them, against the oracle.
    fn check_descent(&self, mut session: Session, graph: &Graph, parts: u64) -> Result<(), String> {
        let inputs = step_inputs(graph, 1.0, 1);
        session
            .train(&parted(&self.batch(0), parts), &inputs)
            .map_err(|error| format!("not run: {error}"))?;
        for name in trained(&session) {
            let after = floats(&session.gather(&parameter(&name)).map_err(|error| error.to_string())?);
            let before = floats(&run::whole(&self.file, &name).map_err(|error| error.to_string())?);
            let found: Vec<f64> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
            // A difference of parameters has the rounding of parameters.
            self.check_gradient(&name, &found, 1e-7 * norm(&before))?;
        }
        Ok(())
    }

    /// What the oracle has of a parameter. Of what an exporter computed from parameters (the scales
    /// of norms with one added) it has nothing.
    fn of_oracle(&self, kind: &str, name: &str) -> Result<Option<Vec<f64>>, String> {
        if !self.parameters.contains_key(name) {
            return Ok(None);
        }
        self.expected(kind, name).map(Some).ok_or_else(|| format!("the oracle has no {kind} of {name}"))
    }

    fn check_gradient(&self, name: &str, found: &[f64], rounding: f64) -> Result<(), String> {
        let Some(expected) = self.of_oracle("grad", name)? else { return Ok(()) };
        let off = apart(found, &expected, rounding);
        if off > GRADIENT + 10.0 * self.noise(name) {
            return Err(format!("gradient of {name} is off by {off:e}"));
        }
        Ok(())
    }

    fn check_parameters(&self, session: &Session, kind: &str) -> Result<(), String> {
        for name in trained(session) {
            let Some(expected) = self.of_oracle(kind, &name)? else { continue };
            let found = floats(&session.gather(&parameter(&name)).map_err(|error| error.to_string())?);
            let before = floats(&run::whole(&self.file, &name).map_err(|error| error.to_string())?);
            let change =
                |after: &[f64]| -> Vec<f64> { after.iter().zip(&before).map(|(a, b)| a - b).collect() };
            let off = apart(&found, &expected, 0.0);
            let off_change = apart(&change(&found), &change(&expected), 1e-6 * norm(&before));
            if (off > PARAMETER || off_change > CHANGE) && self.noise(&name) < NOISE {
                return Err(format!("{name} as of {kind} is off by {off:e}, its change by {off_change:e}"));
            }
        }
        Ok(())
    }
}

/// The names of the parameters that a session trains.
fn trained(session: &Session) -> Vec<String> {
    let states = session.states();
    states.iter().filter(|it| it.kind == StateKind::Parameter).map(|it| it.name.clone()).collect()
}

/// The state that is a parameter.
fn parameter(name: &str) -> State {
    State { kind: StateKind::Parameter, name: name.to_owned() }
}

fn norm(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// How far numbers are from what they should be, relative to their norm; what is below the
/// rounding does not count.
pub(super) fn apart(found: &[f64], expected: &[f64], rounding: f64) -> f64 {
    let difference: Vec<f64> = found.iter().zip(expected).map(|(a, b)| a - b).collect();
    if norm(&difference) < 1e-6 + rounding { 0.0 } else { norm(&difference) / norm(expected) }
}

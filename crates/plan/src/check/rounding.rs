//! Rules of parameters in less than f32: where they are in f32, or how they are rounded.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Binary, DType, Graph, Node, Op, Source, StateKind, ValueId};

use super::{Violations, operation_name};
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::recipe::{Masters, Precision};

/// Adds what is violated in a training step.
pub(super) fn check(plan: &Plan, (precision, masters): (Precision, Masters), found: &mut Violations) {
    match precision {
        Precision::Bf16Stochastic => {
            if masters != Masters::Beside {
                let message = format!("says that masters are {masters}, expected none with `{precision}`");
                found.add("precision", "recipe", message);
            }
            rounded(plan, found);
        }
        Precision::F32
        | Precision::Bf16
        | Precision::Fp8
        | Precision::Fp8Delayed
        | Precision::Mxfp8
        | Precision::Nvfp4
        | Precision::File => {
            not_rounded(plan, precision, found);
            in_full(plan, masters, found);
        }
    }
}

/// Of a step whose parameters are in f32: beside fewer bits, or alone.
fn in_full(plan: &Plan, masters: Masters, found: &mut Violations) {
    let graph = &plan.graph;
    let states = || {
        graph.value_ids().filter_map(|value| match &graph.value(value).source {
            Source::State(state) => Some((value, state)),
            _ => None,
        })
    };
    let known: BTreeSet<&str> =
        states().filter(|it| it.1.kind == StateKind::Master).map(|it| it.1.name.as_str()).collect();
    for (value, state) in states() {
        let dtype = graph.type_of(value).dtype;
        let message = match (state.kind, masters) {
            (StateKind::Master, Masters::Alone) => {
                "is a master, expected none where parameters are in f32 alone".to_owned()
            }
            (StateKind::Parameter, Masters::Alone) if dtype != dtype.accumulated() => {
                format!("is a parameter in {dtype}, expected f32 alone")
            }
            (StateKind::Parameter, Masters::Beside) if dtype.is_half() && !known.contains(&*state.name) => {
                format!("is a parameter in {dtype}, expected a master beside it")
            }
            _ => continue,
        };
        found.add("precision", format!("state %{}", value.0), message);
    }
}

/// Adds what is violated between the stages of a pipeline: a parameter that several of them have is
/// rounded by one chance in all, or they would come to have different ones; and no two parameters by
/// the same.
pub(super) fn between_stages(pipeline: &Pipeline, found: &mut Violations) {
    let mut chances: BTreeMap<&str, (Start<'_>, usize)> = BTreeMap::new();
    let mut parameters: BTreeMap<Start<'_>, (&str, usize)> = BTreeMap::new();
    for (number, stage) in pipeline.stages.iter().enumerate() {
        let graph = &stage.plan.graph;
        for value in graph.value_ids() {
            let Source::State(state) = &graph.value(value).source else { continue };
            let start = match state.kind {
                StateKind::Parameter => graph.next(value).and_then(|next| Start::of(graph, next)),
                _ => None,
            };
            // What is not rounded so is found in the stage.
            let Some(start) = start else { continue };
            let place = format!("stage {number}");
            let (one, before) = *chances.entry(&state.name).or_insert((start, number));
            if one != start {
                let message = format!(
                    "rounds `{}` by another chance than stage {before}, which has it too",
                    state.name
                );
                found.add("precision", &place, message);
                continue;
            }
            let (name, before) = *parameters.entry(start).or_insert((&state.name, number));
            // Those of one stage are found in the stage.
            if name != state.name && before != number {
                let message =
                    format!("rounds `{}` by the chance by which stage {before} rounds `{name}`", state.name);
                found.add("precision", &place, message);
            }
        }
    }
}

/// Of a step whose parameters are in bf16 alone.
fn rounded(plan: &Plan, found: &mut Violations) {
    // For each start of rounding, the first state that is rounded from there.
    let mut starts: BTreeMap<Start, ValueId> = BTreeMap::new();
    for value in plan.graph.value_ids() {
        let Source::State(state) = &plan.graph.value(value).source else { continue };
        let place = format!("state %{}", value.0);
        match state.kind {
            StateKind::Master => {
                let message = "is a master, expected none where parameters are in bf16 alone";
                found.add("precision", place, message);
            }
            StateKind::Parameter => {
                let dtype = plan.graph.type_of(value).dtype;
                if dtype != DType::BF16 {
                    let message = format!("is a parameter in {dtype}, expected bf16 alone");
                    found.add("precision", &place, message);
                }
                let Some(next) = plan.graph.next(value) else { continue };
                let Some(start) = Start::of(&plan.graph, next) else {
                    let message = format!(
                        "becomes %{}, expected what is rounded by chance, by a number of the step that is for nothing else",
                        next.0
                    );
                    found.add("precision", place, message);
                    continue;
                };
                let Start { seed, from, .. } = start;
                let first = *starts.entry(start).or_insert(value);
                if first != value {
                    let message = format!(
                        "is rounded by seed {seed} and as much after `{from}`, expected other chances than \
                         those of state %{}",
                        first.0
                    );
                    found.add("precision", place, message);
                }
            }
            _ => {}
        }
    }
}

/// Where rounding starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Start<'a> {
    seed: u64,
    /// The input that is another number in each step.
    from: &'a str,
    /// How much is added to it: a whole number, as bits.
    added: u64,
}

impl<'a> Start<'a> {
    /// Where the rounding starts that makes a value, if it is by a number of the step: an input with
    /// constants added.
    fn of(graph: &'a Graph, value: ValueId) -> Option<Self> {
        let node = maker(graph, value)?;
        let (Op::RoundStochastically { seed }, [_, number]) = (&node.op, &node.operands[..]) else {
            return None;
        };
        let constant = |value: ValueId| match maker(graph, value)?.op {
            Op::Fill { value, .. } => Some(value.0),
            _ => None,
        };
        let (mut from, mut added) = (*number, 0.0);
        while let Some(node) = maker(graph, from) {
            let (Op::Binary(Binary::Add), [one, other]) = (&node.op, &node.operands[..]) else { return None };
            let (rest, more) =
                constant(*other).map(|more| (*one, more)).or(constant(*one).map(|it| (*other, it)))?;
            (from, added) = (rest, added + more);
        }
        match &graph.value(from).source {
            Source::Input(name) if only_rounds(graph, from) => {
                Some(Self { seed: *seed, from: name, added: f64::to_bits(added) })
            }
            _ => None,
        }
    }
}

/// Whether a number is used for nothing but roundings to start from: what is computed with besides, as
/// the rate and what a model reads, may be the same in many steps.
fn only_rounds(graph: &Graph, number: ValueId) -> bool {
    let mut numbers = vec![number];
    let mut place = 0;
    while let Some(&number) = numbers.get(place) {
        place += 1;
        for node in graph.nodes.iter().filter(|it| it.operands.contains(&number)) {
            match node.op {
                Op::RoundStochastically { .. } if node.operands[0] != number => {}
                Op::Binary(Binary::Add) => numbers.extend(&node.results),
                _ => return false,
            }
        }
    }
    true
}

fn maker(graph: &Graph, value: ValueId) -> Option<&Node> {
    match graph.value(value).source {
        Source::Result { node, .. } => Some(graph.node(node)),
        _ => None,
    }
}

/// Of a step whose parameters have all digits.
fn not_rounded(plan: &Plan, precision: Precision, found: &mut Violations) {
    for (index, node) in plan.graph.nodes.iter().enumerate() {
        if matches!(node.op, Op::RoundStochastically { .. }) {
            let alone = Precision::Bf16Stochastic;
            let message =
                format!("rounds by chance, expected only of precision `{alone}`: it is `{precision}`");
            found.add("precision", operation_name(plan, index), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use planner_ir::parse_graph;

    use super::*;

    /// Where the rounding starts of what this graph rounds by its number, with another use of that.
    fn starts(other: &str) -> bool {
        let text = format!(
            r#"graph "g" {{
  %0 = input "number" : i64[]
  %1 = input "x" : f32[4]
  %2 = fill type=i64[] value=1.0 : i64[]
  %3 = add %0 %2 : i64[]
  %4 = round_stochastically seed=0 %1 %3 : bf16[4]
  %5 = {other}
  return "y" %4
}}
"#
        );
        Start::of(&parse_graph(&text).unwrap(), ValueId(4)).is_some()
    }

    #[test]
    fn chances_start_from_a_number_that_nothing_else_is_computed_with() {
        assert!(starts("round_stochastically seed=1 %1 %0 : bf16[4]"));
        assert!(starts("add %3 %2 : i64[]"));
        assert!(!starts("neg %0 : i64[]"));
        assert!(!starts("mul %3 %2 : i64[]"));
        assert!(!starts("cast to=f32 %3 : f32[]"));
    }
}

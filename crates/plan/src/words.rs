//! What a partition is called: the words of those who split models by hand.

mod strategy; // what a plan does, in a few phrases

use planner_ir::{AxisId, LoopId, Loops, Mesh, Op, Partition, Phase, Role, Type};

use crate::plan::{Assignment, Plan};

pub use strategy::strategy;

/// How an operation of a plan is computed, in words.
///
/// # Panics
/// If the plan has no such operation, or its program is not well formed.
pub fn operation_in_words(plan: &Plan, node: usize) -> String {
    let it = &plan.graph.nodes[node];
    match &plan.assignments[node] {
        Assignment::Prepared => "prepared".to_owned(),
        Assignment::Computed { partition, .. } => {
            let (operands, results) = (plan.graph.types_of(&it.operands), plan.graph.types_of(&it.results));
            let loops = it.op.loops(&operands, &results);
            in_words(&plan.mesh, &loops, partition, |of| word(&it.op, it.phase, &loops, of))
        }
    }
}

/// What a partition of a forward operation is called: for each thing that is split, what and over which
/// axes, such as `column (n over b), data (batch over a)`.
pub fn partition_in_words(
    mesh: &Mesh,
    op: &Op,
    operands: &[Type],
    results: &[Type],
    partition: &Partition,
) -> String {
    let loops = op.loops(operands, results);
    in_words(mesh, &loops, partition, |it| word(op, Phase::Forward, &loops, it))
}

fn in_words(mesh: &Mesh, loops: &Loops, partition: &Partition, word: impl Fn(LoopId) -> Word) -> String {
    let mut parts: Vec<(Word, Vec<AxisId>)> = Vec::new();
    for it in loops.ids() {
        let axes: Vec<AxisId> =
            partition.loops[it.0].iter().flat_map(|digit| digit.terms.iter().map(|term| term.0)).collect();
        if axes.is_empty() {
            continue;
        }
        let word = word(it);
        match parts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, known)) => known.extend(axes),
            None => parts.push((word, axes)),
        }
    }
    let names = |axes: &[AxisId]| {
        let names: Vec<&str> = axes.iter().map(|axis| mesh.axes[axis.0].name.as_str()).collect();
        names.join(", ")
    };
    let part = |(word, axes): &(Word, Vec<AxisId>)| {
        let owed = if word.sums { "; sum owed" } else { "" };
        match (&word.family, &word.what) {
            (Some(family), what) => format!("{family} ({what} over {}{owed})", names(axes)),
            (None, what) => format!("{what} over {}{owed}", names(axes)),
        }
    };
    let mut words: Vec<String> = parts.iter().map(part).collect();
    if !partition.passed.is_empty() {
        words.push(format!("sums over {} pass", names(&partition.passed)));
    }
    if partition.steps > 1 {
        words.push(format!("in {} steps", partition.steps));
    }
    if words.is_empty() { "replicated".to_owned() } else { words.join(", ") }
}

/// What a loop is called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    /// The way of splitting that it belongs to, if that has a name of its own.
    family: Option<&'static str>,
    /// What is split.
    what: String,
    /// Whether splitting it leaves a sum owed.
    sums: bool,
}

fn word(op: &Op, phase: Phase, loops: &Loops, it: LoopId) -> Word {
    let sums = loops.get(it).role == Role::Sum;
    let (family, what) = match op {
        // Parameters and their gradients have neither batch nor sequence; only sums over such do.
        Op::Contract(_) if phase == Phase::Gradient => summed_rows(loops, it),
        Op::Contract(_) => product(loops, it),
        Op::Attention(_) | Op::AttentionGradient { .. } => {
            known(&loops.results[0], it, &[BATCH, HEADS, SEQUENCE, (None, "head size")])
        }
        Op::Gather { .. } if loops.operands[0].iter().flatten().any(|&of| of == it) && sums => {
            Some((None, "vocabulary"))
        }
        Op::Gather { .. } => match place(&loops.operands[1], it) {
            Some(0) => Some(BATCH),
            Some(1) => Some(SEQUENCE),
            Some(_) => None,
            None => Some((None, "hidden")),
        },
        Op::Experts { .. } | Op::ExpertsGradient { .. } => {
            known(&loops.operands[0], it, &[(Some("data"), "tokens")])
                .or_else(|| known(&loops.operands[1], it, &[(None, "tokens"), (None, "experts")]))
                .or_else(|| {
                    known(&loops.operands[2], it, &[(None, "experts"), (None, "units"), (None, "hidden")])
                })
        }
        Op::GatherGradient { dim, .. } => match (place(&loops.operands[0], it), place(&loops.results[0], it))
        {
            (Some(0), _) => Some(BATCH),
            (Some(1), _) => Some(SEQUENCE),
            (Some(_), _) => None,
            (None, row) => Some((None, if row == Some(*dim) { "vocabulary" } else { "hidden" })),
        },
        _ if matches!(phase, Phase::Gradient | Phase::Update) => None,
        Op::Conv(_) => known(&loops.results[0], it, &[BATCH, (None, "channels made")])
            .or_else(|| known(&loops.operands[0], it, &[BATCH, (None, "channels read")])),
        _ => match (place(&loops.results[0], it), loops.results[0].len()) {
            (Some(0), 2..) => Some(BATCH),
            (Some(1), 3) => Some(SEQUENCE),
            (Some(1), 4) => Some(HEADS),
            (Some(2), 4) => Some(SEQUENCE),
            _ => None,
        },
    }
    .map_or_else(|| (None, dimension(loops, it)), |(family, what)| (family, what.to_owned()));
    Word { family, what, sums }
}

/// A family and what is split.
type Known = (Option<&'static str>, &'static str);

const BATCH: Known = (Some("data"), "batch");
const HEADS: Known = (None, "heads");
const SEQUENCE: Known = (None, "sequence");

/// The loops of a product: those of both operands are batches, a summed one makes rows of the
/// right operand, one of the right operand alone its columns.
fn product(loops: &Loops, it: LoopId) -> Option<Known> {
    let (left, right) = (place(&loops.operands[0], it), place(&loops.operands[1], it));
    match (left, right) {
        (Some(_), Some(_)) if loops.get(it).role == Role::Sum => Some((Some("row"), "k")),
        (Some(0), _) => Some(BATCH),
        (Some(_), Some(_)) => Some(HEADS),
        (Some(1), None) if loops.operands[0].len() == 3 => Some(SEQUENCE),
        (Some(_), None) => Some((None, "m")),
        (None, _) => Some((Some("column"), "n")),
    }
}

/// The loops that the gradient of a product's right operand sums over: all but the last dimension
/// of both operands, as the product had them.
fn summed_rows(loops: &Loops, it: LoopId) -> Option<Known> {
    let sums = loops.get(it).role == Role::Sum;
    match place(&loops.operands[0], it).filter(|_| sums)? {
        0 => Some(BATCH),
        1 => Some(SEQUENCE),
        _ => None,
    }
}

/// Which dimension a loop indexes.
fn place(dims: &[Vec<LoopId>], it: LoopId) -> Option<usize> {
    dims.iter().position(|dim| dim.contains(&it))
}

fn known(dims: &[Vec<LoopId>], it: LoopId, words: &[Known]) -> Option<Known> {
    words.get(place(dims, it)?).copied()
}

fn dimension(loops: &Loops, it: LoopId) -> String {
    let result = place(&loops.results[0], it).map(|dim| format!("dimension {dim}"));
    let operand = || {
        let mut operands = loops.operands.iter().enumerate();
        operands.find_map(|(index, dims)| Some(format!("dimension {} of operand {index}", place(dims, it)?)))
    };
    result.or_else(operand).unwrap_or_else(|| format!("loop {}", it.0))
}

#[cfg(test)]
mod tests;

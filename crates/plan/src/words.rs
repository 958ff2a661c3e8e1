//! What a partition is called: the words of those who split models by hand.

mod class; // what classes of operations are called
mod in_time; // what a partition in time is called
mod strategy; // what a plan does, in a few phrases

use planner_ir::{
    AttentionClass, AxisId, CROSSING, ConvolutionClass, GatherClass, Graph, LoopId, Loops, Mesh, Motion, Op,
    OpClass, Partition, Phase, Role, Source, StateKind, Type, Value, ValueId,
};

use crate::plan::{Assignment, Plan};
use in_time::{Family, Spoken};

pub use class::{ClassNames, class_names};
pub use strategy::{Along, Parameter, Split, Use, parameters, recomputed, strategy, strategy_of_stage};

/// A size in a fitting unit, rounded down to a tenth.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit / (unit / 10)),
        None => format!("{bytes} B"),
    }
}

/// How an operation of a plan is computed, in words.
///
/// # Panics
/// If the plan has no such operation, or its program is not well formed.
pub fn operation_in_words(plan: &Plan, node: usize) -> String {
    let it = &plan.graph.nodes[node];
    // What is only for sums of gradients is spoken of as these are, whenever it is computed.
    let adds = it.phase == Phase::Backward && it.op.keeps_elements() && {
        let for_sums = plan.graph.for_sums();
        it.results.iter().all(|result| for_sums[result.0])
    };
    let phase = if adds { Phase::Gradient } else { it.phase };
    match &plan.assignments[node] {
        Assignment::Prepared => "prepared".to_owned(),
        Assignment::Computed { partition, .. } => {
            let (operands, results) = (plan.graph.types_of(&it.operands), plan.graph.types_of(&it.results));
            let loops = it.op.loops(&operands, &results);
            let family = (partition.steps > 1).then(|| {
                let weights = it.operands.iter().map(|&value| is_weight(plan, value));
                let gradient = phase == Phase::Gradient;
                let weights: Vec<bool> = weights.chain(it.results.iter().map(|_| gradient)).collect();
                let spoken = spoken(&loops, partition, (&operands, &results), (phase, &weights));
                in_time::family(&plan.mesh, &loops, partition, &spoken)
            });
            let examples = examples(&plan.graph);
            in_words(&plan.mesh, &loops, partition, family, |of| {
                word(&it.op, phase, &loops, of).among(examples)
            })
        }
    }
}

/// How many examples a program has at once: the largest first dimension of inputs of several dimensions; as
/// many as there may be where there is no such input. What other stages send is asked only where a stage has no
/// input of the model: among it are gradients of parameters that stages share.
pub fn examples(graph: &Graph) -> u64 {
    let largest = |sent: bool| {
        let of = |it: &Value| match &it.source {
            Source::Input(name) if name.starts_with(CROSSING) == sent => it.type_.shape.first().copied(),
            _ => None,
        };
        graph.values.iter().filter(|it| it.type_.rank() > 1).filter_map(of).max()
    };
    largest(false).or_else(|| largest(true)).unwrap_or(u64::MAX)
}

/// What a partition of a forward operation is called: for each thing that is split, what and over which
/// axes, such as `column (n over b), data (batch over a)`. The second of two operands is taken for a
/// weight.
pub fn partition_in_words(
    mesh: &Mesh,
    op: &Op,
    operands: &[Type],
    results: &[Type],
    partition: &Partition,
) -> String {
    let loops = op.loops(operands, results);
    let family = (partition.steps > 1).then(|| {
        let weights: Vec<bool> = (0..operands.len() + results.len()).map(|it| it == 1).collect();
        in_time::family(
            mesh,
            &loops,
            partition,
            &spoken(&loops, partition, (operands, results), (Phase::Forward, &weights)),
        )
    });
    in_words(mesh, &loops, partition, family, |it| word(op, Phase::Forward, &loops, it))
}

/// Operands and then results, as they are spoken of: those of a forward product are X, W and Y.
fn spoken(
    loops: &Loops,
    partition: &Partition,
    (operands, results): (&[Type], &[Type]),
    (phase, weights): (Phase, &[bool]),
) -> Vec<Spoken> {
    let product = phase == Phase::Forward && operands.len() == 2 && results.len() == 1;
    let name = |place: usize| match place {
        _ if product => ["X", "W", "Y"][place].to_owned(),
        _ if place < operands.len() && weights[place] => "W".to_owned(),
        _ if place < operands.len() => format!("operand {place}"),
        _ if weights[place] => "the gradient of W".to_owned(),
        _ => "the result".to_owned(),
    };
    let taken = operands.iter().enumerate();
    let taken = taken.map(|(index, type_)| partition.operand(loops, index).local_type(type_));
    let made = results.iter().enumerate().map(|(index, type_)| {
        let block = partition.result(loops, index).local_type(type_);
        match partition.result_motion(loops, index) {
            Motion::Rotating(_) => Type { dtype: block.dtype.accumulated(), ..block },
            _ => block,
        }
    });
    let blocks = taken.chain(made).map(|block| block.bytes());
    let one = |(place, (block, &weight))| Spoken { name: name(place), weight, block };
    blocks.zip(weights).enumerate().map(one).collect()
}

/// Whether a value is a weight or parameter, or a weight in other words: read by one operation
/// after another that reads nothing else.
fn is_weight(plan: &Plan, value: ValueId) -> bool {
    match &plan.graph.value(value).source {
        Source::Weight(_) => true,
        Source::State(state) => state.kind == StateKind::Parameter,
        Source::Input(_) => false,
        Source::Result { node, .. } => match plan.graph.node(*node).operands[..] {
            _ if plan.assignments[node.0] == Assignment::Prepared => true,
            [operand] => is_weight(plan, operand),
            _ => false,
        },
    }
}

fn in_words(
    mesh: &Mesh,
    loops: &Loops,
    partition: &Partition,
    family: Option<Family>,
    word: impl Fn(LoopId) -> Word,
) -> String {
    let said = |axis: &AxisId| family.iter().any(|family| family.axes.contains(axis));
    let mut parts: Vec<(Word, Vec<AxisId>)> = Vec::new();
    let mut turned: Vec<Word> = Vec::new();
    for it in loops.ids() {
        let digits = &partition.loops[it.0];
        let timed = digits.iter().any(|digit| digit.step != 0);
        if timed && family.iter().all(|family| family.axes.is_empty()) {
            turned.push(word(it));
        }
        let still = digits.iter().filter(|digit| digit.step == 0);
        let axes = still.flat_map(|digit| digit.terms.iter().map(|term| term.0)).filter(|axis| !said(axis));
        let axes: Vec<AxisId> = axes.collect();
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
        let owes = |axis: &AxisId| {
            !partition.moves()
                || (0..loops.results.len()).any(|it| partition.result(loops, it).owed.contains(axis))
        };
        let owed = if word.sums && axes.iter().any(owes) { "; partial" } else { "" };
        word.text(&format!("over {}{owed}", names(axes)))
    };
    let mut words: Vec<String> = parts.iter().map(part).collect();
    words.extend(turned.iter().map(|word| word.text(&format!("in {} steps", partition.steps))));
    if !partition.passed.is_empty() {
        words.push(format!("sums over {} pass", names(&partition.passed)));
    }
    if !partition.routed.is_empty() {
        let by = match partition.routed_by {
            1 => String::new(),
            by => format!(", once to {by} devices"),
        };
        words.push(format!("rows dispatched over {}{by}", names(&partition.routed_axes())));
    }
    words.extend(family.map(|family| family.words));
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

impl Word {
    /// The same where there are so many examples: of one, what comes first is its sequence.
    fn among(self, examples: u64) -> Self {
        if examples == 1 && (self.family, self.what.as_str()) == BATCH {
            Self { family: SEQUENCE.0, what: SEQUENCE.1.to_owned(), ..self }
        } else {
            self
        }
    }

    fn text(&self, how: &str) -> String {
        let Self { family, what, .. } = self;
        family.map_or_else(|| format!("{what} {how}"), |family| format!("{family} ({what} {how})"))
    }
}

fn word(op: &Op, phase: Phase, loops: &Loops, it: LoopId) -> Word {
    let sums = loops.get(it).role == Role::Sum;
    let of_parameters = matches!(phase, Phase::Gradient | Phase::Update);
    let (family, what) = match op.class() {
        // Parameters and their gradients have neither batch nor sequence; only sums over such do.
        OpClass::MatrixProduct(_) if phase == Phase::Gradient => summed_rows(loops, it),
        OpClass::MatrixProduct(_) => product(loops, it),
        OpClass::Attention(AttentionClass::Forward(_) | AttentionClass::Gradient(_)) => {
            known(&loops.results[0], it, &[BATCH, HEADS, SEQUENCE, (None, "head size")])
        }
        OpClass::Recurrence(_) => {
            known(&loops.operands[1], it, &[BATCH, SEQUENCE, HEADS, (None, "key size")])
                .or_else(|| known(&loops.operands[2], it, &[BATCH, SEQUENCE, HEADS, (None, "head size")]))
        }
        OpClass::Gather(GatherClass::Rows)
            if loops.operands[0].iter().flatten().any(|&of| of == it) && sums =>
        {
            Some((None, "vocabulary"))
        }
        OpClass::Gather(GatherClass::Rows) => match place(&loops.operands[1], it) {
            Some(0) => Some(BATCH),
            Some(1) => Some(SEQUENCE),
            Some(_) => None,
            None => Some((None, "hidden")),
        },
        OpClass::Experts(_) => known(&loops.operands[0], it, &[(Some("data"), "tokens")])
            .or_else(|| known(&loops.operands[1], it, &[(None, "tokens"), (None, "experts")]))
            .or_else(|| {
                known(&loops.operands[2], it, &[(None, "experts"), (None, "units"), (None, "hidden")])
            }),
        OpClass::Gather(GatherClass::RowsGradient { dim }) => {
            match (place(&loops.operands[0], it), place(&loops.results[0], it)) {
                (Some(0), _) => Some(BATCH),
                (Some(1), _) => Some(SEQUENCE),
                (Some(_), _) => None,
                (None, row) => Some((None, if row == Some(dim) { "vocabulary" } else { "hidden" })),
            }
        }
        OpClass::Convolution(ConvolutionClass::Forward(_)) if !of_parameters => {
            known(&loops.results[0], it, &[BATCH, (None, "channels made")])
                .or_else(|| known(&loops.operands[0], it, &[BATCH, (None, "channels read")]))
        }
        OpClass::Attention(AttentionClass::Merge)
        | OpClass::Convolution(_)
        | OpClass::Gather(GatherClass::Elements)
        | OpClass::Constant
        | OpClass::Elementwise(_)
        | OpClass::Norm(_)
        | OpClass::Softmax
        | OpClass::LogSoftmax
        | OpClass::CrossEntropy
        | OpClass::Reduction
        | OpClass::Scan
        | OpClass::Movement(_)
        | OpClass::Scatter
        | OpClass::Resampling
        | OpClass::Dequantization
        | OpClass::Quantization
        | OpClass::Optimizer
        | OpClass::Region
        | OpClass::Dynamic => match (place(&loops.results[0], it), loops.results[0].len()) {
            _ if of_parameters => None,
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

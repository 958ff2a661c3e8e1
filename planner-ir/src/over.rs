//! What loops of forward operations run over: examples, sequences, numbers of a token, experts.
//!
//! The shapes of products, attention and look-ups tell. Of other operations the place of a dimension does not: what is
//! `[examples, sequence, heads, size]` before it is transposed is `[examples, heads, sequence, size]` behind. So it is
//! asked what made the values; where nothing tells, the place counts, as those of `[examples, sequence, numbers]` or
//! of attention's operands. Of one or two dimensions it may be several things, and so it stays: losses of tokens are
//! computed wherever their scores are.

use crate::graph::{Graph, Node, Phase, Source, ValueId};
use crate::loops::{LoopId, Loops, Role};
use crate::op::{GatherClass, MovementClass, OpClass};

/// What a loop runs over: it may be several things, where nothing tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// Examples of a batch.
    pub examples: bool,
    /// Tokens of a sequence.
    pub sequence: bool,
    /// Numbers of a token, and heads, which are some of them.
    pub inner: bool,
    /// Experts.
    pub experts: bool,
}

impl Over {
    const EXAMPLES: Self = Self { examples: true, sequence: false, inner: false, experts: false };
    const SEQUENCE: Self = Self { examples: false, sequence: true, inner: false, experts: false };
    const INNER: Self = Self { examples: false, sequence: false, inner: true, experts: false };
    const EXPERTS: Self = Self { examples: false, sequence: false, inner: false, experts: true };
    const NOTHING: Self = Self { examples: false, sequence: false, inner: false, experts: false };
    /// Tokens of all examples in a row.
    const TOKENS: Self = Self { examples: true, sequence: true, inner: false, experts: false };

    /// Whether it runs over numbers of a token and nothing else.
    pub fn is_inner(self) -> bool {
        self == Self::INNER
    }

    fn and(self, other: Self) -> Self {
        Self {
            examples: self.examples && other.examples,
            sequence: self.sequence && other.sequence,
            inner: self.inner && other.inner,
            experts: self.experts && other.experts,
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            examples: self.examples || other.examples,
            sequence: self.sequence || other.sequence,
            inner: self.inner || other.inner,
            experts: self.experts || other.experts,
        }
    }
}

/// What the place of a dimension tells of it, given how many there are.
fn by_place(place: usize, rank: usize) -> Over {
    match (place, rank) {
        (0, 3..) => Over::EXAMPLES,
        (0, 2) => Over::TOKENS,
        (1, 3) | (2, 4) => Over::SEQUENCE,
        (1, 2) => Over { sequence: true, ..Over::INNER },
        (_, 0 | 1) => Over { inner: true, ..Over::TOKENS },
        _ => Over::INNER,
    }
}

/// What a dimension, or a loop, runs over.
#[derive(Clone, Copy, Debug)]
struct Known {
    over: Over,
    /// Whether operations tell, or a place alone.
    told: bool,
}

/// What the dimensions of the values of a graph run over, as far as it is known.
#[derive(Clone, Debug)]
pub struct Dims(Vec<Vec<Option<Known>>>);

impl Dims {
    /// Of all values that forward operations use or make, but for weights and what is made of them alone.
    pub fn of(graph: &Graph) -> Self {
        let place = |rank: usize| (0..rank).map(move |it| Known { over: by_place(it, rank), told: false });
        let known = |value: ValueId| match (&graph.value(value).source, graph.type_of(value).rank()) {
            (Source::Input(_), rank @ 3) => place(rank).map(Some).collect(),
            (_, rank) => vec![None; rank],
        };
        let mut dims = Self(graph.value_ids().map(known).collect());
        let on_parameters = graph.on_parameters();
        for id in graph.node_ids().filter(|it| !on_parameters[it.0]) {
            let node = graph.node(id);
            if node.phase == Phase::Forward {
                let loops = node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
                for (result, of_result) in node.results.iter().zip(&loops.results) {
                    let dim = |at: usize| dims.made(node, &loops, of_result, at);
                    dims.0[result.0] = (0..of_result.len()).map(dim).collect();
                }
            }
        }
        dims
    }

    /// What a loop of a forward operation of the graph runs over.
    pub fn over(&self, node: &Node, loops: &Loops, it: LoopId) -> Over {
        self.by_shape(node, loops, it).unwrap_or_else(|| {
            let (place, rank) = place(loops, it);
            if rank < 3 { by_place(place, rank) } else { self.carried(node, loops, it).over }
        })
    }

    /// Whether an operation is of values of heads: numbers of a token along several dimensions, of which it needs none
    /// but the last as a whole.
    pub fn has_heads(&self, node: &Node, loops: &Loops) -> bool {
        let is_inner = |it: &LoopId| self.over(node, loops, *it).is_inner();
        let is_split = |it: &LoopId| loops.get(*it).role != Role::Whole && is_inner(it);
        let Some((last, dims)) = loops.results.first().and_then(|dims| dims.split_last()) else {
            return false;
        };
        dims.iter().flatten().any(|it| is_split(it) && !last.contains(it))
    }

    /// What a dimension of a result runs over: all that its loops do.
    fn made(&self, node: &Node, loops: &Loops, result: &[Vec<LoopId>], at: usize) -> Option<Known> {
        let of_loops: Vec<Known> = result[at]
            .iter()
            .map(|it| self.known(node, loops, *it))
            .filter(|it| it.over != Over::NOTHING)
            .collect();
        let told = of_loops.iter().any(|it| it.told);
        if let Some(before) = self.stays(node, (result.len(), at)).filter(|_| !told) {
            return Some(before);
        }
        let over = of_loops.iter().filter(|it| it.told == told).map(|it| it.over).reduce(Over::or)?;
        // A place among two tells too little to go by elsewhere.
        (told || result.len() > 2).then_some(Known { over, told })
    }

    /// What a dimension of a result runs over if it is one of the first operand, of which more or less is there: what
    /// is taken, or put after one another, is as before.
    fn stays(&self, node: &Node, (rank, at): (usize, usize)) -> Option<Known> {
        let stays = match node.op.class() {
            OpClass::Movement(it) => match it {
                MovementClass::Copy | MovementClass::Slice | MovementClass::Pad => true,
                MovementClass::Reorder => false,
            },
            _ => false,
        };
        let before = &self.0[node.operands.first().filter(|_| stays)?.0];
        before.get(at).copied().flatten().filter(|_| before.len() == rank)
    }

    fn known(&self, node: &Node, loops: &Loops, it: LoopId) -> Known {
        let by_shape = self.by_shape(node, loops, it);
        by_shape.map_or_else(|| self.carried(node, loops, it), |over| Known { over, told: true })
    }

    /// What a loop runs over, if the shapes of the operation tell.
    fn by_shape(&self, node: &Node, loops: &Loops, it: LoopId) -> Option<Over> {
        let of = |dims: &[Vec<LoopId>]| dims.iter().position(|dim| dim.contains(&it));
        let result = || of(&loops.results[0]);
        let over = match node.op.class() {
            OpClass::MatrixProduct(_) => match (of(&loops.operands[0]), of(&loops.operands[1])) {
                (Some(0), None) if loops.operands[0].len() == 2 => Over::TOKENS,
                (Some(0), _) => Over::EXAMPLES,
                (_, Some(_)) => Over::INNER,
                (Some(place), None) => {
                    let known = self.dim(node.operands[0], place).filter(|it| it.told);
                    known.filter(|it| it.over.is_inner()).map_or(Over::SEQUENCE, |it| it.over)
                }
                (None, None) => Over::SEQUENCE,
            },
            OpClass::Attention(_) => match result() {
                Some(0) => Over::EXAMPLES,
                Some(2) | None => Over::SEQUENCE,
                Some(_) => Over::INNER,
            },
            OpClass::Recurrence(_) => match result() {
                Some(0) => Over::EXAMPLES,
                Some(1) => Over::SEQUENCE,
                Some(_) | None => Over::INNER,
            },
            OpClass::Experts(_) => match (of(&loops.operands[0]), of(&loops.operands[2])) {
                (Some(0), _) => Over::TOKENS,
                (_, Some(0)) => Over::EXPERTS,
                _ => Over::INNER,
            },
            OpClass::Gather(GatherClass::Rows) => match of(&loops.operands[1]) {
                Some(0) => Over::EXAMPLES,
                Some(_) => Over::SEQUENCE,
                // Rows of a table; columns of it are numbers of a token.
                None if loops.get(it).role == Role::Sum => Over::INNER,
                None => Over::NOTHING,
            },
            OpClass::Constant
            | OpClass::Elementwise(_)
            | OpClass::Convolution(_)
            | OpClass::Norm(_)
            | OpClass::Softmax
            | OpClass::LogSoftmax
            | OpClass::CrossEntropy
            | OpClass::Reduction
            | OpClass::Scan
            | OpClass::Movement(_)
            | OpClass::Gather(GatherClass::Elements | GatherClass::RowsGradient { .. })
            | OpClass::Scatter
            | OpClass::Resampling
            | OpClass::Dequantization
            | OpClass::Quantization
            | OpClass::Optimizer
            | OpClass::Region
            | OpClass::Dynamic => return None,
        };
        Some(over)
    }

    /// What a loop runs over in an operation whose results are of what its operands are.
    fn carried(&self, node: &Node, loops: &Loops, it: LoopId) -> Known {
        let of = |dims: &[Vec<LoopId>]| dims.iter().position(|dim| dim.contains(&it));
        let (place, rank) = place(loops, it);
        let pairs = node.operands.iter().zip(&loops.operands);
        let known: Vec<Known> = pairs.filter_map(|(value, dims)| self.dim(*value, of(dims)?)).collect();
        // Tokens of all examples come apart where there are more dimensions.
        let apart = |over: Over| match (over == Over::TOKENS && rank > 2, place) {
            (false, _) => over,
            (true, 0) => Over::EXAMPLES,
            (true, _) => Over::SEQUENCE,
        };
        let told = known.iter().filter(|it| it.told).map(|it| apart(it.over)).reduce(Over::and);
        if let Some(over) = told.filter(|it| *it != Over::NOTHING) {
            return Known { over, told: true };
        }
        let before = known.iter().filter(|it| !it.told).map(|it| it.over).reduce(Over::and);
        let before = before.filter(|it| rank > 3 && *it != Over::NOTHING);
        Known { over: before.unwrap_or_else(|| by_place(place, rank)), told: false }
    }

    fn dim(&self, value: ValueId, place: usize) -> Option<Known> {
        self.0[value.0].get(place).copied().flatten()
    }
}

/// The place of a loop's dimension in the first result, or in the first operand, and how many dimensions that has.
fn place(loops: &Loops, it: LoopId) -> (usize, usize) {
    let of = |dims: &[Vec<LoopId>]| dims.iter().position(|dim| dim.contains(&it));
    match of(&loops.results[0]) {
        Some(place) => (place, loops.results[0].len()),
        None => (of(&loops.operands[0]).unwrap_or(0), loops.operands[0].len()),
    }
}

#[cfg(test)]
mod tests;

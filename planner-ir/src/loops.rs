//! What an operation iterates over: the one declaration everything is derived from.
//!
//! An operation is a nest of loops. Each dimension of an operand or result is indexed by a
//! product of loops, outermost first; by none if its extent is 1 or repeated. Splitting a loop
//! over devices splits exactly the dimensions it indexes, and leaves a sum owed if the loop is
//! summed. Whether partial sums may pass *through* an operation is said by the operands it is
//! linear in.

use crate::data::Type;
use crate::op::{Attention, Binary, Contract, Conv, Edge, Label, Op, Reduction, Resize, Scatter, Unary};

/// Which loop of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopId(pub usize);

/// What splitting a loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Its blocks are independent: each makes a piece of the results.
    Map,
    /// Its blocks make addends of the results.
    Sum,
    /// It cannot be split: a result needs all of it at once.
    Whole,
}

/// One loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loop {
    /// How many iterations it has.
    pub size: u64,
    /// What splitting it does.
    pub role: Role,
}

/// The loops of an operation and what they index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loops {
    /// The loops.
    pub loops: Vec<Loop>,
    /// For each operand and dimension, the loops whose product indexes it, outermost first.
    pub operands: Vec<Vec<Vec<LoopId>>>,
    /// The same for each result.
    pub results: Vec<Vec<Vec<LoopId>>>,
    /// Sets of operands in which the results are jointly linear, the others held fixed: these
    /// operands may all be addends of a sum owed, and then so are the results.
    pub linear: Vec<Vec<usize>>,
    /// Whether the operation depends on where in a loop it is, so that a block of a split loop
    /// has to be contiguous.
    pub positional: bool,
}

impl Loops {
    /// The loop of that number.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&self, id: LoopId) -> Loop {
        self.loops[id.0]
    }

    /// Every loop's number.
    pub fn ids(&self) -> impl Iterator<Item = LoopId> + use<> {
        (0..self.loops.len()).map(LoopId)
    }
}

impl Op {
    /// The loops of this operation on operands and results of these types.
    ///
    /// The types are those that `infer` accepts and returns.
    pub fn loops(&self, operands: &[Type], results: &[Type]) -> Loops {
        let mut nest = Nest::default();
        let (operand_dims, result_dims) = self.index(&mut nest, operands, results);
        Loops {
            loops: nest.loops,
            operands: operand_dims,
            results: result_dims,
            linear: self.linear(operands, results),
            positional: matches!(
                self,
                Self::Constant { .. }
                    | Self::Iota { .. }
                    | Self::Triangle { .. }
                    | Self::Attention(_)
                    | Self::Gather { .. }
                    | Self::Dropout { .. }
            ),
        }
    }

    fn index(&self, nest: &mut Nest, operands: &[Type], results: &[Type]) -> (Index, Index) {
        let result = &results[0].shape;
        match self {
            Self::Constant { .. } | Self::Fill { .. } | Self::Iota { .. } => {
                (vec![], vec![nest.dims(result, Role::Map)])
            }
            Self::Unary(_)
            | Self::Binary(_)
            | Self::Select
            | Self::Cast(_)
            | Self::Gated(_)
            | Self::Expand { .. } => {
                let dims = nest.dims(result, Role::Map);
                (operands.iter().map(|it| repeated(&it.shape, &dims)).collect(), vec![dims])
            }
            Self::Dropout { .. } => {
                let dims = nest.dims(result, Role::Map);
                (vec![dims.clone()], vec![dims.clone(), dims])
            }
            Self::Triangle { .. } => same_dims(nest.dims(result, Role::Map)),
            Self::Softmax { dim } | Self::LogSoftmax { dim } | Self::CumSum { dim, .. } => {
                let whole = |it| it == *dim;
                same_dims(nest.dims_where(result, whole))
            }
            Self::LayerNorm { dims, .. } | Self::RmsNorm { dims, .. } => {
                let first = result.len() - dims;
                let dims = nest.dims_where(result, |it| it >= first);
                (operands.iter().map(|it| repeated(&it.shape, &dims)).collect(), vec![dims])
            }
            Self::Rotary(_) => {
                let last = result.len() - 1;
                let dims = nest.dims_where(result, |it| it == last);
                (operands.iter().map(|it| repeated(&it.shape, &dims)).collect(), vec![dims])
            }
            Self::InstanceNorm { .. } => {
                let dims = nest.dims_where(result, |it| it >= 2);
                let channels = vec![dims[1].clone()];
                (vec![dims.clone(), channels.clone(), channels], vec![dims])
            }
            Self::Contract(contract) => contract_dims(nest, contract, operands),
            Self::Reduce { reduction, dims } => {
                let sums =
                    matches!(reduction, Reduction::Sum | Reduction::Mean) && operands[0].dtype.has_sums();
                let role = if sums { Role::Sum } else { Role::Whole };
                reduced_dims(nest, &operands[0].shape, dims, role)
            }
            Self::ArgExtreme { dim, .. } => reduced_dims(nest, &operands[0].shape, &[*dim], Role::Whole),
            Self::Attention(_) => attention_dims(nest, operands),
            Self::Reshape { .. } => {
                let (from, to) = reshape_dims(nest, &operands[0].shape, result);
                (vec![from], vec![to])
            }
            Self::Transpose { permutation } => {
                let from = nest.dims(&operands[0].shape, Role::Map);
                let to = permutation.iter().map(|&dim| from[dim].clone()).collect();
                (vec![from], vec![to])
            }
            Self::Concat { dim } => {
                let result = nest.dims_where(result, |it| it == *dim);
                let mut part = |it: &Type| {
                    let mut dims = result.clone();
                    dims[*dim] = nest.dim(it.shape[*dim], Role::Whole);
                    dims
                };
                (operands.iter().map(&mut part).collect(), vec![result])
            }
            Self::Slice { starts, steps, sizes } => {
                let kept =
                    |it: usize| starts[it] == 0 && steps[it] == 1 && sizes[it] == operands[0].shape[it];
                changed_dims(nest, &operands[0].shape, result, kept)
            }
            Self::Pad { before, after, .. } => {
                changed_dims(nest, &operands[0].shape, result, |it| before[it] == 0 && after[it] == 0)
            }
            Self::Resize(Resize { scales, .. }) => {
                let same = |it: usize| {
                    scales[it].0.to_bits() == 1f64.to_bits() && operands[0].shape[it] == result[it]
                };
                changed_dims(nest, &operands[0].shape, result, same)
            }
            Self::Gather { dim } => {
                let role = if operands[0].dtype.has_sums() { Role::Sum } else { Role::Whole };
                let mut data = nest.dims(&operands[0].shape, Role::Map);
                if let [LoopId(it)] = data[*dim][..] {
                    nest.loops[it].role = role;
                }
                let indices = nest.dims(&operands[1].shape, Role::Map);
                let mut to = data.clone();
                to.splice(*dim..=*dim, indices.iter().cloned());
                data.shrink_to_fit();
                (vec![data, indices], vec![to])
            }
            Self::GatherElements { dim } => elements_dims(nest, *dim, operands, result),
            Self::ScatterElements { dim, .. } => {
                let (mut from, _) = elements_dims(nest, *dim, operands, &operands[1].shape);
                // Rows of updates meet in one row of data, so the indexed dimension stays whole.
                for &LoopId(it) in &from[1][*dim] {
                    nest.loops[it].role = Role::Whole;
                }
                from.push(from[1].clone());
                let to = from[0].clone();
                (from, vec![to])
            }
            Self::GatherNd { batch_dims } => gather_nd_dims(nest, *batch_dims, operands),
            Self::ScatterNd { .. } => {
                let (mut from, mut updates) = gather_nd_dims(nest, 0, operands);
                for &LoopId(it) in from[1].iter().flatten() {
                    nest.loops[it].role = Role::Whole;
                }
                from.append(&mut updates);
                let to = from[0].clone();
                (from, vec![to])
            }
            Self::TopK { dim, .. } => {
                let from = nest.dims_where(&operands[0].shape, |it| it == *dim);
                let mut to = from.clone();
                to[*dim] = nest.dim(result[*dim], Role::Whole);
                (vec![from], vec![to.clone(), to])
            }
            Self::Conv(conv) => conv_dims(nest, conv, operands, result),
            Self::CrossEntropy { .. } => {
                let last = operands[0].rank() - 1;
                let scores = nest.dims_where(&operands[0].shape, |it| it == last);
                let rows = scores[..last].to_vec();
                (vec![scores, rows.clone()], vec![rows])
            }
            Self::Experts { .. } => experts_dims(nest, operands),
            Self::Dequantize { .. } => dequantize_dims(nest, operands, result),
            Self::Region(_) | Self::Dynamic(_) => {
                let mut whole = |it: &Type| nest.dims(&it.shape, Role::Whole);
                (operands.iter().map(&mut whole).collect(), results.iter().map(&mut whole).collect())
            }
        }
    }

    /// The sets of operands in which the results are jointly linear.
    fn linear(&self, operands: &[Type], results: &[Type]) -> Vec<Vec<usize>> {
        let float = results[0].dtype.is_float();
        let sums =
            results.iter().all(|it| it.dtype.has_sums()) && operands.iter().any(|it| it.dtype.has_sums());
        if !sums {
            return vec![];
        }
        match self {
            Self::Unary(Unary::Neg)
            | Self::Rotary(_)
            | Self::Reshape { .. }
            | Self::Transpose { .. }
            | Self::Expand { .. }
            | Self::Slice { .. }
            | Self::Gather { .. }
            | Self::GatherElements { .. }
            | Self::GatherNd { .. }
            | Self::Triangle { .. }
            | Self::CumSum { .. } => vec![vec![0]],
            Self::Cast(_) if float && operands[0].dtype.is_float() => vec![vec![0]],
            Self::Resize(_) => vec![vec![0]],
            Self::Pad { edge, .. } => match edge {
                Edge::Constant(value) if value.0.to_bits() != 0 => vec![],
                _ => vec![vec![0]],
            },
            Self::Binary(Binary::Add | Binary::Sub) => vec![vec![0, 1]],
            Self::Binary(Binary::Mul) | Self::Contract(_) => vec![vec![0], vec![1]],
            Self::Binary(Binary::Div) if float => vec![vec![0]],
            Self::Select => vec![vec![1, 2]],
            Self::Gated(_) => vec![vec![1]],
            Self::Reduce { reduction: Reduction::Sum, .. } => vec![vec![0]],
            Self::Reduce { reduction: Reduction::Mean, .. } if float => vec![vec![0]],
            Self::Concat { .. } => vec![(0..operands.len()).collect()],
            Self::ScatterElements { scatter: Scatter::Add | Scatter::Replace, .. }
            | Self::ScatterNd { scatter: Scatter::Add | Scatter::Replace } => vec![vec![0, 2]],
            Self::Attention(Attention { .. }) => vec![vec![2]],
            Self::Conv(_) if operands.len() == 2 => vec![vec![0], vec![1]],
            Self::Conv(_) => vec![vec![0, 2], vec![1, 2]],
            Self::Experts { .. } => vec![vec![operands.len() - 1]],
            _ => vec![],
        }
    }
}

/// For each value, for each dimension, the loops that index it.
type Index = Vec<Vec<Vec<LoopId>>>;

/// The loops declared so far.
#[derive(Default)]
struct Nest {
    loops: Vec<Loop>,
}

impl Nest {
    /// A loop over a dimension, none if its extent is 1.
    fn dim(&mut self, size: u64, role: Role) -> Vec<LoopId> {
        if size == 1 {
            return vec![];
        }
        self.loops.push(Loop { size, role });
        vec![LoopId(self.loops.len() - 1)]
    }

    fn dims(&mut self, shape: &[u64], role: Role) -> Vec<Vec<LoopId>> {
        shape.iter().map(|&size| self.dim(size, role)).collect()
    }

    /// A loop over each dimension, whole for those that `whole` names.
    fn dims_where(&mut self, shape: &[u64], whole: impl Fn(usize) -> bool) -> Vec<Vec<LoopId>> {
        let role = |it| if whole(it) { Role::Whole } else { Role::Map };
        shape.iter().enumerate().map(|(it, &size)| self.dim(size, role(it))).collect()
    }
}

fn same_dims(dims: Vec<Vec<LoopId>>) -> (Index, Index) {
    (vec![dims.clone()], vec![dims])
}

/// The loops of an operand that is broadcast to a result with these.
fn repeated(shape: &[u64], dims: &[Vec<LoopId>]) -> Vec<Vec<LoopId>> {
    let offset = dims.len() - shape.len();
    let dim = |(it, &extent): (usize, &u64)| {
        if extent == 1 { vec![] } else { dims[offset + it].clone() }
    };
    shape.iter().enumerate().map(dim).collect()
}

fn contract_dims(nest: &mut Nest, contract: &Contract, operands: &[Type]) -> (Index, Index) {
    let mut known: Vec<(Label, Vec<LoopId>)> = Vec::new();
    let mut list = |nest: &mut Nest, labels: &[Label], shape: &[u64]| -> Vec<Vec<LoopId>> {
        let mut dim = |(it, label): (usize, &Label)| {
            if let Some((_, dim)) = known.iter().find(|(known, _)| known == label) {
                return dim.clone();
            }
            let role = if contract.result.contains(label) { Role::Map } else { Role::Sum };
            let dim = nest.dim(shape[it], role);
            known.push((*label, dim.clone()));
            dim
        };
        labels.iter().enumerate().map(&mut dim).collect()
    };
    let left = list(nest, &contract.left, &operands[0].shape);
    let right = list(nest, &contract.right, &operands[1].shape);
    let result = list(nest, &contract.result, &[]);
    (vec![left, right], vec![result])
}

fn reduced_dims(nest: &mut Nest, shape: &[u64], reduced: &[usize], role: Role) -> (Index, Index) {
    let role_of = |it: usize| {
        if reduced.contains(&it) { role } else { Role::Map }
    };
    let from: Vec<Vec<LoopId>> =
        shape.iter().enumerate().map(|(it, &size)| nest.dim(size, role_of(it))).collect();
    let mut to = from.clone();
    for &it in reduced {
        to[it] = vec![];
    }
    (vec![from], vec![to])
}

/// Dimensions that are kept are mapped; of the others the operand's and the result's are whole.
fn changed_dims(nest: &mut Nest, from: &[u64], to: &[u64], kept: impl Fn(usize) -> bool) -> (Index, Index) {
    let from = nest.dims_where(from, |it| !kept(it));
    let mut result = from.clone();
    for (it, dim) in result.iter_mut().enumerate() {
        if !kept(it) {
            *dim = nest.dim(to[it], Role::Whole);
        }
    }
    (vec![from], vec![result])
}

/// Queries `[b, g r, s, d]`, keys `[b, g, t, d]`, values `[b, g, t, e]`, result `[b, g r, s, e]`.
fn attention_dims(nest: &mut Nest, operands: &[Type]) -> (Index, Index) {
    let (q, k, v) = (&operands[0].shape, &operands[1].shape, &operands[2].shape);
    let batch = nest.dim(q[0], Role::Map);
    let groups = nest.dim(k[1], Role::Map);
    let per_group = nest.dim(q[1] / k[1], Role::Map);
    let queries = nest.dim(q[2], Role::Map);
    let keys = nest.dim(k[2], Role::Whole);
    let size = nest.dim(q[3], Role::Whole);
    let value_size = nest.dim(v[3], Role::Map);
    let heads: Vec<LoopId> = groups.iter().chain(&per_group).copied().collect();
    let mut index = vec![
        vec![batch.clone(), heads.clone(), queries.clone(), size.clone()],
        vec![batch.clone(), groups.clone(), keys.clone(), size],
        vec![batch.clone(), groups, keys.clone(), value_size.clone()],
    ];
    if let Some(mask) = operands.get(3) {
        let scores = [batch.clone(), heads.clone(), queries.clone(), keys];
        index.push(repeated(&mask.shape, &scores));
    }
    (index, vec![vec![batch, heads, queries, value_size]])
}

/// The finest loops that both shapes' dimensions are products of.
///
/// Walks both shapes outermost first. Where extents divide one another the quotient is left for
/// the next dimension; where they do not, the common divisor is split off and what remains, until
/// both sides' products meet again, is one whole loop on each side.
fn reshape_dims(nest: &mut Nest, from: &[u64], to: &[u64]) -> (Vec<Vec<LoopId>>, Vec<Vec<LoopId>>) {
    let mut sides = [Walk::new(from), Walk::new(to)];
    if from.contains(&0) || to.contains(&0) {
        return (nest.dims(from, Role::Whole), nest.dims(to, Role::Whole));
    }
    loop {
        sides[0].next_dimension();
        sides[1].next_dimension();
        let (a, b) = (sides[0].rest, sides[1].rest);
        if a == 1 && b == 1 {
            break;
        }
        let common = gcd(a, b);
        if common > 1 {
            let shared = nest.dim(common, Role::Map);
            for side in &mut sides {
                side.take(&shared, common);
            }
            if common == a || common == b {
                continue;
            }
        }
        whole_until_equal(nest, &mut sides);
    }
    let [from, to] = sides;
    (from.dims, to.dims)
}

/// Where extents share no divisor: whole loops on both sides up to where their products meet.
fn whole_until_equal(nest: &mut Nest, sides: &mut [Walk<'_>; 2]) {
    let mut products = [1, 1];
    loop {
        let side = usize::from(products[0] > products[1]);
        sides[side].next_dimension();
        let size = sides[side].rest;
        products[side] *= size;
        let whole = nest.dim(size, Role::Whole);
        sides[side].take(&whole, size);
        if products[0] == products[1] {
            return;
        }
    }
}

/// One side of a reshape, walked outermost first.
struct Walk<'a> {
    shape: &'a [u64],
    /// How many dimensions have been entered.
    entered: usize,
    /// What is left of the last one entered.
    rest: u64,
    dims: Vec<Vec<LoopId>>,
}

impl<'a> Walk<'a> {
    fn new(shape: &'a [u64]) -> Self {
        Self { shape, entered: 0, rest: 1, dims: vec![Vec::new(); shape.len()] }
    }

    /// Enters dimensions until there is something left of one, or none is left.
    fn next_dimension(&mut self) {
        while self.rest == 1 && self.entered < self.shape.len() {
            self.rest = self.shape[self.entered];
            self.entered += 1;
        }
    }

    fn take(&mut self, loops: &[LoopId], size: u64) {
        self.dims[self.entered - 1].extend_from_slice(loops);
        self.rest /= size;
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn elements_dims(nest: &mut Nest, dim: usize, operands: &[Type], result: &[u64]) -> (Index, Index) {
    let (data, indices) = (&operands[0].shape, &operands[1].shape);
    let same = |it: usize| it != dim && data[it] == indices[it];
    let data = nest.dims_where(data, |it| !same(it));
    let mut index = data.clone();
    for (it, loops) in index.iter_mut().enumerate() {
        if !same(it) {
            *loops = nest.dim(result[it], if it == dim { Role::Map } else { Role::Whole });
        }
    }
    (vec![data, index.clone()], vec![index])
}

fn gather_nd_dims(nest: &mut Nest, batch_dims: usize, operands: &[Type]) -> (Index, Index) {
    let (data, indices) = (&operands[0].shape, &operands[1].shape);
    let last = indices.len() - 1;
    let depth = usize::try_from(indices[last]).unwrap_or(0);
    let indexed = batch_dims..batch_dims + depth;
    let data = nest.dims_where(data, |it| indexed.contains(&it));
    let mut index = nest.dims_where(indices, |it| it == last);
    for it in 0..batch_dims {
        index[it].clone_from(&data[it]);
    }
    let mut to = index[..last].to_vec();
    to.extend_from_slice(&data[indexed.end..]);
    (vec![data, index], vec![to])
}

/// `x: [n, g c, ..]`, `w: [g m, c, ..]`, `y: [n, g m, ..]`.
fn conv_dims(nest: &mut Nest, conv: &Conv, operands: &[Type], result: &[u64]) -> (Index, Index) {
    let (x, w) = (&operands[0].shape, &operands[1].shape);
    let batch = nest.dim(x[0], Role::Map);
    let groups = nest.dim(conv.groups, Role::Map);
    // A bias would be added once by each device that holds a part of the sum.
    let channels = nest.dim(w[1], if operands.len() == 2 { Role::Sum } else { Role::Whole });
    let made = nest.dim(w[0] / conv.groups, Role::Map);
    let all_made: Vec<LoopId> = groups.iter().chain(&made).copied().collect();
    let mut whole = |shape: &[u64]| nest.dims(&shape[2..], Role::Whole);
    let read = vec![batch.clone(), groups.iter().chain(&channels).copied().collect()];
    let mut index = vec![[read, whole(x)].concat(), [vec![all_made.clone(), channels], whole(w)].concat()];
    if operands.len() == 3 {
        index.push(vec![all_made.clone()]);
    }
    let to = [vec![batch, all_made], whole(result)].concat();
    (index, vec![to])
}

/// `x: [t, h]`, `gates: [t, e]`, `up, gate: [e, f, h]`, `down: [e, o, f]`, `y: [t, o]`.
fn experts_dims(nest: &mut Nest, operands: &[Type]) -> (Index, Index) {
    let up = &operands[2].shape;
    let tokens = nest.dim(operands[0].shape[0], Role::Map);
    let experts = nest.dim(up[0], Role::Sum);
    let units = nest.dim(up[1], Role::Sum);
    let hidden = nest.dim(up[2], Role::Whole);
    let out = nest.dim(up[2], Role::Map);
    let into = vec![experts.clone(), units.clone(), hidden.clone()];
    let mut index = vec![vec![tokens.clone(), hidden], vec![tokens.clone(), experts.clone()], into.clone()];
    if operands.len() == 5 {
        index.push(into);
    }
    index.push(vec![experts, out.clone(), units]);
    (index, vec![vec![tokens, out]])
}

fn dequantize_dims(nest: &mut Nest, operands: &[Type], result: &[u64]) -> (Index, Index) {
    let rows = nest.dim(result[0], Role::Map);
    let mut per_row = |it: &Type| -> Vec<Vec<LoopId>> {
        if it.rank() == 1 {
            let rest = nest.dim(it.shape[0] / result[0].max(1), Role::Whole);
            return vec![rows.iter().chain(&rest).copied().collect()];
        }
        let mut dims = vec![rows.clone()];
        dims.extend(it.shape[1..].iter().map(|&size| nest.dim(size, Role::Whole)));
        dims
    };
    let index = operands.iter().map(&mut per_row).collect();
    let columns = nest.dim(result[1], Role::Whole);
    (index, vec![vec![rows, columns]])
}

//! Gradients of parameters that are used in slices: one concatenation instead of padded sums.
//!
//! Exporters store some parameters together (query, key and value products; gate and up products)
//! and models take them apart. Where the slices lie side by side and together are the whole, so do
//! their gradients.

use planner_ir::{Binary, Emit, Graph, NodeId, Op, Type, ValueId};

/// The slices of a parameter along one dimension, from first to last.
#[derive(Clone, Debug)]
pub(crate) struct Tiles {
    dim: usize,
    type_: Type,
    tiles: Vec<Tile>,
    /// How many uses have not added their gradient yet.
    missing: usize,
}

#[derive(Clone, Debug)]
struct Tile {
    start: u64,
    size: u64,
    gradient: Option<ValueId>,
}

impl Tiles {
    /// The slices of a weight, if all its uses, by these operations, are slices that together are the whole.
    pub(crate) fn of(graph: &Graph, weight: ValueId, users: &[NodeId]) -> Option<Self> {
        let type_ = graph.type_of(weight).clone();
        let mut dim = None;
        let mut tiles: Vec<Tile> = Vec::new();
        for &user in users {
            let (at, start, size) = cut(&graph.node(user).op, &type_.shape)?;
            if *dim.get_or_insert(at) != at {
                return None;
            }
            if !tiles.iter().any(|tile| (tile.start, tile.size) == (start, size)) {
                tiles.push(Tile { start, size, gradient: None });
            }
        }
        tiles.sort_by_key(|tile| tile.start);
        let dim = dim?;
        let mut end = 0;
        for tile in &tiles {
            if tile.start != end {
                return None;
            }
            end += tile.size;
        }
        (end == type_.shape[dim]).then_some(Self { dim, type_, tiles, missing: users.len() })
    }

    /// Adds the gradient of a use; the whole gradient once all uses have.
    pub(crate) fn add(&mut self, emit: &mut Emit<'_>, op: &Op, gradient: ValueId) -> Option<ValueId> {
        let (_, start, _) = cut(op, &self.type_.shape)?;
        // The rule for slices pads: what it padded is the gradient of the slice.
        let gradient = unpadded(emit, op, gradient);
        let tile = self.tiles.iter_mut().find(|tile| tile.start == start)?;
        tile.gradient = Some(match tile.gradient {
            None => gradient,
            Some(before) => emit.one(Op::Binary(Binary::Add), &[before, gradient]),
        });
        self.missing -= 1;
        if self.missing == 0 { self.finish(emit) } else { None }
    }

    /// The whole gradient, zero where no use has added to it; nothing if none has, or if it is
    /// finished.
    pub(crate) fn finish(&mut self, emit: &mut Emit<'_>) -> Option<ValueId> {
        let first = self.tiles.iter().find_map(|tile| tile.gradient)?;
        let dtype = emit.type_of(first).dtype;
        let mut parts = Vec::new();
        for tile in &mut self.tiles {
            let mut type_ = Type::new(dtype, &self.type_.shape[..]);
            type_.shape[self.dim] = tile.size;
            parts.push(tile.gradient.take().unwrap_or_else(|| emit.filled(type_, 0.0)));
        }
        Some(emit.one(Op::Concat { dim: self.dim }, &parts))
    }
}

/// What a slice takes along the only dimension that it cuts: the dimension, the start, the size.
fn cut(op: &Op, shape: &[u64]) -> Option<(usize, u64, u64)> {
    let Op::Slice { starts, steps, sizes } = op else { return None };
    if steps.iter().any(|&step| step != 1) {
        return None;
    }
    let mut cut = (0..shape.len()).filter(|&dim| sizes[dim] != shape[dim]);
    let dim = cut.next()?;
    cut.next().is_none().then(|| (dim, starts[dim], sizes[dim]))
}

/// What a value was before the operation that made it padded it.
fn unpadded(emit: &Emit<'_>, op: &Op, gradient: ValueId) -> ValueId {
    let Op::Slice { sizes, .. } = op else { return gradient };
    if emit.graph.type_of(gradient).shape == *sizes {
        return gradient;
    }
    match emit.graph.value(gradient).source {
        planner_ir::Source::Result { node, .. } => emit.graph.node(node).operands[0],
        _ => gradient,
    }
}

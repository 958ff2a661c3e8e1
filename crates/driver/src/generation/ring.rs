//! Single tokens of a decoder written into its cache, where they stay.
//!
//! A step of one token whose entries come behind all others finds all places but one and returns them moved up by
//! one. Of it is made a step that finds all places and is told one of them, the *slot*: the entry of the token is
//! written there, over the oldest one, and nothing moves. With the slots taken in turn, the place that is the s-th in
//! the model's order, the newest last, is then the slot j with `s = (j − slot − 1) mod places`.
//!
//! Attention does not ask in which order keys come, as long as keys, values and what hides them are in the same one.
//! So values that come of the cache stay as they lie, and values that they meet are brought into that order. Which
//! dimensions those are follows from the loops of operations: an operation whose loop has its iterations in another
//! order does the same, unless it asks where they are. Where something does, there is no such step, and the cache
//! moves up as the model says.

mod attention; // attention to keys in the order of slots
mod order; // values brought into that order
mod beside; // other numbers beside those of all places
mod writes; // where entries are put behind others

use std::collections::BTreeMap;

use import::Input;
use plan::Cache;
use planner_ir::{DType, Graph, LoopId, Loops, Node, NodeId, Op, Output, Scatter, Source, Type, ValueId};

use writes::{Write, writes};

/// What the input of the slot is called, unless the model has one of that name.
const SLOT: &str = "cache_slot";

/// The step of one token as the model says it, and the one that writes its entry in place.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) of_model: Graph,
    pub(super) written: Graph,
    /// The input of the slot.
    pub(super) slot: String,
}

impl Single {
    /// Of the model's step, whose file has inputs of these names.
    pub(super) fn of(of_model: Graph, cache: &Cache, inputs: &[Input]) -> Result<Self, String> {
        let positions = cache.positions.iter().map(|it| it.name.as_str());
        let taken: Vec<&str> = inputs.iter().map(|it| it.name.as_str()).chain(positions).collect();
        let mut slot = SLOT.to_owned();
        while taken.contains(&slot.as_str()) {
            slot.push('_');
        }
        let written = ring(&of_model, cache, &slot)?;
        Ok(Self { of_model, written, slot })
    }
}

/// The step of one token that writes its entry at the slot, an input of that name, made of the step whose entry comes
/// behind all others; or why there is none.
pub fn ring(graph: &Graph, cache: &Cache, slot: &str) -> Result<Graph, String> {
    let writes = writes(graph, cache)?;
    let mut ring = Ring::new(graph, cache, writes, slot);
    for node in graph.node_ids() {
        ring.node(node)?;
    }
    ring.finished(cache).map(|made| rewrite::shared(&made))
}

/// What an operation does with iterations of a loop in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sense {
    /// Its results are in that order.
    Ordered,
    /// So are those that the loop indexes; others are the same in any order.
    Any,
}

/// What an operation does with iterations of a loop in another order, if that is known.
fn sense(op: &Op) -> Option<Sense> {
    match op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Gated(_)
        | Op::Softmax { .. }
        | Op::LogSoftmax { .. }
        | Op::LayerNorm { .. }
        | Op::RmsNorm { .. }
        | Op::InstanceNorm { .. }
        | Op::Rotary(_)
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Expand { .. }
        | Op::Concat { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. } => Some(Sense::Ordered),
        Op::Contract(_) | Op::Reduce { .. } | Op::Attention(_) => Some(Sense::Any),
        _ => None,
    }
}

/// A step as it is made.
struct Ring<'a> {
    old: &'a Graph,
    graph: Graph,
    /// How many places there are, and which dimension of the cache's parts has them.
    places: u64,
    dim: usize,
    /// The operations that put entries behind others.
    writes: BTreeMap<NodeId, Write>,
    /// The input of the slot.
    slot: ValueId,
    /// For each value of the old graph, what it has become.
    made: Vec<ValueId>,
    /// For each value of the old graph, its dimensions that are in the order of slots.
    slots: Vec<InSlots>,
    /// The place in the model's order of each slot, with so many numbers behind them.
    order: BTreeMap<u64, ValueId>,
    /// The slot as an index, for each number of dimensions of entries.
    index: BTreeMap<usize, ValueId>,
    /// What is only in the model's order, along a dimension in the order of slots.
    rolled: BTreeMap<(ValueId, usize, u64), ValueId>,
}

/// Dimensions whose first numbers, one for each place, are in the order of slots, and how many others are behind them.
type InSlots = BTreeMap<usize, u64>;

/// The same of loops.
type Over = BTreeMap<LoopId, u64>;

impl<'a> Ring<'a> {
    /// With everything that is given.
    fn new(old: &'a Graph, cache: &Cache, writes: BTreeMap<NodeId, Write>, slot: &str) -> Self {
        let mut graph = Graph { name: old.name.clone(), ..Graph::default() };
        let mut made = vec![ValueId(usize::MAX); old.values.len()];
        for id in old.value_ids() {
            let value = old.value(id);
            if matches!(value.source, Source::Result { .. }) {
                continue;
            }
            let mut type_ = value.type_.clone();
            if writes.values().any(|it| it.past == id) {
                type_.shape[cache.dim] = cache.capacity;
            }
            made[id.0] = graph.push_value(type_, value.source.clone());
        }
        let slot = graph.push_value(Type::new(DType::I64, [1]), Source::Input(slot.to_owned()));
        Self {
            old,
            graph,
            places: cache.capacity,
            dim: cache.dim,
            writes,
            slot,
            made,
            slots: vec![InSlots::new(); old.values.len()],
            order: BTreeMap::new(),
            index: BTreeMap::new(),
            rolled: BTreeMap::new(),
        }
    }

    /// An operation of the old graph.
    fn node(&mut self, id: NodeId) -> Result<(), String> {
        if let Some(write) = self.writes.get(&id).copied() {
            return self.write(id, write);
        }
        let old = self.old;
        let node = old.node(id);
        if node.operands.iter().all(|it| self.slots[it.0].is_empty()) {
            let operands = node.operands.iter().map(|it| self.made[it.0]).collect();
            self.keep(node, node.op.clone(), operands);
            return Ok(());
        }
        if let Some(dims) = self.beside(node) {
            let operands = node.operands.iter().map(|it| self.made[it.0]).collect();
            self.keep(node, node.op.clone(), operands);
            self.slots[node.results[0].0] = dims;
            return Ok(());
        }
        self.ordered(node).map_err(|why| {
            let types: Vec<String> = old.types_of(&node.operands).iter().map(ToString::to_string).collect();
            format!(
                "`{}` takes what is of all places of the cache ({}) and {why}",
                node.origin,
                types.join(", ")
            )
        })
    }

    /// An operation of which operands are in the order of slots.
    fn ordered(&mut self, node: &Node) -> Result<(), String> {
        let old = self.old;
        let sense = sense(&node.op).ok_or("may ask for their order")?;
        let loops = node.op.loops(&old.types_of(&node.operands), &old.types_of(&node.results));
        let over = self.loops_in_slots(node, &loops)?;
        let unordered = attention::in_any_order(node, old, &loops, &over, self.places)?;
        let mut operands = Vec::new();
        for (operand, dims) in node.operands.iter().zip(&loops.operands) {
            operands.push(self.in_slots(*operand, &dims_over(dims, &over)?)?);
        }
        for (result, dims) in node.results.iter().zip(&loops.results) {
            let dims = dims_over(dims, &over)?;
            if sense == Sense::Ordered && dims.len() < over.len() {
                return Err("takes some of them".to_owned());
            }
            self.slots[result.0] = dims;
        }
        let op = match unordered {
            None => node.op.clone(),
            Some(attention) => {
                self.hide(&attention, &mut operands, &node.origin)?;
                Op::Attention(attention.op)
            }
        };
        self.keep(node, op, operands);
        Ok(())
    }

    /// The loops of an operation that operands have in the order of slots; or why they cannot be.
    fn loops_in_slots(&self, node: &Node, loops: &Loops) -> Result<Over, String> {
        let mut over = Over::new();
        for (operand, dims) in node.operands.iter().zip(&loops.operands) {
            for (&dim, &behind) in &self.slots[operand.0] {
                let [only] = dims[dim][..] else { return Err(MIXED.to_owned()) };
                if *over.entry(only).or_insert(behind) != behind {
                    return Err(MIXED.to_owned());
                }
            }
        }
        let asks = over.keys().any(|it| loops.positional.contains(it));
        if asks && !matches!(node.op, Op::Attention(_)) {
            return Err("asks where they are".to_owned());
        }
        Ok(over)
    }

    /// An operation with what its operands have become.
    fn keep(&mut self, node: &Node, op: Op, operands: Vec<ValueId>) {
        let types = self.old.types_of(&node.results);
        let results = self.graph.push_node(op, operands, types, node.origin.clone());
        for (old, new) in node.results.iter().zip(results) {
            self.made[old.0] = new;
        }
    }

    /// An entry written at the slot rather than put behind others.
    fn write(&mut self, id: NodeId, write: Write) -> Result<(), String> {
        let node = self.old.node(id);
        if !self.slots[write.new.0].is_empty() {
            return Err(format!("`{}` keeps what has all places of the cache itself", node.origin));
        }
        let new = self.made[write.new.0];
        let indices = self.index(self.graph.type_of(new).rank(), &node.origin)?;
        let op = Op::ScatterElements { dim: self.dim, scatter: Scatter::Write };
        let result = node.results[0];
        self.made[result.0] = self.push(op, vec![self.made[write.past.0], indices, new], &node.origin)?;
        self.slots[result.0] = InSlots::from([(self.dim, 0)]);
        Ok(())
    }

    /// The slot as the index of all elements of an entry.
    fn index(&mut self, rank: usize, origin: &str) -> Result<ValueId, String> {
        if let Some(&known) = self.index.get(&rank) {
            return Ok(known);
        }
        let index = self.push(Op::Reshape { shape: vec![1; rank] }, vec![self.slot], origin)?;
        self.index.insert(rank, index);
        Ok(index)
    }

    /// An operation of one result.
    fn push(&mut self, op: Op, operands: Vec<ValueId>, origin: &str) -> Result<ValueId, String> {
        let types = op.infer(&self.graph.types_of(&operands));
        let types = types.map_err(|error| format!("`{origin}` cannot be written in place: {error}"))?;
        let results = self.graph.push_node(op, operands, types, origin.to_owned());
        results.first().copied().ok_or_else(|| format!("`{origin}` makes nothing, expected one result"))
    }

    /// The graph with its outputs, of which those that are no entries have to be in the model's order.
    fn finished(mut self, cache: &Cache) -> Result<Graph, String> {
        for Output { name, value } in &self.old.outputs {
            let is_entries = cache.entries().any(|it| it.present == *name);
            if !is_entries && !self.slots[value.0].is_empty() {
                return Err(format!("the output `{name}` has all places of the cache"));
            }
        }
        let output = |it: &Output| Output { name: it.name.clone(), value: self.made[it.value.0] };
        self.graph.outputs = self.old.outputs.iter().map(output).collect();
        Ok(self.graph)
    }
}

/// Why numbers of places cannot be told from others.
const MIXED: &str = "has other numbers among them";

/// The dimensions that such loops index, each alone; or why there are others beside one.
fn dims_over(dims: &[Vec<LoopId>], over: &Over) -> Result<InSlots, String> {
    let mut found = InSlots::new();
    for (dim, loops) in dims.iter().enumerate() {
        if let Some(behind) = loops.iter().find_map(|it| over.get(it)) {
            if loops.len() > 1 {
                return Err(MIXED.to_owned());
            }
            found.insert(dim, *behind);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;

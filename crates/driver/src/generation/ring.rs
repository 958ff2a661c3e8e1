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
//!
//! Parts of which attention sees a window have as many places as that, in steps of any number of tokens: the last ones
//! of the model's. What values of them meet is cut to these by the same loops.

mod attention; // attention to keys in the order of slots
mod order; // values brought into that order
mod beside; // other numbers beside those of all places
mod sizes; // operations of fewer places
mod writes; // where entries are put behind others

use std::collections::BTreeMap;

use import::Input;
use plan::Cache;
use planner_ir::{
    Binary, DType, Graph, LoopId, Loops, Node, NodeId, Op, Output, Scatter, Source, Type, ValueId,
};

use writes::{Write, writes};

/// What the input of the slot is called, unless the model has one of that name.
pub(super) const SLOT: &str = "cache_slot";

/// The step of one token that writes its entry in place.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) written: Graph,
    /// The input of the slot.
    pub(super) slot: String,
}

impl Single {
    /// Of the model's step, whose file has inputs of these names.
    pub(super) fn of(of_model: &Graph, cache: &Cache, inputs: &[Input]) -> Result<Self, String> {
        let positions = cache.positions.iter().map(|it| it.name.as_str());
        let taken: Vec<&str> = inputs.iter().map(|it| it.name.as_str()).chain(positions).collect();
        let mut slot = SLOT.to_owned();
        while taken.contains(&slot.as_str()) {
            slot.push('_');
        }
        let written = ring(of_model, cache, &slot)?;
        Ok(Self { written, slot })
    }
}

/// The step of one token that writes its entry at the slot, an input of that name, made of the step whose entry comes
/// behind all others; or why there is none.
pub fn ring(graph: &Graph, cache: &Cache, slot: &str) -> Result<Graph, String> {
    Ring::new(graph, cache, writes(graph, cache, &|_| true, 1)?, Some(slot)).made(cache)
}

/// A step of so many tokens whose entries come behind all others, in which parts with windows have no more places than
/// these; or why there is none.
pub fn recent(graph: &Graph, cache: &Cache, width: u64) -> Result<Graph, String> {
    Ring::new(graph, cache, writes(graph, cache, &|it| it.window.is_some(), width)?, None).made(cache)
}

/// The step of so many tokens that a plan has of the model's own, whose entries come behind all others; or why there is
/// none.
pub fn planned(of_model: Graph, cache: &Cache, width: u64) -> Result<Graph, String> {
    match &cache.slot {
        Some(slot) if cache.is_written(width) => ring(&of_model, cache, slot),
        _ if cache.has_windows() => recent(&of_model, cache, width),
        _ => Ok(of_model),
    }
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
    /// How many places the model has, and which dimension of the cache's parts has them.
    capacity: u64,
    dim: usize,
    /// The operations that put entries behind others.
    writes: BTreeMap<NodeId, Write>,
    /// The input of the slot, and after how many tokens it is 0 again; without it entries move up, and what is said of
    /// slots is in the model's order.
    slot: Option<(ValueId, u64)>,
    /// For each value of the old graph, what it has become.
    made: Vec<ValueId>,
    /// For each value of the old graph, its dimensions that are in the order of slots.
    slots: Vec<InSlots>,
    /// The place in the model's order of each slot.
    order: BTreeMap<Along, ValueId>,
    /// The slot as an index, for each number of places and of dimensions of entries.
    index: BTreeMap<(u64, usize), ValueId>,
    /// What is only in the model's order, along a dimension in the order of slots.
    rolled: BTreeMap<(ValueId, usize, Along), ValueId>,
}

/// What is along a dimension in the order of slots, or along a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Along {
    /// How many places there are, the last ones of the model's, and a number for each.
    places: u64,
    /// How many other numbers are behind them.
    behind: u64,
}

impl Along {
    /// How many numbers there are.
    fn size(self) -> u64 {
        self.places + self.behind
    }
}

/// Dimensions in the order of slots.
type InSlots = BTreeMap<usize, Along>;

/// Loops in the order of slots.
type Over = BTreeMap<LoopId, Along>;

impl<'a> Ring<'a> {
    /// With everything that is given.
    fn new(old: &'a Graph, cache: &Cache, writes: BTreeMap<NodeId, Write>, slot: Option<&str>) -> Self {
        let mut graph = Graph { name: old.name.clone(), ..Graph::default() };
        let mut made = vec![ValueId(usize::MAX); old.values.len()];
        for id in old.value_ids() {
            let value = old.value(id);
            if matches!(value.source, Source::Result { .. }) {
                continue;
            }
            let mut type_ = value.type_.clone();
            if let Some(write) = writes.values().find(|it| it.past == id) {
                type_.shape[cache.dim] = if slot.is_some() { write.places } else { write.found };
            }
            made[id.0] = graph.push_value(type_, value.source.clone());
        }
        let slot = slot.map(|it| {
            let input = graph.push_value(Type::new(DType::I64, [1]), Source::Input(it.to_owned()));
            (input, cache.period())
        });
        Self {
            old,
            graph,
            capacity: cache.capacity,
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

    /// The graph of all operations.
    fn made(mut self, cache: &Cache) -> Result<Graph, String> {
        for node in self.old.node_ids() {
            self.node(node)?;
        }
        self.finished(cache).map(|made| rewrite::shared(&made))
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
            self.push_as(node, node.op.clone(), operands, old.types_of(&node.results));
            return Ok(());
        }
        let made = match self.beside(node) {
            Some(dims) => {
                self.slots[node.results[0].0] = dims;
                let operands = node.operands.iter().map(|it| self.made[it.0]).collect();
                self.keep(node, node.op.clone(), operands)
            }
            None => self.ordered(node),
        };
        made.map_err(|why| {
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
        let unordered = match self.slot {
            Some(_) => attention::in_any_order(node, old, &loops, &over)?,
            // Keys that are left out are the first ones: others stay as far from queries as they were.
            None => None,
        };
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
        self.keep(node, op, operands)
    }

    /// The loops of an operation that operands have in the order of slots; or why they cannot be.
    fn loops_in_slots(&self, node: &Node, loops: &Loops) -> Result<Over, String> {
        let mut over = Over::new();
        for (operand, dims) in node.operands.iter().zip(&loops.operands) {
            for (&dim, &along) in &self.slots[operand.0] {
                let [only] = dims[dim][..] else { return Err(MIXED.to_owned()) };
                if *over.entry(only).or_insert(along) != along {
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

    /// An operation with what its operands have become, and results of these types.
    fn push_as(&mut self, node: &Node, op: Op, operands: Vec<ValueId>, types: Vec<Type>) {
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
        let past = self.made[write.past.0];
        let result = node.results[0];
        self.made[result.0] = match self.slot {
            Some(slot) => {
                let rank = self.graph.type_of(new).rank();
                let indices = self.index(slot, write.places, rank, &node.origin)?;
                let op = Op::ScatterElements { dim: self.dim, scatter: Scatter::Write };
                self.push(op, vec![past, indices, new], &node.origin)?
            }
            None => self.push(Op::Concat { dim: self.dim }, vec![past, new], &node.origin)?,
        };
        self.slots[result.0] = InSlots::from([(self.dim, Along { places: write.places, behind: 0 })]);
        Ok(())
    }

    /// The slot of so many as the index of all elements of an entry.
    fn index(
        &mut self,
        (slot, period): (ValueId, u64),
        places: u64,
        rank: usize,
        origin: &str,
    ) -> Result<ValueId, String> {
        if let Some(&known) = self.index.get(&(places, rank)) {
            return Ok(known);
        }
        let mut index = slot;
        if period != places {
            let places = self.number(places)?;
            index = self.push(Op::Binary(Binary::Mod), vec![slot, places], origin)?;
        }
        let index = self.push(Op::Reshape { shape: vec![1; rank] }, vec![index], origin)?;
        self.index.insert((places, rank), index);
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
        let old = self.old;
        for Output { name, value } in &old.outputs {
            let mut made = self.made[value.0];
            if !self.slots[value.0].is_empty() {
                let part = cache.entries().find(|it| it.present == *name);
                let source = &old.value(*value).source;
                let is_write =
                    |it: &Source| matches!(it, Source::Result { node, .. } if self.writes.contains_key(node));
                let part = part.filter(|_| is_write(source));
                let part = part.ok_or_else(|| format!("the output `{name}` has all places of the cache"))?;
                made = self.last(made, self.dim, cache.places(part))?;
            }
            self.graph.outputs.push(Output { name: name.clone(), value: made });
        }
        Ok(self.graph)
    }
}

/// Why numbers of places cannot be told from others.
const MIXED: &str = "has other numbers among them";

/// The dimensions that such loops index, each alone; or why there are others beside one.
fn dims_over(dims: &[Vec<LoopId>], over: &Over) -> Result<InSlots, String> {
    let mut found = InSlots::new();
    for (dim, loops) in dims.iter().enumerate() {
        if let Some(along) = loops.iter().find_map(|it| over.get(it)) {
            if loops.len() > 1 {
                return Err(MIXED.to_owned());
            }
            found.insert(dim, *along);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;

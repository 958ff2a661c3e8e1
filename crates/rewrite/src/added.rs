//! Products that add to a sum over micro-batches: one operation instead of two or three.
//!
//! ```text
//! add(s, cast(product(a, b))) = product(a, b, s)
//! ```
//!
//! and in the space of partitions, where nothing moves between the operations:
//!
//! ```text
//! work(add, Q)(s, work(cast, R)(work(product, P)(a, b))) = work(product with addend, P)(a, b, s)
//! ```
//!
//! provided that what `P` makes of the loops of the product with an addend are the layouts that `Q` has for s and for
//! the sum. So it follows from loops alone where one operation is right: the addend owes what the product leaves
//! owed. Where devices sum the product before it is added, or where it moves on its way, the operations stay apart.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{
    Binary, Graph, Layout, Loops, Mesh, Node, NodeId, Op, OpClass, Partition, Phase, Source, Type, ValueId,
};

/// A product whose only use is to be added to a sum over micro-batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The product.
    pub product: NodeId,
    /// What converts it to the elements of the sum, if anything does.
    pub widened: Option<NodeId>,
    /// What adds it.
    pub sum: NodeId,
    /// Which operand of that is the sum so far; the other is the product.
    pub before: usize,
    /// All three as one: its operands are those of the product, and the sum so far.
    pub node: Node,
    /// The types of its operands.
    operands: Vec<Type>,
    /// The type of its result.
    result: Type,
    /// Its loops.
    loops: Loops,
}

/// The products of a graph that may add to a sum over micro-batches, in order of the products.
///
/// Only matrix products are: what has no rows or no columns is a pass over memory, which kernels have others for.
pub fn added(graph: &Graph) -> Vec<Added> {
    if graph.training.is_none() {
        return vec![];
    }
    let (users, sums) = (graph.users(), graph.sums());
    let kept = |value: ValueId| {
        let becomes = graph.training.iter().flat_map(|it| &it.carried).any(|it| it.next == value);
        becomes || graph.outputs.iter().any(|it| it.value == value)
    };
    // The operation that makes a value which one other operation alone uses.
    let only_for = |value: ValueId, user: NodeId| match graph.value(value).source {
        Source::Result { node, .. } if users[value.0] == [user] && !kept(value) => Some(node),
        _ => None,
    };
    let one = |sum: NodeId| {
        let adds = graph.node(sum);
        let ([a, b], Op::Binary(Binary::Add)) = (&adds.operands[..], &adds.op) else { return None };
        (0..2).zip([(*a, *b), (*b, *a)]).find_map(|(before, (so_far, more))| {
            sums[so_far.0].filter(|_| so_far != more)?;
            let maker = only_for(more, sum)?;
            let (product, widened) = match graph.node(maker).op {
                Op::Cast(_) => (only_for(graph.node(maker).operands[0], maker)?, Some(maker)),
                _ => (maker, None),
            };
            let is_there = match graph.value(so_far).source {
                Source::Result { node, .. } => node < product,
                _ => true,
            };
            is_there.then(|| Added::of(graph, (product, widened), (sum, before)))?
        })
    };
    let of_gradients = |it: &NodeId| graph.node(*it).phase == Phase::Gradient;
    let mut found: Vec<Added> = graph.node_ids().filter(of_gradients).filter_map(one).collect();
    found.sort_by_key(|it| it.product);
    found
}

impl Added {
    fn of(
        graph: &Graph,
        (product, widened): (NodeId, Option<NodeId>),
        (sum, before): (NodeId, usize),
    ) -> Option<Self> {
        let adds = graph.node(sum);
        let of = graph.node(product);
        let phases = [Some(product), widened].into_iter().flatten().map(|it| graph.node(it).phase);
        let mut op = of.op.clone();
        let OpClass::MatrixProduct(contract) = op.class() else { return None };
        let alone = |own: &[_], other: &[_]| own.iter().any(|label| !other.contains(label));
        let is_matrix = alone(&contract.left, &contract.right) && alone(&contract.right, &contract.left);
        if op.addend(of.operands.len()).is_some()
            || !is_matrix
            || phases.into_iter().any(|it| it != adds.phase)
        {
            return None;
        }
        let result = graph.type_of(adds.results[0]).clone();
        if let Op::ScaledContract { to, .. } = &mut op {
            *to = result.dtype;
        }
        let operands = [&of.operands[..], &adds.operands[before..=before]].concat();
        let types = graph.types_of(&operands);
        op.infer(&types).ok().filter(|it| *it == [result.clone()])?;
        let loops = op.loops(&types, std::slice::from_ref(&result));
        let (results, origin) = (adds.results.clone(), of.origin.clone());
        let node = Node { op, operands, results, origin, phase: adds.phase };
        Some(Self { product, widened, sum, before, node, operands: types, result, loops })
    }

    /// The loops of the one operation.
    pub fn loops(&self) -> &Loops {
        &self.loops
    }

    /// The types of its operands, and of its result.
    pub fn types(&self) -> (&[Type], &Type) {
        (&self.operands, &self.result)
    }

    /// Whether the one operation, partitioned as the product is, takes the sum so far in this layout and leaves the
    /// sum in that one: it is then equal to the three, if nothing moves between these.
    pub fn is_equal(&self, mesh: &Mesh, product: &Partition, [before, after]: [&Layout; 2]) -> bool {
        product.steps == 1
            && !product.moves()
            && product.operand(&self.loops, self.operands.len() - 1) == *before
            && product.result(&self.loops, 0) == *after
            && product.check(mesh, &self.loops).is_ok()
    }
}

/// A graph in which some products add to sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The graph.
    pub graph: Graph,
    /// For each of its operations, what it was: of a product that adds, the product.
    pub nodes: Vec<NodeId>,
    /// For each of its values, what it was.
    pub values: Vec<ValueId>,
}

/// The graph in which some of its products add to sums.
pub fn joined(graph: &Graph, added: &[Added]) -> Joined {
    let of_product: BTreeMap<NodeId, &Added> = added.iter().map(|it| (it.product, it)).collect();
    let mut is_gone = vec![false; graph.nodes.len()];
    let mut is_left = vec![true; graph.values.len()];
    // The sum takes the place that the product had among values, so that what is made earlier stands earlier.
    let mut places: Vec<ValueId> = graph.value_ids().collect();
    for it in added {
        for node in it.widened.into_iter().chain([it.sum]) {
            is_gone[node.0] = true;
        }
        for node in it.widened.into_iter().chain([it.product]) {
            is_left[graph.node(node).results[0].0] = false;
        }
        places[it.node.results[0].0] = graph.node(it.product).results[0];
    }
    let stood: Vec<NodeId> = graph.node_ids().filter(|it| !is_gone[it.0]).collect();
    let own = |it: &NodeId| of_product.get(it).map_or_else(|| graph.node(*it), |it| &it.node).clone();
    let mut nodes: Vec<Node> = stood.iter().map(own).collect();
    let mut values: Vec<ValueId> = graph.value_ids().filter(|it| is_left[it.0]).collect();
    values.sort_by_key(|it| places[it.0]);
    let mut numbers: Vec<Option<ValueId>> = vec![None; graph.values.len()];
    for (number, value) in values.iter().enumerate() {
        numbers[value.0] = Some(ValueId(number));
    }
    let number = |it: &mut ValueId| *it = numbers[it.0].unwrap_or(*it);
    let mut made = graph.clone();
    made.values = values.iter().map(|it| graph.value(*it).clone()).collect();
    for (place, node) in nodes.iter_mut().enumerate() {
        node.operands.iter_mut().chain(&mut node.results).for_each(number);
        for (index, result) in node.results.iter().enumerate() {
            made.values[result.0].source = Source::Result { node: NodeId(place), index };
        }
    }
    made.nodes = nodes.into();
    made.outputs.iter_mut().for_each(|it| number(&mut it.value));
    for it in made.training.iter_mut().flat_map(|it| &mut it.carried) {
        number(&mut it.state);
        number(&mut it.next);
    }
    Joined { graph: made, nodes: stood, values }
}

/// The graph in which those products add to sums that do in another one, which is alike but for that and for names.
pub fn joined_as(graph: &Graph, other: &Graph) -> Joined {
    let mut of_product: BTreeMap<NodeId, Added> =
        added(graph).into_iter().map(|it| (it.product, it)).collect();
    let mut gone: BTreeSet<NodeId> = BTreeSet::new();
    let mut own = graph.node_ids();
    let mut found = Vec::new();
    for node in &other.nodes {
        let Some(id) = own.find(|it| !gone.contains(it)) else { break };
        if node.op.addend(node.operands.len()).is_some()
            && let Some(it) = of_product.remove(&id)
        {
            gone.extend(it.widened.into_iter().chain([it.sum]));
            found.push(it);
        }
    }
    joined(graph, &found)
}

#[cfg(test)]
mod tests;

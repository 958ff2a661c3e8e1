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
//!
//! An operation that makes several products, as the gradients of experts, adds each to a sum of its own, or not: the
//! equality is of one of them, and several of one operation hold together.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{
    Binary, Graph, Layout, Loops, Mesh, Node, NodeId, Op, OpClass, Partition, Phase, Source, Type, ValueId,
};

/// A product whose only use is to be added to a sum over micro-batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The operation that makes the product.
    pub product: NodeId,
    /// Which of its results that is.
    pub result: usize,
    /// What converts it to the elements of the sum, if anything does.
    pub widened: Option<NodeId>,
    /// What adds it.
    pub sum: NodeId,
    /// Which operand of that is the sum so far; the other is the product.
    pub before: usize,
    /// All three as one.
    pub one: Adding,
}

/// An operation that adds some of its results to sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adding {
    /// The operation: its operands are those of the products, and the sums so far in the order of the results.
    pub node: Node,
    /// The types of its operands.
    operands: Vec<Type>,
    /// The types of its results.
    results: Vec<Type>,
    /// Its loops.
    loops: Loops,
}

/// The products of a graph that may add to a sum over micro-batches, in order of the operations that make them and of
/// their results.
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
    // The operation that makes a value which one other operation alone uses, and as which result.
    let only_for = |value: ValueId, user: NodeId| match graph.value(value).source {
        Source::Result { node, index } if users[value.0] == [user] && !kept(value) => Some((node, index)),
        _ => None,
    };
    let one = |sum: NodeId| {
        let adds = graph.node(sum);
        let ([a, b], Op::Binary(Binary::Add)) = (&adds.operands[..], &adds.op) else { return None };
        (0..2).zip([(*a, *b), (*b, *a)]).find_map(|(before, (so_far, more))| {
            sums[so_far.0].filter(|_| so_far != more)?;
            let (maker, result) = only_for(more, sum)?;
            let ((product, result), widened) = match graph.node(maker).op {
                Op::Cast(_) => (only_for(graph.node(maker).operands[0], maker)?, Some(maker)),
                _ => ((maker, result), None),
            };
            let is_there = match graph.value(so_far).source {
                Source::Result { node, .. } => node < product,
                _ => true,
            };
            is_there.then(|| Added::of(graph, (product, result, widened), (sum, before)))?
        })
    };
    let of_gradients = |it: &NodeId| matches!(graph.node(*it).phase, Phase::Backward | Phase::Gradient);
    let mut found: Vec<Added> = graph.node_ids().filter(of_gradients).filter_map(one).collect();
    found.sort_by_key(|it| (it.product, it.result));
    found
}

/// Whether a result of an operation is a product with rows and columns.
fn is_matrix(graph: &Graph, node: &Node, result: usize) -> bool {
    match node.op.class() {
        OpClass::MatrixProduct(contract) => {
            let alone = |own: &[_], other: &[_]| own.iter().any(|label| !other.contains(label));
            alone(&contract.left, &contract.right) && alone(&contract.right, &contract.left)
        }
        // Of each expert.
        OpClass::Experts(_) => graph.type_of(node.results[result]).rank() == 3,
        _ => false,
    }
}

impl Added {
    fn of(
        graph: &Graph,
        (product, result, widened): (NodeId, usize, Option<NodeId>),
        (sum, before): (NodeId, usize),
    ) -> Option<Self> {
        let (of, phase) = (graph.node(product), graph.node(sum).phase);
        let phases = [Some(product), widened].into_iter().flatten().map(|it| graph.node(it).phase);
        let adds_already = !of.op.addends(of.operands.len()).is_empty();
        if adds_already || !is_matrix(graph, of, result) || phases.into_iter().any(|it| it != phase) {
            return None;
        }
        let one = Adding::of(graph, product, &[(result, sum, before)])?;
        Some(Self { product, result, widened, sum, before, one })
    }

    /// Whether the one operation, partitioned as the product is, takes the sum so far in this layout and leaves the
    /// sum in that one: it is then equal to the three, if nothing moves between these.
    pub fn is_equal(&self, mesh: &Mesh, product: &Partition, [before, after]: [&Layout; 2]) -> bool {
        let loops = &self.one.loops;
        product.steps == 1
            && product.operand(loops, loops.operands.len() - 1) == *before
            && product.result(loops, self.result) == *after
            && product.check(mesh, loops).is_ok()
    }
}

impl Adding {
    /// The operation that makes some products and adds them, each as a result that a sum adds whose operand of that
    /// number is the sum so far; nothing if there is none of these types.
    fn of(graph: &Graph, product: NodeId, sums: &[(usize, NodeId, usize)]) -> Option<Self> {
        let of = graph.node(product);
        let (mut op, mut values, mut made) = (of.op.clone(), of.operands.clone(), of.results.clone());
        for &(result, sum, before) in sums {
            let adds = graph.node(sum);
            op = op.adding(result, graph.type_of(adds.results[0]).dtype)?;
            values.push(adds.operands[before]);
            made[result] = adds.results[0];
        }
        let (operands, results) = (graph.types_of(&values), graph.types_of(&made));
        op.infer(&operands).ok().filter(|it| *it == results)?;
        let loops = op.loops(&operands, &results);
        let node = Node { op, operands: values, results: made, origin: of.origin.clone(), phase: of.phase };
        Some(Self { node, operands, results, loops })
    }

    /// The one operation of all that some products of one operation are, in order of the results.
    ///
    /// # Panics
    /// If they are none, or not of one operation.
    pub fn together(graph: &Graph, added: &[&Added]) -> Self {
        let product = added[0].product;
        assert!(added.iter().all(|it| it.product == product), "of one operation");
        let sums: Vec<_> = added.iter().map(|it| (it.result, it.sum, it.before)).collect();
        match Self::of(graph, product, &sums) {
            Some(it) => it,
            None => unreachable!("what one sum may be added to several may"),
        }
    }

    /// Its loops.
    pub fn loops(&self) -> &Loops {
        &self.loops
    }

    /// The types of its operands, and of its results.
    pub fn types(&self) -> (&[Type], &[Type]) {
        (&self.operands, &self.results)
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

/// The graph in which some of its products add to sums, which are in order.
pub fn joined(graph: &Graph, added: &[Added]) -> Joined {
    let mut of_product: BTreeMap<NodeId, Vec<&Added>> = BTreeMap::new();
    for it in added {
        of_product.entry(it.product).or_default().push(it);
    }
    let mut is_gone = vec![false; graph.nodes.len()];
    let mut is_left = vec![true; graph.values.len()];
    // The sum takes the place that the product had among values, so that what is made earlier stands earlier.
    let mut places: Vec<ValueId> = graph.value_ids().collect();
    for it in added {
        for node in it.widened.into_iter().chain([it.sum]) {
            is_gone[node.0] = true;
        }
        let made = graph.node(it.product).results[it.result];
        for value in it.widened.map(|node| graph.node(node).results[0]).into_iter().chain([made]) {
            is_left[value.0] = false;
        }
        places[graph.node(it.sum).results[0].0] = made;
    }
    let stood: Vec<NodeId> = graph.node_ids().filter(|it| !is_gone[it.0]).collect();
    let own = |it: &NodeId| match of_product.get(it) {
        Some(added) => Adding::together(graph, added).node,
        None => graph.node(*it).clone(),
    };
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
    let mut of_product: BTreeMap<(NodeId, usize), Added> =
        added(graph).into_iter().map(|it| ((it.product, it.result), it)).collect();
    let mut gone: BTreeSet<NodeId> = BTreeSet::new();
    let mut own = graph.node_ids();
    let mut found = Vec::new();
    for node in &other.nodes {
        let Some(id) = own.find(|it| !gone.contains(it)) else { break };
        for (_, result) in node.op.addends(node.operands.len()) {
            if let Some(it) = of_product.remove(&(id, result)) {
                gone.extend(it.widened.into_iter().chain([it.sum]));
                found.push(it);
            }
        }
    }
    joined(graph, &found)
}

#[cfg(test)]
mod tests;

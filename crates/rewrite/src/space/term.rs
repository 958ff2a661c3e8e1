//! The language of the partition e-graph and what its classes denote.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use egg::{Analysis, DidMerge, EGraph, Id, Language};
use planner_ir::{Graph, Layout, Loops, Mesh, Move, NodeId, Partition, Type, ValueId};

use super::alike::{Alike, Ends, Kind, Passing};
use super::offsets::{Offsets, offsets, plain};
use super::tables::{Grid, Table};
use super::{Offer, Splits, Steps, stripes};

/// A term of the e-graph. Layouts, partitions and moves are numbers in `Facts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Term {
    /// A value, held in a layout: the name of its class.
    Held { value: usize, layout: usize },
    /// An operation in a partition, on operands held accordingly.
    Compute { node: usize, partition: usize, operands: Vec<Id> },
    /// A result of an operation's work.
    Result { index: usize, work: [Id; 1] },
    /// A value after a move.
    Move { step: usize, from: Id },
}

impl Language for Term {
    /// No rule looks for terms of one kind.
    type Discriminant = Discriminant<Self>;

    fn discriminant(&self) -> Self::Discriminant {
        discriminant(self)
    }

    fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Compute { node, partition, .. }, Self::Compute { node: n, partition: p, .. }) => {
                (node, partition) == (n, p)
            }
            (Self::Result { index, .. }, Self::Result { index: other, .. }) => index == other,
            (Self::Move { step, .. }, Self::Move { step: other, .. }) => step == other,
            _ => self == other,
        }
    }

    fn children(&self) -> &[Id] {
        match self {
            Self::Held { .. } => &[],
            Self::Compute { operands, .. } => operands,
            Self::Result { work, .. } => work,
            Self::Move { from, .. } => std::slice::from_ref(from),
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            Self::Held { .. } => &mut [],
            Self::Compute { operands, .. } => operands,
            Self::Result { work, .. } => work,
            Self::Move { from, .. } => std::slice::from_mut(from),
        }
    }
}

/// What the terms of a class denote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Denoted {
    /// What each device holds of a value.
    Held { value: ValueId, layout: usize },
    /// The work of an operation.
    Work { node: NodeId, partition: usize },
    /// Nothing: a move that cannot be made.
    Nothing,
}

/// The single moves that may be made of a value in a layout: numbers of the move and of the layout
/// that it leads to.
pub(super) type Moves = Arc<[(usize, usize)]>;

/// What the rules and the analysis know of the graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) mesh: Mesh,
    splits: Splits,
    /// How long the sequences are whose tokens may lie in stripes.
    striped: Option<u64>,
    /// Whether nothing is held skewed.
    pub(super) unskewed: bool,
    pub(super) types: Vec<Type>,
    /// For each value, a number that it has in common with values of the same type whose splits
    /// may begin alike.
    pub(super) kinds: Vec<usize>,
    /// For each operation that is not prepared, what it works on.
    operations: Vec<Option<Operation>>,
    pub(super) moves: Table<Move>,
    /// For each value and dimension, where splits may begin.
    pub(super) offsets: Offsets,
    /// For each value, the operations that use or make it.
    pub(super) touching: Vec<Vec<NodeId>>,
    /// For each value, the skewed layouts it is held in, each after the plain one that it skews.
    pub(super) skewed: Vec<Vec<(usize, usize)>>,
    /// What is known of operations that are partitioned alike.
    pub(super) alike: Alike,
    /// For each value and layout, whether it is held so by something, when it is moved.
    pub(super) held: Grid<()>,
    /// What the rules have been applied to, values in layouts and operations in partitions: what comes of
    /// it depends on nothing else.
    pub(super) applied: [Grid<()>; 2],
    /// For each kind of values and layout, the moves of one, permutations apart.
    pub(super) steps: Grid<Moves>,
    /// For each kind of values and two layouts, the permutation from one to the other and where it leads,
    /// if there is one.
    pub(super) permuted: BTreeMap<(usize, usize, usize), Option<(usize, usize)>>,
    /// For each kind of values and layout, every move that was looked for, and the layout it leads to.
    pub(super) moved: Grid<Vec<(usize, usize)>>,
    /// Merges of classes that denote different things.
    pub(super) faults: Vec<String>,
    /// How many terms there may be.
    pub(super) most: usize,
    /// Whether something was left out because there were too many terms.
    pub(super) is_full: bool,
}

#[derive(Clone, Debug)]
struct Operation {
    loops: Loops,
    operands: Vec<ValueId>,
    results: Vec<ValueId>,
    passes_sums: Passing,
    /// Whether it may be done in time steps.
    takes_time: bool,
    /// A number that it has in common with operations that are partitioned alike.
    alike: usize,
}

impl Facts {
    pub(super) fn new(graph: &Graph, mesh: &Mesh, boundary: &[ValueId], offer: Offer, known: Alike) -> Self {
        let prepared = graph.prepared();
        let operation = |node: &planner_ir::Node| {
            let ready = node.results.iter().all(|result| prepared[result.0]);
            (!ready).then(|| Operation {
                loops: node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results)),
                operands: node.operands.clone(),
                results: node.results.clone(),
                passes_sums: passing(&node.op),
                takes_time: takes_time(&node.op),
                alike: 0,
            })
        };
        let mut operations: Vec<Option<Operation>> = graph.nodes.iter().map(operation).collect();
        let types: Vec<Type> = graph.values.iter().map(|value| value.type_.clone()).collect();
        let indexed = operations.iter().flatten().map(|it| (&it.loops, &it.operands[..], &it.results[..]));
        let striped = offer.striped.filter(|_| offer.steps.are_offered(mesh));
        let mut begin = plain(&types);
        if let Some(length) = striped {
            stripes::seed(graph, mesh, boundary, length, &mut begin);
        }
        let offsets = offsets(begin, &indexed.collect::<Vec<_>>());
        let mut touching = vec![Vec::new(); types.len()];
        for node in graph.node_ids() {
            let node_ = graph.node(node);
            let mut values: Vec<ValueId> = node_.operands.iter().chain(&node_.results).copied().collect();
            values.sort_unstable();
            values.dedup();
            values.into_iter().for_each(|value| touching[value.0].push(node));
        }
        let skewed = vec![Vec::new(); types.len()];
        let (splits, in_time) = (offer.splits, offer.steps.are_offered(mesh));
        let unskewed = offer.steps == Steps::Unskewed;
        let mut alike = known.on(mesh, splits, striped, unskewed);
        let kind = |(type_, begin): (&Type, &Vec<_>)| alike.values.number((type_.clone(), begin.clone()));
        let kinds: Vec<usize> = types.iter().zip(&offsets).map(kind).collect();
        for it in operations.iter_mut().flatten() {
            let values = it.operands.iter().chain(&it.results);
            it.takes_time &= in_time;
            it.alike = alike.operations.number(Kind {
                loops: it.loops.clone(),
                values: values.map(|value| kinds[value.0]).collect(),
                passes_sums: it.passes_sums,
                takes_time: it.takes_time,
            });
        }
        Self {
            mesh: mesh.clone(),
            splits,
            striped,
            unskewed,
            kinds,
            alike,
            types,
            operations,
            offsets,
            touching,
            skewed,
            ..Self::default()
        }
    }

    pub(super) fn loops(&self, node: NodeId) -> Option<&Loops> {
        self.operations[node.0].as_ref().map(|operation| &operation.loops)
    }

    pub(super) fn operands(&self, node: NodeId) -> &[ValueId] {
        self.operations[node.0].as_ref().map_or(&[], |operation| &operation.operands)
    }

    pub(super) fn results(&self, node: NodeId) -> &[ValueId] {
        self.operations[node.0].as_ref().map_or(&[], |operation| &operation.results)
    }

    pub(super) fn passing(&self, node: NodeId) -> Passing {
        self.operations[node.0].as_ref().map_or(Passing::Withheld, |operation| operation.passes_sums)
    }

    /// Along how many loops an operation may be split.
    pub(super) fn splits(&self) -> Splits {
        self.splits
    }

    /// How long the sequences are whose tokens may lie in stripes.
    pub(super) fn striped(&self) -> Option<u64> {
        self.striped
    }

    /// Whether partitions of an operation in time are offered.
    pub(super) fn takes_time(&self, node: NodeId) -> bool {
        self.operations[node.0].as_ref().is_some_and(|it| it.takes_time)
    }

    /// A number that operations have in common that are partitioned alike.
    pub(super) fn alike(&self, node: NodeId) -> usize {
        self.operations[node.0].as_ref().map_or(usize::MAX, |operation| operation.alike)
    }

    /// The layouts between which an operation works in a partition.
    pub(super) fn ends(&mut self, node: NodeId, partition: usize) -> Arc<Ends> {
        let Some(operation) = &self.operations[node.0] else {
            unreachable!("prepared operations are not partitioned")
        };
        let Alike { layouts, partitions, ends, .. } = &mut self.alike;
        if let Some(known) = ends.get(operation.alike, partition) {
            return Arc::clone(known);
        }
        let (loops, own) = (&operation.loops, partitions.get(partition));
        let mut number = |layout: Layout| layouts.number(layout);
        let found = Arc::new(Ends {
            operands: (0..operation.operands.len()).map(|it| number(own.operand(loops, it))).collect(),
            results: (0..operation.results.len()).map(|it| number(own.result(loops, it))).collect(),
        });
        ends.insert(operation.alike, partition, Arc::clone(&found));
        found
    }

    /// The partition in which every device does everything.
    pub(super) fn replicated(&self, node: NodeId) -> Option<Partition> {
        self.loops(node).map(Partition::replicated)
    }
}

fn passing(op: &planner_ir::Op) -> Passing {
    use planner_ir::Op;
    match op {
        Op::Contract(_) | Op::ScaledContract { .. } | Op::Attention(_) | Op::Conv(_) | Op::Experts { .. } => {
            Passing::Withheld
        }
        _ => Passing::Offered,
    }
}

/// Whether what an operation uses may be worth more than one step: it is a product, or looks up
/// rows of a table.
fn takes_time(op: &planner_ir::Op) -> bool {
    use planner_ir::Op;
    matches!(
        op,
        Op::Contract(_)
            | Op::ScaledContract { .. }
            | Op::Attention(_)
            | Op::Conv(_)
            | Op::Experts { .. }
            | Op::Gather { .. }
            | Op::AttentionGradient { .. }
            | Op::ExpertsGradient { .. }
            | Op::GatherGradient { .. }
            | Op::ConvInputGradient { .. }
            | Op::ConvWeightGradient { .. }
    )
}

impl Analysis<Term> for Facts {
    type Data = Denoted;

    fn make(egraph: &mut EGraph<Term, Self>, term: &Term, _: Id) -> Denoted {
        match *term {
            Term::Held { value, layout } => Denoted::Held { value: ValueId(value), layout },
            Term::Compute { node, partition, .. } => Denoted::Work { node: NodeId(node), partition },
            Term::Result { index, work } => {
                let Denoted::Work { node, partition } = egraph[work[0]].data else { return Denoted::Nothing };
                let facts = &mut egraph.analysis;
                let layout = facts.ends(node, partition).results[index];
                Denoted::Held { value: facts.results(node)[index], layout }
            }
            Term::Move { step, from } => {
                let Denoted::Held { value, layout } = egraph[from].data else { return Denoted::Nothing };
                let facts = &mut egraph.analysis;
                let moved = facts.moved.get(facts.kinds[value.0], layout);
                let after = moved.and_then(|moved| moved.iter().find(|it| it.0 == step));
                after.map_or(Denoted::Nothing, |&(_, layout)| Denoted::Held { value, layout })
            }
        }
    }

    fn merge(&mut self, a: &mut Denoted, b: Denoted) -> DidMerge {
        if *a != b {
            self.faults.push(format!("{a:?} and {b:?}"));
        }
        DidMerge(false, false)
    }

    /// A value in a layout has one class: that of its name.
    fn modify(egraph: &mut EGraph<Term, Self>, id: Id) {
        let class = &egraph[id];
        if let Denoted::Held { value, layout } = class.data
            && !matches!(class.nodes[..], [Term::Held { .. }])
        {
            let name = egraph.add(Term::Held { value: value.0, layout });
            egraph.union(id, name);
        }
    }
}

/// The class of a value in a layout.
pub(super) fn hold(egraph: &mut EGraph<Term, Facts>, value: ValueId, layout: Layout) -> Id {
    let layout = egraph.analysis.alike.layouts.number(layout);
    egraph.add(Term::Held { value: value.0, layout })
}

/// The class of an operation's work in the partition of that number, with its operands and results.
pub(super) fn compute(egraph: &mut EGraph<Term, Facts>, node: NodeId, partition: usize) -> Id {
    let ends = egraph.analysis.ends(node, partition);
    let values = egraph.analysis.operands(node).to_vec();
    let held = values.iter().zip(&ends.operands);
    let operands = held.map(|(value, &layout)| egraph.add(Term::Held { value: value.0, layout })).collect();
    let work = egraph.add(Term::Compute { node: node.0, partition, operands });
    for index in 0..ends.results.len() {
        egraph.add(Term::Result { index, work: [work] });
    }
    work
}

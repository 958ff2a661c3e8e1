//! What the loops of a training step run over: found from the program alone, by what its
//! dimensions have in common.
//!
//! Dimensions that one loop indexes are one; so are factors of dimensions, where loops index
//! products. The first dimension of inputs is examples. What norms normalise is the stream; their
//! other dimensions are tokens, if they are not examples and are rows of a product with a parameter.
//! What else is a parameter's own where it is used is inside of layers: columns, heads, rows of
//! tables.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Graph, LoopId, Loops, NodeId, Op, Phase, Source, State, StateKind};

/// What something runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Examples.
    Batch,
    /// Positions in a sequence.
    Token,
    /// What norms normalise: the elements of a vector that goes from layer to layer.
    Stream,
    /// Anything else of parameters.
    Inner,
    /// Nothing of these.
    Other,
}

/// The factors of a loop, outermost first: how many iterations, over what.
pub(super) type Factors = Vec<(u64, Role)>;

/// For each operation and loop, what it runs over.
pub(super) fn roles(graph: &Graph) -> Vec<Vec<Factors>> {
    let loops: Vec<Loops> = graph.node_ids().map(|id| loops_of(graph, id)).collect();
    let mut factors = Split::default();
    while factors.refine(graph, &loops) {}
    let mut classes = Classes::default();
    join(graph, &loops, &factors, &mut classes);
    let known = Known::of(graph, &loops, &factors, &classes);
    let role_of = |place| known.role(classes.root(place));
    let of_loop = |node: NodeId, it: LoopId| (Whose::Loop(node.0), it.0, loops[node.0].get(it).size);
    graph
        .node_ids()
        .map(|node| {
            let ids = loops[node.0].ids();
            ids.map(|it| {
                let (whose, index, size) = of_loop(node, it);
                let places = factors.places(whose, index, size).into_iter();
                places.map(|(place, size)| (size, role_of(place))).collect()
            })
            .collect()
        })
        .collect()
}

/// What factors of the loops of products come to that are inside of layers; and the lengths of
/// sequences, what factors of tokens come to.
pub(super) fn inner_and_lengths(graph: &Graph) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let all = roles(graph);
    let of = |loops: &[Factors], role: Role| -> Vec<u64> {
        loops.iter().flatten().filter(|it| it.1 == role).map(|it| it.0).collect()
    };
    let products = graph.node_ids().filter(|id| is_product(&graph.node(*id).op));
    let inner = products.flat_map(|id| of(&all[id.0], Role::Inner)).collect();
    (inner, all.iter().flat_map(|loops| of(loops, Role::Token)).collect())
}

/// For each value, whether parameters, weights and constants alone are in it.
pub(super) fn stems(graph: &Graph) -> Vec<bool> {
    let mut stems = Vec::new();
    for value in &graph.values {
        stems.push(match &value.source {
            Source::State(State { kind, .. }) => *kind == StateKind::Parameter,
            Source::Weight(_) => true,
            Source::Input(_) => false,
            Source::Result { node, .. } => {
                let node = graph.node(*node);
                node.phase != Phase::Update && node.operands.iter().all(|it| stems[it.0])
            }
        });
    }
    stems
}

/// Whether an operation has parameters that it multiplies by or looks up in.
pub(super) fn is_product(op: &Op) -> bool {
    matches!(op, Op::Contract(_) | Op::Conv(_) | Op::Experts { .. } | Op::Gather { .. })
}

fn loops_of(graph: &Graph, id: NodeId) -> Loops {
    let node = graph.node(id);
    node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results))
}

/// What has factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// The dimensions of this value.
    Value(usize),
    /// The loops of this operation.
    Loop(usize),
}

/// A factor: of what, of which dimension or loop, and the product of those outside of it.
type Place = (Whose, usize, u64);

/// Where dimensions and loops fall into factors: products of the outermost ones.
#[derive(Default)]
struct Split(BTreeMap<(Whose, usize), BTreeSet<u64>>);

impl Split {
    fn cuts(&self, whose: Whose, index: usize) -> Vec<u64> {
        self.0.get(&(whose, index)).into_iter().flatten().copied().collect()
    }

    /// Adds a cut if the factors stay whole numbers; whether it is new.
    fn cut(&mut self, whose: Whose, index: usize, at: u64, size: u64) -> bool {
        let cuts = self.0.entry((whose, index)).or_default();
        let chained = |&it: &u64| it.is_multiple_of(at) || at.is_multiple_of(it);
        at > 1 && at < size && size.is_multiple_of(at) && cuts.iter().all(chained) && cuts.insert(at)
    }

    /// Cuts loops as dimensions are cut that they index, and the other way round; whether anything
    /// is new.
    fn refine(&mut self, graph: &Graph, loops: &[Loops]) -> bool {
        let mut new = false;
        each_dimension(graph, loops, |value, dim, size, node, indexed| {
            let mut outside = 1;
            for &it in indexed {
                let inside = loops[node].get(it).size;
                new |= self.cut(Whose::Value(value), dim, outside, size);
                for at in self.cuts(Whose::Loop(node), it.0) {
                    new |= self.cut(Whose::Value(value), dim, outside * at, size);
                }
                for at in self.cuts(Whose::Value(value), dim) {
                    if at > outside && at % outside == 0 {
                        new |= self.cut(Whose::Loop(node), it.0, at / outside, inside);
                    }
                }
                outside *= inside;
            }
        });
        new
    }

    /// The factors, outermost first, and how large each is.
    fn places(&self, whose: Whose, index: usize, size: u64) -> Vec<(Place, u64)> {
        let starts = [vec![1], self.cuts(whose, index)].concat();
        let ends = starts[1..].iter().copied().chain([size]);
        starts.iter().zip(ends).map(|(&start, end)| ((whose, index, start), end / start)).collect()
    }
}

/// Calls for each dimension of each operand and result: the value, which dimension, its extent, the
/// operation, its loops.
fn each_dimension(
    graph: &Graph,
    loops: &[Loops],
    mut visit: impl FnMut(usize, usize, u64, usize, &[LoopId]),
) {
    for id in graph.node_ids() {
        let (node, loops) = (graph.node(id), &loops[id.0]);
        let all = node.operands.iter().zip(&loops.operands).chain(node.results.iter().zip(&loops.results));
        for (value, dims) in all {
            for (dim, (indexed, &size)) in dims.iter().zip(&graph.type_of(*value).shape).enumerate() {
                visit(value.0, dim, size, id.0, indexed);
            }
        }
    }
}

/// Factors that are one.
#[derive(Default)]
struct Classes(BTreeMap<Place, Place>);

impl Classes {
    fn root(&self, mut place: Place) -> Place {
        while let Some(&above) = self.0.get(&place) {
            place = above;
        }
        place
    }

    fn unite(&mut self, a: Place, b: Place) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.0.insert(a.max(b), a.min(b));
        }
    }
}

/// Unites the factors of dimensions with those of the loops that index them.
fn join(graph: &Graph, loops: &[Loops], factors: &Split, classes: &mut Classes) {
    each_dimension(graph, loops, |value, dim, size, node, indexed| {
        let of_value = factors.places(Whose::Value(value), dim, size);
        let mut outside = 1;
        for &it in indexed {
            let inside = loops[node].get(it).size;
            for (place, size) in factors.places(Whose::Loop(node), it.0, inside) {
                let same = of_value.iter().find(|(other, _)| other.2 == outside * place.2);
                if let Some(&(other, _)) = same.filter(|it| it.1 == size && size > 1) {
                    classes.unite(place, other);
                }
            }
            outside *= inside;
        }
    });
}

/// The classes that are known for something.
#[derive(Default)]
struct Known {
    batch: BTreeSet<Place>,
    normalised: BTreeSet<Place>,
    beside: BTreeSet<Place>,
    rows: BTreeSet<Place>,
    own: BTreeSet<Place>,
}

impl Known {
    fn of(graph: &Graph, loops: &[Loops], factors: &Split, classes: &Classes) -> Self {
        let mut known = Self::default();
        for value in graph.value_ids() {
            let first = graph.type_of(value).shape.first();
            if let (Source::Input(_), Some(&size)) = (&graph.value(value).source, first) {
                let places = factors.places(Whose::Value(value.0), 0, size);
                known.batch.extend(places.iter().map(|it| classes.root(it.0)));
            }
        }
        let stems = stems(graph);
        for id in graph.node_ids().filter(|id| graph.node(*id).phase == Phase::Forward) {
            let (node, loops) = (graph.node(id), &loops[id.0]);
            let roots = |it: LoopId| -> Vec<Place> {
                let places = factors.places(Whose::Loop(id.0), it.0, loops.get(it).size);
                places.iter().map(|it| classes.root(it.0)).collect()
            };
            if let Op::LayerNorm { dims, .. } | Op::RmsNorm { dims, .. } = node.op {
                let all = &loops.results[0];
                let (outer, inner) = all.split_at(all.len() - dims);
                known.normalised.extend(inner.iter().flatten().flat_map(|&it| roots(it)));
                known.beside.extend(outer.iter().flatten().flat_map(|&it| roots(it)));
            }
            // What is of parameters and constants alone stands for what it is used with.
            if is_product(&node.op) && !node.operands.iter().all(|it| stems[it.0]) {
                let of = |is_stem: bool| -> BTreeSet<LoopId> {
                    let some =
                        node.operands.iter().zip(&loops.operands).filter(|it| stems[it.0.0] == is_stem);
                    some.flat_map(|it| it.1.iter().flatten().copied()).collect()
                };
                let (own, others) = (of(true), of(false));
                known.rows.extend(others.difference(&own).flat_map(|&it| roots(it)));
                known.own.extend(own.difference(&others).flat_map(|&it| roots(it)));
            }
        }
        known
    }

    fn role(&self, class: Place) -> Role {
        if self.batch.contains(&class) {
            Role::Batch
        } else if self.normalised.contains(&class) {
            Role::Stream
        } else if self.beside.contains(&class) && self.rows.contains(&class) {
            Role::Token
        } else if self.own.contains(&class) {
            Role::Inner
        } else {
            Role::Other
        }
    }
}

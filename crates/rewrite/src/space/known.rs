//! Spaces that were built before.
//!
//! Searches of one program with more and with less memory, and blocks that are the same in several
//! variants of a program, ask for the same spaces. What a graph computes is compared, not what its
//! values and operations are called: no rule looks at names.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use planner_ir::{Graph, Mesh, Node, Source, Value, ValueId};

use super::alike::Alike;
use super::{Offer, Space, SpaceError, built};

/// The most terms of all spaces together that are kept; the latest are.
const MOST_TERMS: usize = 2_000_000;

/// Spaces, for those who ask again, or at the same time.
#[derive(Debug, Default)]
pub struct Spaces {
    known: Mutex<Known>,
    /// What was found out of operations, if none is at work on it.
    alike: Mutex<Alike>,
}

/// What was asked, and what came of it: the latest last.
type Known = VecDeque<(Asked, Arc<Built>)>;

/// A space, as soon as it is built.
type Built = OnceLock<Result<Arc<Space>, SpaceError>>;

/// What a space depends on.
#[derive(Debug)]
struct Asked {
    graph: Graph,
    mesh: Mesh,
    boundary: Vec<ValueId>,
    offer: Offer,
}

impl Asked {
    fn is(&self, other: &Self) -> bool {
        let Self { graph, mesh, boundary, offer } = self;
        (mesh, boundary, offer) == (&other.mesh, &other.boundary, &other.offer)
            && are_alike(graph, &other.graph)
    }
}

impl Spaces {
    /// The space of a graph on a mesh: see [`space`].
    pub fn of(
        &self,
        graph: &Graph,
        mesh: &Mesh,
        boundary: &[ValueId],
        offer: Offer,
    ) -> Result<Arc<Space>, SpaceError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = Asked { graph: graph.clone(), mesh: mesh.clone(), boundary: boundary.to_vec(), offer };
        let answer = {
            let mut known = known();
            let found = known.iter().find(|it| it.0.is(&asked)).map(|it| Arc::clone(&it.1));
            found.unwrap_or_else(|| {
                let new = Arc::<Built>::default();
                known.push_back((asked, Arc::clone(&new)));
                new
            })
        };
        let build = || {
            let mut alike = std::mem::take(&mut *self.alike());
            let space = built(graph, mesh, boundary, offer, &mut alike).map(Arc::new);
            *self.alike() = alike;
            space
        };
        let space = answer.get_or_init(build).clone();
        let mut known = known();
        trim(&mut known, MOST_TERMS);
        space
    }

    fn alike(&self) -> MutexGuard<'_, Alike> {
        self.alike.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops what was asked first until there are no more terms than this.
fn trim(known: &mut Known, most: usize) {
    while known.iter().map(|it| terms(&it.1)).sum::<usize>() > most {
        known.pop_front();
    }
}

/// The terms of a space, none as long as it is not built.
fn terms(built: &Built) -> usize {
    built.get().and_then(|it| it.as_ref().ok()).map_or(0, |space| space.statistics.nodes)
}

/// Whether graphs are the same but for what they, their values and operations are called, and how often they
/// run in a step.
fn are_alike(first: &Graph, second: &Graph) -> bool {
    let carried = |graph: &'_ Graph| graph.training.as_ref().map(|it| it.carried.clone());
    let source = |(a, b): (&Source, &Source)| match (a, b) {
        (Source::Input(_), Source::Input(_)) | (Source::Weight(_), Source::Weight(_)) => true,
        (Source::State(a), Source::State(b)) => a.kind == b.kind,
        (Source::Result { .. }, Source::Result { .. }) => a == b,
        (Source::Input(_) | Source::Weight(_) | Source::State(_) | Source::Result { .. }, _) => false,
    };
    let value = |(a, b): (&Value, &Value)| a.type_ == b.type_ && source((&a.source, &b.source));
    let node = |(a, b): (&Node, &Node)| {
        (&a.op, &a.operands, &a.results, a.phase) == (&b.op, &b.operands, &b.results, b.phase)
    };
    (first.values.len(), first.nodes.len()) == (second.values.len(), second.nodes.len())
        && first.outputs.iter().map(|it| it.value).eq(second.outputs.iter().map(|it| it.value))
        && carried(first) == carried(second)
        && first.values.iter().zip(&second.values).all(value)
        && first.nodes.iter().zip(&second.nodes).all(node)
}

#[cfg(test)]
mod tests {
    use planner_ir::{DType, Op, Type, Unary};

    use super::*;
    use crate::{Splits, space};

    /// A chain of operations, its values called after `name`.
    fn chain(name: &str, ops: &[Unary], width: u64) -> Graph {
        let mut graph = Graph { name: name.to_owned(), ..Graph::default() };
        let type_ = Type::new(DType::F32, [8, width]);
        let mut value = graph.push_value(type_.clone(), Source::Input(name.to_owned()));
        for &op in ops {
            value = graph.push_node(Op::Unary(op), vec![value], vec![type_.clone()], name.to_owned())[0];
        }
        graph
    }

    #[test]
    fn a_space_is_shared_by_what_differs_in_names_only() {
        let spaces = Spaces::default();
        let (ops, mesh) = ([Unary::Exp, Unary::Tanh], Mesh::of_sizes(&[2, 2]));
        let of = |graph: &Graph, mesh: &Mesh, boundary: &[ValueId], offer| {
            let own = spaces.of(graph, mesh, boundary, offer).unwrap();
            assert_eq!(*own, space(graph, mesh, boundary, offer).unwrap());
            own
        };
        let all = Offer::default();
        let first = of(&chain("a", &ops, 8), &mesh, &[], all);
        assert!(Arc::ptr_eq(&first, &of(&chain("b", &ops, 8), &mesh, &[], all)));
        let others = [
            of(&chain("a", &[Unary::Tanh, Unary::Exp], 8), &mesh, &[], all),
            of(&chain("a", &ops, 6), &mesh, &[], all),
            of(&chain("a", &ops, 8), &Mesh::of_sizes(&[2, 4]), &[], all),
            of(&chain("a", &ops, 8), &mesh, &[ValueId(2)], all),
            of(&chain("a", &ops, 8), &mesh, &[], Splits::AtMost(1).into()),
        ];
        assert!(others.iter().all(|other| !Arc::ptr_eq(&first, other)));
        assert!(Arc::ptr_eq(&first, &of(&chain("c", &ops, 8), &mesh, &[], all)));
    }

    #[test]
    fn the_latest_spaces_are_kept() {
        let spaces = Spaces::default();
        let mesh = Mesh::of_sizes(&[2]);
        let of = |width| spaces.of(&chain("a", &[Unary::Exp], width), &mesh, &[], Offer::default()).unwrap();
        let (first, second) = (of(4), of(8));
        let room = second.statistics.nodes;
        trim(&mut spaces.known.lock().unwrap(), room);
        assert!(Arc::ptr_eq(&second, &of(8)));
        assert!(!Arc::ptr_eq(&first, &of(4)));
        trim(&mut spaces.known.lock().unwrap(), room - 1);
        assert!(spaces.known.lock().unwrap().is_empty());
    }
}

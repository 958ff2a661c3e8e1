//! Spaces that were built before.
//!
//! Searches of one program with more and with less memory, and blocks that are the same in several
//! variants of a program, ask for the same spaces. What a graph computes is compared, not what its
//! values and operations are called: no rule looks at names.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use planner_ir::{Graph, Mesh, Source, ValueId};

use super::{Offer, Space, SpaceError, space};

/// The most terms of all spaces together that are kept; the latest are.
const MOST_TERMS: usize = 1_000_000;

/// Spaces, for those who ask again, or at the same time.
#[derive(Debug, Default)]
pub struct Spaces(Mutex<VecDeque<(Asked, Arc<Built>)>>);

/// A space, as soon as it is built.
type Built = OnceLock<Result<Arc<Space>, SpaceError>>;

/// What a space depends on.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    graph: Graph,
    mesh: Mesh,
    boundary: Vec<ValueId>,
    offer: Offer,
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
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = Asked { graph: nameless(graph), mesh: mesh.clone(), boundary: boundary.to_vec(), offer };
        let built = {
            let mut known = known();
            let found = known.iter().find(|it| it.0 == asked).map(|it| Arc::clone(&it.1));
            found.unwrap_or_else(|| {
                let new = Arc::<Built>::default();
                known.push_back((asked, Arc::clone(&new)));
                new
            })
        };
        let space = built.get_or_init(|| space(graph, mesh, boundary, offer).map(Arc::new)).clone();
        let mut known = known();
        while known.iter().map(|it| terms(&it.1)).sum::<usize>() > MOST_TERMS {
            known.pop_front();
        }
        space
    }
}

/// The terms of a space, none as long as it is not built.
fn terms(built: &Built) -> usize {
    built.get().and_then(|it| it.as_ref().ok()).map_or(0, |space| space.statistics.nodes)
}

/// A graph without what its values and operations are called, and how often it runs in a step.
fn nameless(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    graph.name.clear();
    for value in &mut graph.values {
        match &mut value.source {
            Source::Input(name) | Source::Weight(name) => name.clear(),
            Source::State(state) => state.name.clear(),
            Source::Result { .. } => {}
        }
    }
    graph.nodes.iter_mut().for_each(|node| node.origin.clear());
    graph.outputs.iter_mut().for_each(|output| output.name.clear());
    if let Some(training) = &mut graph.training {
        training.micro_batches = 1;
    }
    graph
}

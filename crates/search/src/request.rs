//! What a plan is wanted for, and why there is none.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use plan::{MachineName, ModelFile, Plan};
use planner_ir::{Graph, Layout, Mesh, Source, ValueId};
use rewrite::{Offer, SpaceError, Steps};

use crate::beside::Beside;
use crate::bound::{Trail, is_far};
use crate::fixed::{Fixed, FixedError};
use crate::live::Live;
use crate::prices::Prices;
use crate::problem::SearchError;
use crate::section::Section;

/// What a plan is wanted for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The program.
    pub graph: &'a Graph,
    /// Its blocks, in order.
    pub sections: &'a [Section],
    /// The devices' coordinates.
    pub mesh: &'a Mesh,
    /// What a device can hold (bytes).
    pub capacity: u64,
    /// What operations and moves take.
    pub prices: &'a dyn Prices,
    /// The model file.
    pub model: &'a ModelFile,
    /// The machine.
    pub machine: &'a MachineName,
    /// Whether operations may be done in time steps.
    pub steps: Steps,
    /// What has its layout already, if something has.
    pub pinned: Option<&'a Pinned>,
    /// How operations are computed that the user has fixed; what is of none of the program's says nothing.
    pub fixed: &'a [Fixed],
    /// How many micro-batches are under way at once: more than one in a stage of a pipeline, which
    /// keeps for each of them what its gradients need.
    pub live: Live,
    /// What searches before have seen, from which this one starts and to which it adds: of the same
    /// program on the same mesh, or a waste of time.
    pub trail: Option<&'a Mutex<Trail>>,
    /// What a device holds of a plan, which says what the search counts.
    pub memory: &'a Holds<'a>,
    /// Whether a plan, the best where nothing is hidden by what is longer, is enough: none by other weights of
    /// seconds is wanted then.
    pub enough: &'a dyn Fn(&Plan) -> bool,
}

/// What is given by another program on the same devices: the layout of inputs and outputs, for programs that hand them
/// to one another without a move hold them alike; and what it holds besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// The layout in which each is at rest, or returned, by the names of inputs and outputs, all of them that equal
    /// blocks have; it owes nothing.
    pub layouts: BTreeMap<String, Layout>,
    /// What the other program holds, whose steps take turns with those of this one.
    pub beside: Beside,
}

impl Pinned {
    /// The values of a graph that have a layout.
    pub(crate) fn values(&self, graph: &Graph) -> BTreeMap<ValueId, &Layout> {
        let inputs = graph.value_ids().filter_map(|value| match &graph.value(value).source {
            Source::Input(name) => Some((value, self.layouts.get(name)?)),
            _ => None,
        });
        let outputs = graph.outputs.iter().filter_map(|it| Some((it.value, self.layouts.get(&it.name)?)));
        inputs.chain(outputs).collect()
    }
}

/// What a device holds of a plan if nothing is exchanged ahead of its use (bytes).
pub type Holds<'a> = dyn Fn(&Plan) -> Result<u64, String> + 'a;

/// More memory than any plan takes (bytes). Where there is so much, what plans hold is counted of the answer alone, as
/// the search counts it.
pub const UNBOUNDED: u64 = 1 << 52;

/// What a plan counts of the fullest device, and no more.
pub fn counted(plan: &Plan) -> Result<u64, String> {
    Ok(plan::held(&plan.memory))
}

/// Why there is no plan.
#[derive(Debug)]
pub enum PlanError {
    /// The space was not built.
    Space(SpaceError),
    /// What the user has fixed cannot be.
    Fixed(FixedError),
    /// No choice was found.
    Search(SearchError),
    /// Programs to choose among differ in more than the insides of their sections.
    Unlike,
    /// What was derived is not made of the sections that were chosen; the first block that is not.
    Derived(usize),
    /// What a plan holds could not be told, for this reason.
    Memory(String),
    /// The space of the partitions that were asked for was too large, and there is no plan among fewer.
    Fewer {
        /// What was asked for.
        offer: Offer,
        /// By how much it was too large.
        large: Box<Self>,
        /// Why there is no plan among fewer.
        error: Box<Self>,
    },
}

impl PlanError {
    /// Whether there may be a plan among fewer partitions: the space of all of them outgrew its limit.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::Space(SpaceError::Limit(_)))
    }

    /// Whether nothing that was found comes near to fitting, though that nothing does is not proven.
    pub fn is_far(&self) -> bool {
        let Self::Search(SearchError::NothingFound { found, capacity, .. }) = self.last() else {
            return false;
        };
        is_far(*found, *capacity)
    }

    /// Whether it is proven that nothing fits.
    pub fn is_proven(&self) -> bool {
        use SearchError::{DoesNotFit, DoesNotFitTogether};
        matches!(self.last(), Self::Search(DoesNotFit { .. } | DoesNotFitTogether { .. }))
    }

    /// What the nearest plan needs on a device, as far as is known, where there is none for want of memory (bytes).
    pub fn needs(&self) -> Option<u64> {
        use SearchError::{DoesNotFit, DoesNotFitTogether, NothingFound};
        match self.last() {
            Self::Search(DoesNotFit { least, .. } | DoesNotFitTogether { least, .. }) => Some(*least),
            Self::Search(NothingFound { found, .. }) => Some(*found),
            _ => None,
        }
    }

    /// Why there is no plan among the partitions that were looked at last.
    pub fn last(&self) -> &Self {
        match self {
            Self::Fewer { error, .. } => error.last(),
            other => other,
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Space(error) => error.fmt(f),
            Self::Fixed(error) => error.fmt(f),
            Self::Search(error) => error.fmt(f),
            Self::Unlike => f.write_str("the programs to choose among are not cut alike"),
            Self::Fewer { offer, large, error } => {
                let what = if offer.steps == Steps::One { "" } else { ", in time steps too," };
                write!(f, "the space of all partitions{what} is too large ({large}); among fewer: {error}")
            }
            Self::Memory(reason) => write!(f, "what the plan holds is not known: {reason}"),
            Self::Derived(block) => write!(f, "block {block} of the derived program is not the one chosen"),
        }
    }
}

impl std::error::Error for PlanError {}

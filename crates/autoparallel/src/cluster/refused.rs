//! What a user has fixed that cannot be on some meshes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use files::Failure;
use planner_ir::Mesh;
use search::FixedError;

use super::Question;
use super::known::{Known, ShortStep};
use super::parts::Part;
use crate::mesh::sizes;

/// What is fixed that cannot be on a mesh: blocks that have some of it are priced as if it were not.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// For each block of the model, whether some of its operations cannot be as is fixed.
    pub(super) blocks: Vec<bool>,
    /// The reason of the first.
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn of(errors: &[FixedError], step: &ShortStep) -> Option<Self> {
        let why = errors.first()?.to_string();
        let nodes = step.prepared.graph.nodes.iter().zip(&step.homes);
        let cannot = nodes.filter(|(node, _)| errors.iter().any(|error| error.is_of(node)));
        let short: BTreeSet<usize> = cannot.map(|(_, &home)| home).collect();
        Some(Self { blocks: step.stands.iter().map(|it| short.contains(it)).collect(), why })
    }
}

/// What was refused on which meshes.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Why, by how many axes a mesh has and what it is called.
    why: BTreeMap<(usize, String), String>,
    /// Whether nothing was refused on some mesh.
    nowhere: bool,
}

impl Refused {
    /// Notes what was refused on the mesh of a part.
    pub(super) fn note(&mut self, part: &Part) {
        match &part.refused {
            Some(refused) => {
                let Mesh { axes, .. } = &part.mesh;
                self.why.entry((axes.len(), sizes(&part.mesh))).or_insert_with(|| refused.why.clone());
            }
            None => self.nowhere = true,
        }
    }

    /// Adds what others have noted.
    pub(super) fn with(mut self, other: &Self) -> Self {
        self.why.extend(other.why.clone());
        self.nowhere |= other.nowhere;
        self
    }

    /// Whether something was refused on all meshes that were looked at.
    pub(super) fn everywhere(&self) -> bool {
        !self.nowhere && !self.why.is_empty()
    }
}

/// Of the mesh with most axes, on which most can be.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(((_, mesh), why)) = self.why.last_key_value() else { return Ok(()) };
        write!(f, "; on mesh {mesh}: {why}")
    }
}

/// Why there is no pipeline where there are so many setups.
pub(super) fn none_fits(question: &Question<'_>, setups: usize, known: &[Known]) -> Failure {
    let refused = known.iter().fold(Refused::default(), |refused, it| it.refused(refused));
    if refused.everywhere() {
        let message = format!("none of {setups} setups can have what is fixed{refused}");
        return Failure::input("no pipeline", message);
    }
    let most =
        question.cluster.kinds().iter().map(|it| question.memory.unwrap_or(it.usable_memory().0)).max();
    let pinned = match question.pins.operations[..] {
        [] => "",
        _ => ", with operations computed as `--pin` says",
    };
    Failure::input(
        "no pipeline",
        format!(
            "none of {setups} setups was found to fit {} on a device{pinned}; more devices, or with `--recompute \
             full` smaller micro-batches would help{refused}",
            cost_models::quantity::bytes(most.unwrap_or(0))
        ),
    )
}

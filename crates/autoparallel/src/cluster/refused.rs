//! What a user has fixed that cannot be on some meshes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use planner_ir::{Graph, Mesh};
use search::FixedError;

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
    /// Of a step whose operations are of these of so many blocks.
    pub(super) fn of(
        errors: &[FixedError],
        graph: &Graph,
        (homes, blocks): (&[usize], usize),
    ) -> Option<Self> {
        let why = errors.first()?.to_string();
        let nodes = graph.nodes.iter().zip(homes);
        let cannot = nodes.filter(|(node, _)| errors.iter().any(|error| error.is_of(node)));
        let cannot: BTreeSet<usize> = cannot.map(|(_, &home)| home).collect();
        Some(Self { blocks: (0..blocks).map(|it| cannot.contains(&it)).collect(), why })
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
    /// Notes what was refused on a mesh.
    pub(super) fn note(&mut self, mesh: &Mesh, refused: Option<&Refusal>) {
        match refused {
            Some(refused) => {
                self.why.entry((mesh.axes.len(), sizes(mesh))).or_insert_with(|| refused.why.clone());
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

//! One program for all ranks, and in what theirs differ.
//!
//! All ranks have the same instructions over buffers of the same sizes. They differ in which
//! blocks of values they hold and in whom they exchange with: the first decides no time, and the
//! second follows from the mesh. So what is to be known of a thousand programs is known of one.

use plan::Plan;
use planner_ir::{AxisId, Mesh};

use crate::action::CommunicatorId;
use crate::build::built;
use crate::ends::Ends;
use crate::error::LowerError;
use crate::events;
use crate::facts::Facts;
use crate::overlap;
use crate::program::Program;

/// The program of rank 0, and whom the others exchange with.
#[derive(Clone, Debug, PartialEq)]
pub struct Alike {
    /// What rank 0 does, and all others do with other ranks.
    pub program: Program,
    /// The devices' coordinates.
    pub mesh: Mesh,
    /// For each communicator the axes along which its ranks lie.
    pub axes: Vec<Vec<AxisId>>,
    /// For each message, in the order of the program, the rank that each rank gets from.
    pub sources: Vec<Vec<u64>>,
}

impl Alike {
    /// The groups of ranks of a communicator, as their programs have them: each once, by its first rank.
    ///
    /// # Panics
    /// If there is no such communicator.
    pub fn groups(&self, communicator: CommunicatorId) -> Vec<Vec<u64>> {
        self.mesh.groups(&self.axes[communicator.0])
    }
}

/// What [`lower`](crate::lower) makes, without making it for each rank.
pub fn alike(plan: &Plan) -> Result<Alike, LowerError> {
    let facts = Facts::of(plan)?;
    let ends = Ends::default();
    let build = built(plan, &facts, &ends, 0)?;
    let axes = build.axes();
    let program = events::ordered(overlap::alone(plan, build.program).program);
    Ok(Alike { program, mesh: plan.mesh.clone(), axes, sources: build.sources })
}

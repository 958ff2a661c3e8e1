//! What a device's memory is for.

use std::ops::Range;

use plan::{Holding, Plan};
use planner_ir::{Phase, Source, StateKind};

use crate::action::Origin;
use crate::arena::{self, Lifetime, Placed};
use crate::build::{built, placed};
use crate::ends::Ends;
use crate::error::LowerError;
use crate::facts::Facts;
use crate::in_place;
use crate::program::Program;
use crate::storage::{ALIGNMENT, Kind, Region, StorageId};

/// What part of a device's memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Weights,
    Masters,
    Optimizer,
    Gradients,
    Inputs,
    Activations,
    Temporaries,
    Communication,
    Packing,
}

impl Use {
    const ALL: [Self; 9] = [
        Self::Weights,
        Self::Masters,
        Self::Optimizer,
        Self::Gradients,
        Self::Inputs,
        Self::Activations,
        Self::Temporaries,
        Self::Communication,
        Self::Packing,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Masters => "masters",
            Self::Optimizer => "optimizer",
            Self::Gradients => "gradients",
            Self::Inputs => "inputs",
            Self::Activations => "activations",
            Self::Temporaries => "temporaries",
            Self::Communication => "communication",
            Self::Packing => "packing",
        }
    }

    /// Whether inference has it.
    fn is_of_inference(self) -> bool {
        !matches!(self, Self::Masters | Self::Optimizer | Self::Gradients | Self::Temporaries)
    }
}

/// What a device holds, by kind (bytes): together what its program's memories take, byte for byte.
/// As much on every device, for all have the same instructions over the same buffers.
///
/// - `weights`: parameters, weights and what is prepared from them
/// - `masters`: parameters in full precision
/// - `optimizer`: moments
/// - `gradients`: sums over micro-batches
/// - `inputs`: those of a step, and of one micro-batch
///
/// and at the fullest moment of a step, the first of equal ones:
///
/// - `activations`: what the forward pass makes and the backward pass uses; in inference, all
///   that operations make
/// - `temporaries`: what else the operations of a training step make
/// - `communication`: copies of values in other layouts, but for those of activations that the
///   backward pass uses again, what is packed for exchanges, and blocks that are brought for one
///   time step of an operation
/// - `packing`: what is between values, to align them or because they do not fit closer
///
/// The kinds that only a training step has are left out in inference.
pub fn memory(plan: &Plan) -> Result<Vec<Holding>, LowerError> {
    let Placed { program, lifetimes, .. } = placed(plan, &Facts::of(plan)?, 0)?;
    let mut bytes = [0_u64; Use::ALL.len()];
    let at_rest = program.storages.iter().filter(|it| it.kind.region() == Region::Resident);
    for storage in at_rest {
        bytes[at_rest_for(storage.kind) as usize] += storage.bytes;
    }
    let all = 0..program.instructions.len() + 1;
    for (storage, lifetime) in at_the_fullest(&program, lifetimes, all) {
        bytes[made_for(plan, &program, storage, lifetime) as usize] += program.storages[storage].bytes;
    }
    bytes[Use::Packing as usize] = program.resident + program.arena - bytes.iter().sum::<u64>();
    let trains = plan.graph.training.is_some();
    let shown = Use::ALL.into_iter().filter(|it| trains || it.is_of_inference());
    let shown = shown.map(|it| Holding { kind: it.name().to_owned(), bytes: bytes[it as usize] });
    Ok(shown.collect())
}

/// What a device would hold if nothing were exchanged ahead of its use, which is found much sooner than
/// [`memory`]: all of that is no more than this, or than the plan's capacity.
pub fn least(plan: &Plan) -> Result<Least, LowerError> {
    let facts = Facts::of(plan)?;
    let program = in_place::reduced(built(plan, &facts, &Ends::default(), 0)?.program);
    let Program { resident, arena, .. } = arena::in_order(program).program;
    Ok(Least { resident, arena })
}

/// What a device holds of a program, by region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// What is at rest (bytes).
    pub resident: u64,
    /// What a step takes besides (bytes).
    pub arena: u64,
}

impl Least {
    /// Both together (bytes).
    pub fn bytes(self) -> u64 {
        self.resident + self.arena
    }
}

fn at_rest_for(kind: Kind) -> Use {
    match kind {
        Kind::State(StateKind::Master) => Use::Masters,
        Kind::State(StateKind::FirstMoment | StateKind::SecondMoment | StateKind::History) => Use::Optimizer,
        Kind::State(StateKind::Gradient | StateKind::Total | StateKind::Largest) => Use::Gradients,
        Kind::Input => Use::Inputs,
        _ => Use::Weights,
    }
}

/// What a memory at rest is for, in words.
pub(crate) fn name_at_rest(kind: Kind) -> &'static str {
    at_rest_for(kind).name()
}

/// The storages that live when most does, at one of these moments.
pub(crate) fn at_the_fullest(
    program: &Program,
    lifetimes: Vec<Option<Lifetime>>,
    moments: Range<usize>,
) -> Vec<(usize, Lifetime)> {
    let lives: Vec<(usize, Lifetime)> =
        lifetimes.into_iter().enumerate().filter_map(|(it, life)| Some((it, life?))).collect();
    let mut comes = vec![0; program.instructions.len() + 2];
    let mut goes = comes.clone();
    for (storage, life) in &lives {
        let bytes = program.extent(StorageId(*storage)).next_multiple_of(ALIGNMENT);
        comes[life.first] += bytes;
        goes[life.last + 1] += bytes;
    }
    let (mut now, mut most, mut fullest) = (0, 0, 0);
    for (moment, (comes, goes)) in comes.into_iter().zip(goes).enumerate() {
        now = now + comes - goes;
        if now > most && moments.contains(&moment) {
            (most, fullest) = (now, moment);
        }
    }
    lives.into_iter().filter(|(_, life)| life.first <= fullest && fullest <= life.last).collect()
}

/// What a storage that a step writes is for.
fn made_for(plan: &Plan, program: &Program, storage: usize, life: Lifetime) -> Use {
    if program.storages[storage].kind == Kind::Communication {
        return Use::Communication;
    }
    let made = &program.instructions[life.first];
    let last = program.instructions.get(life.last).map_or(Phase::Update, |it| it.phase);
    let kept = made.phase == Phase::Forward && matches!(last, Phase::Backward | Phase::Gradient);
    match made.origin {
        Origin::Move { transfer, .. } => {
            let value = plan.transfers[transfer].value;
            let prepared = program.prepared.iter().any(|port| port.value == value);
            let computed = matches!(plan.graph.value(value).source, Source::Result { .. }) && !prepared;
            if kept && computed { Use::Activations } else { Use::Communication }
        }
        _ if kept || plan.graph.training.is_none() => Use::Activations,
        _ => Use::Temporaries,
    }
}

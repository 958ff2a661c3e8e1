//! A pipeline: plans for the stages of a training step, what crosses between them, and in which order
//! each group of devices works.

use planner_ir::Phase;
use schedule::{Schedule, StageTimes};

use crate::clocks::{Clock, Load};
use crate::plan::{Assignment, Copy, Holding, MachineName, Part, Plan, Proof, Term, held};
use crate::recipe::Recipe;

/// How a training step is run in stages, each on devices of its own.
///
/// A stage is a plan like any other, of a program that has a part of the step. What it takes from
/// other stages are inputs, and what it gives them outputs, of the same names.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The machine that it was made for.
    pub machine: MachineName,
    /// Devices in a node: those of successive ranks.
    pub devices_per_node: u64,
    /// The order of work of each group of devices.
    pub schedule: Schedule,
    /// The stages, in the order of the model.
    pub stages: Vec<Stage>,
    /// What crosses between them.
    pub crossings: Vec<Crossing>,
    /// How the whole training step was derived from the model.
    pub recipe: Recipe,
    /// What a step takes, by name.
    pub estimate: Vec<Term>,
    /// For each group, what the fullest of its devices holds, by kind.
    pub memory: Vec<Vec<Holding>>,
    /// What a device can hold (bytes): where nodes are of several kinds, one of those that can hold the most.
    pub capacity: u64,
    /// How good the pipeline is.
    pub proof: Proof,
}

/// A stage: a run of blocks of the model on a mesh of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The first of its blocks.
    pub first_block: usize,
    /// The rank of its mesh's first device; the others follow.
    pub first_device: u64,
    /// How many adapters to others each of its nodes has, each for an equal run of the node's devices.
    pub adapters: u64,
    /// How its part of the step is run.
    pub plan: Plan,
}

/// A value that one stage makes and others use.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossing {
    /// What the output and the inputs are called.
    pub name: String,
    /// The stage that makes it.
    pub from: usize,
    /// The stages that use it, ascending.
    pub to: Vec<Arrival>,
}

/// How a value comes to a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Which stage.
    pub stage: usize,
    /// How it travels: the name of a strategy of resharding.
    pub strategy: String,
    /// The most chunks in which it goes from node to node.
    pub chunks: u64,
    /// What the stage's devices together receive, each time (bytes).
    pub bytes: u64,
    /// What it takes each time, with the links for it alone (seconds).
    pub seconds: f64,
}

impl Pipeline {
    /// The time of one step (seconds).
    pub fn seconds(&self) -> f64 {
        self.estimate.iter().map(|term| term.seconds).sum()
    }

    /// How many micro-batches a step has.
    pub fn micro_batches(&self) -> u64 {
        self.recipe.micro_batches
    }

    /// How many devices there are.
    pub fn devices(&self) -> u64 {
        let end = |stage: &Stage| stage.first_device + stage.plan.mesh.devices();
        self.stages.iter().map(end).max().unwrap_or(0)
    }

    /// What the fullest device holds (bytes).
    pub fn held(&self) -> u64 {
        self.memory.iter().map(|of_group| held(of_group)).max().unwrap_or(0)
    }

    /// What a device of a group can hold (bytes).
    pub fn capacity_of(&self, group: usize) -> u64 {
        let own = self.stages.iter().enumerate().filter(|(number, _)| self.group(*number) == group);
        own.map(|(_, stage)| stage.plan.capacity).min().unwrap_or(self.capacity).min(self.capacity)
    }

    /// The number of the group that has a stage.
    pub fn group(&self, stage: usize) -> usize {
        self.schedule.home(stage).0
    }
}

/// What computing waits for while something else can be computed, and that, each time that a part of a step runs
/// (seconds).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// Exchanges that gradients of values wait for, beside which gradients of parameters may be computed.
    pub waited: f64,
    /// Exchanges of rows that are routed, by part of a step.
    pub routed: [f64; 2],
    /// What may be computed meanwhile and is no gradient of a parameter.
    pub meanwhile: [f64; 2],
}

impl Waits {
    /// Nothing at all.
    pub const NOTHING: Self = Self { waited: 0.0, routed: [0.0; 2], meanwhile: [0.0; 2] };

    /// What is on the clocks of both parts of a step.
    #[must_use]
    pub fn of(loads: &[Load; 2]) -> Self {
        Self {
            waited: loads[Clock::Backward as usize].waited,
            routed: loads.map(|it| it.routed),
            meanwhile: loads.map(|it| it.meanwhile),
        }
    }

    /// So many times as much.
    #[must_use]
    pub fn times(self, times: f64) -> Self {
        let each = |all: [f64; 2]| all.map(|it| times * it);
        Self { waited: times * self.waited, routed: each(self.routed), meanwhile: each(self.meanwhile) }
    }

    /// With what computing waits for elsewhere.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let both = |own: [f64; 2], other: [f64; 2]| [own[0] + other[0], own[1] + other[1]];
        Self {
            waited: self.waited + other.waited,
            routed: both(self.routed, other.routed),
            meanwhile: both(self.meanwhile, other.meanwhile),
        }
    }
}

/// What phases take, of which this may run beside the rest and so much is waited for, of what could be hidden a part,
/// from 0 to 1: two clocks for each part of a step (see [`crate::Clock`]). Gradients of values and of parameters are one
/// part, of which sums of gradients are hidden first, then weights; or two, if a schedule `splits` them: each is a task
/// then, which nothing leaves.
#[must_use]
pub fn by_clocks(
    times: StageTimes,
    (beside, waits): (StageTimes, Waits),
    hides: f64,
    splits: bool,
) -> StageTimes {
    let hidden = |all: f64, beside: f64| hides * beside.min(all - beside).max(0.0);
    let StageTimes { forward, mut backward, mut weight } = times;
    let Waits { waited, routed, meanwhile } = waits;
    let [of_forward, of_backward] = [0, 1].map(|part| f64::min(routed[part], meanwhile[part]));
    if splits {
        backward -= hides * of_backward + hidden(times.backward - of_backward, beside.backward);
        weight -= hidden(times.weight, beside.weight);
    } else {
        let computed = (weight - beside.weight).max(0.0) + meanwhile[1];
        let within = (waited + routed[1]).min(computed);
        let mut left = hides * within + hidden(backward + weight - within, beside.backward + beside.weight);
        let mut less = |time: &mut f64, most: f64| {
            let less = left.min(most).min(*time);
            (*time, left) = (*time - less, left - less);
        };
        less(&mut weight, beside.weight);
        less(&mut backward, f64::INFINITY);
        less(&mut weight, f64::INFINITY);
    }
    let forward = forward - hides * of_forward - hidden(forward - of_forward, beside.forward);
    StageTimes { forward, backward, weight }
}

impl Plan {
    /// What the parts of a training step take: of one micro-batch forward, the gradients of values
    /// and of parameters; and of the update (seconds). What moves counts where it is first used, less what is
    /// hidden, in a schedule that splits gradients of parameters off or not.
    pub fn phases(&self, splits: bool) -> (StageTimes, f64) {
        let (mut sums, mut beside) = ([0.0; Phase::ALL.len()], [0.0; Phase::ALL.len()]);
        let loads = self.loads(None);
        for (node, assignment) in self.graph.nodes.iter().zip(&self.assignments) {
            if let Assignment::Computed { seconds, .. } = assignment {
                sums[node.phase as usize] += seconds;
            }
        }
        for ((transfer, phase), kind) in self.transfers.iter().zip(self.transfer_phases()).zip(self.beside())
        {
            // What waits is no gradient of a parameter that could be computed while something else is waited for.
            let in_the_way = transfer.waits && phase == Phase::Gradient && !splits;
            let phase = if in_the_way { Phase::Backward } else { phase };
            sums[phase as usize] += transfer.takes();
            if kind.is_some() {
                beside[phase as usize] += transfer.takes();
            }
        }
        let of = |[forward, backward, weight, _]: [f64; 4]| StageTimes { forward, backward, weight };
        // What part of what could be hidden the plan says is.
        let part = |clock: Clock, hidden: f64| {
            let most = loads[clock as usize].most_hidden();
            if most > 0.0 { hidden / most } else { 0.0 }
        };
        let (times, beside) = (of(sums), (of(beside), Waits::of(&loads)));
        let forward = by_clocks(times, beside, part(Clock::Forward, self.hidden.forward), splits).forward;
        let backward = by_clocks(times, beside, part(Clock::Backward, self.hidden.backward), splits);
        (StageTimes { forward, ..backward }, sums[Phase::Update as usize])
    }

    /// For each transfer, the phase in which it is first used.
    pub fn transfer_phases(&self) -> Vec<Phase> {
        self.transfer_reads().into_iter().map(|it| it.0).collect()
    }

    /// The same, and whether an operation uses it.
    pub(crate) fn transfer_reads(&self) -> Vec<(Phase, bool)> {
        let mut first: Vec<Option<Phase>> = vec![None; self.transfers.len()];
        let mut read = |copy: Copy, phase: Phase| {
            if let Copy::Transferred(it) = copy {
                first[it] = Some(first[it].map_or(phase, |before| before.min(phase)));
            }
        };
        for (node, assignment) in self.graph.nodes.iter().zip(&self.assignments) {
            if let Assignment::Computed { operands, .. } = assignment {
                operands.iter().for_each(|&copy| read(copy, node.phase));
            }
        }
        // What nobody reads is carried, or returned.
        let last = |part: Part| if part == Part::Update { Phase::Update } else { Phase::Gradient };
        let mut phases: Vec<Phase> = self.when().into_iter().map(last).collect();
        let mut by_operation: Vec<bool> = first.iter().map(Option::is_some).collect();
        for (index, transfer) in self.transfers.iter().enumerate().rev() {
            // What takes the place of a gradient is made for every micro-batch, if the update reads it or not.
            let phase = first[index].map_or(phases[index], |it| it.min(phases[index]));
            phases[index] = phase;
            if let Copy::Transferred(from) = transfer.from {
                first[from] = Some(first[from].map_or(phase, |before| before.min(phase)));
                by_operation[from] |= by_operation[index];
            }
        }
        phases.into_iter().zip(by_operation).collect()
    }
}

#[cfg(test)]
mod tests;

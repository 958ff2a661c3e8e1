//! What there is to choose of a setup whose model, devices, batch and numbers are given.

use ::export::Cuts;
use ::schedule::Kind;
use predict::config::{DISPATCH, RECOMPUTE, SCHEDULE};
use predict::setup::{Arithmetic, Dispatch, Recompute, Setup, Zero};

use super::{Space, must_split};

/// The key of how many stages there are.
pub(super) const STAGES: &str = "pipeline_model_parallel_size";

/// The key of how many layers each stage has.
pub(super) const LAYERS: &str = "pipeline_layers";

/// A choice; the rest of the setup follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Ranks that compute parts of each product.
    pub tp: u64,
    /// Stages.
    pub pp: u64,
    /// Parts of a stage.
    pub vpp: u64,
    /// Ranks that share an example.
    pub cp: u64,
    /// Ranks that share experts.
    pub ep: u64,
    /// Ranks that compute parts of an expert's products.
    pub etp: u64,
    /// Examples of a micro-batch.
    pub mbs: u64,
    /// What data-parallel ranks share.
    pub zero: Zero,
    /// Recomputation.
    pub recompute: Recompute,
    /// The order of a stage's work.
    pub schedule: Kind,
    /// Whether sequences are split.
    pub sequence: bool,
    /// Whether traffic of data parallelism is overlapped.
    pub dp_overlap: bool,
    /// Whether that of tensor parallelism is.
    pub tp_overlap: bool,
    /// How tokens reach experts.
    pub dispatch: Option<Dispatch>,
    /// Whether stages are equal, and not as the setup has them.
    pub even: bool,
}

/// A key that a choice sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name, as in stated setups.
    pub name: &'static str,
    /// Its value before.
    pub from: String,
    /// Its value after.
    pub to: String,
}

impl Choice {
    /// That of a setup.
    #[must_use]
    pub fn of(setup: &Setup) -> Self {
        let Setup { tp, pp, vpp, cp, ep, etp, mbs, zero, recompute, schedule, dispatch, .. } = *setup;
        let (dp_overlap, tp_overlap) = (setup.dp_overlap, setup.tp_overlap);
        let even = setup.stages == setup.model.stages(pp);
        let sequence = setup.seq_parallel;
        Self {
            tp,
            pp,
            vpp,
            cp,
            ep,
            etp,
            mbs,
            zero,
            recompute,
            schedule,
            sequence,
            dp_overlap,
            tp_overlap,
            dispatch,
            even,
        }
    }

    /// In how many degrees of parallelism, micro-batches included, another differs.
    pub(super) fn degrees_apart(&self, other: &Self) -> usize {
        let degrees = |it: &Self| [it.tp, it.pp, it.cp, it.ep, it.mbs];
        degrees(self).into_iter().zip(degrees(other)).filter(|(one, other)| one != other).count()
    }

    /// How many layers each stage has.
    fn stages(&self, base: &Setup) -> Vec<u64> {
        if self.even { base.model.stages(self.pp) } else { base.stages.clone() }
    }

    /// The setup with this choice.
    #[must_use]
    pub fn setup(&self, base: &Setup) -> Setup {
        let replica = self.tp * self.pp * self.cp;
        Setup {
            tp: self.tp,
            pp: self.pp,
            vpp: self.vpp,
            stages: self.stages(base),
            cp: self.cp,
            ep: self.ep,
            etp: self.etp,
            dispatch: self.dispatch,
            dp: base.devices() / replica,
            mbs: self.mbs,
            zero: self.zero,
            seq_parallel: self.sequence,
            recompute: self.recompute,
            schedule: self.schedule,
            dp_overlap: self.dp_overlap,
            tp_overlap: self.tp_overlap,
            ..base.clone()
        }
    }

    /// The keys in which another differs from this. What means nothing where it is does not count: splitting of
    /// sequences without tensor-parallel ranks, parts and orders without a pipeline, sharding among one rank.
    #[must_use]
    pub fn changes(&self, to: &Self, base: &Setup) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut key = |name, from: String, after: String| {
            if from != after {
                keys.push(Key { name, from, to: after });
            }
        };
        let count = |it: u64| it.to_string();
        key("tensor_model_parallel_size", count(self.tp), count(to.tp));
        key(STAGES, count(self.pp), count(to.pp));
        key("context_parallel_size", count(self.cp), count(to.cp));
        key("micro_batch_size", count(self.mbs), count(to.mbs));
        key("recompute_granularity", word(&RECOMPUTE, self.recompute), word(&RECOMPUTE, to.recompute));
        key("zero_stage", zero(self.zero), zero(to.zero));
        key("overlap_grad_reduce", self.dp_overlap.to_string(), to.dp_overlap.to_string());
        if self.tp > 1 && to.tp > 1 {
            key("sequence_parallel", self.sequence.to_string(), to.sequence.to_string());
            key("tp_comm_overlap", self.tp_overlap.to_string(), to.tp_overlap.to_string());
        }
        if self.pp > 1 && to.pp > 1 {
            key("virtual_pipeline_model_parallel_size", count(self.vpp), count(to.vpp));
            key("schedule", word(&SCHEDULE, self.schedule), word(&SCHEDULE, to.schedule));
        }
        if (self.pp, self.even) != (to.pp, to.even) {
            let [before, after] = [self, to].map(|it| it.stages(base));
            // What nobody says is taken to be equal parts.
            let is_unequal = after.iter().any(|it| *it != after[0]);
            if self.pp == to.pp || is_unequal {
                key(LAYERS, format!("{before:?}"), format!("{after:?}"));
            }
        }
        if base.model.experts.is_some() {
            key("expert_model_parallel_size", count(self.ep), count(to.ep));
            key("expert_tensor_parallel_size", count(self.etp), count(to.etp));
            if self.ep > 1 && to.ep > 1 {
                key("moe_token_dispatcher_type", dispatch(self.dispatch), dispatch(to.dispatch));
            }
        }
        keys
    }
}

/// The word for a value.
fn word<T: PartialEq>(words: &[(&str, T)], value: T) -> String {
    words.iter().find(|(_, it)| *it == value).map_or_else(String::new, |(word, _)| (*word).to_owned())
}

fn dispatch(value: Option<Dispatch>) -> String {
    value.map_or_else(|| "the framework's".to_owned(), |it| word(&DISPATCH, it))
}

fn zero(value: Zero) -> String {
    match value {
        Zero::Nothing => "0",
        Zero::Optimizer => "1",
        Zero::Gradients => "2",
        Zero::WeightsInNode => "3 with hybrid_shard",
        Zero::Weights => "3",
    }
    .to_owned()
}

/// The divisors of a number, in order.
pub(super) fn divisors(number: u64) -> Vec<u64> {
    let low: Vec<u64> =
        (1..).take_while(|it| it * it <= number).filter(|it| number.is_multiple_of(*it)).collect();
    let high = low.iter().rev().map(|it| number / it).filter(|it| it * it > number);
    low.iter().copied().chain(high).collect()
}

/// The choices that say how ranks are used, each with the rest as it is in `base`.
pub(super) fn layouts(base: &Setup, cuts: Cuts) -> Vec<Choice> {
    let world = base.devices();
    let model = &base.model;
    let now = Choice::of(base);
    let mut all = Vec::new();
    for tp in divisors(world) {
        for pp in divisors(world / tp).into_iter().filter(|pp| *pp <= model.layers) {
            for cp in divisors(world / tp / pp)
                .into_iter()
                .filter(|cp| model.seq.is_multiple_of(cuts.multiple(tp, *cp)))
            {
                let dp = world / tp / pp / cp;
                if !base.gbs.is_multiple_of(dp) {
                    continue;
                }
                for (ep, etp) in experts(base, tp, tp * cp * dp) {
                    for mbs in divisors(base.gbs / dp) {
                        all.push(Choice { tp, pp, cp, ep, etp, mbs, vpp: 1, even: true, ..now });
                    }
                }
            }
        }
    }
    all
}

/// How experts can be split among the ranks of a stage: an expert as a whole, or as other products are, or as it is.
fn experts(base: &Setup, tp: u64, ranks: u64) -> Vec<(u64, u64)> {
    let Some(experts) = base.model.experts else { return vec![(1, tp)] };
    let mut parts = vec![1, tp, base.etp];
    parts.sort_unstable();
    parts.dedup();
    let mut all = Vec::new();
    for ep in divisors(experts.count) {
        let fits =
            |etp: &&u64| ranks.is_multiple_of(ep * **etp) && base.model.ffn_hidden.is_multiple_of(**etp);
        all.extend(parts.iter().filter(fits).map(|etp| (ep, *etp)));
    }
    all
}

/// What is sharded, and recomputation, without and with a pipeline.
pub(super) fn others(space: &Space) -> [Vec<(Zero, Recompute)>; 2] {
    [0, 1].map(|pipeline| {
        let zero = &space.zero[pipeline];
        zero.iter().flat_map(|zero| space.recompute.iter().map(|recompute| (*zero, *recompute))).collect()
    })
}

/// What else there is to choose for a layout beside those and whether traffic of data parallelism is overlapped.
/// Traffic of tensor parallelism is, where it can be: that never takes longer.
pub(super) fn shapes(layout: &Choice, base: &Setup, space: &Space) -> Vec<Choice> {
    let now = Choice::of(base);
    let must = must_split(base, layout.tp);
    if !space.tensor_beside && layout.tp > 1 && (layout.pp > 1 || layout.cp > 1) {
        return vec![];
    }
    let mut all = Vec::new();
    for sequence in [false, true] {
        let meant = if layout.tp == 1 { !sequence } else { sequence || !must };
        if !meant || (sequence && !space.sequence && !must) {
            continue;
        }
        let mut ways = vec![now.dispatch];
        if layout.ep > 1 && space.once {
            let more = [Some(Dispatch::AllToAll), Some(Dispatch::OncePerNode)];
            ways.extend(more.iter().filter(|it| **it != now.dispatch));
        }
        // Recipes of NVFP4 do without it.
        let tp_overlap = sequence && space.tensor_overlap && base.precision != Arithmetic::F4;
        for dispatch in ways {
            let shape = Choice { sequence, tp_overlap, dispatch, ..*layout };
            all.extend(staged(&shape, base, space));
        }
    }
    all
}

/// The orders, parts and stages of a pipeline.
fn staged(shape: &Choice, base: &Setup, space: &Space) -> Vec<Choice> {
    const FIRST: Kind = Kind::OneForwardOneBackward;
    let now = Choice::of(base);
    if shape.pp == 1 {
        return vec![Choice { schedule: FIRST, vpp: 1, even: true, ..*shape }];
    }
    let stages = base.model.stages(shape.pp);
    let each = stages.first().copied().filter(|each| stages.iter().all(|it| it == each));
    let micro_batches = base.gbs / (base.devices() / (shape.tp * shape.pp * shape.cp)) / shape.mbs;
    // Parts of stages take turns by as many micro-batches as there are stages.
    let each = each.filter(|_| space.parts && micro_batches.is_multiple_of(shape.pp));
    let mut all = Vec::new();
    for &schedule in &space.schedules {
        let parts = each.filter(|_| schedule == FIRST).map_or_else(|| vec![1], divisors);
        all.extend(parts.into_iter().map(|vpp| Choice { schedule, vpp, even: true, ..*shape }));
        // Stages that are as they are, where there are as many.
        if !now.even && shape.pp == now.pp && (now.vpp == 1 || schedule == FIRST) {
            all.push(Choice { schedule, vpp: now.vpp, even: false, ..*shape });
        }
    }
    all
}

/// Everything that there is to choose for a layout.
pub(super) fn choices(layout: &Choice, base: &Setup, space: &Space) -> Vec<Choice> {
    let now = Choice::of(base);
    let others = others(space);
    let mut all = Vec::new();
    for shape in shapes(layout, base, space) {
        // A change of another key leaves what is not overlapped as it is.
        let apart = shape.tp_overlap && !now.tp_overlap;
        let alike = Choice { tp_overlap: false, ..shape };
        for shape in [shape].into_iter().chain(apart.then_some(alike)) {
            for &(zero, recompute) in &others[usize::from(shape.pp > 1)] {
                all.extend([false, true].map(|dp_overlap| Choice { zero, recompute, dp_overlap, ..shape }));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;

//! The time of a training step, as a sum of named terms.

use std::ops::Range;

use ::schedule::Kind;
use cost_models::collective::{all_reduce, reduce_scatter, ring_all_gather};
use cost_models::estimate::Estimate;
use cost_models::machine::Machine;
use cost_models::quantity::whole_bytes;
use cost_models::topology::Group;
use cost_models::units::{Bytes, Seconds, exact};

use crate::framework::Figure;
use crate::layer::{self, Passes, beyond};
use crate::pieces::{ELEMENT, Job};
use crate::schedule::{self, real};
use crate::setup::{Kinds, Learns, Recompute, Setup, Zero};

/// The time of a step, by what takes it.
#[must_use]
pub fn step(job: &Job<'_>) -> Estimate {
    together(&[(job.clone(), 0..job.setup.devices())])
}

/// The same on several kinds of nodes, each with its ranks: a stage is as slow as the slowest kind that has
/// ranks of it, and what replicas exchange and update takes as long as on the slowest.
#[must_use]
pub fn together(kinds: &[(Job<'_>, Range<u64>)]) -> Estimate {
    let Some((stages, job)) = slowest_stages(kinds) else { return Estimate::new() };
    let m = exact(job.setup.microbatches());
    let slowest = stages.iter().max_by(|a, b| a.total().total_cmp(&b.total()));
    let Some(slowest) = slowest else { return Estimate::new() };
    let mut time = slowest.all().times(m);
    time.add_term("pipeline bubble", bubble(job, &stages, slowest));
    time.add_term("pipeline messages", messages(job, slowest));
    let ends = kinds.iter().map(|(job, _)| {
        let mut end = data_parallel(job, slowest);
        end.add_term("update", update(job));
        end
    });
    time += ends.max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default();
    time = time.times(drift(job));
    time.add_term("step overhead", Seconds(job.figure(Figure::StepOverhead)));
    time
}

/// The times of every stage on the slowest kind that has ranks of it, and the kind of the slowest of them.
fn slowest_stages<'a, 'b>(kinds: &'b [(Job<'a>, Range<u64>)]) -> Option<(Vec<StageTimes>, &'b Job<'a>)> {
    let (first, _) = kinds.first()?;
    let ranks = first.setup.stage_ranks();
    let times: Vec<Vec<StageTimes>> = kinds.iter().map(|(job, _)| stages(job)).collect();
    let has = |kind: usize, stage: usize| {
        let stage = u64::try_from(stage).unwrap_or(u64::MAX);
        let (start, end) = (stage.saturating_mul(ranks), stage.saturating_add(1).saturating_mul(ranks));
        kinds[kind].1.start < end && start < kinds[kind].1.end
    };
    let slowest = |stage: usize| {
        let all = (0..kinds.len()).filter(|kind| has(*kind, stage));
        all.max_by(|a, b| times[*a][stage].total().total_cmp(&times[*b][stage].total()))
    };
    let chosen: Vec<usize> = (0..first.setup.stages.len()).map(slowest).collect::<Option<_>>()?;
    let stages: Vec<StageTimes> =
        chosen.iter().enumerate().map(|(stage, kind)| times[*kind][stage].clone()).collect();
    let last = chosen.into_iter().zip(&stages).max_by(|a, b| a.1.total().total_cmp(&b.1.total()))?;
    Some((stages.clone(), &kinds[last.0].0))
}

/// How much longer a step is than with the version that was calibrated on.
fn drift(job: &Job<'_>) -> f64 {
    job.setup.year.map_or(1.0, |year| job.framework.drift(year))
}

/// What a layer takes at least for one micro-batch, however much is sharded or recomputed: where some layers have no
/// experts, one of the others, and one of them.
#[must_use]
pub fn layer_floors(job: &Job<'_>) -> [Seconds; 2] {
    let of = |setup: &Setup| {
        let setup = Setup { zero: Zero::Nothing, recompute: Recompute::None, ..setup.clone() };
        let layer = layer::layer(&Job { setup: &setup, ..job.clone() });
        let waiting = layer.forward.of(layer::WAITING) + layer.input.of(layer::WAITING);
        let all = layer.forward.total() + layer.input.total() + layer.weight.total();
        drift(job) * beyond(all, waiting)
    };
    let alike = of(job.setup);
    [alike, job.setup.as_dense().map_or(alike, |it| of(&it))]
}

/// What a step takes at least, if layers take that for a micro-batch, and so their stages `s`:
///
/// ```text
/// t >= (m - 1/v) max s + sum s / v        m max s where gradients of weights fill the bubble
/// ```
#[must_use]
pub fn floor(setup: &Setup, [alike, dense]: [Seconds; 2]) -> Seconds {
    let ([_, chunks, _], kind) = (schedule::sizes(setup), schedule::kind(setup));
    let stages = setup.stages.iter().enumerate().map(|(stage, layers)| {
        let without = setup.dense(stage).min(*layers);
        exact(layers - without) * alike + exact(without) * dense
    });
    let (mut slowest, mut all) = (Seconds::ZERO, Seconds::ZERO);
    for stage in stages {
        (slowest, all) = (slowest.max(stage), all + stage);
    }
    let micro_batches = exact(setup.microbatches());
    if kind.splits_backward() {
        return micro_batches * slowest;
    }
    let parts = real(chunks);
    (micro_batches - 1.0 / parts) * slowest + (1.0 / parts) * all
}

/// The times of a stage for one micro-batch, waiting for the host included.
#[derive(Clone, Debug)]
pub struct StageTimes {
    /// The forward pass.
    pub forward: Estimate,
    /// Gradients by operands.
    pub input: Estimate,
    /// Gradients by weights.
    pub weight: Estimate,
}

impl StageTimes {
    /// A micro-batch.
    #[must_use]
    pub fn all(&self) -> Estimate {
        self.forward.clone() + self.input.clone() + self.weight.clone()
    }

    /// The time of a micro-batch.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.forward.total() + self.input.total() + self.weight.total()
    }

    /// The same in seconds.
    fn seconds(&self) -> ::schedule::StageTimes {
        let [forward, backward, weight] = [&self.forward, &self.input, &self.weight].map(|it| it.total().0);
        ::schedule::StageTimes { forward, backward, weight }
    }
}

/// The times of every stage.
#[must_use]
pub fn stages(job: &Job<'_>) -> Vec<StageTimes> {
    let of_kind = |job: &Job<'_>| sharded(job, layer::layer(job));
    let each = of_kind(job);
    let dense = job.setup.as_dense().map(|setup| of_kind(&Job { setup: &setup, ..job.clone() }));
    let (embedding, head, joining) = (layer::embedding(job), layer::head(job), layer::joining(job));
    let stage = |(place, &layers): (usize, &u64)| {
        let (further, alike) = (job.setup.further(place), layers - job.setup.dense(place).min(layers));
        let embeddings = u64::from(place == 0) + further;
        let parts =
            [(alike, &each), (embeddings, &embedding), (further, &joining), (job.setup.heads(place), &head)];
        let dense = dense.iter().map(|it| (layers - alike, it));
        let there = parts.into_iter().chain(dense).filter(|it| it.0 > 0);
        assembled(job, &there.map(|(count, passes)| (exact(count), passes)).collect::<Vec<_>>())
    };
    job.setup.stages.iter().enumerate().map(stage).collect()
}

/// Parts one after another, and what they wait for the host.
#[must_use]
pub fn assembled(job: &Job<'_>, parts: &[(f64, &Passes)]) -> StageTimes {
    let sum = |of: fn(&Passes) -> &Estimate| {
        parts.iter().map(|(count, passes)| of(passes).clone().times(*count)).sum::<Estimate>()
    };
    let launch: Seconds = parts.iter().map(|(count, passes)| *count * passes.launch).sum();
    let again: Seconds = parts.iter().map(|(count, passes)| *count * passes.again).sum();
    let (mut forward, mut input) = (sum(|it| &it.forward), sum(|it| &it.input));
    let weight = sum(|it| &it.weight);
    let experts = |way: usize| parts.iter().map(|(count, it)| *count * it.experts[way]).sum::<Seconds>();
    forward.add_term(layer::WAITING, beyond(launch, beyond(forward.total(), experts(0))));
    let back = job.figure(Figure::BackwardLaunch) * launch + again;
    let rest = beyond(input.total() + weight.total(), experts(1));
    input.add_term(layer::WAITING, beyond(back, rest));
    StageTimes { forward, input, weight }
}

/// A layer whose weights are gathered before they are used, and its gradients scattered.
fn sharded(job: &Job<'_>, mut passes: Passes) -> Passes {
    let setup = job.setup;
    if setup.zero < Zero::WeightsInNode {
        return passes;
    }
    let machine = &job.cluster.machine;
    let weights = setup.model.layer_parameters() / exact(setup.tp);
    let experts = setup.model.experts_parameters() / exact(setup.ep * setup.etp);
    let group = weight_group(job);
    let apart = job.figure(Figure::GatheredTensors);
    let moved = |bytes: f64, group: &Group, price: fn(&Machine, &Group, Bytes) -> Seconds| {
        let price = |size| price(machine, group, size);
        if apart > 1.0 {
            apart * price(whole_bytes(bytes / apart))
        } else {
            piecewise(whole_bytes(bytes), price)
        }
    };
    let all = |bytes: f64, price| {
        moved(bytes * weights, &group, price) + moved(bytes * experts, &job.expert_data, price)
    };
    let gather = all(exact(ELEMENT), ring_all_gather);
    let mut scatter = all(job.gradient_bytes(), reduce_scatter);
    let gradients = whole_bytes(job.gradient_bytes() * weights);
    if setup.zero == Zero::WeightsInNode {
        let share = Bytes(gradients.0 / group.size);
        let sum = |copies: Group| piecewise(share, |size| all_reduce(machine, &copies, size));
        scatter += node_copies(job).map_or(Seconds::ZERO, sum);
    }
    let hidden = if setup.dp_overlap { job.figure(Figure::DataHidden) } else { 0.0 };
    let slower = job.figure(Figure::Contention) - 1.0;
    let expose = |traffic: Seconds, time: Seconds, passes: &mut Estimate| {
        let beside = traffic.min(hidden * time);
        passes.add_term("sharding traffic", beyond(traffic, beside));
        passes.add_term("contention", slower * beside);
    };
    let forward = passes.forward.total();
    let backward = passes.input.total() + passes.weight.total();
    expose(gather, forward, &mut passes.forward);
    // Tensors that are gathered one by one are let go one by one: recomputation gathers them once
    // more, before the backward pass does.
    let again = apart > 1.0 && setup.recompute == Recompute::Full;
    let gathers = if again { 2.0 } else { 1.0 };
    let learned = if setup.learns == Learns::Everything { scatter } else { Seconds::ZERO };
    let back = gathers * gather + learned;
    expose(back, backward, &mut passes.input);
    passes
}

/// Time of a long exchange around a ring whose pieces are passed on while the rest of them arrives:
///
/// ```text
/// t = ‖t(S) − m, m‖,  m = t(2S) − t(S),  ‖a, b‖ = (a⁴ + b⁴)^¼
/// ```
///
/// `m` is what moving takes, and the rest starts and hops: they take time where pieces are so short
/// that links wait for them, and are hidden where pieces are long.
///
/// Source: of a ring of `n` ranks, the piece `k + 1` leaves a rank when the piece `k` has left and its
/// own beginning has come, so that a step takes the longer of a hop and of a piece; NCCL 2.30,
/// `src/device/prims_simple.h`: pieces are passed on slice by slice.
fn piecewise(size: Bytes, price: impl Fn(Bytes) -> Seconds) -> Seconds {
    let once = price(size).0;
    let moving = (price(Bytes(2 * size.0)).0 - once).max(0.0);
    let waiting = (once - moving).max(0.0);
    Seconds((moving.powi(4) + waiting.powi(4)).sqrt().sqrt())
}

/// The ranks that a layer's weights are sharded among.
fn weight_group(job: &Job<'_>) -> Group {
    let in_node =
        job.cluster.group((job.cluster.node() / job.setup.tp).clamp(1, job.data.size), job.setup.tp);
    match (job.setup.zero, in_node) {
        (Zero::WeightsInNode, Ok(group)) => group,
        _ => job.data,
    }
}

/// The ranks that hold the same shard, one in each node.
fn node_copies(job: &Job<'_>) -> Option<Group> {
    let nodes = job.data.nodes;
    job.cluster.group(nodes, job.cluster.node()).ok().filter(|_| nodes > 1)
}

/// The time in which the slowest stage waits for others: that of all others once, or of their
/// parts; a closed form where gradients of weights fill it.
fn bubble(job: &Job<'_>, stages: &[StageTimes], slowest: &StageTimes) -> Seconds {
    let others = stages.iter().map(StageTimes::total).sum::<Seconds>().0 - slowest.total().0;
    let ([groups, chunks, _], kind) = (schedule::sizes(job.setup), schedule::kind(job.setup));
    match kind {
        Kind::ZeroBubbleH2 => Seconds::ZERO,
        _ if kind.splits_backward() => Seconds(::schedule::bubble(kind, groups, &slowest.seconds()).max(0.0)),
        _ => Seconds(others / real(chunks)),
    }
}

fn messages(job: &Job<'_>, slowest: &StageTimes) -> Seconds {
    let setup = job.setup;
    if setup.pp < 2 {
        return Seconds::ZERO;
    }
    let split = if job.figure(Figure::ScatteredMessages) > 0.0 { setup.tp } else { 1 };
    let value = Bytes(ELEMENT * setup.tokens() * setup.model.hidden / split);
    let message = cost_models::collective::send(&job.cluster.machine, &job.stage, value).0;
    let (kind, sizes) = (schedule::kind(setup), schedule::sizes(setup));
    let waiting = schedule::waiting(kind, sizes, &slowest.seconds(), message);
    let steady = if kind.interleaves() {
        2.0 * real(sizes[1]) * real(sizes[2]) * message * (1.0 - job.figure(Figure::PipelineHidden))
    } else {
        0.0
    };
    Seconds(waiting + steady)
}

/// Parameters of a rank of the stage that has most: those outside experts, and those of experts.
#[must_use]
pub fn parameters(job: &Job<'_>) -> [f64; 2] {
    let kinds = Kinds::of(job.setup);
    let all = (0..job.setup.stages.len()).map(|stage| kinds.parameters_of_rank(stage));
    all.max_by(|a, b| (a[0] + a[1]).total_cmp(&(b[0] + b[1]))).unwrap_or_default()
}

/// Reduction of gradients, and gathering of weights that were updated elsewhere.
///
/// Gradients that are sharded (ZeRO-2) are reduced in every micro-batch, beside its own backward pass: a rank has no
/// room for sums of all of them. With a pipeline they are reduced once, after the last micro-batch.
///
/// Source: Rajbhandari et al., "ZeRO", 2020, section 5.2; PyTorch, `torch/distributed/pipelining/stage.py`,
/// `backward_maybe_with_nosync`: gradients of all micro-batches but the last stay where they are, and weights gathered.
fn data_parallel(job: &Job<'_>, slowest: &StageTimes) -> Estimate {
    let setup = job.setup;
    let mut time = Estimate::new();
    if setup.zero >= Zero::WeightsInNode || setup.learns == Learns::Adapters {
        return time;
    }
    let machine = &job.cluster.machine;
    let [dense, experts] = parameters(job);
    let bytes = job.gradient_bytes();
    let parts = [(&job.data, dense), (&job.expert_data, experts)];
    let sum = |price: &dyn Fn(&Group, f64) -> Seconds| {
        parts.iter().map(|(group, count)| price(group, *count)).sum::<Seconds>()
    };
    let hidden = if setup.dp_overlap { job.figure(Figure::DataHidden) } else { 0.0 };
    let backward = slowest.input.total() + slowest.weight.total();
    let reduce = match setup.zero {
        Zero::Nothing => sum(&|group, count| all_reduce(machine, group, whole_bytes(bytes * count))),
        _ => sum(&|group, count| reduce_scatter(machine, group, whole_bytes(bytes * count))),
    };
    let is_each = setup.zero == Zero::Gradients && setup.pp == 1;
    let reductions = if is_each { exact(setup.microbatches()) } else { 1.0 };
    time.add_term("gradient reduction", reductions * beyond(reduce, hidden * backward));
    if setup.zero != Zero::Nothing {
        let gather =
            sum(&|group, count| ring_all_gather(machine, group, whole_bytes(exact(ELEMENT) * count)));
        let gathers = if job.figure(Figure::GathersAgain) > 0.0 { reductions } else { 1.0 };
        time.add_term("weight gathering", gathers * beyond(gather, hidden * slowest.forward.total()));
    }
    // The first stage and the last have one table.
    if setup.pp > 1 && (setup.model.embedding == crate::model::Embedding::Tied || setup.model.further > 0) {
        let table = bytes * setup.model.embedding_parameters() / exact(setup.tp);
        time.add_term("gradient reduction", all_reduce(machine, &job.ends, whole_bytes(table)));
    }
    time
}

/// The optimizer's work on what a rank updates.
fn update(job: &Job<'_>) -> Seconds {
    let setup = job.setup;
    if setup.learns == Learns::Adapters {
        return Seconds::ZERO;
    }
    let [dense, experts] = parameters(job);
    let share = |group: &Group| if setup.zero == Zero::Nothing { 1.0 } else { exact(group.size) };
    let data = if setup.zero == Zero::WeightsInNode { weight_group(job) } else { job.data };
    let updated = dense / share(&data) + experts / share(&job.expert_data);
    job.touch(job.figure(Figure::UpdateBytes) * updated)
}

#[cfg(test)]
mod tests;

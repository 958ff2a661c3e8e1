//! Rotated tensor parallelism against its authors' logs: step times and memory of GPT-2 large on
//! eight A100.
//!
//! Every rank has its own sequences and an eighth of each module's weights, which go around: seven
//! rotations of the weights in the forward phase, seven of the weights and of their gradients in
//! the backward phase. A module is rotated in one piece: attention, each product of the MLP, the
//! embedding, the scores of words.
//!
//! ```text
//! out of place    t = c + 7 max(c, m)
//! in place        t = c + 7 (max(c, m) + b)
//! held = (weights + gradients + moments)/8 + activations + two slots of the largest module
//! ```
//!
//! `c` is what a module computes in a step, `m` what its messages take and `b` the part of it that
//! is not latency. The latency is the host's: step times do not depend on the batch until there is
//! more to compute, in place and out of place, so the device computes meanwhile. It is the only
//! number taken from the logs, and stands in the machine file.

use std::collections::BTreeMap;

use cost_models::collective;
use cost_models::compute::{MatrixProduct, element_wise, matrix_product};
use cost_models::machine::{Machine, Precision};
use cost_models::topology::Topology;
use cost_models::units::{Bytes, Flops};
use planner_ir::{DType, Mesh, NodeId, Op, Optimizer, Partition, Phase, Real, Unary};
use search::{MachinePrices, Prices, Work};

use super::graph::{Sizes, Step, layers};
use super::machines;
use super::restricted::{Kind, planned};
use crate::outside::outside;

/// How many ranks the weights go around.
const RANKS: u64 = 8;
/// Of GPT-2 large, as its head has them.
const WORDS: u64 = 50240;

/// How a shard is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Into a second buffer, while the first is used.
    Out,
    /// Into the same buffer, after it has been used.
    In,
}

fn sizes(batch: u64, dtype: DType) -> Sizes {
    Sizes {
        layers: 36,
        batch,
        sequence: 1024,
        hidden: 1280,
        heads: 32,
        vocabulary: Some(WORDS),
        dtype,
        activation: Unary::Gelu,
    }
}

/// What is predicted of a run.
struct Predicted {
    /// Of a step, with each way to receive (seconds).
    out_of_place: f64,
    in_place: f64,
    /// What a device holds (bytes).
    held: f64,
}

/// What is rotated in one piece, and how often there is one like it.
struct Module {
    count: f64,
    /// Weights of a rank (bytes).
    shard: u64,
    /// What is computed in a step, forward and backward (seconds).
    forward: f64,
    backward: f64,
}

/// The prices of a rank.
struct Rank<'a> {
    machine: &'a Machine,
    sizes: &'a Sizes,
}

impl Rank<'_> {
    fn product(&self, batch: u64, m: u64, n: u64, k: u64) -> f64 {
        let precision = Precision::of(self.sizes.dtype);
        matrix_product(&self.machine.device, &MatrixProduct::forward(batch, [m, n, k], precision)).0
    }

    /// What a step makes, put in its place or added to what is there.
    fn put(&self, elements: u64) -> f64 {
        element_wise(&self.machine.device, Bytes(2 * elements * self.sizes.dtype.bytes()), Flops(0.0)).0
    }

    fn module(&self, count: u64, weights: u64, forward: f64, backward: f64) -> Module {
        let shard = weights / RANKS * self.sizes.dtype.bytes();
        Module { count: f64::from(u32::try_from(count).unwrap()), shard, forward, backward }
    }

    /// A product of tokens with weights of so many inputs and outputs, the outputs split.
    fn linear(&self, count: u64, inputs: u64, outputs: u64) -> Module {
        let tokens = self.sizes.batch * self.sizes.sequence;
        let part = outputs / RANKS;
        let forward = self.product(1, tokens, part, inputs) + self.put(tokens * part);
        let backward = self.product(1, tokens, inputs, part)
            + self.product(1, inputs, part, tokens)
            + self.put(tokens * inputs);
        self.module(count, inputs * outputs, forward, backward)
    }

    /// Attention: a part of the heads from their projections to their addend of the result.
    fn attention(&self) -> Module {
        let Sizes { batch, sequence: s, hidden, heads, .. } = *self.sizes;
        let (tokens, part, size) = (batch * s, hidden / RANKS, hidden / heads);
        let own = batch * heads / RANKS;
        let scores = self.product(own, s, s, size);
        let forward = 3.0 * self.product(1, tokens, part, hidden)
            + 2.0 * scores
            + self.product(1, tokens, hidden, part)
            + self.put(tokens * hidden);
        // Two products for each of the forward ones, and the scores again.
        let backward = 3.0 * (self.product(1, tokens, hidden, part) + self.product(1, hidden, part, tokens))
            + 5.0 * scores
            + self.product(1, tokens, part, hidden)
            + self.product(1, part, hidden, tokens)
            + self.put(tokens * hidden);
        self.module(self.sizes.layers, 4 * hidden * hidden, forward, backward)
    }

    /// The embedding: a part of every row.
    fn embedding(&self) -> Module {
        let part = self.sizes.batch * self.sizes.sequence * self.sizes.hidden / RANKS;
        self.module(1, WORDS * self.sizes.hidden, self.put(part), self.put(part))
    }

    fn modules(&self) -> Vec<Module> {
        let Sizes { layers, hidden, .. } = *self.sizes;
        vec![
            self.attention(),
            self.linear(layers, hidden, 4 * hidden),
            self.linear(layers, 4 * hidden, hidden),
            self.linear(1, hidden, WORDS),
            self.embedding(),
        ]
    }

    /// What the modules of a step take (seconds).
    fn rotated(&self, place: Place) -> f64 {
        let ring = Topology::of(self.machine).group(&(0..RANKS).collect::<Vec<u64>>()).unwrap();
        let message = |bytes: u64| collective::send(self.machine, &ring, Bytes(bytes)).0;
        let steps = |computing: f64, messages: f64, shard: u64| {
            let moving = messages * message(shard);
            let bare = match place {
                Place::Out => 0.0,
                Place::In => moving - messages * message(1),
            };
            computing + 7.0 * (computing.max(moving) + bare)
        };
        let module =
            |it: &Module| it.count * (steps(it.forward, 1.0, it.shard) + steps(it.backward, 2.0, it.shard));
        self.modules().iter().map(module).sum()
    }
}

/// What is not in modules: norms, functions of units, sums, the loss, the optimizer (seconds).
fn others(step: &Step, prices: &MachinePrices<'_>) -> f64 {
    let graph = &step.graph;
    let price = |id: NodeId| {
        let node = graph.node(id);
        let module = matches!(
            node.op,
            Op::Contract(_)
                | Op::Attention(_)
                | Op::AttentionGradient { .. }
                | Op::Gather { .. }
                | Op::GatherGradient { .. }
        );
        if module {
            return 0.0;
        }
        let [operands, results] = [&node.operands, &node.results].map(|it| graph.types_of(it));
        let loops = node.op.loops(&operands, &results);
        let partition = Partition::replicated(&loops);
        let (operands, results) = (&operands[..], &results[..]);
        let work = Work {
            op: &node.op,
            whole: operands,
            operands,
            results,
            node: id,
            partition: &partition,
            loops: &loops,
        };
        let share = if node.phase == Phase::Update { 1.0 / 8.0 } else { 1.0 };
        share * prices.work(&work)
    };
    graph.node_ids().map(price).sum()
}

fn predicted(batch: u64, dtype: DType) -> Predicted {
    let machine = machines::rtp(RANKS);
    let one = machines::rtp(1);
    let sizes = sizes(batch, dtype);
    let [beta1, beta2, epsilon, decay] = [0.9, 0.999, 1e-8, 0.0].map(Real);
    let step = layers(&sizes, Optimizer::AdamW { beta1, beta2, epsilon, decay });
    let mesh = Mesh::of_sizes(&[1]);
    let others = others(&step, &MachinePrices::new(&one, &mesh).unwrap());
    let rank = Rank { machine: &machine, sizes: &sizes };
    let plan = planned(&step, &sizes, &one, &mesh, Kind::Splits).unwrap();
    let lasting = ["weights", "masters", "optimizer", "gradients"];
    let held = |it: &plan::Holding| {
        #[expect(clippy::cast_precision_loss, reason = "bytes of a device are exact")]
        let bytes = it.bytes as f64;
        if lasting.contains(&it.kind.as_str()) { bytes / 8.0 } else { bytes }
    };
    let slots = 2 * rank.modules().iter().map(|it| it.shard).max().unwrap();
    Predicted {
        out_of_place: others + rank.rotated(Place::Out),
        in_place: others + rank.rotated(Place::In),
        held: plan.memory.iter().map(held).sum::<f64>() + f64::from(u32::try_from(slots).unwrap()),
    }
}

/// A run of the logs.
struct Run {
    place: Place,
    dtype: DType,
    batch: u64,
    /// Of a step (seconds).
    taken: f64,
    /// The most that was allocated (bytes).
    held: f64,
}

/// The runs on eight A100 that rotated weights, if the logs are there.
fn logs() -> Option<Vec<Run>> {
    let text = std::fs::read_to_string(outside("reference/data/rtp_repo_slurm_logs.csv")?).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split(',').collect();
    let mut runs = Vec::new();
    for line in lines {
        let fields: BTreeMap<&str, &str> = names.iter().copied().zip(line.split(',')).collect();
        let is = |name: &str, value: &str| fields[name] == value;
        let place = match fields["method"] {
            "RTP-out-of-place" => Place::Out,
            "RTP-in-place" => Place::In,
            _ => continue,
        };
        if !(is("gpu", "A100") && is("world_size", "8") && is("status", "ok")) {
            continue;
        }
        assert!(is("model", "gpt2-large") && is("layers", "36") && is("seq", "1024"), "{line}");
        let number = |name: &str| fields[name].parse::<f64>().unwrap();
        let dtype = if is("fp16", "True") { DType::F16 } else { DType::F32 };
        let batch = fields["batch_per_call"].parse().unwrap();
        // Words per second of a rank, in the middle of the run.
        let taken = 1024.0 * number("batch_per_call") / number("steady_wps_median");
        runs.push(Run { place, dtype, batch, taken, held: number("peak_alloc_GiB") * 1024.0_f64.powi(3) });
    }
    Some(runs)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The median errors of step times and of memory, and over how many runs; nothing if the logs are
/// not there.
pub(crate) fn medians() -> Option<(f64, f64, usize)> {
    let runs = logs()?;
    let mut known: BTreeMap<(u64, DType), Predicted> = BTreeMap::new();
    let (mut times, mut holdings) = (Vec::new(), Vec::new());
    for run in &runs {
        let it = known.entry((run.batch, run.dtype)).or_insert_with(|| predicted(run.batch, run.dtype));
        let taken = if run.place == Place::Out { it.out_of_place } else { it.in_place };
        times.push((taken / run.taken - 1.0).abs());
        holdings.push((it.held / run.held - 1.0).abs());
    }
    Some((median(times), median(holdings), runs.len()))
}

#[test]
fn runs_of_the_logs_take_what_is_predicted() {
    let Some((time, memory, runs)) = medians() else {
        println!("left out: the logs are not beside the repository");
        return;
    };
    assert_eq!(runs, 92);
    assert!(time < 0.20, "{time}");
    assert!(memory < 0.10, "{memory}");
}

/// What a rank holds of a step whose weights go around, and what it is said to (bytes):
///
/// ```text
/// (weights + gradients + moments)/N + activations of its sequences + two slots of the largest module
/// ```
fn held_by_a_rank(ranks: u64) -> [f64; 2] {
    let sizes = |batch: u64| Sizes {
        layers: 4,
        batch,
        sequence: 64,
        hidden: 384,
        heads: 24,
        vocabulary: None,
        dtype: DType::F32,
        activation: Unary::Gelu,
    };
    let [beta1, beta2, epsilon, decay] = [0.9, 0.999, 1e-8, 0.0].map(Real);
    let adamw = Optimizer::AdamW { beta1, beta2, epsilon, decay };
    let holdings = |batch: u64, ranks: u64, kind: Kind| {
        let (sizes, mesh) = (sizes(batch), Mesh::of_sizes(&[ranks]));
        let plan = planned(&layers(&sizes, adamw), &sizes, &machines::rtp(ranks), &mesh, kind).unwrap();
        if kind == Kind::Rotated {
            // Six products of a layer forward, and two for each of them backward.
            let in_steps = plan.assignments.iter().filter(
                |it| matches!(it, plan::Assignment::Computed { partition, .. } if partition.steps == ranks),
            );
            assert!(in_steps.count() >= 4 * 6 * 3);
        }
        lower::memory(&plan).unwrap()
    };
    // A batch that is no other size of the model.
    let own = 5;
    #[expect(clippy::cast_precision_loss, reason = "bytes of a device are exact")]
    let bytes = |it: &plan::Holding| it.bytes as f64;
    let lasting = ["weights", "masters", "optimizer", "gradients"];
    let share = |it: &plan::Holding| {
        if lasting.contains(&it.kind.as_str()) {
            bytes(it) / f64::from(u32::try_from(ranks).unwrap())
        } else {
            bytes(it)
        }
    };
    let alone: f64 = holdings(own, 1, Kind::Splits).iter().map(share).sum();
    let slots = 2 * 4 * 384 * 4 * 384 / ranks;
    let found: f64 = holdings(own * ranks, ranks, Kind::Rotated).iter().map(bytes).sum();
    [found, alone + f64::from(u32::try_from(slots).unwrap())]
}

#[test]
fn a_rank_holds_its_part_of_the_weights_and_two_slots() {
    for ranks in [2, 3, 4, 8] {
        let [found, said] = held_by_a_rank(ranks);
        println!("{ranks} ranks: {found:.0} bytes, {said:.0} said, {:+.1} %", 100.0 * (found / said - 1.0));
        assert!((found / said - 1.0).abs() < 0.10, "{ranks} ranks: {found} bytes, {said} said");
    }
}

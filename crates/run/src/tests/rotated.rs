//! Weights that go around, of every operation that has some: forward, and backward with their
//! gradients (RTP).
//!
//! Each rank has rows of its own of what meets the weights, and a part of every weight. Each part
//! visits all of s ranks in the forward phase and again in the backward phase, there with its
//! gradient, which is at home after that: `3 (s - 1)` messages to each rank for each weight, and
//! all ranks receive `3 (s - 1)` times the weight. An operation that makes all its gradients at
//! once begins with parts that are one rank further than those at rest, and gets them from there
//! first.

use std::collections::BTreeMap;

use kernels::Array;
use lower::Origin;
use planner_ir::{
    Attention, AxisId, Blind, Contract, Conv, DType, Digit, Label, LoopId, Loops, Mesh, Move, Op, Partition,
    Real, Type, Unary, ValueId,
};

use super::sketch::Sketch;
use super::{check_given, sources};

/// How many ranks there are: of two, both neighbours are one.
const RANKS: [u64; 3] = [2, 3, 4];
const DTYPES: [DType; 3] = [DType::F32, DType::F64, DType::BF16];

/// Which block of a loop a rank works on.
#[derive(Clone, Copy)]
enum Turn {
    /// Its own.
    Own,
    /// Its own, and then those of the ranks before.
    Forward,
    /// Its own, and then those of the ranks after.
    Backward,
    /// Those of the ranks after, and at last its own.
    Home,
}

/// Layers whose weights go around one axis.
struct Ring {
    ranks: u64,
    mesh: Mesh,
    dtype: DType,
    sketch: Sketch,
    /// How many weights there are.
    count: u64,
    /// What they are together (elements).
    weights: u64,
}

impl Ring {
    fn new(ranks: u64, dtype: DType) -> Self {
        let mesh = Mesh::of_sizes(&[ranks]);
        Self { ranks, dtype, sketch: Sketch::new(&mesh), mesh, count: 0, weights: 0 }
    }

    fn digit(&self, turn: Turn) -> Digit {
        let (step, offset) = match turn {
            Turn::Own => (0, 0),
            Turn::Forward => (-1, 0),
            Turn::Backward => (1, 0),
            Turn::Home => (1, 1),
        };
        let Digit { size, terms, .. } = Digit::axis(&self.mesh, AxisId(0));
        Digit { size, terms, step: i64::rem_euclid(step, i64::try_from(size).unwrap()), offset }
    }

    /// The layout in which a rank has its block along a dimension.
    fn parts(&self, rank: usize, dim: usize) -> Vec<Vec<Digit>> {
        let mut dims = vec![vec![]; rank];
        dims[dim].push(self.digit(Turn::Own));
        dims
    }

    /// An input, of whose first dimension each rank has a part.
    fn input(&mut self, name: &str, shape: &[u64]) -> ValueId {
        self.input_of(name, Type::new(self.dtype, shape))
    }

    fn input_of(&mut self, name: &str, type_: Type) -> ValueId {
        let dims = self.parts(type_.rank(), 0);
        self.sketch.input(name, type_, dims)
    }

    /// A weight, of which each rank has a part along a dimension.
    fn weight(&mut self, name: &str, shape: &[u64], dim: usize) -> ValueId {
        let dims = self.parts(shape.len(), dim);
        self.count += 1;
        self.weights += shape.iter().product::<u64>();
        self.sketch.weight(name, Type::new(self.dtype, shape), dims)
    }

    /// An operation some of whose loops are split.
    fn node(
        &mut self,
        op: Op,
        operands: &[ValueId],
        splits: impl Fn(&Loops) -> Vec<(LoopId, Turn)>,
    ) -> Vec<ValueId> {
        let types = self.sketch.plan.graph.types_of(operands);
        let loops = op.loops(&types, &op.infer(&types).unwrap());
        let mut partition = Partition { steps: self.ranks, ..Partition::replicated(&loops) };
        for (it, turn) in splits(&loops) {
            partition.loops[it.0].push(self.digit(turn));
        }
        // What begins one rank further is got from there.
        let next = |digits: &Vec<Digit>| digits.iter().map(|it| Digit { offset: 1, ..it.clone() }).collect();
        self.sketch.node_with(op, operands, partition, &mut |_, _, layout, _| {
            let home = layout.dims.iter().flatten().all(|digit| digit.offset == 0);
            home.then(|| Move::Permute { dims: layout.dims.iter().map(next).collect() })
        })
    }

    /// A result of which each rank has a part along a dimension without anything being moved.
    fn output(&mut self, name: &str, value: ValueId, dim: usize) {
        let before = self.sketch.plan.transfers.len();
        let dims = self.parts(self.sketch.plan.graph.type_of(value).rank(), dim);
        self.sketch.output(name, value, dims, &mut |_, _, _, _| None);
        assert_eq!(self.sketch.plan.transfers.len(), before, "`{name}` is not at home");
    }

    /// Runs it, and holds outputs to the reference, and what all ranks receive to what is said.
    fn check(&self, values: &BTreeMap<String, Array>, tolerance: f64, rounds: Rounds) {
        let outcome = check_given(&self.sketch.plan, values, tolerance);
        let of_steps = |it: &&(Origin, u64)| matches!(it.0, Origin::Motion { .. });
        let (between, before): (Vec<&(Origin, u64)>, Vec<_>) = outcome.received.iter().partition(of_steps);
        let others = self.ranks - 1;
        let bytes = |elements: u64| elements * self.dtype.bytes();
        let sums = rounds.gradients * self.weights * self.dtype.accumulated().bytes();
        let messages = others * (rounds.weights + rounds.gradients) * self.count;
        assert_eq!(u64::try_from(between.len()), Ok(messages), "messages of each rank");
        let received = |all: &[&(Origin, u64)]| all.iter().map(|it| it.1).sum::<u64>();
        assert_eq!(received(&between), others * (rounds.weights * bytes(self.weights) + sums));
        assert_eq!(received(&before), rounds.before * bytes(self.weights));
    }
}

/// How often the parts of all weights are received.
#[derive(Clone, Copy)]
struct Rounds {
    /// Times round, of weights.
    weights: u64,
    /// Times round, of their gradients.
    gradients: u64,
    /// Before the first step, from the next rank.
    before: u64,
}

/// Forward, and backward with gradients.
const THRICE: Rounds = Rounds { weights: 2, gradients: 1, before: 0 };

/// The layers of each number of ranks and type of elements.
fn each(dtypes: &[DType], check: impl Fn(Ring)) {
    for ranks in RANKS {
        dtypes.iter().for_each(|&dtype| check(Ring::new(ranks, dtype)));
    }
}

/// The loop that indexes a dimension alone, or the innermost of those that do.
fn inner(dims: &[Vec<LoopId>], dim: usize) -> LoopId {
    *dims[dim].last().unwrap()
}

/// A table by its rows and by its columns. Its gradient does not need the table.
#[test]
fn tables_go_around() {
    for dim in [0, 1] {
        each(&DTYPES, |mut ring| {
            let (rows, columns, tokens) = (2 * ring.ranks, 3 * ring.ranks, 4 * ring.ranks);
            let table = ring.weight("table", &[rows, columns], dim);
            let indices = ring.input_of("indices", Type::new(DType::I64, [tokens]));
            let dy = ring.input("dy", &[tokens, columns]);
            let y = ring.node(Op::Gather { dim: 0 }, &[table, indices], |loops| {
                let of_tokens = inner(&loops.operands[1], 0);
                vec![(of_tokens, Turn::Own), (inner(&loops.operands[0], dim), Turn::Forward)]
            });
            let op = Op::GatherGradient { dim: 0, extent: rows };
            let gradient = ring.node(op, &[indices, dy], |loops| {
                let of_tokens = inner(&loops.operands[0], 0);
                vec![(of_tokens, Turn::Own), (inner(&loops.results[0], dim), Turn::Home)]
            });
            ring.output("y", y[0], 0);
            ring.output("gradient", gradient[0], dim);
            let mut values = sources(&ring.sketch.plan);
            // Some rows several times, others not at all.
            let [all, below] = [tokens, rows].map(|it| i64::try_from(it).unwrap());
            let drawn: Vec<i64> = (0..all).map(|place| place * place % below).collect();
            values.insert("indices".to_owned(), Array::of([tokens], &drawn).unwrap());
            ring.check(&values, 0.0, Rounds { weights: 1, gradients: 1, before: 0 });
        });
    }
}

/// Windows by the channels that they make and by those that they take.
#[test]
fn windows_of_convolutions_go_around() {
    for dim in [0, 1] {
        each(&DTYPES, |mut ring| {
            let conv = Conv {
                strides: vec![1, 2],
                before: vec![1, 1],
                after: vec![1, 0],
                dilations: vec![1, 1],
                groups: 1,
            };
            let (samples, made, taken) = (2 * ring.ranks, 2 * ring.ranks, ring.ranks);
            let x = ring.input("x", &[samples, taken, 4, 5]);
            let w = ring.weight("w", &[made, taken, 3, 2], dim);
            let dy = ring.input("dy", &[samples, made, 4, 3]);
            // Of the first dimension of x or dy, and a dimension of w.
            let split = |of_x: &[Vec<LoopId>], of_w: &[Vec<LoopId>], turn: Turn| {
                vec![(of_x[0][0], Turn::Own), (inner(of_w, dim), turn)]
            };
            let y = ring.node(Op::Conv(conv.clone()), &[x, w], |loops| {
                split(&loops.operands[0], &loops.operands[1], Turn::Forward)
            });
            let op = Op::ConvInputGradient { conv: conv.clone(), spatial: vec![4, 5] };
            let dx = ring
                .node(op, &[w, dy], |loops| split(&loops.operands[1], &loops.operands[0], Turn::Backward));
            let op = Op::ConvWeightGradient { conv, window: vec![3, 2] };
            let dw =
                ring.node(op, &[x, dy], |loops| split(&loops.operands[0], &loops.results[0], Turn::Home));
            ring.output("y", y[0], 0);
            ring.output("dx", dx[0], 0);
            ring.output("dw", dw[0], dim);
            ring.check(&sources(&ring.sketch.plan), 0.0, THRICE);
        });
    }
}

/// What a convolution adds to its result goes around with the windows that it belongs to.
#[test]
fn biases_go_around_with_their_windows() {
    each(&DTYPES, |mut ring| {
        let (samples, made) = (2 * ring.ranks, 2 * ring.ranks);
        let conv = Conv { strides: vec![2], before: vec![0], after: vec![0], dilations: vec![1], groups: 1 };
        let x = ring.input("x", &[samples, 3, 6]);
        let operands = [x, ring.weight("w", &[made, 3, 2], 0), ring.weight("bias", &[made], 0)];
        let y = ring.node(Op::Conv(conv), &operands, |loops| {
            vec![(loops.operands[0][0][0], Turn::Own), (inner(&loops.operands[1], 0), Turn::Forward)]
        });
        ring.output("y", y[0], 0);
        ring.check(&sources(&ring.sketch.plan), 0.0, Rounds { weights: 1, gradients: 0, before: 0 });
    });
}

/// Gates of which so many of each row are not 0.
pub(super) fn gates(tokens: u64, experts: u64, active: u64, dtype: DType) -> Array {
    let gate = |place: u64| {
        let (token, expert) = (place / experts, place % experts);
        let chosen = (expert + experts - token % experts) % experts;
        if chosen < active { i32::try_from(1 + (token + expert) % 3).unwrap() } else { 0 }
    };
    let all: Vec<i32> = (0..tokens * experts).map(gate).collect();
    let whole = Array::of([tokens, experts], &all).unwrap();
    kernels::evaluate(&Op::Cast(dtype), &[&whole]).unwrap().remove(0)
}

/// Experts, whole ones and by their units. One operation makes all gradients.
#[test]
fn experts_go_around() {
    for (dim, gated) in [0, 1].into_iter().flat_map(|dim| [false, true].map(|gated| (dim, gated))) {
        each(&[DType::F32, DType::F64], |mut ring| {
            let (tokens, experts, units, hidden, active) = (4 * ring.ranks, 2 * ring.ranks, ring.ranks, 4, 2);
            let x = ring.input("x", &[tokens, hidden]);
            let gate = ring.input("gates", &[tokens, experts]);
            let dy = ring.input("dy", &[tokens, hidden]);
            let mut operands = vec![x, gate, ring.weight("up", &[experts, units, hidden], dim)];
            operands.extend(gated.then(|| ring.weight("gate", &[experts, units, hidden], dim)));
            // Units are the last dimension of what leads out of them.
            let of_down = 2 * dim;
            operands.push(ring.weight("down", &[experts, hidden, units], of_down));
            let split = |loops: &Loops, turn: Turn| {
                vec![(inner(&loops.operands[0], 0), Turn::Own), (inner(&loops.operands[2], dim), turn)]
            };
            let op = Op::Experts { activation: Unary::Relu, limit: None, active };
            let y = ring.node(op, &operands, |loops| split(loops, Turn::Forward));
            let op = Op::ExpertsGradient { activation: Unary::Relu, limit: None, active, adds: vec![] };
            let given = [&operands[..], &[dy]].concat();
            let gradients = ring.node(op, &given, |loops| split(loops, Turn::Home));
            ring.output("y", y[0], 0);
            let last = gradients.len() - 1;
            for (place, value) in gradients.into_iter().enumerate() {
                let at = if place < 2 {
                    0
                } else if place < last {
                    dim
                } else {
                    of_down
                };
                ring.output(&format!("gradient{place}"), value, at);
            }
            let mut values = sources(&ring.sketch.plan);
            values.insert("gates".to_owned(), gates(tokens, experts, active, ring.dtype));
            ring.check(&values, 0.0, Rounds { before: 1, ..THRICE });
        });
    }
}

fn contract(left: &str, right: &str, result: &str) -> Op {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
}

/// Heads of attention, with what leads to their queries, keys and values and out of them: two heads
/// share keys. What the heads of a step make is not moved.
#[test]
fn heads_of_attention_go_around() {
    for causal in [false, true] {
        each(&[DType::F32, DType::F64], |mut ring| {
            let (examples, tokens, hidden, size, heads, groups) =
                (2 * ring.ranks, 3, 4, 2, 2 * ring.ranks, ring.ranks);
            let x = ring.input("x", &[examples, tokens, hidden]);
            let dy = ring.input("dy", &[examples, tokens, hidden]);
            let into = [("queries", heads), ("keys", groups), ("values", groups)]
                .map(|(name, count)| ring.weight(name, &[hidden, count, size], 1));
            let out = ring.weight("out", &[heads, size, hidden], 0);
            // The first dimension of one operand, and heads, which are a dimension of another.
            let split = |of: usize, at: (usize, usize), turn: Turn| {
                move |loops: &Loops| {
                    vec![(loops.operands[of][0][0], Turn::Own), (loops.operands[at.0][at.1][0], turn)]
                }
            };
            let [q, k, v] = into.map(|w| {
                ring.node(contract("bth", "hnd", "bntd"), &[x, w], split(0, (1, 1), Turn::Forward))[0]
            });
            let attention = Attention {
                scale: Real(0.25),
                causal,
                softcap: Real(0.0),
                window: None,
                blind: Blind::Zero,
                sinks: false,
                statistics: true,
            };
            let made = ring.node(Op::Attention(attention), &[q, k, v], split(0, (1, 1), Turn::Forward));
            let y =
                ring.node(contract("bntd", "ndh", "bth"), &[made[0], out], split(0, (1, 0), Turn::Forward));
            let da = ring.node(contract("bth", "ndh", "bntd"), &[dy, out], split(0, (1, 0), Turn::Backward));
            let of_out =
                ring.node(contract("bntd", "bth", "ndh"), &[made[0], dy], split(0, (0, 1), Turn::Home));
            let op = Op::AttentionGradient { attention, mask: false };
            let given = [q, k, v, made[0], made[1], da[0]];
            let towards = ring.node(op, &given, split(0, (1, 1), Turn::Backward));
            let mut addends = Vec::new();
            for (place, (&w, &gradient)) in into.iter().zip(&towards).enumerate() {
                let dw =
                    ring.node(contract("bth", "bntd", "hnd"), &[x, gradient], split(0, (1, 1), Turn::Home));
                ring.output(&format!("gradient{place}"), dw[0], 1);
                let backward = split(0, (0, 1), Turn::Backward);
                addends.push(ring.node(contract("bntd", "hnd", "bth"), &[gradient, w], backward)[0]);
            }
            ring.output("y", y[0], 0);
            ring.output("of_out", of_out[0], 0);
            // All heads are alike to the sum over them, but not to who reads them.
            let of_heads = [q, k, v, made[0]].into_iter().chain(towards);
            for (place, value) in of_heads.chain(addends).enumerate() {
                ring.output(&format!("value{place}"), value, 0);
            }
            let tolerance = if ring.dtype == DType::F64 { 1e-12 } else { 1e-5 };
            ring.check(&sources(&ring.sketch.plan), tolerance, THRICE);
        });
    }
}

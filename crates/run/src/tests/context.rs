//! Context parallelism: each rank has a block of the sequence, and keys and values go around.

use lower::Origin;
use planner_ir::{
    Attention, Blind, DType, Layout, Mesh, Motion, Move, Op, Partition, Real, Type, ValueId, parse_layout,
    parse_partition,
};

use super::sketch::Sketch;
use super::{programs, sources};
use crate::{Outcome, Session, Sources, reference};

/// Positions, heads of queries and of keys, and the sizes of queries and values.
const POSITIONS: u64 = 12;
const HEADS: [u64; 2] = [4, 2];
const SIZES: [u64; 2] = [3, 5];

fn attention(causal: bool) -> Attention {
    Attention {
        scale: Real(0.25),
        causal,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: true,
    }
}

/// Which tokens of a sequence a rank has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tokens {
    /// A stretch.
    Together,
    /// In turn one of each of the ranks.
    InTurn,
}

impl Tokens {
    const ALL: [Self; 2] = [Self::Together, Self::InTurn];

    /// Digits with what stands before those that number the ranks.
    fn before(self, ranks: u64, digits: &str) -> String {
        match self {
            Self::Together => digits.to_owned(),
            Self::InTurn => format!("*{}.{digits}", POSITIONS / ranks),
        }
    }
}

/// A plan whose sequences are split over one axis.
struct Ring {
    sketch: Sketch,
    mesh: Mesh,
    tokens: Tokens,
}

impl Ring {
    fn new(ranks: u64, tokens: Tokens) -> Self {
        let mesh = Mesh::of_sizes(&[ranks]);
        Self { sketch: Sketch::new(&mesh), mesh, tokens }
    }

    /// A layout in which these digits number the tokens of the ranks.
    fn digits(&self, digits: &str) -> Layout {
        let digits = self.tokens.before(self.mesh.devices(), digits);
        parse_layout(&self.mesh, &format!("[-,-,{digits},-]")).unwrap()
    }

    fn input(&mut self, name: &str, [heads, size]: [u64; 2], dtype: DType) -> ValueId {
        let rows = self.digits("a").dims;
        self.sketch.input(name, Type::new(dtype, [1, heads, POSITIONS, size]), rows)
    }

    /// An operation whose queries and keys have these digits.
    fn node(&mut self, op: Op, operands: &[ValueId], steps: u64, split: [&str; 2]) -> Vec<ValueId> {
        let types = self.sketch.plan.graph.types_of(operands);
        let loops = op.loops(&types, &op.infer(&types).unwrap());
        let mut partition = Partition { steps, ..Partition::replicated(&loops) };
        for (operand, digits) in split.into_iter().enumerate() {
            let it = loops.operands[operand][2][0];
            let digits = self.tokens.before(steps, digits);
            let parsed =
                parse_partition(&self.mesh, &format!("{steps} steps [{digits},(@t:{steps})]")).unwrap();
            partition.loops[it.0].clone_from(&parsed.loops[0]);
        }
        for operand in 0..loops.operands.len() {
            let motion = partition.operand_motion(&loops, operand);
            assert!(matches!(motion, Motion::Stationary | Motion::Rotating(_)), "{operand}: {motion:?}");
        }
        // What starts at another rank's block is got from there.
        let shifted = self.digits(&format!("(a+1:{steps})"));
        self.sketch.node_with(op, operands, partition, &mut |_, _, layout, _| {
            (layout.dims != shifted.dims).then(|| Move::Permute { dims: shifted.dims.clone() })
        })
    }

    fn output(&mut self, name: &str, value: ValueId) {
        let mut rows = vec![vec![]; self.sketch.plan.graph.type_of(value).rank()];
        rows[2].clone_from(&self.digits("a").dims[2]);
        self.sketch.output(name, value, rows, &mut |_, _, _, _| None);
    }

    /// Runs it, and holds outputs to the reference.
    fn run(&self, tolerance: f64) -> Outcome {
        let plan = &self.sketch.plan;
        let values = sources(plan);
        let expected = reference(&plan.graph, Sources { inputs: &values, weights: &values }).unwrap();
        let outcome = Session::new(programs(plan), &values).unwrap().step(&values).unwrap();
        assert!(outcome.outputs.keys().eq(expected.keys()));
        for (name, expected) in &expected {
            let (found, right) = (outcome.outputs[name].to_floats().unwrap(), expected.to_floats().unwrap());
            let size = right.iter().fold(1.0_f64, |size, it| size.max(it.abs()));
            for (found, right) in found.iter().zip(right) {
                assert!((found - right).abs() <= tolerance * size, "`{name}`: {found}, expected {right}");
            }
        }
        outcome
    }
}

/// What all ranks receive during steps (bytes).
fn received(outcome: &Outcome) -> u64 {
    let of_steps = |it: &&(Origin, u64)| matches!(it.0, Origin::Motion { .. });
    outcome.received.iter().filter(of_steps).map(|it| it.1).sum()
}

/// Each of the ranks receives all other blocks of keys and values once.
#[test]
fn keys_and_values_go_around() {
    for (ranks, tokens) in [2, 3, 4].into_iter().flat_map(|ranks| Tokens::ALL.map(|it| (ranks, it))) {
        for (causal, statistics, sinks) in [
            (false, false, false),
            (true, false, false),
            (true, true, false),
            (true, false, true),
            (false, false, true),
        ] {
            for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::BF16, 1e-2)] {
                let mut ring = Ring::new(ranks, tokens);
                let [q, k, v] =
                    [("q", [HEADS[0], SIZES[0]]), ("k", [HEADS[1], SIZES[0]]), ("v", [HEADS[1], SIZES[1]])]
                        .map(|(name, sizes)| ring.input(name, sizes, dtype));
                let op = Op::Attention(Attention { statistics, sinks, ..attention(causal) });
                let turned = format!("(a+@t:{ranks})");
                let mut operands = vec![q, k, v];
                if sinks {
                    let type_ = Type::new(dtype, [1, HEADS[0], 1, 1]);
                    operands.push(ring.sketch.input("sinks", type_, vec![vec![]; 4]));
                }
                let made = ring.node(op, &operands, ranks, ["a", &turned]);
                for (name, value) in ["y", "statistics"].into_iter().zip(made) {
                    ring.output(name, value);
                }
                let outcome = ring.run(tolerance);
                let held = HEADS[1] * POSITIONS * (SIZES[0] + SIZES[1]) * dtype.bytes();
                assert_eq!(received(&outcome), (ranks - 1) * held);
            }
        }
    }
}

/// Keys and values go around with their gradients, which end at home.
#[test]
fn gradients_of_keys_and_values_go_around() {
    for ranks in [2, 3, 4] {
        for (causal, tokens) in
            [false, true].into_iter().flat_map(|it| Tokens::ALL.map(|tokens| (it, tokens)))
        {
            let mut ring = Ring::new(ranks, tokens);
            let [q, k, v, dy] = [
                ("q", [HEADS[0], SIZES[0]]),
                ("k", [HEADS[1], SIZES[0]]),
                ("v", [HEADS[1], SIZES[1]]),
                ("dy", [HEADS[0], SIZES[1]]),
            ]
            .map(|(name, sizes)| ring.input(name, sizes, DType::F32));
            let turned = format!("(a+@t:{ranks})");
            let made = ring.node(Op::Attention(attention(causal)), &[q, k, v], ranks, ["a", &turned]);
            let op = Op::AttentionGradient { attention: attention(causal), mask: false };
            let turned = format!("(a+@t+1:{ranks})");
            // Keys and values start one further, so that gradients end at home.
            let gradients = ring.node(op, &[q, k, v, made[0], made[1], dy], ranks, ["a", &turned]);
            for (name, value) in ["dq", "dk", "dv"].into_iter().zip(gradients) {
                ring.output(name, value);
            }
            let outcome = ring.run(1e-4);
            let held = HEADS[1] * POSITIONS * (SIZES[0] + SIZES[1]) * DType::F32.bytes();
            // Forward keys and values, backward those and their gradients.
            assert_eq!(received(&outcome), 3 * (ranks - 1) * held);
        }
    }
}

//! Sequence parallelism by heads: attention turns positions into heads, and back.
//!
//! Source: Jacobs et al., "DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long
//! Sequence Transformer Models", 2023.

use planner_ir::{Attention, Blind, DType, Digit, Layout, Mesh, Move, Op, Partition, Real, Type, ValueId};

use super::check;
use super::sketch::Sketch;
use crate::Outcome;

/// Heads of queries and of keys, which 2, 3 and 4 ranks divide, and positions.
const HEADS: [u64; 2] = [24, 12];
const POSITIONS: u64 = 12;

/// The sizes of queries and of values.
const SIZES: [u64; 2] = [2, 3];

/// A plan whose sequences are split over one axis.
struct Heads {
    sketch: Sketch,
    own: Vec<Digit>,
}

impl Heads {
    fn new(ranks: u64) -> Self {
        let sketch = Sketch::new(&Mesh::of_sizes(&[ranks]));
        let own = vec![sketch.axis(0)];
        Self { sketch, own }
    }

    fn positions(&self) -> Vec<Vec<Digit>> {
        vec![vec![], vec![], self.own.clone(), vec![]]
    }

    fn input(&mut self, name: &str, heads: u64, size: u64) -> ValueId {
        let positions = self.positions();
        self.sketch.input(name, Type::new(DType::F32, [1, heads, POSITIONS, size]), positions)
    }

    /// An operation on its part of the heads.
    fn node(&mut self, op: Op, operands: &[ValueId]) -> Vec<ValueId> {
        let types = self.sketch.plan.graph.types_of(operands);
        let loops = op.loops(&types, &op.infer(&types).unwrap());
        let mut partition = Partition::replicated(&loops);
        let heads = loops.operands[0][1][0];
        partition.loops[heads.0].clone_from(&self.own);
        let digits = self.own.clone();
        self.sketch.node_with(op, operands, partition, &mut |_, _, layout: &Layout, _| {
            (!layout.dims[2].is_empty()).then(|| Move::AllToAll { from: 2, to: 1, digits: digits.clone() })
        })
    }

    fn output(&mut self, name: &str, value: ValueId) {
        let (positions, digits) = (self.positions(), self.own.clone());
        self.sketch.output(name, value, positions, &mut |_, _, layout, _| {
            (!layout.dims[1].is_empty()).then(|| Move::AllToAll { from: 1, to: 2, digits: digits.clone() })
        });
    }
}

/// What each exchange brings all ranks, least first (bytes).
fn received(outcome: &Outcome) -> Vec<u64> {
    let mut all: Vec<u64> = outcome.received.iter().map(|it| it.1).collect();
    all.sort_unstable();
    all
}

/// Four exchanges forward, and as many backward, each of (n − 1)/n of a value: what a rank has of it is
/// its n-th part, of which it keeps the n-th part.
#[test]
fn attention_by_heads_turns_four_values_forward_and_four_backward() {
    for (ranks, causal) in [2, 3, 4].into_iter().flat_map(|ranks| [false, true].map(|it| (ranks, it))) {
        let attention = Attention {
            scale: Real(0.25),
            causal,
            softcap: Real(0.0),
            window: None,
            blind: Blind::Zero,
            sinks: false,
            statistics: true,
        };
        let part =
            |heads: u64, size: u64| (ranks - 1) * heads * POSITIONS * size * DType::F32.bytes() / ranks;
        // Q, K, V and Y; backward they are gradients.
        let mut four = vec![
            part(HEADS[0], SIZES[0]),
            part(HEADS[1], SIZES[0]),
            part(HEADS[1], SIZES[1]),
            part(HEADS[0], SIZES[1]),
        ];
        four.sort_unstable();
        for backward in [false, true] {
            let mut it = Heads::new(ranks);
            let q = it.input("q", HEADS[0], SIZES[0]);
            let [k, v] =
                [("k", SIZES[0]), ("v", SIZES[1])].map(|(name, size)| it.input(name, HEADS[1], size));
            let made = it.node(Op::Attention(attention), &[q, k, v]);
            it.output("y", made[0]);
            let mut expected = four.clone();
            if backward {
                let dy = it.input("dy", HEADS[0], SIZES[1]);
                let op = Op::AttentionGradient { attention, mask: false };
                // Of q, k and v the heads are still there.
                let gradients = it.node(op, &[q, k, v, made[0], made[1], dy]);
                for (name, value) in ["dq", "dk", "dv"].into_iter().zip(gradients) {
                    it.output(name, value);
                }
                expected.extend(&four);
                expected.sort_unstable();
            }
            assert_eq!(received(&check(&it.sketch.plan)), expected, "{ranks} ranks");
        }
    }
}

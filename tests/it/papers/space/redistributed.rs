//! The MLP of the paper's Fig. 9 on ranks: what moves between its squares.
//!
//! Its first product is {K,P2x2}, the elements between are split as that leaves them, its second
//! product is {N,P2x2}. The second square starts with a skew, which half of the devices have to bring about.

use std::collections::{BTreeMap, BTreeSet};

use kernels::Array;
use lower::{Action, Origin, Program};
use planner_ir::{Layout, Mesh, Move, Op, Partition, Source, Type, Unary, ValueId};
use run::{Outcome, Session, Sources};

use super::{Part, Phase, mesh, partition};
use crate::sketch::Sketch;

const FIRST: [Part; 2] = [Part::Split('K'), Part::Square(2)];
const SECOND: [Part; 2] = [Part::Split('N'), Part::Square(2)];

/// The extents of the batch, the sequence, the model and the hidden units.
const SIZES: [u64; 4] = [2, 4, 8, 16];

struct Mlp {
    sketch: Sketch,
    mesh: Mesh,
}

impl Mlp {
    /// A product of one of the two linear operations; operands get there by a permutation.
    fn product(&mut self, sequence: &[Part], phase: Phase, of: [ValueId; 2]) -> ValueId {
        let partition = partition(sequence, &self.mesh, phase);
        let op = phase.operation(extents(sequence)).0;
        let loops = phase.loops(extents(sequence));
        let homes = [0, 1].map(|it| partition.operand(&loops, it).dims);
        let mut places = (0..2).filter(|&it| self.sketch.plan.layouts[of[it].0].dims != homes[it]);
        let mut permute = places.next().map(|it| Move::Permute { dims: homes[it].clone() });
        assert_eq!(places.next(), None, "one operand at most is elsewhere");
        self.sketch.node_with(op, &of, partition, &mut |_, _, _, _| permute.take())[0]
    }

    /// An operation on elements where the first operand is; the others get there by a permutation.
    fn elements(&mut self, op: Op, of: &[ValueId]) -> ValueId {
        let types = self.sketch.plan.graph.types_of(of);
        let loops = op.loops(&types, &op.infer(&types).unwrap());
        let mut partition = Partition::replicated(&loops);
        let dims = self.sketch.plan.layouts[of[0].0].dims.clone();
        for (dim, digits) in loops.operands[0].iter().zip(&dims) {
            partition.loops[dim[0].0].clone_from(digits);
        }
        self.sketch.node_with(op, of, partition, &mut |_, _, layout, _| {
            (layout.dims != dims).then(|| Move::Permute { dims: dims.clone() })
        })[0]
    }

    /// A value at rest where an operand of a product has it.
    fn given(&mut self, name: &str, sequence: &[Part], phase: Phase, operand: usize) -> ValueId {
        let loops = phase.loops(extents(sequence));
        let Layout { dims, .. } = partition(sequence, &self.mesh, phase).operand(&loops, operand);
        let type_: Type = phase.operation(extents(sequence)).1[operand].clone();
        self.sketch.input(name, type_, dims)
    }

    /// Returns what a product makes, summed where it owes a sum.
    fn returned(&mut self, name: &str, value: ValueId) {
        let dims = self.sketch.plan.layouts[value.0].dims.clone();
        self.sketch.output(name, value, dims, &mut |_, _, _, _| None);
    }
}

fn extents(sequence: &[Part]) -> [u64; 4] {
    let [batch, rows, model, hidden] = SIZES;
    if sequence == FIRST { [batch, rows, model, hidden] } else { [batch, rows, hidden, model] }
}

/// Small whole numbers for a graph's inputs, others for each.
fn some_inputs(sketch: &Sketch) -> BTreeMap<String, Array> {
    let graph = &sketch.plan.graph;
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(i16::try_from((state >> 16) % 7).unwrap() - 3)
    };
    let input = |value: &planner_ir::Value| {
        let Source::Input(name) = &value.source else { return None };
        let numbers: Vec<f32> = (0..value.type_.elements()).map(|_| next()).collect();
        Some((name.clone(), Array::of(value.type_.shape.clone(), &numbers).unwrap()))
    };
    graph.values.iter().filter_map(input).collect()
}

/// Which ranks receive in a transfer, each one message, and what all of them together do (bytes).
fn received(programs: &[Program], outcome: &Outcome, transfer: usize) -> (BTreeSet<u64>, u64) {
    let of = |origin: Origin| matches!(origin, Origin::Move { transfer: it, .. } if it == transfer);
    let mut ranks = BTreeSet::new();
    for program in programs {
        let exchanges: Vec<&Action> =
            program.instructions.iter().filter(|it| of(it.origin)).map(|it| &it.action).collect();
        let [Action::Message(message)] = exchanges[..] else { panic!("not one message: {program}") };
        if message.from != program.rank {
            ranks.insert(program.rank);
        }
    }
    (ranks, outcome.received.iter().filter(|it| of(it.0)).map(|it| it.1).sum())
}

#[test]
fn half_of_the_devices_move_a_block_to_the_second_square_and_half_move_one_back() {
    let mesh = mesh(&FIRST);
    let mut mlp = Mlp { sketch: Sketch::new(&mesh), mesh };
    let x = mlp.given("x", &FIRST, Phase::Forward, 0);
    let up = mlp.given("up", &FIRST, Phase::Forward, 1);
    let down = mlp.given("down", &SECOND, Phase::Forward, 1);
    let dz = mlp.given("dz", &SECOND, Phase::Backward, 0);
    let y = mlp.product(&FIRST, Phase::Forward, [x, up]);
    let hidden = mlp.elements(Op::Unary(Unary::Relu), &[y]);
    let z = mlp.product(&SECOND, Phase::Forward, [hidden, down]);
    let of_hidden = mlp.product(&SECOND, Phase::Backward, [dz, down]);
    let of_down = mlp.product(&SECOND, Phase::Gradient, [hidden, dz]);
    let of_y = mlp.elements(planner_ir::parse_op("unary_gradient function=relu").unwrap(), &[y, of_hidden]);
    let of_x = mlp.product(&FIRST, Phase::Backward, [of_y, up]);
    let of_up = mlp.product(&FIRST, Phase::Gradient, [x, of_y]);
    // What is moved between the products: the elements on their way to the second one, once for both
    // of its phases that use them, and their gradient on its way back.
    let moved: Vec<ValueId> = mlp.sketch.plan.transfers.iter().map(|it| it.value).collect();
    assert_eq!(moved, [hidden, of_hidden]);
    for (name, value) in [("z", z), ("dx", of_x), ("dup", of_up), ("ddown", of_down)] {
        mlp.returned(name, value);
    }
    let inputs = some_inputs(&mlp.sketch);
    let weights: BTreeMap<String, Array> = BTreeMap::new();
    let expected =
        run::reference(&mlp.sketch.plan.graph, Sources { inputs: &inputs, weights: &weights }).unwrap();
    let programs = lower::lower(&mlp.sketch.plan).unwrap();
    lower::verify(&programs).unwrap_or_else(|found| panic!("{found}"));
    let outcome = Session::new(programs.clone(), &weights).unwrap().step(&inputs).unwrap();
    for (name, expected) in &expected {
        assert_eq!(outcome.outputs[name].to_floats(), expected.to_floats(), "{name}");
    }
    let block = SIZES[0] * SIZES[1] * SIZES[3] * 4 / 8;
    // The axes are that of the split, the rows and the columns: in the second row blocks are elsewhere.
    let second_row: BTreeSet<u64> = (0..8).filter(|&it| mlp.mesh.coordinates(it)[1] == 1).collect();
    assert_eq!(received(&programs, &outcome, 0), (second_row.clone(), 4 * block), "forward");
    assert_eq!(received(&programs, &outcome, 1), (second_row, 4 * block), "backward");
}

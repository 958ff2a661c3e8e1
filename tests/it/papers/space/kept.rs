//! What a rank keeps of a linear layer that is trained by squares.

use planner_ir::{
    Binary, DType, Layout, Mesh, Op, Optimizer, Partition, Phase as Part_, Real, StateKind, Type, Unary,
    ValueId,
};

use super::{Part, Phase, mesh, partition};
use crate::sketch::Sketch;

/// A training step under way.
struct Layer {
    sketch: Sketch,
    mesh: Mesh,
    side: u64,
    extents: [u64; 4],
}

impl Layer {
    /// A product, as a square.
    fn product(&mut self, phase: Phase, of: [ValueId; 2]) -> ValueId {
        let partition = partition(&[Part::Square(self.side)], &self.mesh, phase);
        self.sketch.node(phase.operation(self.extents).0, &of, partition)[0]
    }

    /// An operation on elements, where they are; numbers are everywhere.
    fn elements(&mut self, op: Op, of: &[ValueId]) -> Vec<ValueId> {
        let types = self.sketch.plan.graph.types_of(of);
        let loops = op.loops(&types, &op.infer(&types).unwrap());
        let mut partition = Partition::replicated(&loops);
        let layout = &self.sketch.plan.layouts[of[0].0];
        for (dim, digits) in loops.operands[0].iter().zip(&layout.dims) {
            partition.loops[dim[0].0].clone_from(digits);
        }
        self.sketch.node(op, of, partition)
    }

    /// The layout of X, W or Y.
    fn at_home(&self, place: usize) -> Layout {
        let loops = Phase::Forward.loops(self.extents);
        let partition = partition(&[Part::Square(self.side)], &self.mesh, Phase::Forward);
        if place < 2 { partition.operand(&loops, place) } else { partition.result(&loops, 0) }
    }
}

/// The step of relu(x) w of which the gradient is given, with its micro-batches' gradients summed and
/// the parameter updated by `AdamW`.
fn trained(side: u64, extents: [u64; 4]) -> Sketch {
    let mesh = mesh(&[Part::Square(side)]);
    let mut layer = Layer { sketch: Sketch::training(&mesh, 2), mesh, side, extents };
    let [x, w, y] = Phase::Forward.operation(extents).1;
    let home = [0, 1, 2].map(|it| layer.at_home(it));
    let sketch = &mut layer.sketch;
    let number = || Type::new(DType::F32, []);
    let given = sketch.input("x", x, home[0].dims.clone());
    let dy = sketch.input("dy", y, home[2].dims.clone());
    let numbers = ["scale", "rate", "step"].map(|name| sketch.input(name, number(), vec![]));
    let kinds = [StateKind::Parameter, StateKind::FirstMoment, StateKind::SecondMoment, StateKind::Gradient];
    let [parameter, first, second, gradient] =
        kinds.map(|kind| sketch.state(kind, "w", w.clone(), home[1].clone()));
    let stash = layer.elements(Op::Unary(Unary::Relu), &[given])[0];
    layer.product(Phase::Forward, [stash, parameter]);
    layer.sketch.phase = Part_::Backward;
    layer.product(Phase::Backward, [dy, parameter]);
    layer.sketch.phase = Part_::Gradient;
    let addend = layer.product(Phase::Gradient, [stash, dy]);
    let sum = layer.elements(Op::Binary(Binary::Add), &[gradient, addend])[0];
    layer.sketch.phase = Part_::Update;
    let real = Real(0.5);
    let optimizer = Optimizer::AdamW { beta1: real, beta2: real, epsilon: real, decay: real };
    let [scale, rate, step] = numbers;
    let next = layer.elements(Op::Update(optimizer), &[parameter, sum, first, second, scale, rate, step]);
    let Layer { mut sketch, .. } = layer;
    for (state, next) in [parameter, first, second].into_iter().zip(next).chain([(gradient, sum)]) {
        sketch.carry(state, next, &mut |_, _, _, _| None);
    }
    assert!(sketch.plan.transfers.is_empty(), "everything is at home");
    sketch
}

#[test]
fn weights_gradients_moments_and_the_stash_are_divided_by_the_square_of_the_side() {
    for side in [2, 3, 4] {
        let extents = [8, 16 * side, 16 * side, 8 * side];
        let sketch = trained(side, extents);
        let programs = lower::lower(&sketch.plan).unwrap();
        lower::verify(&programs).unwrap_or_else(|found| panic!("{found}"));
        let memory = lower::memory(&sketch.plan).unwrap();
        let bytes = |kind: &str| memory.iter().find(|it| it.kind == kind).unwrap().bytes;
        let [x, w, _] = Phase::Forward.operation(extents).1.map(|it| it.bytes() / (side * side));
        assert_eq!(bytes("weights"), w, "{memory:?}");
        assert_eq!(bytes("gradients"), w, "{memory:?}");
        assert_eq!(bytes("optimizer"), 2 * w, "{memory:?}");
        assert_eq!(bytes("activations"), x, "{memory:?}");
        // What is kept of each on every rank, by what the ranks' programs have at rest.
        for program in &programs {
            let at_rest = |port: &lower::Port| program.buffer(port.buffer).type_.bytes();
            assert_eq!(program.states.iter().map(at_rest).collect::<Vec<_>>(), [w; 4]);
        }
    }
}

//! Sums of narrow numbers over ranks are made in f32 and rounded once.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{DType, Digit, Mesh, Move, Op, Partition, Reduction, Type, ValueId};

use super::programs;
use super::sketch::Sketch;
use crate::Session;

/// 256 and then ones: in bf16, which has eight bits, 256 + 1 is 256.
fn addends(devices: u64, columns: u64) -> Array {
    let rows = (0..devices).flat_map(|row| (0..columns).map(move |_| if row == 0 { 256.0_f32 } else { 1.0 }));
    let wide = Array::of([devices, columns], &rows.collect::<Vec<_>>()).unwrap();
    kernels::evaluate(&Op::Cast(DType::BF16), &[&wide]).unwrap().remove(0)
}

/// The sum over rows, of which each device has one.
fn summed(devices: u64, columns: u64) -> (Sketch, ValueId) {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[devices]));
    let a = sketch.axis(0);
    let x = sketch.input("x", Type::new(DType::BF16, [devices, columns]), vec![vec![a.clone()], vec![]]);
    let op = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
    let types = sketch.plan.graph.types_of(&[x]);
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let mut partition = Partition::replicated(&loops);
    partition.loops[loops.operands[0][0][0].0].push(a);
    let y = sketch.node(op, &[x], partition)[0];
    (sketch, y)
}

#[test]
fn narrow_sums_are_rounded_once() {
    for (devices, columns) in [(3, 1), (4, 8), (5, 5), (8, 16), (16, 16)] {
        let expected = 256.0 + f64::from(u32::try_from(devices - 1).unwrap());
        let rounded = Array::of([], &[expected]).unwrap();
        let rounded = kernels::evaluate(&Op::Cast(DType::BF16), &[&rounded]).unwrap().remove(0);
        let expected = rounded.to_floats().unwrap()[0];
        let run = |sketch: Sketch| {
            let mut session = Session::new(programs(&sketch.plan), &BTreeMap::new()).unwrap();
            let inputs = [("x".to_owned(), addends(devices, columns))].into();
            let outcome = session.step(&inputs).unwrap();
            assert!(
                outcome.outputs["y"].to_floats().unwrap().iter().all(|it| it.to_bits() == expected.to_bits())
            );
        };
        let (mut sketch, y) = summed(devices, columns);
        sketch.output("y", y, vec![vec![], vec![]], &mut |_, _, _, _| None);
        run(sketch);
        if columns % devices == 0 {
            let (mut sketch, y) = summed(devices, columns);
            let split =
                || vec![vec![], vec![Digit::axis(&Mesh::of_sizes(&[devices]), planner_ir::AxisId(0))]];
            let mut moves = vec![Move::ReduceScatter { dim: 1, digits: split().remove(1) }].into_iter();
            sketch.output("y", y, split(), &mut |_, _, _, _| moves.next());
            run(sketch);
        }
    }
}

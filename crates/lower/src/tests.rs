//! Plans lowered by hand-made and broken programs.

mod faults; // rules that are broken are found
mod sketch; // plans made by hand
mod temporal; // operations in time steps
mod temporal_faults; // rules of messages and parts that are broken are found
mod refusals; // plans that have no programs
mod shape; // what programs look like
mod regression; // training steps made by hand
mod step_faults; // rules of training steps that are broken are found
mod training; // programs of training steps
mod written; // what is written over inputs
mod alike; // one program for all ranks
mod pipelines; // programs of stages
mod grouped; // one program for each group
mod issue; // orders in which hosts issue exchanges
mod overlap; // exchanges beside computing
mod turns; // what is kept between turns

use planner_ir::{AxisId, Contract, DType, Label, Mesh, Op, Partition, Slots, Type, Unary, Ways};

use crate::{Program, lower, verify};
use sketch::Sketch;

fn product() -> Op {
    let labels = |of: [u8; 2]| of.map(Label).to_vec();
    Op::Contract(Contract { left: labels([0, 1]), right: labels([1, 2]), result: labels([0, 2]) })
}

fn f32(shape: &[u64]) -> Type {
    Type::new(DType::F32, shape)
}

/// Nothing split but the loops named, each over one axis.
fn split(sketch: &Sketch, loops: usize, splits: &[(usize, usize)]) -> Partition {
    let mut partition = Partition {
        steps: 1,
        loops: vec![vec![]; loops],
        passed: vec![],
        through: 0,
        streams: vec![],
        ways: Ways::One,
        slots: Slots::Two,
        routed: vec![],
        routed_by: 1,
    };
    for &(it, axis) in splits {
        partition.loops[it].push(sketch.axis(axis));
    }
    partition
}

/// Two layers, the first split by columns and the second by rows.
fn two_layers(devices: u64) -> Sketch {
    let mesh = Mesh::of_sizes(&[devices]);
    let mut sketch = Sketch::new(&mesh);
    let a = || vec![sketch_axis(&mesh)];
    let x = sketch.input("x", f32(&[4, 8]), vec![vec![], vec![]]);
    let up = sketch.weight("up", f32(&[8, 16]), vec![vec![], a()]);
    let down = sketch.weight("down", f32(&[16, 8]), vec![a(), vec![]]);
    let columns = split(&sketch, 3, &[(2, 0)]);
    let hidden = sketch.node(product(), &[x, up], columns)[0];
    let split_hidden = split(&sketch, 2, &[(1, 0)]);
    let active = sketch.node(Op::Unary(Unary::Relu), &[hidden], split_hidden)[0];
    let rows = split(&sketch, 3, &[(1, 0)]);
    let y = sketch.node(product(), &[active, down], rows)[0];
    sketch.output("y", y, vec![vec![], vec![]], &mut |_, _, _, _| None);
    sketch
}

fn sketch_axis(mesh: &Mesh) -> planner_ir::Digit {
    planner_ir::Digit::axis(mesh, AxisId(0))
}

fn programs(sketch: &Sketch) -> Vec<Program> {
    let programs = lower(&sketch.plan).unwrap();
    if let Err(violations) = verify(&programs) {
        panic!("{violations}\n{}", programs[0]);
    }
    programs
}

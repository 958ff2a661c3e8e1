//! What programs look like.

use expect_test::{Expect, expect};
use planner_ir::{Digit, Mesh, Op, Unary};

use super::{f32, product, programs, sketch_axis, split, two_layers};
use crate::tests::sketch::Sketch;

fn check(sketch: &Sketch, rank: usize, expected: &Expect) {
    expected.assert_eq(&programs(sketch)[rank].to_string());
}

#[test]
fn columns_then_rows_need_one_all_reduce() {
    check(
        &two_layers(2),
        1,
        &expect![[r#"
            rank 1 of 2
            resident 640 bytes, arena 256 bytes
            communicator c0 of ranks [0, 1]
            b0: f32[4,8] input in resident 0..128
            b1: f32[8,8] weight in resident 128..384
            b2: f32[4,8] activation in arena 0..128
            b3: f32[4,8] activation in arena 128..256
            b4: f32[8,8] weight in resident 384..640
            b5: f32[4,8] activation in arena 0..128
            b6: f32[4,8] output in arena 128..256
            input `x` f32[4,8] pieces [4, 8] -> b0
            weight `up` f32[8,16] pieces [8, 1/2.8] -> b1
            weight `down` f32[16,8] pieces [1/2.8, 8] -> b4
            0: compute `node0` Contract(b0, b1[0/8,0/16]) -> b2[0/4,0/16] for node 0
            1: compute `node1` Relu(b2[0/4,0/16]) -> b3[0/4,0/16] for node 1
            2: compute `node2` Contract(b3[0/4,0/16], b4[0/16,0/8]) -> b5 for node 2 signals e0
            3: communication all-reduce c0 of 32 f32 b5 -> b6 for transfer 0.0 after e0
            b6 -> output `y` f32[4,8] pieces [4, 8]
        "#]],
    );
}

#[test]
fn a_gather_of_columns_is_unpacked_and_one_of_rows_is_not() {
    let mesh = Mesh::of_sizes(&[2]);
    let mut sketch = Sketch::new(&mesh);
    let a = || vec![sketch_axis(&mesh)];
    let x = sketch.input("x", f32(&[4, 4]), vec![vec![], a()]);
    let y = sketch.input("y", f32(&[4, 4]), vec![a(), vec![]]);
    let whole = split(&sketch, 3, &[]);
    let z = sketch.node(product(), &[x, y], whole)[0];
    sketch.output("z", z, vec![vec![Digit::free(2), sketch_axis(&mesh)], vec![]], &mut |_, _, _, _| None);
    check(
        &sketch,
        1,
        &expect![[r#"
            rank 1 of 2
            resident 128 bytes, arena 192 bytes
            communicator c0 of ranks [0, 1]
            b0: f32[4,2] input in resident 0..32
            b1: f32[16] communication in arena 0..64
            b2: f32[4,4] activation in arena 64..128
            b3: f32[2,4] input in resident 64..96
            b4: f32[4,4] activation in arena 0..64
            b5: f32[4,4] activation in arena 128..192
            b6: f32[2,4] output in arena 0..32
            input `x` f32[4,4] pieces [4, 1/2.2] -> b0
            input `y` f32[4,4] pieces [1/2.2, 4] -> b3
            0: communication all-gather c0 of 8 f32 b0 -> b1 for transfer 0.0
            1: communication copy b1 -> b2 from 0 4x(2->4) 2x(8->2) 2x(1->1) for transfer 0.0
            2: communication all-gather c0 of 8 f32 b3 -> b4 for transfer 1.0 signals e0
            3: compute `node0` Contract(b2, b4) -> b5 for node 0 after e0
            4: compute copy b5 -> b6 from 4 2x(8->4) 4x(1->1) for transfer 2.0
            b6 -> output `z` f32[4,4] pieces [2.1/2.1, 4]
        "#]],
    );
}

#[test]
fn a_reshape_is_no_instruction() {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[2]));
    let axis = sketch.axis(0);
    let x = sketch.input("x", f32(&[4, 6]), vec![vec![axis.clone()], vec![]]);
    let rows = split(&sketch, 2, &[(0, 0)]);
    let y = sketch.node(Op::Reshape { shape: vec![4, 2, 3] }, &[x], rows_of(&rows))[0];
    sketch.output("y", y, vec![vec![axis], vec![], vec![]], &mut |_, _, _, _| None);
    check(
        &sketch,
        0,
        &expect![[r#"
        rank 0 of 2
        resident 64 bytes, arena 0 bytes
        b0: f32[2,6] input in resident 0..48
        b1: f32[2,2,3] input in resident 0..48
        input `x` f32[4,6] pieces [0/2.2, 6] -> b0
        b1 -> output `y` f32[4,2,3] pieces [0/2.2, 2, 3]
    "#]],
    );
}

fn rows_of(partition: &planner_ir::Partition) -> planner_ir::Partition {
    let mut partition = partition.clone();
    partition.loops.push(vec![]);
    partition
}

#[test]
fn a_prepared_value_is_cut_at_rest() {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[2]));
    let axis = sketch.axis(0);
    let w = sketch.weight("w", f32(&[4, 6]), vec![vec![], vec![]]);
    let turned = Op::Transpose { permutation: vec![1, 0] };
    let turned = sketch.prepared(turned, &[w], vec![vec![axis.clone()], vec![]]);
    let rows = split(&sketch, 2, &[(0, 0)]);
    let y = sketch.node(Op::Unary(Unary::Neg), &[turned], rows)[0];
    sketch.output("y", y, vec![vec![axis], vec![]], &mut |_, _, _, _| None);
    check(
        &sketch,
        1,
        &expect![[r#"
        rank 1 of 2
        resident 64 bytes, arena 64 bytes
        prepare `node0` Transpose(`w`) -> values [1]
        b0: f32[3,4] prepared in resident 0..48
        b1: f32[3,4] output in arena 0..48
        prepared `node0` f32[6,4] pieces [1/2.3, 4] -> b0
        0: compute `node1` Neg(b0[0/6,0/4]) -> b1[0/6,0/4] for node 1
        b1 -> output `y` f32[6,4] pieces [1/2.3, 4]
    "#]],
    );
}

//! Programs of training steps.

use std::sync::Arc;

use expect_test::expect;
use plan::Plan;
use planner_ir::{DType, Op, StateKind, Type, parse_op};

use super::regression::{OPTIMIZERS, Parallel, Regression, Sums};
use super::{programs, two_layers};
use crate::{
    Action, Block, Buffer, BufferId, Compute, Kind, Program, StorageId, footprint, lower, memory, verify,
};

/// A step whose parameters are much larger than all else.
fn wide(parallel: Parallel) -> Regression {
    Regression { extents: [4, 512, 256, 512], ..Regression::new(parallel, 4, 2) }
}

fn held(plan: &Plan, kind: &str) -> u64 {
    let holding = memory(plan).unwrap().into_iter().find(|it| it.kind == kind);
    holding.unwrap_or_else(|| panic!("no {kind}")).bytes
}

#[test]
fn a_data_parallel_step() {
    let regression = Regression { optimizer: OPTIMIZERS[1], ..Regression::new(Parallel::Data, 2, 3) };
    let programs = programs(&regression.sketch());
    expect![[r#"
        rank 1 of 2
        resident 1088 bytes, arena 448 bytes
        communicator c0 of ranks [0, 1]
        b0: f32[4,8] gradient in resident 0..128
        b1: f32[8,4] gradient in resident 128..256
        b2: f32[] total in resident 256..260
        b3: f32[] total in resident 320..324
        b4: f32[4,4] input in resident 384..448
        b5: f32[4,8] parameter in resident 448..576
        b6: f32[4,8] activation in arena 0..128
        b7: f32[8,4] parameter in resident 576..704
        b8: f32[4,4] activation in arena 128..192
        b9: f32[4,4] input in resident 704..768
        b10: f32[4,4] activation in arena 192..256
        b11: f32[4,4] activation in arena 128..192
        b12: f32[1,1] activation in arena 256..260
        b13: f32[] activation in arena 256..260
        b14: f32[] total in resident 256..260
        b15: f32[] activation in arena 128..132
        b16: f32[] total in resident 320..324
        b17: f32[4,4] activation in arena 384..448
        b18: f32[4,8] activation in arena 128..256
        b19: f32[8,4] activation in arena 256..384
        b20: f32[8,4] gradient in resident 128..256
        b21: f32[4,8] activation in arena 0..128
        b22: f32[4,8] gradient in resident 0..128
        b23: f32[] total in resident 256..260
        b24: f32[] output in arena 0..4
        b25: f32[] activation in arena 64..68
        b26: f32[] activation in arena 128..132
        b27: f32[4,8] gradient in resident 0..128
        b28: f32[4,8] first_moment in resident 768..896
        b29: f32[] input in resident 896..900
        b30: f32[4,8] parameter in resident 448..576
        b31: f32[4,8] first_moment in resident 768..896
        b32: f32[8,4] gradient in resident 128..256
        b33: f32[8,4] first_moment in resident 960..1088
        b34: f32[8,4] parameter in resident 576..704
        b35: f32[8,4] first_moment in resident 960..1088
        input `rate` f32[] pieces [] -> b29
        gradient `up` f32[4,8] pieces [4, 8] -> b0
        gradient `down` f32[8,4] pieces [8, 4] -> b1
        total `loss` f32[] pieces [] -> b2
        total `count` f32[] pieces [] -> b3
        parameter `up` f32[4,8] pieces [4, 8] -> b5
        parameter `down` f32[8,4] pieces [8, 4] -> b7
        first_moment `up` f32[4,8] pieces [4, 8] -> b28
        first_moment `down` f32[8,4] pieces [8, 4] -> b33
        0: compute `up` Fill() -> b0 for state 6
        1: compute `down` Fill() -> b1 for state 9
        2: compute `loss` Fill() -> b2 for state 10
        3: compute `count` Fill() -> b3 for state 11
        repeat 3 times
        input `x` f32[8,4] pieces [1/2.4, 4] -> b4
        input `y` f32[8,4] pieces [1/2.4, 4] -> b9
        4: compute `node0` Contract(b4[0/8,0/4], b5) -> b6[0/8,0/8] for node 0
        5: compute `node1` Contract(b6[0/8,0/8], b7) -> b8[0/8,0/4] for node 1
        6: compute `node2` Sub(b8[0/8,0/4], b9[0/8,0/4]) -> b10[0/8,0/4] for node 2
        7: compute `node3` Mul(b10[0/8,0/4], b10[0/8,0/4]) -> b11[0/8,0/4] for node 3
        8: compute `node4` Reduce(b11[0/8,0/4]) -> b12 for node 4
        9: compute `node6` Add(b2, b13) -> b14 for node 6 signals e0
        10: compute `node7` Fill() -> b15 for node 7
        11: compute `node8` Add(b3, b15) -> b16 for node 8
        12: compute `node9` Add(b10[0/8,0/4], b10[0/8,0/4]) -> b17[0/8,0/4] for node 9
        13: compute `node10` Contract(b17[0/8,0/4], b7) -> b18[0/8,0/8] for node 10
        14: compute `node11` Contract(b6[0/8,0/8], b17[0/8,0/4]) -> b19 for node 11
        15: compute `node12` Add(b1, b19) -> b20 for node 12
        16: compute `node13` Contract(b4[0/8,0/4], b18[0/8,0/8]) -> b21 for node 13
        17: compute `node14` Add(b0, b21) -> b22 for node 14 signals e1
        repeat no more
        18: communication all-reduce c0 of 1 f32 b2 -> b23 for transfer 0.0 after e0 signals e2
        19: compute `node15` Div(b23, b3) -> b24 for node 15 after e2
        20: compute `node16` Fill() -> b25 for node 16
        21: compute `node17` Div(b25, b3) -> b26 for node 17
        22: communication all-reduce c0 of 32 f32 b0 -> b27 for transfer 1.0 after e1 signals e3
        stop if an output is not finite
        23: compute `node18` Update(b5, b27, b28, b26, b29) -> b30, b31 for node 18 after e3
        24: communication all-reduce c0 of 32 f32 b1 -> b32 for transfer 2.0 signals e4
        25: compute `node19` Update(b7, b32, b33, b26, b29) -> b34, b35 for node 19 after e4
        b24 -> output `loss` f32[] pieces []
    "#]]
    .assert_eq(&programs[1].to_string());
}

#[test]
fn no_second_copy_of_a_state_is_made() {
    for parallel in Parallel::ALL {
        for (dtype, optimizer) in [DType::F32, DType::BF16].into_iter().zip([OPTIMIZERS[2], OPTIMIZERS[1]]) {
            let regression = Regression { dtype, optimizer, ..wide(parallel) };
            let plan = regression.sketch().plan;
            // The two parameters have as many elements. One addend of a gradient is there at a
            // time, in one piece, besides what is packed to be sent or has been gathered.
            let [parameter, _] = regression.parameter_bytes();
            let program = &lower(&plan).unwrap()[0];
            let most = match parallel {
                Parallel::Data => parameter,
                // The parts of the old and of the new parameter; of a gradient that is summed.
                Parallel::Zero1 => parameter,
                Parallel::Zero2 => parameter + parameter / 4,
                Parallel::Zero3 => 2 * parameter,
                Parallel::Tensor | Parallel::DataTensor => parameter,
            };
            let small = 64 * 1024;
            assert!(program.arena < most + small, "{regression:?} {} of {most}\n{program}", program.arena);
            let sums =
                |kind: StateKind| program.storages.iter().filter(|it| it.kind == Kind::State(kind)).count();
            assert_eq!(sums(StateKind::Gradient), 2);
        }
    }
}

#[test]
fn kinds_of_memory_add_up_to_the_memories() {
    for parallel in Parallel::ALL {
        for dtype in [DType::F32, DType::BF16] {
            let regression = Regression { dtype, ..Regression::new(parallel, 4, 3) };
            let plan = regression.sketch().plan;
            let program = &lower(&plan).unwrap()[0];
            let total: u64 = memory(&plan).unwrap().iter().map(|it| it.bytes).sum();
            assert_eq!(total, program.resident + program.arena);
            assert_eq!(total, footprint(&plan).unwrap());
        }
    }
}

#[test]
fn kinds_of_memory_add_up_in_inference() {
    let plan = two_layers(2).plan;
    let held = memory(&plan).unwrap();
    let kinds: Vec<(&str, u64)> = held.iter().map(|it| (it.kind.as_str(), it.bytes)).collect();
    // The first two activations live together, and so do the last and its sum.
    let expected = [
        ("weights", 2 * 8 * 8 * 4),
        ("inputs", 4 * 8 * 4),
        ("activations", 2 * 4 * 8 * 4),
        ("communication", 0),
        ("packing", 0),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn memory_at_rest_is_that_of_the_textbook() {
    // Per parameter: p of 2 bytes, g of 2, and 12 of the optimizer, masters counted.
    let of = |parallel: Parallel| {
        let regression = Regression { dtype: DType::BF16, ..wide(parallel) };
        let plan = regression.sketch().plan;
        let elements = regression.parameter_bytes().iter().sum::<u64>() / 2;
        let totals = 2 * 4;
        let [weights, gradients, masters, optimizer] =
            ["weights", "gradients", "masters", "optimizer"].map(|kind| held(&plan, kind));
        // Of four devices together (bytes).
        [weights, gradients - totals, masters, optimizer].map(|bytes| 4 * bytes / elements)
    };
    assert_eq!(of(Parallel::Data), [8, 8, 16, 32]);
    assert_eq!(of(Parallel::Zero1), [8, 8, 4, 8]);
    assert_eq!(of(Parallel::Zero2), [8, 2, 4, 8]);
    assert_eq!(of(Parallel::Zero3), [2, 2, 4, 8]);
    assert_eq!(of(Parallel::Tensor), [2, 2, 4, 8]);
    assert_eq!(of(Parallel::DataTensor), [4, 4, 8, 16]);
}

/// The products that add, and where what they make is.
fn adding(program: &Program) -> Vec<(usize, &[Block], usize)> {
    let found = program.instructions.iter().enumerate().filter_map(|(number, it)| match &it.action {
        Action::Compute(it) if matches!(*it.op, Op::Contract(_)) && it.operands.len() == 3 => {
            Some((number, &it.operands[..], program.buffer(it.results[0].buffer).storage.0))
        }
        _ => None,
    });
    found.collect()
}

/// A product adds where the gradient is, and is not made over its factors, though they are of one type.
#[test]
fn products_add_where_gradients_are_and_over_nothing_else() {
    for parallel in [Parallel::Data, Parallel::Zero1] {
        let extents = [32, 8, 8, 8];
        let regression = Regression { sums: Sums::Added, extents, ..Regression::new(parallel, 4, 3) };
        let programs = programs(&regression.sketch());
        for program in &programs {
            let adding = adding(program);
            assert_eq!(adding.len(), 2, "{program}");
            for (_, operands, made) in adding {
                let storage = |it: usize| program.buffer(operands[it].buffer).storage.0;
                assert_eq!(program.storages[made].kind, Kind::State(StateKind::Gradient));
                assert_eq!(storage(2), made, "{program}");
                assert!(storage(0) != made && storage(1) != made, "{program}");
            }
        }
        // With a factor where the sum is made, it is read when some of it has been written over.
        for factor in [0, 1] {
            let mut wrong = programs.clone();
            for program in &mut wrong {
                let (number, ..) = adding(program)[0];
                let Action::Compute(compute) = &mut program.instructions[number].action else {
                    unreachable!("it adds")
                };
                let [there, addend] = [factor, 2].map(|it: usize| compute.operands[it].buffer);
                assert_eq!(program.buffers[there.0].type_, program.buffers[addend.0].type_);
                (compute.operands[factor].buffer, compute.operands[2].buffer) = (addend, there);
            }
            let found = verify(&wrong).unwrap_err().to_string();
            assert!(found.contains("is read, perhaps after it is written over"), "{parallel:?}: {found}");
        }
    }
}

/// Of several products of one operation each may be made over what it is added to, if that is of its type.
#[test]
fn sums_of_one_operation_lie_each_over_its_own_addend() {
    let mut program = programs(&Regression::new(Parallel::Data, 2, 3).sketch()).remove(0);
    let op = parse_op("experts_gradient activation=silu active=2 adds=[2,3,4]").unwrap();
    let shapes = [&[5, 4][..], &[5, 2], &[2, 3, 4], &[2, 3, 4], &[2, 4, 3], &[5, 4]];
    let given: Vec<Type> = shapes.iter().chain(&shapes[2..5]).map(|&it| Type::new(DType::F32, it)).collect();
    let made = op.infer(&given).unwrap();
    let mut blocks = |types: &[Type]| -> Vec<Block> {
        let mut one = |type_: &Type| {
            program.buffers.push(Buffer { storage: StorageId(0), type_: type_.clone() });
            Block { buffer: BufferId(program.buffers.len() - 1), spans: vec![] }
        };
        types.iter().map(&mut one).collect()
    };
    let (operands, results) = (blocks(&given), blocks(&made));
    let compute = Compute { op: Arc::new(op), name: "experts".into(), operands, results };
    let over = |program: &Program| -> Vec<(usize, usize)> {
        let pairs = (0..given.len()).flat_map(|operand| (0..made.len()).map(move |result| (operand, result)));
        pairs.filter(|&(operand, result)| program.may_lie_over(&compute, operand, result)).collect()
    };
    assert_eq!(over(&program), [(6, 2), (7, 3), (8, 4)]);
    program.buffers[compute.operands[7].buffer.0].type_.dtype = DType::BF16;
    assert_eq!(over(&program), [(6, 2), (8, 4)]);
}

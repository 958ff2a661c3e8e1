//! Named parallelisms.

use planner_ir::{
    Attention, AxisId, Binary, Blind, Contract, DType, Digit, Label, Mesh, Move, Op, Partition, Real,
    Reduction, Type, Unary,
};

use super::check;
use super::sketch::{Detour, Sketch};
use crate::Outcome;

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn product(left: &str, right: &str, result: &str) -> Op {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
}

fn none(_: &Mesh, _: &Type, _: &planner_ir::Layout, _: &[AxisId]) -> Option<Move> {
    None
}

/// Moves by these steps, for each way the next of them until they are used up.
fn by(moves: Vec<Move>) -> impl FnMut(&Mesh, &Type, &planner_ir::Layout, &[AxisId]) -> Option<Move> {
    let mut moves = moves.into_iter();
    move |_, _, _, _| moves.next()
}

/// An operation with loops split over one axis each.
fn node(
    sketch: &mut Sketch,
    op: Op,
    operands: &[planner_ir::ValueId],
    splits: &[(usize, usize)],
    detour: Detour,
) -> planner_ir::ValueId {
    let types = sketch.plan.graph.types_of(operands);
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let mut partition = Partition::replicated(&loops);
    for &(it, axis) in splits {
        partition.loops[it].push(sketch.axis(axis));
    }
    sketch.node_with(op, operands, partition, detour)[0]
}

fn received(outcome: &Outcome) -> Vec<u64> {
    outcome.received.iter().map(|(_, bytes)| *bytes).collect()
}

/// `x: [m, k]`, `up: [k, n]`, `down: [n, k]`: columns, then rows.
#[test]
fn columns_then_rows() {
    for (devices, dtype) in [1, 2, 4].into_iter().flat_map(|n| DTYPES.map(|dtype| (n, dtype))) {
        let mut sketch = Sketch::new(&Mesh::of_sizes(&[devices]));
        let type_ = |shape: &[u64]| Type::new(dtype, shape);
        let digits = if devices == 1 { vec![] } else { vec![sketch.axis(0)] };
        let x = sketch.input("x", type_(&[3, 5]), vec![vec![], vec![]]);
        let up = sketch.weight("up", type_(&[5, 8]), vec![vec![], digits.clone()]);
        let down = sketch.weight("down", type_(&[8, 5]), vec![digits, vec![]]);
        let split = |it: usize| if devices == 1 { vec![] } else { vec![(it, 0)] };
        let hidden = node(&mut sketch, product("mk", "kn", "mn"), &[x, up], &split(2), &mut none);
        let active = node(&mut sketch, Op::Unary(Unary::Relu), &[hidden], &split(1), &mut none);
        let y = node(&mut sketch, product("mk", "kn", "mn"), &[active, down], &split(1), &mut none);
        sketch.output("y", y, vec![vec![], vec![]], &mut none);
        let outcome = check(&sketch.plan);
        let bytes = 15 * dtype.bytes();
        let expected = if devices == 1 { vec![] } else { vec![2 * (devices - 1) * bytes] };
        assert_eq!(received(&outcome), expected);
    }
}

/// Rows of x at rest are split: gathered before the columns, reduced and scattered after the rows.
#[test]
fn sequence_parallel() {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[4]));
    let type_ = |shape: &[u64]| Type::new(DType::F32, shape);
    let a = || vec![Digit { size: 4, terms: vec![(AxisId(0), 1)], step: 0, offset: 0 }];
    let x = sketch.input("x", type_(&[8, 4]), vec![a(), vec![]]);
    let up = sketch.weight("up", type_(&[4, 8]), vec![vec![], a()]);
    let down = sketch.weight("down", type_(&[8, 4]), vec![a(), vec![]]);
    let hidden = node(&mut sketch, product("mk", "kn", "mn"), &[x, up], &[(2, 0)], &mut none);
    let y = node(&mut sketch, product("mk", "kn", "mn"), &[hidden, down], &[(1, 0)], &mut none);
    let scatter = Move::ReduceScatter { dim: 0, digits: a() };
    let sum = node(&mut sketch, Op::Binary(Binary::Add), &[y, x], &[(0, 0)], &mut by(vec![scatter]));
    sketch.output("y", sum, vec![a(), vec![]], &mut none);
    let outcome = check(&sketch.plan);
    assert_eq!(received(&outcome), [3 * 8 * 4 * 4, 3 * 8 * 4 * 4]);
}

/// Heads instead of positions, by an all-to-all, for attention.
#[test]
fn heads_for_positions() {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[2]));
    let a = vec![sketch.axis(0)];
    let type_ = Type::new(DType::F32, [1, 4, 6, 2]);
    let positions = || vec![vec![], vec![], a.clone(), vec![]];
    let operands = ["q", "k", "v"].map(|name| sketch.input(name, type_.clone(), positions()));
    let turn = Move::AllToAll { from: 2, to: 1, digits: a.clone() };
    let attention = Attention {
        scale: Real(0.0),
        causal: true,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    };
    let types = sketch.plan.graph.types_of(&operands);
    let op = Op::Attention(attention);
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let mut partition = Partition::replicated(&loops);
    let heads = loops.operands[0][1][0];
    partition.loops[heads.0].push(sketch.axis(0));
    let y = sketch.node_with(op, &operands, partition, &mut by(vec![turn.clone()]));
    let back = Move::AllToAll { from: 1, to: 2, digits: a.clone() };
    sketch.output("y", y[0], positions(), &mut by(vec![back]));
    check(&sketch.plan);
}

/// Two axes: data along one, columns and rows along the other; sums over both in one reduction.
#[test]
fn two_axes() {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[2, 2]));
    let (a, b) = (vec![sketch.axis(0)], vec![sketch.axis(1)]);
    let type_ = |shape: &[u64]| Type::new(DType::BF16, shape);
    let x = sketch.input("x", type_(&[4, 6]), vec![a, vec![]]);
    let up = sketch.weight("up", type_(&[6, 8]), vec![vec![], b]);
    let hidden = node(&mut sketch, product("mk", "kn", "mn"), &[x, up], &[(0, 0), (2, 1)], &mut none);
    let total = Op::Reduce { reduction: Reduction::Sum, dims: vec![0, 1] };
    let y = node(&mut sketch, total, &[hidden], &[(0, 0), (1, 1)], &mut none);
    sketch.output("y", y, vec![vec![], vec![]], &mut none);
    let outcome = check(&sketch.plan);
    assert_eq!(received(&outcome), [2 * 3 * 2]);
}

/// Columns of a packed projection: each device has its part of each of three.
#[test]
fn packed_projections() {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[2]));
    let packed = vec![Digit::free(3), sketch.axis(0)];
    let type_ = |shape: &[u64]| Type::new(DType::F32, shape);
    let x = sketch.input("x", type_(&[4, 4]), vec![vec![], vec![]]);
    let w = sketch.weight("w", type_(&[4, 12]), vec![vec![], packed.clone()]);
    let op = product("mk", "kn", "mn");
    let types = sketch.plan.graph.types_of(&[x, w]);
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let mut partition = Partition::replicated(&loops);
    partition.loops[2] = packed;
    let y = sketch.node(op, &[x, w], partition)[0];
    sketch.output("y", y, vec![vec![], vec![]], &mut none);
    check(&sketch.plan);
}

/// A sum of uneven blocks: five elements on four devices.
#[test]
fn uneven_all_reduce() {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[4]));
    let x = sketch.input("x", Type::new(DType::F32, [4, 5]), vec![vec![sketch.axis(0)], vec![]]);
    let total = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
    let y = node(&mut sketch, total, &[x], &[(0, 0)], &mut none);
    sketch.output("y", y, vec![vec![], vec![]], &mut none);
    let outcome = check(&sketch.plan);
    assert_eq!(received(&outcome), [2 * 3 * 5 * 4]);
}

/// Blocks of a dimension become stripes: one all-to-all, also where stripes are held before.
#[test]
fn blocks_to_stripes() {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let (a, b) = (Digit::axis(&mesh, AxisId(0)), Digit::axis(&mesh, AxisId(1)));
    for outer in [vec![], vec![Digit::free(2)], vec![b]] {
        let mut sketch = Sketch::new(&mesh);
        let with = |digits: &[Digit]| [&outer[..], digits].concat();
        let type_ = Type::new(DType::I64, [2, 32, 3]);
        let at_rest = vec![vec![], with(std::slice::from_ref(&a)), vec![]];
        let x = sketch.input("x", type_.clone(), at_rest);
        let stripes = [Digit::free(4), a.clone()];
        let turn = Move::AllToAll { from: 1, to: 1, digits: stripes.to_vec() };
        let dims = vec![vec![], with(&stripes), vec![]];
        let striped = planner_ir::Layout { dims, owed: vec![] }.canonical();
        sketch.output("y", x, striped.dims, &mut by(vec![turn]));
        let outcome = check(&sketch.plan);
        let held = type_.bytes() / sketch.plan.layouts[0].parts();
        assert_eq!(received(&outcome), [2 * held]);
    }
}

/// Heads that share keys, split within each group: what a device has of each is not contiguous.
#[test]
fn heads_within_groups() {
    let mut sketch = Sketch::new(&Mesh::of_sizes(&[2]));
    let type_ = |heads: u64| Type::new(DType::F32, [1, heads, 2, 2]);
    let whole = || vec![vec![]; 4];
    let q = sketch.input("q", type_(8), whole());
    let k = sketch.input("k", type_(2), whole());
    let v = sketch.input("v", type_(2), whole());
    let op = Op::Attention(Attention {
        scale: Real(0.0),
        causal: true,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    });
    let types = sketch.plan.graph.types_of(&[q, k, v]);
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let mut partition = Partition::replicated(&loops);
    let per_group = loops.operands[0][1][1];
    partition.loops[per_group.0].push(sketch.axis(0));
    let y = sketch.node(op, &[q, k, v], partition)[0];
    sketch.output("y", y, whole(), &mut none);
    check(&sketch.plan);
}

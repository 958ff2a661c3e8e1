//! Random partitions in time, run on ranks against the reference.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use planner_ir::{
    AxisId, Contract, Conv, DType, Digit, Label, Layout, Loops, Mesh, Move, Op, Partition, Reduction, Role,
    Type, Unary, ValueId,
};

use super::check;
use super::random::DTYPE;
use super::sketch::Sketch;

const MESHES: [&[u64]; 7] = [&[2], &[3], &[4], &[2, 2], &[3, 3], &[2, 2, 2], &[4, 2]];

#[test]
fn random_partitions_in_time_compute_what_the_reference_computes() {
    let (mut run, mut tried) = (0, 0);
    arbtest(|u| {
        tried += 1;
        if let Some(sketch) = program(u)? {
            check(&sketch.plan);
            run += 1;
        }
        Ok(())
    })
    .budget_ms(4_000);
    assert!(run * 20 > tried, "of {tried} maps {run} are partitions in time");
}

/// An operation and the types of its operands.
fn operation(u: &mut Unstructured, size: u64) -> Result<(Op, Vec<Type>)> {
    let extent = |u: &mut Unstructured| -> Result<u64> { Ok(size * u.choose(&[1, 1, 2, size])?) };
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    let contract = |[left, right, result]: [&str; 3]| {
        Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
    };
    let (m, k, n, b) = (extent(u)?, extent(u)?, extent(u)?, extent(u)?);
    let type_ = |shape: &[u64]| Type::new(DTYPE, shape);
    // Of small whole numbers.
    let float = |shape: &[u64]| Type::new(DType::F32, shape);
    let conv = Conv { strides: vec![1], dilations: vec![1], before: vec![1], after: vec![0], groups: 1 };
    let (x, w, y) = (float(&[m, k, 3]), float(&[n, k, 2]), float(&[m, n, 3]));
    let experts = [float(&[m, 2]), float(&[m, k]), float(&[k, n, 2]), float(&[k, 2, n])];
    Ok(match u.int_in_range(0..=10)? {
        0 => (contract(["mk", "kn", "mn"]), vec![type_(&[m, k]), type_(&[k, n])]),
        1 => (contract(["mn", "kn", "mk"]), vec![type_(&[m, n]), type_(&[k, n])]),
        2 => (contract(["mk", "mn", "kn"]), vec![type_(&[m, k]), type_(&[m, n])]),
        3 => (contract(["bmk", "bkn", "mbn"]), vec![type_(&[b, m, k]), type_(&[b, k, n])]),
        4 => (Op::Reduce { reduction: Reduction::Sum, dims: vec![1] }, vec![type_(&[m, k, n])]),
        5 => (Op::Transpose { permutation: vec![1, 0] }, vec![type_(&[m, n])]),
        6 => {
            let biased = u.arbitrary::<bool>()?.then(|| float(&[n]));
            (Op::Conv(conv), [x, w].into_iter().chain(biased).collect())
        }
        7 => (Op::ConvInputGradient { conv, spatial: vec![3] }, vec![w, y]),
        8 => (Op::ConvWeightGradient { conv, window: vec![2] }, vec![x, y]),
        9 => (Op::Experts { activation: Unary::Relu, limit: None, active: k }, experts.to_vec()),
        _ => {
            let op = Op::ExpertsGradient { activation: Unary::Relu, limit: None, active: k, adds: vec![] };
            (op, experts.into_iter().chain([float(&[m, 2])]).collect())
        }
    })
}

/// An operation in a random partition in time, if the map that is drawn is one.
fn program(u: &mut Unstructured) -> Result<Option<Sketch>> {
    let sizes = *u.choose(&MESHES)?;
    let mesh = Mesh::of_sizes(sizes);
    let size = sizes[0];
    let (op, types) = operation(u, size)?;
    let results = op.infer(&types).unwrap();
    let loops = op.loops(&types, &results);
    let Some(partition) = partition(u, &mesh, &loops, size)? else { return Ok(None) };
    let mut sketch = Sketch::new(&mesh);
    let mut operands: Vec<ValueId> = Vec::new();
    // Each operand is at rest in the layout that the partition asks for, or in plain blocks that a
    // permutation brings there.
    let mut permuted: Vec<(Layout, Move)> = Vec::new();
    for (index, type_) in types.iter().enumerate() {
        let Layout { dims, owed } = partition.operand(&loops, index);
        let at_rest = Layout { dims: plain(u, &mesh, type_, dims.clone())?, owed };
        operands.push(sketch.input(&format!("x{index}"), type_.clone(), at_rest.dims.clone()));
        if at_rest.dims != dims {
            permuted.push((at_rest, Move::Permute { dims }));
        }
    }
    permuted.reverse();
    let mut to_skewed = |_: &Mesh, _: &Type, layout: &Layout, _: &[AxisId]| {
        permuted.pop_if(|(at_rest, _)| at_rest == layout).map(|it| it.1)
    };
    let made = sketch.node_with(op, &operands, partition.clone(), &mut to_skewed);
    for (index, value) in made.into_iter().enumerate() {
        let Layout { dims, owed } = partition.result(&loops, index);
        let mut pay = (!owed.is_empty()).then_some(Move::AllReduce { axes: owed });
        sketch.output(&format!("y{index}"), value, dims, &mut |_, _, _, _| pay.take());
    }
    Ok(Some(sketch))
}

/// Digits without skews, if blocks can be permuted to the others from there.
fn plain(u: &mut Unstructured, mesh: &Mesh, type_: &Type, dims: Vec<Vec<Digit>>) -> Result<Vec<Vec<Digit>>> {
    let skewed = Layout { dims, owed: Vec::new() };
    let mut flat = skewed.clone();
    for digit in flat.dims.iter_mut().flatten().filter(|digit| !digit.is_free()) {
        digit.offset = 0;
        digit.terms.truncate(1);
        digit.terms[0].1 = 1;
    }
    let permute = Move::Permute { dims: skewed.dims.clone() };
    let right = flat.check(mesh, type_).is_ok() && permute.apply(mesh, type_, &flat) == Ok(skewed.clone());
    Ok(if right && u.arbitrary()? { flat.dims } else { skewed.dims })
}

/// A random map, if it is a partition in time of these loops.
fn partition(u: &mut Unstructured, mesh: &Mesh, loops: &Loops, size: u64) -> Result<Option<Partition>> {
    let mut partition = Partition::replicated(loops);
    partition.steps = size;
    let axes: Vec<AxisId> = mesh.axis_ids().filter(|&axis| mesh.size(axis) == size).collect();
    let any = i64::try_from(size).unwrap() - 1;
    let splits = |it: &planner_ir::LoopId| loops.get(*it).role != Role::Whole;
    for it in loops.ids().filter(splits) {
        for _ in 0..u.int_in_range(0..=2)? {
            let mut terms = Vec::new();
            for &axis in &axes {
                let coefficient = if u.arbitrary()? { u.int_in_range(0..=any)? } else { 0 };
                terms.extend((coefficient != 0).then_some((axis, coefficient)));
            }
            let step = if u.arbitrary()? { u.int_in_range(0..=any)? } else { 0 };
            let offset = if u.ratio(1, 4)? { u.int_in_range(0..=any)? } else { 0 };
            let digit = Digit { size, terms, step, offset };
            partition.loops[it.0].extend(Some(digit).filter(|digit| !digit.is_free()));
        }
    }
    for &axis in &axes {
        if u.ratio(1, 2)? {
            partition.streams.push(axis);
        }
    }
    Ok(partition.check(mesh, loops).is_ok().then_some(partition))
}

//! Random programs in random layouts, by random moves.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use planner_ir::{
    AxisId, Binary, Contract, DType, Digit, Label, Layout, Loops, Mesh, Move, Op, Partition, Real, Reduction,
    Triangle, Type, Unary, ValueId,
};

use super::check;
use super::sketch::Sketch;

/// Grids of 1 to 8 devices.
pub(super) const MESHES: [&[u64]; 9] =
    [&[1], &[2], &[4], &[2, 2], &[8], &[2, 4], &[4, 2], &[2, 2, 2], &[3, 2]];

/// Integers wrap, so that sums are the same in any order.
pub(super) const DTYPE: DType = DType::I32;

#[test]
fn random_programs_compute_what_the_reference_computes() {
    arbtest(|u| {
        let sketch = program(u)?;
        check(&sketch.plan);
        Ok(())
    })
    .budget_ms(3_000);
}

fn program(u: &mut Unstructured) -> Result<Sketch> {
    let mesh = Mesh::of_sizes(u.choose(&MESHES)?);
    let mut sketch = Sketch::new(&mesh);
    let mut values = vec![at_rest(u, &mut sketch, true)?, at_rest(u, &mut sketch, false)?];
    for _ in 0..u.int_in_range(1..=6)? {
        let (op, operands) = operation(u, &mut sketch, &values)?;
        let prepared = sketch.plan.graph.prepared();
        let result = if operands.iter().all(|operand| prepared[operand.0] && may_prepare(&sketch, *operand))
            && u.ratio(1, 2)?
        {
            let types = op.infer(&sketch.plan.graph.types_of(&operands)).unwrap();
            let dims = digits(u, &mesh, &types[0], &[])?;
            sketch.prepared(op, &operands, dims)
        } else {
            let partition = partition(u, &sketch, &op, &operands)?;
            let mut detour = |mesh: &Mesh, type_: &Type, layout: &Layout, keep: &[AxisId]| {
                any_move(u, mesh, type_, layout, keep).ok().flatten()
            };
            sketch.node_with(op, &operands, partition, &mut detour)[0]
        };
        values.push(result);
    }
    for (number, &value) in values.iter().enumerate().skip(2) {
        if number + 1 == values.len() || u.ratio(1, 4)? {
            let type_ = sketch.plan.graph.type_of(value).clone();
            let dims = digits(u, &mesh, &type_, &[])?;
            let mut detour = |mesh: &Mesh, type_: &Type, layout: &Layout, keep: &[AxisId]| {
                any_move(u, mesh, type_, layout, keep).ok().flatten()
            };
            sketch.output(&format!("y{number}"), value, dims, &mut detour);
        }
    }
    Ok(sketch)
}

/// Whether a value is a weight or the result of an operation that is prepared.
fn may_prepare(sketch: &Sketch, value: ValueId) -> bool {
    match sketch.plan.graph.value(value).source {
        planner_ir::Source::Result { node, .. } => {
            sketch.plan.assignments[node.0] == plan::Assignment::Prepared
        }
        _ => true,
    }
}

fn extent(u: &mut Unstructured) -> Result<u64> {
    u.choose(&[1, 2, 4, 6, 8, 16]).copied()
}

pub(super) fn at_rest(u: &mut Unstructured, sketch: &mut Sketch, input: bool) -> Result<ValueId> {
    let rank = u.int_in_range(1..=3)?;
    let shape: Vec<u64> = (0..rank).map(|_| extent(u)).collect::<Result<_>>()?;
    new_source(u, sketch, Type::new(DTYPE, shape), input)
}

fn new_source(u: &mut Unstructured, sketch: &mut Sketch, type_: Type, input: bool) -> Result<ValueId> {
    let dims = digits(u, &sketch.plan.mesh, &type_, &[])?;
    let name = format!("x{}", sketch.plan.graph.values.len());
    Ok(if input { sketch.input(&name, type_, dims) } else { sketch.weight(&name, type_, dims) })
}

/// The digits of a random layout that does not name some axes.
pub(super) fn digits(
    u: &mut Unstructured,
    mesh: &Mesh,
    type_: &Type,
    without: &[AxisId],
) -> Result<Vec<Vec<Digit>>> {
    let mut layout = Layout::replicated(type_.rank());
    for axis in mesh.axis_ids().filter(|axis| !without.contains(axis)) {
        if type_.rank() == 0 || u.ratio(1, 3)? {
            continue;
        }
        let mut next = layout.clone();
        let dim = &mut next.dims[u.choose_index(type_.rank())?];
        if u.ratio(1, 4)? {
            dim.push(Digit::free(2));
        }
        dim.push(Digit::axis(mesh, axis));
        let next = next.canonical();
        if next.check(mesh, type_).is_ok() {
            layout = next;
        }
    }
    Ok(layout.dims)
}

/// A random operation on some of the values.
pub(super) fn operation(
    u: &mut Unstructured,
    sketch: &mut Sketch,
    values: &[ValueId],
) -> Result<(Op, Vec<ValueId>)> {
    let x = *u.choose(values)?;
    let type_ = sketch.plan.graph.type_of(x).clone();
    let (shape, rank) = (type_.shape.clone(), type_.rank());
    let dim = if rank == 0 { 0 } else { u.choose_index(rank)? };
    let one = |op: Op| Ok((op, vec![x]));
    match u.int_in_range(0..=15)? {
        0 => one(Op::Unary(*u.choose(&[Unary::Neg, Unary::Abs, Unary::Sign])?)),
        1 => {
            let same = |it: &&ValueId| *sketch.plan.graph.type_of(**it) == type_;
            let others: Vec<ValueId> = values.iter().filter(same).copied().collect();
            let binary = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Max];
            Ok((Op::Binary(*u.choose(&binary)?), vec![x, *u.choose(&others)?]))
        }
        2 | 3 if rank > 0 => {
            let wide = extent(u)?;
            let weight = Type::new(DTYPE, [shape[rank - 1], wide]);
            let weight = new_source(u, sketch, weight, false)?;
            let labels = |range: std::ops::Range<usize>| -> Vec<Label> {
                range.map(|it| Label(u8::try_from(it).unwrap())).collect()
            };
            let (left, right) = (labels(0..rank), labels(rank - 1..rank + 1));
            let result = left[..rank - 1].iter().chain(&right[1..]).copied().collect();
            Ok((Op::Contract(Contract { left, right, result }), vec![x, weight]))
        }
        4 if rank > 0 => {
            let reduction = *u.choose(&[Reduction::Sum, Reduction::Max])?;
            one(Op::Reduce { reduction, dims: vec![dim] })
        }
        5 => {
            let mut permutation: Vec<usize> = (0..rank).collect();
            for place in 1..rank {
                permutation.swap(place, u.int_in_range(0..=place)?);
            }
            one(Op::Transpose { permutation })
        }
        6 if rank > 1 => {
            let mut shape = shape;
            let merged = shape.remove(0);
            shape[0] *= merged;
            one(Op::Reshape { shape })
        }
        7 if rank > 0 && shape[dim].is_multiple_of(2) && rank < 4 => {
            let mut shape = shape;
            shape[dim] /= 2;
            shape.insert(dim, 2);
            one(Op::Reshape { shape })
        }
        8 if rank > 0 => one(Op::CumSum { dim, exclusive: u.arbitrary()?, reverse: u.arbitrary()? }),
        9 if rank > 0 && shape[dim] < 32 => Ok((Op::Concat { dim }, vec![x, x])),
        10 if rank > 0 && shape[dim] > 1 => {
            let mut sizes = shape;
            sizes[dim] /= 2;
            let mut starts = vec![0; rank];
            starts[dim] = u.int_in_range(0..=1)?;
            one(Op::Slice { starts, steps: vec![1; rank], sizes })
        }
        11 if rank > 1 => {
            let triangle = *u.choose(&[Triangle::Lower, Triangle::Upper])?;
            one(Op::Triangle { triangle, diagonal: u.int_in_range(-1..=2)? })
        }
        12 if rank < 4 => {
            let mut shape = shape;
            shape.insert(0, 2);
            one(Op::Expand { shape })
        }
        13 => {
            let shape = vec![extent(u)?, extent(u)?];
            Ok((Op::Fill { result: Type::new(DTYPE, shape), value: Real(3.0) }, vec![]))
        }
        14 if rank > 0 && rank < 4 && shape[dim] >= 4 => {
            let indices = Type::new(DType::I64, [extent(u)?]);
            let indices = new_source(u, sketch, indices, true)?;
            Ok((Op::Gather { dim }, vec![x, indices]))
        }
        15 => {
            let length = extent(u)?;
            Ok((Op::Iota { dtype: DTYPE, length, start: Real(-2.0), step: Real(3.0) }, vec![]))
        }
        _ => one(Op::Unary(Unary::Neg)),
    }
}

/// A random partition of an operation.
pub(super) fn partition(
    u: &mut Unstructured,
    sketch: &Sketch,
    op: &Op,
    operands: &[ValueId],
) -> Result<Partition> {
    let (mesh, graph) = (&sketch.plan.mesh, &sketch.plan.graph);
    let types = graph.types_of(operands);
    let loops: Loops = op.loops(&types, &op.infer(&types).unwrap());
    let mut partition = Partition::replicated(&loops);
    if !loops.linear.is_empty() {
        partition.through = u.choose_index(loops.linear.len())?;
        let owed = |axis: &AxisId| {
            let owes = |index: &usize| sketch.plan.layouts[operands[*index].0].owed.contains(axis);
            loops.linear[partition.through].iter().all(owes)
        };
        let owed: Vec<AxisId> = mesh.axis_ids().filter(owed).collect();
        for axis in owed {
            if u.ratio(2, 3)? {
                partition.passed.push(axis);
            }
        }
    }
    for axis in mesh.axis_ids() {
        if loops.loops.is_empty() || u.ratio(1, 4)? {
            continue;
        }
        let mut next = partition.clone();
        let digits = &mut next.loops[u.choose_index(loops.loops.len())?];
        if u.ratio(1, 4)? {
            digits.push(Digit::free(2));
        }
        digits.push(Digit::axis(mesh, axis));
        if next.check(mesh, &loops).is_ok() {
            partition = next;
        }
    }
    Ok(partition)
}

/// A random move, if one is wanted.
pub(super) fn any_move(
    u: &mut Unstructured,
    mesh: &Mesh,
    type_: &Type,
    layout: &Layout,
    keep: &[AxisId],
) -> Result<Option<Move>> {
    if type_.rank() == 0 || u.is_empty() || u.ratio(2, 5)? {
        return Ok(None);
    }
    for _ in 0..6 {
        let dim = u.choose_index(type_.rank())?;
        let axis = AxisId(u.choose_index(mesh.axes.len())?);
        let mut digits = vec![Digit::axis(mesh, axis)];
        if u.ratio(1, 3)? {
            digits.insert(0, Digit::free(2));
        }
        let next = match u.int_in_range(0..=4)? {
            0 => Move::Slice { dim, digits },
            1 => Move::AllGather { dim, digits: u.int_in_range(1..=2)? },
            2 if !keep.contains(&axis) => Move::AllReduce { axes: vec![axis] },
            3 if !keep.contains(&axis) => Move::ReduceScatter { dim, digits },
            _ if u.ratio(1, 3)? => {
                // Within one dimension: blocks to stripes and back.
                let Some(last) = layout.dims[dim].last() else { continue };
                let free = Digit::free(*u.choose(&[2, 4, 8])?);
                Move::AllToAll { from: dim, to: dim, digits: vec![free, last.clone()] }
            }
            _ => Move::AllToAll { from: u.choose_index(type_.rank())?, to: dim, digits },
        };
        let right = match next.apply(mesh, type_, layout) {
            // The axes that are to be owed in the end must stay so.
            Ok(after) => keep.iter().all(|axis| after.owed.contains(axis)),
            Err(_) => false,
        };
        if right && falls_into_equal_parts(&next, mesh, type_, layout) {
            return Ok(Some(next));
        }
    }
    Ok(None)
}

/// Whether an all-to-all within a dimension exchanges equal blocks.
fn falls_into_equal_parts(next: &Move, mesh: &Mesh, type_: &Type, layout: &Layout) -> bool {
    let Move::AllToAll { from, to, digits } = next else { return true };
    let blocks: u64 = layout.dims[*from].iter().map(|digit| digit.size).product();
    let gained: u64 = digits.iter().map(|digit| digit.size).product();
    let (run, group) = (type_.shape[*from] / blocks, mesh.size(next.axes(layout)[0]));
    let block = run * group / gained;
    from != to || run.is_multiple_of(block * group)
}

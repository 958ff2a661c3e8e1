//! The same elements in other places: moved, packed and unpacked, picked by indices and put where they say;
//! and the sums that ranks make where they meet.

use files::Failure;
use kernels::cuda::{Argument, Copying, Work, copied, summed};
use kernels::{Array, Span};
use planner_ir::{Binary, DType, Edge, Interpolation, Op, Real, Resize, Scatter, Type};

use super::case::{Cases, cast, computed, made, whole};

/// Ranks whose addends are summed.
const RANKS: u64 = 8;

/// Cases of any type of numbers.
pub(super) fn of(cases: &mut Cases) -> Result<(), Failure> {
    let x = cases.numbers(&[6, 37, 70], 0)?;
    for permutation in [vec![0, 2, 1], vec![1, 0, 2], vec![2, 1, 0]] {
        let name = format!("transpose to {permutation:?}");
        cases.exact(&name, Op::Transpose { permutation }, vec![x.clone()])?;
    }
    let slice = Op::Slice { starts: vec![0, 35, 3], steps: vec![1, -2, 3], sizes: vec![6, 18, 20] };
    cases.exact("slice", slice, vec![x.clone()])?;
    for dim in [0, 2] {
        let other = cases.numbers(&[6, 37, 70], 1)?;
        let name = format!("concatenation along dimension {dim}");
        cases.exact(&name, Op::Concat { dim }, vec![x.clone(), other])?;
    }
    let around = |edge| Op::Pad { before: vec![0, 3, 2], after: vec![1, 0, -4], edge };
    cases.exact("padding by a number", around(Edge::Constant(Real(2.0))), vec![x.clone()])?;
    let around = |edge| Op::Pad { before: vec![0, 3, 2], after: vec![0, 4, 5], edge };
    for edge in [Edge::Reflect, Edge::Repeat, Edge::Wrap] {
        let name = format!("padding by its own elements, {edge:?},").to_lowercase();
        cases.exact(&name, around(edge), vec![x.clone()])?;
    }
    packed(cases, &x)?;
    addends(cases)?;
    picked(cases)?;
    put(cases)?;
    resized(cases)
}

/// How a value's rows of columns are brought into a row of bytes for an exchange, and back: by blocks of
/// columns, as all-to-all has them.
fn packed(cases: &mut Cases, x: &Array) -> Result<(), Failure> {
    let flat = made(&Op::Reshape { shape: vec![222, 70] }, &[x])?;
    let bytes = cases.dtype.bytes();
    // A block of 35 columns of 222 rows, from where it starts, to where its rows follow each other.
    let copying = |[from, to]: [i64; 2], [apart, together]: [i64; 2]| {
        let loops = vec![(222, [apart, together]), (35, [1, 1])];
        copied(&Copying { bytes, starts: [from, to], loops })
    };
    let of = |work: Work, operand: usize, result: usize| {
        work.given(|argument| match argument {
            Argument::Operand(_) => Argument::Operand(operand),
            Argument::Result(_) => Argument::Result(result),
            other => other,
        })
    };
    let both = |[first, second]: [Work; 2]| {
        let launches = first.launches.into_iter().chain(second.launches).collect();
        Work { launches, room: first.room.max(second.room) }
    };
    let half = |start: u64| {
        let op = Op::Slice { starts: vec![0, start], steps: vec![1, 1], sizes: vec![222, 35] };
        made(&op, &[&flat])
    };
    let halves = vec![half(0)?, half(35)?];
    let packing = [copying([0, 0], [70, 35]), of(copying([35, 0], [70, 35]), 0, 1)];
    cases.work(0.0, "blocks of columns packed,", both(packing), vec![flat.clone()], halves.clone());
    let unpacking = [copying([0, 0], [35, 70]), of(copying([0, 35], [35, 70]), 1, 0)];
    cases.work(0.0, "blocks of columns unpacked,", both(unpacking), halves, vec![flat]);
    Ok(())
}

/// The sum of what ranks have, in their order, rounded once.
fn addends(cases: &mut Cases) -> Result<(), Failure> {
    let addends: Vec<Array> =
        (0..RANKS).map(|rank| cases.numbers(&[1003], rank)).collect::<Result<_, Failure>>()?;
    let wide = cases.dtype.accumulated();
    let mut sum = cast(&addends[0], wide)?;
    for addend in &addends[1..] {
        sum = made(&Op::Binary(Binary::Add), &[&sum, &cast(addend, wide)?])?;
    }
    let work = summed(cases.dtype, addends.len(), 1003);
    let expected = cast(&sum, cases.dtype)?;
    cases.work(0.0, "sum of what eight ranks have,", work, addends, vec![expected]);
    Ok(())
}

/// Rows of a table, its gradient with indices that are often the same, and of a block of its rows.
fn picked(cases: &mut Cases) -> Result<(), Failure> {
    let dtype = cases.dtype;
    let table = cases.numbers(&[40, 24], 0)?;
    let indices = whole(DType::I64, &[5, 60], -40, 40, 1)?;
    cases.exact("embedding", Op::Gather { dim: 0 }, vec![table.clone(), indices.clone()])?;
    cases.exact(
        "embedding along columns",
        Op::Gather { dim: 1 },
        vec![table, whole(DType::I32, &[7], 0, 24, 2)?],
    )?;
    let back = cases.numbers(&[5, 60, 24], 3)?;
    let gradient = Op::GatherGradient { dim: 0, extent: 40 };
    cases.op("gradient of embedding", gradient.clone(), vec![indices.clone(), back.clone()])?;
    let block = [(Type::new(dtype, [20, 24]), vec![Span::contiguous(40, 20), Span::contiguous(24, 0)])];
    let operands = vec![(indices, vec![]), (back, vec![])];
    let name = "gradient of a block of an embedding";
    cases.block(cases.most, name, &gradient, operands, &block)?;
    let data = cases.numbers(&[4, 5, 6], 4)?;
    let indices = whole(DType::I64, &[4, 7, 6], -5, 5, 5)?;
    cases.exact("elements by their places", Op::GatherElements { dim: 1 }, vec![data.clone(), indices])?;
    let indices = whole(DType::I64, &[4, 9, 1], -5, 5, 6)?;
    cases.exact("slices by their places", Op::GatherNd { batch_dims: 1 }, vec![data, indices])
}

/// Elements and slices put to places, some to the same.
fn put(cases: &mut Cases) -> Result<(), Failure> {
    let data = cases.numbers(&[6, 40], 0)?;
    for scatter in Scatter::ALL {
        let way = format!("{scatter:?}").to_lowercase();
        let indices = whole(DType::I64, &[6, 90], -40, 40, 1)?;
        let updates = cases.numbers(&[6, 90], 2)?;
        let op = Op::ScatterElements { dim: 1, scatter };
        cases.op(&format!("elements put, {way},"), op, vec![data.clone(), indices, updates])?;
        let indices = whole(DType::I64, &[25, 1], -6, 6, 3)?;
        let updates = cases.numbers(&[25, 40], 4)?;
        let op = Op::ScatterNd { scatter };
        cases.op(&format!("slices put, {way},"), op, vec![data.clone(), indices, updates])?;
    }
    Ok(())
}

fn resized(cases: &mut Cases) -> Result<(), Failure> {
    let x = cases.numbers(&[1, 3, 8, 6], 0)?;
    let scales = [1.0, 1.0, 1.5, 2.0].map(Real).to_vec();
    for interpolation in
        [Interpolation::Linear, Interpolation::NearestFloor, Interpolation::NearestPreferFloor]
    {
        let resize =
            Resize { shape: vec![1, 3, 12, 12], scales: scales.clone(), half_pixel: true, interpolation };
        let name = format!("resampling, {interpolation:?},").to_lowercase();
        cases.op(&name, Op::Resize(resize), vec![x.clone()])?;
    }
    Ok(())
}

/// Whole numbers and truth values: what tokens, positions and masks are made of.
pub(super) fn of_whole_numbers(cases: &mut Cases) -> Result<(), Failure> {
    let dtype = cases.dtype;
    let x = whole(dtype, &[6, 37, 70], 0, 50, 0)?;
    cases.exact("transpose", Op::Transpose { permutation: vec![0, 2, 1] }, vec![x.clone()])?;
    cases.exact("concatenation", Op::Concat { dim: 2 }, vec![x.clone(), x.clone()])?;
    for op in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Less] {
        let name = format!("{op:?}").to_lowercase();
        cases.exact(&name, Op::Binary(op), vec![x.clone(), whole(dtype, &[70], 1, 50, 1)?])?;
    }
    let sum = Op::Reduce { reduction: planner_ir::Reduction::Sum, dims: vec![2] };
    cases.exact("sum of rows", sum, vec![x.clone()])?;
    cases.exact("running sum", Op::CumSum { dim: 2, exclusive: false, reverse: false }, vec![x.clone()])?;
    let expected = computed(&Op::Binary(Binary::Add), &[&x, &x])?;
    let elements = x.type_().elements();
    cases.work(0.0, "sum of what two ranks have,", summed(dtype, 2, elements), vec![x.clone(), x], expected);
    Ok(())
}

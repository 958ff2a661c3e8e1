//! Translations of operators whose shapes depend on data.
//!
//! They are tried after the ordinary ones, which fail where they need an extent or a number that
//! is not known. What is emitted here ends up in a region.

use planner_ir::{Contract, DType, Dynamic, Extreme, Label, Op, Real, Reduction, Type, ValueId};

use crate::builder::Builder;
use crate::error::ImportError;
use crate::node::OnnxNode;
use crate::outline::{self, Outline};

type Result<T> = std::result::Result<T, ImportError>;

/// The values of a node's outputs.
pub(crate) fn lower(b: &mut Builder, n: &OnnxNode) -> Result<Vec<Option<ValueId>>> {
    if !n.domain.is_empty() {
        return Err(n.depends_on_data("the shape of an operand"));
    }
    let value = match n.op_type {
        "NonZero" => non_zero(b, n),
        "Shape" => shape(b, n),
        "Size" => size(b, n),
        "Reshape" => reshape(b, n),
        "Flatten" => flatten(b, n),
        "Squeeze" => squeeze(b, n),
        "Unsqueeze" => unsqueeze(b, n),
        "Expand" => expand(b, n),
        "Slice" => slice(b, n),
        "Range" => range(b, n),
        "ConstantOfShape" => fill(b, n),
        "Tile" => tile(b, n),
        "MatMul" => matmul(b, n),
        "Gemm" => gemm(b, n),
        "ReduceSum" => reduce(b, n, Reduction::Sum),
        "ReduceMean" => reduce(b, n, Reduction::Mean),
        "ReduceMax" => reduce(b, n, Reduction::Max),
        "ReduceMin" => reduce(b, n, Reduction::Min),
        "ReduceProd" => reduce(b, n, Reduction::Product),
        "Split" => return split(b, n),
        "TopK" => return top_k(b, n),
        _ => return Err(n.depends_on_data("the shape of an operand or result")),
    };
    Ok(vec![Some(value?)])
}

fn one(b: &mut Builder, dynamic: Dynamic, operands: &[ValueId], result: Outline) -> Result<ValueId> {
    Ok(b.emit_open(Op::Dynamic(dynamic), operands, vec![result])?[0])
}

fn non_zero(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let rank = extent(b.outline(x).rank());
    one(b, Dynamic::NonZero, &[x], Outline::new(DType::I64, vec![Some(rank), None]))
}

fn shape(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let extents = b.outline(x).extents;
    let rank = extents.len();
    let bound = |name: &str, default: usize| match n.int(name) {
        None => default,
        Some(end) => clamped(end, rank),
    };
    let (start, end) = (bound("start", 0), bound("end", rank));
    let extents = extents.get(start..end).unwrap_or_default().to_vec();
    if let Some(known) = extents.iter().map(|&extent| extent.map(signed)).collect::<Option<Vec<i64>>>() {
        return b.list(&known);
    }
    let all = one(b, Dynamic::Shape, &[x], Outline::new(DType::I64, vec![Some(extent(rank))]))?;
    b.set_partial(all, b.outline(x).extents.iter().map(|&extent| extent.map(signed)).collect());
    if (start, end) == (0, rank) {
        return Ok(all);
    }
    b.emit1(
        Op::Slice { starts: vec![extent(start)], steps: vec![1], sizes: vec![extent(extents.len())] },
        &[all],
    )
}

fn size(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let rank = extent(b.outline(x).rank());
    let all = one(b, Dynamic::Shape, &[x], Outline::new(DType::I64, vec![Some(rank)]))?;
    let product = b.emit1(Op::Reduce { reduction: Reduction::Product, dims: vec![0] }, &[all])?;
    b.reshape(product, &[])
}

fn reshape(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, target) = (n.input(0)?, n.input(1)?);
    let zero_is_zero = n.int("allowzero").unwrap_or(0) != 0;
    let from = b.outline(x);
    let mut extents = Vec::new();
    for (dim, number) in list(b, n, target)?.into_iter().enumerate() {
        extents.push(match number {
            Some(0) if !zero_is_zero => from.extents.get(dim).copied().flatten(),
            Some(number) => u64::try_from(number).ok(),
            None => None,
        });
    }
    // One unknown extent follows from the number of elements.
    let elements = product(&from.extents);
    let others = product(&extents.iter().copied().filter(Option::is_some).collect::<Vec<_>>());
    let unknown = extents.iter().filter(|extent| extent.is_none()).count();
    if let (1, Some(elements), Some(others)) = (unknown, elements, others.filter(|&others| others > 0)) {
        for extent in extents.iter_mut().filter(|extent| extent.is_none()) {
            *extent = Some(elements / others);
        }
    }
    one(b, Dynamic::Reshape { zero_is_zero }, &[x, target], Outline::new(from.dtype, extents))
}

fn flatten(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let from = b.outline(x);
    let axis = clamped(n.int("axis").unwrap_or(1), from.rank());
    let (before, after) = from.extents.split_at(axis);
    let (before, after) = (product(before), product(after));
    let target = match (before, after, axis) {
        (Some(before), _, _) => [signed(before), -1],
        (None, Some(after), _) => [-1, signed(after)],
        (None, None, 1) => [0, -1],
        (None, None, _) => return Err(n.depends_on_data("the shape of input 0")),
    };
    let target = b.list(&target)?;
    let result = Outline::new(from.dtype, vec![before, after]);
    one(b, Dynamic::Reshape { zero_is_zero: false }, &[x, target], result)
}

fn squeeze(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let from = b.outline(x);
    let axes = axes(b, n, 1)?.ok_or_else(|| n.depends_on_data("which extents are 1"))?;
    let dims = n.dimensions(&axes, from.rank())?;
    let mut extents = from.extents;
    for &dim in dims.iter().rev() {
        extents.remove(dim);
    }
    one(b, Dynamic::Squeeze { dims }, &[x], Outline::new(from.dtype, extents))
}

fn unsqueeze(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let from = b.outline(x);
    let axes = axes(b, n, 1)?.ok_or_else(|| n.wrong("axes are missing"))?;
    let dims = n.dimensions(&axes, from.rank() + axes.len())?;
    let mut extents = from.extents;
    for &dim in &dims {
        extents.insert(dim, Some(1));
    }
    one(b, Dynamic::Unsqueeze { dims }, &[x], Outline::new(from.dtype, extents))
}

fn expand(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, target) = (n.input(0)?, n.input(1)?);
    let from = b.outline(x);
    let numbers = list(b, n, target)?;
    let target_extents = numbers.iter().map(|number| number.and_then(|it| u64::try_from(it).ok())).collect();
    let wanted = Outline::new(from.dtype, target_extents);
    let dtype = from.dtype;
    let extents = outline::broadcast(&[from, wanted]).ok_or_else(|| n.wrong("a shape that does not fit"))?;
    one(b, Dynamic::Expand, &[x, target], Outline::new(dtype, extents))
}

fn slice(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let from = b.outline(x);
    let (starts, ends, axes) = match n.ints("starts") {
        Some(starts) => {
            let ends = n.required_ints("ends")?;
            let axes = n.ints("axes").map(<[i64]>::to_vec);
            let axes = axes.unwrap_or_else(|| (0..signed(extent(starts.len()))).collect());
            (b.list(starts)?, b.list(ends)?, b.list(&axes)?)
        }
        None => {
            let count = list(b, n, n.input(1)?)?.len();
            let axes = match n.optional(3) {
                Some(axes) => axes,
                None => b.list(&(0..signed(extent(count))).collect::<Vec<_>>())?,
            };
            (n.input(1)?, n.input(2)?, axes)
        }
    };
    let count = list(b, n, starts)?.len();
    let steps = match n.optional(4) {
        Some(steps) => steps,
        None => b.list(&vec![1; count])?,
    };
    let mut extents = from.extents.clone();
    let known_axes = b.integers(axes)?;
    let (first, last, step) = (list(b, n, starts)?, list(b, n, ends)?, list(b, n, steps)?);
    for (index, &axis) in known_axes.iter().enumerate() {
        let dim = n.dimension(axis, from.rank())?;
        let at = |numbers: &[Option<i64>]| numbers.get(index).copied().flatten();
        extents[dim] = taken(extents[dim], at(&first), at(&last), at(&step));
    }
    one(b, Dynamic::Slice, &[x, starts, ends, axes, steps], Outline::new(from.dtype, extents))
}

/// How many indices a slice takes, if that is known; only for steps of 1.
fn taken(extent: Option<u64>, start: Option<i64>, end: Option<i64>, step: Option<i64>) -> Option<u64> {
    let extent = signed(extent?);
    let place = |it: i64| if it < 0 { it.saturating_add(extent).max(0) } else { it.min(extent) };
    let count = place(end?) - place(start?);
    (step == Some(1)).then(|| u64::try_from(count).unwrap_or(0))
}

fn range(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let mut operands = Vec::new();
    for index in 0..3 {
        let value = n.input(index)?;
        if b.is_open(value) {
            return Err(n.depends_on_data(format!("the shape of input {index}")));
        }
        operands.push(b.reshape(value, &[])?);
    }
    let dtype = b.type_of(operands[0]).dtype;
    one(b, Dynamic::Range, &operands, Outline::new(dtype, vec![None]))
}

fn fill(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let shape = n.input(0)?;
    let (dtype, value) = match n.tensor("value")? {
        None => (DType::F32, 0.0),
        Some(array) => {
            let numbers = array.to_floats().map_err(|error| n.wrong(error.to_string()))?;
            let number = numbers.first().copied();
            (array.dtype(), number.ok_or_else(|| n.wrong("attribute `value` has no element"))?)
        }
    };
    let extents = list(b, n, shape)?.into_iter().map(|it| it.and_then(|it| u64::try_from(it).ok())).collect();
    one(b, Dynamic::Fill { dtype, value: Real(value) }, &[shape], Outline::new(dtype, extents))
}

fn tile(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, repeats) = (n.input(0)?, n.input(1)?);
    let from = b.outline(x);
    let numbers = list(b, n, repeats)?;
    let counts = numbers.iter().map(|number| number.and_then(|it| u64::try_from(it).ok()));
    let pairs = from.extents.iter().zip(counts);
    let extents =
        pairs.map(|(extent, count)| extent.zip(count).and_then(|(a, b)| a.checked_mul(b))).collect();
    one(b, Dynamic::Tile, &[x, repeats], Outline::new(from.dtype, extents))
}

fn split(b: &mut Builder, n: &OnnxNode) -> Result<Vec<Option<ValueId>>> {
    let x = n.input(0)?;
    let from = b.outline(x);
    let dim = n.dimension(n.int("axis").unwrap_or(0), from.rank())?;
    let counts = match (n.optional(1), n.ints("split"), from.extents[dim]) {
        (Some(counts), _, _) => counts,
        (None, Some(counts), _) => b.list(counts)?,
        (None, None, Some(whole)) => {
            let parts = extent(n.outputs.len()).max(1);
            let part = whole.div_ceil(parts);
            let sizes = (0..parts).map(|index| signed(part.min(whole.saturating_sub(index * part))));
            b.list(&sizes.collect::<Vec<_>>())?
        }
        (None, None, None) => return Err(n.depends_on_data("the extent that is split")),
    };
    let sizes = list(b, n, counts)?;
    if sizes.len() != n.outputs.len() {
        return Err(n.wrong(format!("{} sizes for {} outputs", sizes.len(), n.outputs.len())));
    }
    let results = sizes.into_iter().map(|size| {
        let mut extents = from.extents.clone();
        extents[dim] = size.and_then(|it| u64::try_from(it).ok());
        Outline::new(from.dtype, extents)
    });
    let results = results.collect();
    let values = b.emit_open(Op::Dynamic(Dynamic::Split { dim }), &[x, counts], results)?;
    Ok(values.into_iter().map(Some).collect())
}

fn top_k(b: &mut Builder, n: &OnnxNode) -> Result<Vec<Option<ValueId>>> {
    let (x, k) = (n.input(0)?, n.input(1)?);
    let from = b.outline(x);
    let dim = n.dimension(n.int("axis").unwrap_or(-1), from.rank())?;
    let extreme = if n.int("largest").unwrap_or(1) == 0 { Extreme::Smallest } else { Extreme::Largest };
    let mut extents = from.extents.clone();
    extents[dim] = list(b, n, k)?.first().copied().flatten().and_then(|it| u64::try_from(it).ok());
    let results = vec![Outline::new(from.dtype, extents.clone()), Outline::new(DType::I64, extents)];
    let values = b.emit_open(Op::Dynamic(Dynamic::TopK { dim, extreme }), &[x, k], results)?;
    Ok(values.into_iter().map(Some).collect())
}

fn reduce(b: &mut Builder, n: &OnnxNode, reduction: Reduction) -> Result<ValueId> {
    let x = n.input(0)?;
    let rank = b.outline(x).rank();
    let axes = axes(b, n, 1)?.unwrap_or_default();
    if axes.is_empty() && n.int("noop_with_empty_axes").unwrap_or(0) != 0 {
        return Ok(x);
    }
    let dims = if axes.is_empty() { (0..rank).collect() } else { n.dimensions(&axes, rank)? };
    let kept = b.emit1(Op::Reduce { reduction, dims: dims.clone() }, &[x])?;
    if n.int("keepdims").unwrap_or(1) != 0 {
        return Ok(kept);
    }
    let from = b.outline(kept);
    let mut extents = from.extents;
    for &dim in dims.iter().rev() {
        extents.remove(dim);
    }
    one(b, Dynamic::Squeeze { dims }, &[kept], Outline::new(from.dtype, extents))
}

/// A product of matrices whose leading dimensions, if both have some, are the same.
fn matmul(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    let (left, right) = (b.outline(x), b.outline(y));
    let (a, c) = (left.rank(), right.rank());
    let matrix = c == 2 && a >= 2;
    let same = a == c && a > 2 && left.extents[..a - 2] == right.extents[..a - 2];
    if !matrix && !same {
        return Err(n.depends_on_data("which leading dimensions broadcast"));
    }
    let count = u8::try_from(a).map_err(|_| n.wrong(format!("{a} dimensions")))?;
    let labels: Vec<Label> = (0..count).map(Label).collect();
    let new = Label(count);
    let leading = if matrix { &[][..] } else { &labels[..a - 2] };
    let contract = Contract {
        left: labels.clone(),
        right: [leading, &[labels[a - 1], new]].concat(),
        result: [&labels[..a - 1], &[new]].concat(),
    };
    b.emit1(Op::Contract(contract), &[x, y])
}

fn gemm(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    if b.outline(x).rank() != 2 || b.outline(y).rank() != 2 {
        return Err(n.wrong("operands that are no matrices"));
    }
    let sides = |attribute: &str, first: u8, second: u8| {
        let plain = n.int(attribute).unwrap_or(0) == 0;
        if plain { vec![Label(first), Label(second)] } else { vec![Label(second), Label(first)] }
    };
    let contract = Contract {
        left: sides("transA", 0, 1),
        right: sides("transB", 1, 2),
        result: vec![Label(0), Label(2)],
    };
    let mut result = b.emit1(Op::Contract(contract), &[x, y])?;
    let dtype = b.type_of(result).dtype;
    let scaled = |b: &mut Builder, value: ValueId, name: &str| match n.float(name) {
        Some(factor) if factor.to_bits() != 1f32.to_bits() => {
            let factor = b.scalar(dtype, factor.into())?;
            b.emit1(Op::Binary(planner_ir::Binary::Mul), &[value, factor])
        }
        _ => Ok(value),
    };
    result = scaled(b, result, "alpha")?;
    if let Some(bias) = n.optional(2) {
        let bias = scaled(b, bias, "beta")?;
        result = b.emit1(Op::Binary(planner_ir::Binary::Add), &[result, bias])?;
    }
    Ok(result)
}

/// The numbers in a list of integers, as far as they are known.
fn list(b: &Builder, n: &OnnxNode, value: ValueId) -> Result<Vec<Option<i64>>> {
    let dtype = b.outline(value).dtype;
    if dtype.is_float() || dtype == DType::Bool {
        return Err(n.wrong(format!("sizes or places are {dtype}, expected integers")));
    }
    if b.is_open(value) {
        return Err(n.depends_on_data("how many numbers a list has"));
    }
    if let Some(partial) = b.partial(value) {
        return Ok(partial);
    }
    if b.known(value).is_some() {
        return Ok(b.integers(value)?.into_iter().map(Some).collect());
    }
    let Type { shape, .. } = b.type_of(value);
    let length: u64 = shape.iter().product();
    let length = usize::try_from(length).ok().filter(|&length| length <= LONGEST_LIST);
    length.map(|length| vec![None; length]).ok_or_else(|| n.wrong("a list that is too long"))
}

/// Lists of extents and counts are not longer than this (elements).
const LONGEST_LIST: usize = 1024;

/// The axes of an attribute or an input.
fn axes(b: &Builder, n: &OnnxNode, input: usize) -> Result<Option<Vec<i64>>> {
    match (n.ints("axes"), n.optional(input)) {
        (Some(axes), _) => Ok(Some(axes.to_vec())),
        (None, Some(axes)) => b.integers(axes).map(Some),
        (None, None) => Ok(None),
    }
}

/// A place in a list of dimensions, ends included; negative ones count from the end.
fn clamped(place: i64, rank: usize) -> usize {
    let whole = signed(extent(rank));
    let place = if place < 0 { place.saturating_add(whole) } else { place };
    usize::try_from(place.clamp(0, whole)).unwrap_or(rank)
}

fn product(extents: &[Option<u64>]) -> Option<u64> {
    extents.iter().try_fold(1u64, |product, extent| product.checked_mul((*extent)?))
}

fn signed(extent: u64) -> i64 {
    i64::try_from(extent).unwrap_or(i64::MAX)
}

fn extent(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

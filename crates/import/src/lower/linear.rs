//! Matrix products.

use planner_ir::{Binary, Contract, DType, Label, Op, ValueId};

use super::{Result, float, is_set};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The largest extent of quantised weights.
const LARGEST: u64 = 1 << 40;

pub(super) fn matmul(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    product(b, n, n.input(0)?, n.input(1)?)
}

/// numpy's `matmul`: the last dimension of x with the one before the last of w, the others
/// before them broadcast.
pub(super) fn product(b: &mut Builder, n: &OnnxNode, x: ValueId, w: ValueId) -> Result<ValueId> {
    let (left, right) = (b.rank(x), b.rank(w));
    if left == 0 || right == 0 {
        return Err(n.wrong("a product with a scalar"));
    }
    let rows = (left >= 2).then_some(Name::Row);
    let columns = (right >= 2).then_some(Name::Column);
    let left_batch = left.saturating_sub(2);
    let right_batch = right.saturating_sub(2);
    let batch = |count: usize| (0..count).rev().map(Name::Batch);
    let left_names: Vec<_> = batch(left_batch).chain(rows).chain([Name::Summed]).collect();
    let right_names: Vec<_> = batch(right_batch).chain([Name::Summed]).chain(columns).collect();
    let result: Vec<_> = batch(left_batch.max(right_batch)).chain(rows).chain(columns).collect();
    named_product(b, (x, left_names), (w, right_names), &result)
}

/// What a dimension of a product is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    /// A dimension that both operands share, counted from the last.
    Batch(usize),
    Row,
    Column,
    Summed,
}

impl Name {
    fn label(self) -> Label {
        let number = match self {
            Self::Row => 0,
            Self::Column => 1,
            Self::Summed => 2,
            Self::Batch(place) => 3 + place,
        };
        Label(u8::try_from(number).unwrap_or(u8::MAX))
    }
}

/// The contraction of operands with named dimensions. A dimension of extent 1 that is longer in
/// the other operand is reshaped away: contractions do not broadcast.
fn named_product(
    b: &mut Builder,
    left: (ValueId, Vec<Name>),
    right: (ValueId, Vec<Name>),
    result: &[Name],
) -> Result<ValueId> {
    let (left_shape, right_shape) = (b.shape(left.0)?, b.shape(right.0)?);
    let (x, left_names) = squeezed(b, left.0, &left.1, (&right.1, &right_shape))?;
    let (w, right_names) = squeezed(b, right.0, &right.1, (&left.1, &left_shape))?;
    let labels = |names: &[Name]| names.iter().map(|name| name.label()).collect();
    let contract =
        Contract { left: labels(&left_names), right: labels(&right_names), result: labels(result) };
    b.emit1(Op::Contract(contract), &[x, w])
}

fn squeezed(
    b: &mut Builder,
    x: ValueId,
    names: &[Name],
    other: (&[Name], &[u64]),
) -> Result<(ValueId, Vec<Name>)> {
    let shape = b.shape(x)?;
    let repeats = |dim: usize| {
        let there = other.0.iter().position(|&name| name == names[dim]);
        let batch = matches!(names[dim], Name::Batch(_));
        batch && shape[dim] == 1 && there.is_some_and(|there| other.1[there] != 1)
    };
    let dims: Vec<_> = (0..names.len()).filter(|&dim| repeats(dim)).collect();
    let kept = (0..names.len()).filter(|&dim| !repeats(dim)).map(|dim| names[dim]).collect();
    Ok((b.squeeze(x, &dims)?, kept))
}

/// `alpha x w + beta c`.
pub(super) fn gemm(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, w) = (n.input(0)?, n.input(1)?);
    if b.rank(x) != 2 || b.rank(w) != 2 {
        return Err(n.wrong("operands that are not matrices"));
    }
    let left: &[u8] = if is_set(n, "transA") { b"km" } else { b"mk" };
    let right: &[u8] = if is_set(n, "transB") { b"nk" } else { b"kn" };
    let y = b.contract((x, left), (w, right), b"mn")?;
    let y = scaled(b, y, float(n, "alpha", 1.0))?;
    let Some(c) = n.optional(2) else { return Ok(y) };
    let c = scaled(b, c, float(n, "beta", 1.0))?;
    b.add(y, c)
}

fn scaled(b: &mut Builder, x: ValueId, factor: f64) -> Result<ValueId> {
    if (factor - 1.0).abs() < f64::EPSILON {
        return Ok(x);
    }
    b.with_number(Binary::Mul, x, factor)
}

/// `alpha x w`, with the last two dimensions of an operand exchanged where the attributes say so,
/// and the first before the last two if the batch is transposed.
pub(super) fn fused_matmul(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = turned(b, n, n.input(0)?, ["transA", "transBatchA"])?;
    let w = turned(b, n, n.input(1)?, ["transB", "transBatchB"])?;
    let y = product(b, n, x, w)?;
    scaled(b, y, float(n, "alpha", 1.0))
}

/// The operand as two attributes turn it.
fn turned(b: &mut Builder, n: &OnnxNode, x: ValueId, names: [&str; 2]) -> Result<ValueId> {
    let [last, batch] = names.map(|name| is_set(n, name));
    let rank = b.rank(x);
    let mut permutation: Vec<_> = (0..rank).collect();
    if rank < 2 || !(last || batch) {
        return Ok(x);
    }
    if batch {
        // [a, batch.., b] -> [batch.., a, b]
        permutation[..rank - 1].rotate_left(1);
    }
    if last {
        permutation.swap(rank - 2, rank - 1);
    }
    b.transpose(x, &permutation)
}

/// The product of integers less their zero points, in i32.
pub(super) fn matmul_integer(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    integer_product(b, n, [n.input(0)?, n.input(1)?], [n.optional(2), n.optional(3)])
}

/// The product of integers less their zero points, in i32.
pub(super) fn integer_product(
    b: &mut Builder,
    n: &OnnxNode,
    operands: [ValueId; 2],
    zeros: [Option<ValueId>; 2],
) -> Result<ValueId> {
    let mut wide = Vec::new();
    for (place, (value, zero)) in operands.into_iter().zip(zeros).enumerate() {
        let x = b.cast(value, DType::I32)?;
        let Some(mut zero) = zero else {
            wide.push(x);
            continue;
        };
        if place == 0 {
            zero = by_rows(b, zero)?;
        }
        let zero = b.cast(zero, DType::I32)?;
        wide.push(b.sub(x, zero)?);
    }
    product(b, n, wide[0], wide[1])
}

/// Numbers of the left operand's rows, where those of the right one are of its columns; or one number.
pub(super) fn by_rows(b: &mut Builder, numbers: ValueId) -> Result<ValueId> {
    if b.rank(numbers) == 1 && b.elements(numbers)? > 1 { b.unsqueeze(numbers, &[1]) } else { Ok(numbers) }
}

/// A product with weights that are quantised in blocks along the summed dimension.
pub(super) fn matmul_quantised(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let bits = count(n, "bits", Some(4))?;
    let block = count(n, "block_size", None)?;
    let columns = count(n, "K", None)?;
    let rows = count(n, "N", None)?;
    if !matches!(bits, 2 | 4 | 8) || block == 0 {
        return Err(n.unsupported(format!("{bits} bits in blocks of {block}")));
    }
    if n.optional(4).is_some() {
        return Err(n.unsupported("a group index"));
    }
    let blocks = columns.div_ceil(block);
    let packed = b.reshape(n.input(1)?, &[rows, blocks, block * bits / 8])?;
    let scales = b.reshape(n.input(2)?, &[rows, blocks])?;
    let scales = b.cast(scales, b.dtype(x))?;
    let mut operands = vec![packed, scales];
    let (packed_zeros, plain_zeros): (Vec<_>, Vec<_>) =
        n.optional(3).into_iter().partition(|&zeros| b.dtype(zeros) == DType::U8);
    for zeros in packed_zeros {
        operands.push(b.reshape(zeros, &[rows, (blocks * bits).div_ceil(8)])?);
    }
    let mut w = b.emit1(Op::Dequantize { bits, block, columns }, &operands)?;
    for zeros in plain_zeros {
        // Zero points that are numbers stand in for the middle of the range.
        let middle = f64::from(1_u8 << (bits - 1));
        let zeros = b.cast(zeros, b.dtype(x))?;
        let zeros = b.reshape(zeros, &[rows, blocks])?;
        let middle = b.number(zeros, middle)?;
        let offset = b.sub(middle, zeros)?;
        let offset = b.mul(offset, scales)?;
        let offset = b.reshape(offset, &[rows, blocks, 1])?;
        let offset = b.expand(offset, &[rows, blocks, block])?;
        let offset = b.reshape(offset, &[rows, blocks * block])?;
        let offset = b.slice(offset, 1, 0, columns)?;
        w = b.add(w, offset)?;
    }
    let rank = b.rank(x);
    let batch: Vec<_> = (1..rank).map(Name::Batch).collect();
    let left: Vec<_> = batch.iter().copied().chain([Name::Summed]).collect();
    let result: Vec<_> = batch.iter().copied().chain([Name::Column]).collect();
    let y = named_product(b, (x, left), (w, vec![Name::Column, Name::Summed]), &result)?;
    match n.optional(5) {
        Some(bias) => b.add(y, bias),
        None => Ok(y),
    }
}

fn count(n: &OnnxNode, name: &str, default: Option<i64>) -> Result<u64> {
    let number = match n.int(name).or(default) {
        Some(number) => number,
        None => n.required_int(name)?,
    };
    let sane = u64::try_from(number).ok().filter(|&number| number <= LARGEST);
    sane.ok_or_else(|| n.wrong(format!("attribute `{name}` is {number}")))
}

//! Results in the places of operands, element by element, products added to what is there, and what is written over
//! some of it.

use kernels::{Array, KernelError, Tensor, TensorMut};
use planner_ir::{DType, Op, Type};

/// How many elements are done at a time: their copies stay in the nearest caches.
const CHUNK: usize = 8_192;

/// An operand.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    /// That is where no result is written.
    There(Tensor<'a>),
    /// That is where the result of that number is written, of its shape.
    Result(usize),
}

impl<'a> Given<'a> {
    /// The operand, if no result is written there.
    pub(crate) fn there(&self) -> Option<Tensor<'a>> {
        match self {
            Self::There(tensor) => Some(*tensor),
            Self::Result(_) => None,
        }
    }
}

/// Writes what an operation changes where its result lies, which is where it has that operand; nothing if it has it
/// elsewhere, or writes over nothing.
pub(crate) fn write_in_place(
    op: &Op,
    operands: &[Given],
    results: &mut [TensorMut],
) -> Option<Result<(), KernelError>> {
    let over = op.written()?;
    let ([y], Given::Result(0)) = (results, operands.get(over)?) else { return None };
    let others = operands.iter().enumerate().filter(|it| it.0 != over);
    let others: Vec<Tensor> = others.map(|(_, it)| it.there()).collect::<Option<_>>()?;
    Some(kernels::write(op, &others, y))
}

/// Computes products that are added to what lies where their results are written; nothing if the operation adds
/// nothing, or something else lies there.
pub(crate) fn add_in_place(
    op: &Op,
    operands: &[Given],
    results: &mut [TensorMut],
) -> Option<Result<(), KernelError>> {
    let sums = op.addends(operands.len());
    let (factors, addends) = operands.split_at(operands.len() - sums.len());
    let factors: Vec<Tensor> = factors.iter().map(Given::there).collect::<Option<_>>()?;
    let mut there = Vec::with_capacity(addends.len());
    for (given, &(_, sum)) in addends.iter().zip(&sums) {
        match given {
            Given::Result(place) if *place != sum => return None,
            _ => there.push(given.there()),
        }
    }
    Some(kernels::add(op, &factors, &there, results))
}

/// Computes an operation each element of whose results is made from the elements at the same
/// place of its operands, and from single numbers, as `kernels::compute` would: a piece at a
/// time, from copies of what the piece is written over.
pub(crate) fn compute_in_place(
    op: &Op,
    operands: &[Given],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let elements = |bytes: usize, dtype: DType| -> Result<usize, KernelError> {
        Ok(bytes / usize::try_from(dtype.bytes()).map_err(|_| KernelError::Size)?)
    };
    let Some(first) = results.first() else { return Ok(()) };
    let count = elements(first.bytes.len(), first.dtype)?;
    let whole = count <= CHUNK;
    for start in (0..count).step_by(CHUNK) {
        let length = CHUNK.min(count - start);
        let flat = [u64::try_from(length).map_err(|_| KernelError::Size)?];
        let piece = |dtype: DType| -> Result<std::ops::Range<usize>, KernelError> {
            let size = usize::try_from(dtype.bytes()).map_err(|_| KernelError::Size)?;
            Ok(start * size..(start + length) * size)
        };
        let copies = operands
            .iter()
            .map(|operand| match *operand {
                Given::There(_) => Ok(None),
                Given::Result(place) => {
                    let TensorMut { dtype, bytes, .. } = &results[place];
                    Array::from_bytes(Type::new(*dtype, flat), &bytes[piece(*dtype)?]).map(Some)
                }
            })
            .collect::<Result<Vec<Option<Array>>, _>>()?;
        let mut pieces = Vec::with_capacity(operands.len());
        for (operand, copy) in operands.iter().zip(&copies) {
            pieces.push(match (operand, copy) {
                (Given::There(it), _) if whole => *it,
                (Given::There(it), _) if elements(it.bytes.len(), it.dtype)? == 1 => {
                    Tensor { shape: &[], spans: &[], ..*it }
                }
                (Given::There(it), _) => {
                    Tensor { shape: &flat, bytes: &it.bytes[piece(it.dtype)?], spans: &[], ..*it }
                }
                (Given::Result(place), Some(copy)) if whole => {
                    let TensorMut { shape, spans, .. } = results[*place];
                    Tensor { shape, spans, ..copy.tensor() }
                }
                (Given::Result(_), copy) => copy.as_ref().ok_or(KernelError::Size)?.tensor(),
            });
        }
        let mut targets = Vec::with_capacity(results.len());
        for result in results.iter_mut() {
            let range = piece(result.dtype)?;
            targets.push(match whole {
                true => result.reborrow(),
                false => TensorMut {
                    dtype: result.dtype,
                    shape: &flat,
                    bytes: &mut result.bytes[range],
                    spans: &[],
                },
            });
        }
        kernels::compute(op, &pieces, &mut targets)?;
    }
    Ok(())
}

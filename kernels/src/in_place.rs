//! Results in the place of operands.

use planner_ir::{Binary, Op};

use crate::array::{Tensor, TensorMut, byte_count};
use crate::error::KernelError;
use crate::optimizer::{add_in_place, update_in_place};

/// Computes an operation whose results take the place of operands of the same type.
///
/// Two operations can: `Update`, whose results take the places of the parameter and of its
/// moments, and an addition of values of one type, whose result takes the place of the first
/// addend. `changed` are those operands, in order, and `others` the rest, in order. What comes out
/// is what `compute` gives, bit by bit.
pub fn compute_in_place(op: &Op, changed: &mut [TensorMut], others: &[Tensor]) -> Result<(), KernelError> {
    let values = others.iter().copied().chain(changed.iter().map(TensorMut::tensor));
    for (found, expected) in values.map(|it| (it.bytes.len(), byte_count(it.dtype, it.shape))) {
        let expected = expected?;
        if found != expected {
            let expected = u64::try_from(expected).map_err(|_| KernelError::Size)?;
            return Err(KernelError::Bytes { found, expected });
        }
    }
    match (op, changed, others) {
        (Op::Update(optimizer), changed, others) => update_in_place(*optimizer, changed, others),
        (Op::Binary(Binary::Add), [y], [b]) => add_in_place(y, b),
        _ => Err(KernelError::Type(format!("`{}` is not computed in place", op.name()))),
    }
}

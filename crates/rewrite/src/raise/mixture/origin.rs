//! What makes the values of a graph, and which whole numbers they are.

use planner_ir::{DType, Graph, Op, Real, Source, ValueId};

/// The operation whose only result a value is, and what it is computed from.
pub(super) fn made(graph: &Graph, value: ValueId) -> Option<(&Op, &[ValueId])> {
    let Source::Result { node, .. } = graph.value(value).source else {
        return None;
    };
    let node = graph.node(node);
    (node.results.len() == 1).then_some((&node.op, &node.operands))
}

/// Whether a value is zeros.
pub(super) fn is_zero(graph: &Graph, value: ValueId) -> bool {
    matches!(made(graph, value), Some((Op::Fill { value, .. }, _)) if value.0.to_bits() == 0)
}

/// The value whose elements, in the same order, another one has in perhaps another shape.
pub(super) fn unreshaped(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some((Op::Reshape { .. }, &[operand])) = made(graph, value) {
        value = operand;
    }
    value
}

/// The elements that a constant of whole numbers has, if there are at most so many.
pub(in crate::raise) fn integers(op: &Op, most: u64) -> Option<Vec<i64>> {
    let few = |count: u64| (count <= most).then_some(count);
    match op {
        Op::Fill { result, value } if result.dtype == DType::I64 => {
            let count = few(result.elements())?;
            Some(vec![whole(*value)?; usize::try_from(count).ok()?])
        }
        Op::Iota { dtype: DType::I64, length, start, step } => {
            let (start, step) = (whole(*start)?, whole(*step)?);
            let count = i64::try_from(few(*length)?).ok()?;
            (0..count).map(|index| start.checked_add(step.checked_mul(index)?)).collect()
        }
        Op::Constant { result, data } if result.dtype == DType::I64 => {
            few(result.elements())?;
            Some(data.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect())
        }
        _ => None,
    }
}

fn whole(value: Real) -> Option<i64> {
    /// Up to here every whole number is a float.
    const MOST: f64 = 9_007_199_254_740_992.0;
    let is_whole = value.0.fract() == 0.0 && value.0.abs() <= MOST;
    #[expect(clippy::cast_possible_truncation, reason = "it is checked")]
    is_whole.then_some(value.0 as i64)
}

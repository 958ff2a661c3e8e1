//! What operations take that touch each element a few times.

use cost_models::machine::Pass;
use kernels::{Array, KernelError};
use planner_ir::{Attention, Binary, DType, Op, Real, Reduction, Type, Unary};

use super::filled;
use super::timing::shortest;

/// Rows of a small and of a larger value, both of which lie in a cache, and of one between.
pub(super) const ROWS: [u64; 3] = [1, 32, 256];
/// The length of a row.
pub(super) const ROW: u64 = 256;
/// The size of a head of attention.
pub(super) const HEAD: u64 = 32;

/// The time of one operation of a kind on so many rows (seconds).
pub(super) fn time(pass: Pass, rows: u64) -> Result<f64, KernelError> {
    let (op, operands) = example(pass, rows)?;
    let types: Vec<Type> = operands.iter().map(|it| it.type_().clone()).collect();
    let results = op.infer(&types).map_err(|_| KernelError::Size)?;
    let mut results: Vec<Array> = results.into_iter().map(Array::zeros).collect::<Result<_, _>>()?;
    let operands: Vec<_> = operands.iter().map(Array::tensor).collect();
    shortest(|| {
        let mut results: Vec<_> = results.iter_mut().map(Array::tensor_mut).collect();
        kernels::compute(&op, &operands, &mut results)
    })
}

/// The operation that stands for a kind, and what it is done on.
fn example(pass: Pass, rows: u64) -> Result<(Op, Vec<Array>), KernelError> {
    let x = || filled(DType::F32, vec![rows, ROW]);
    let row = || filled(DType::F32, vec![ROW]);
    let x = x()?;
    Ok(match pass {
        Pass::Sum => (Op::Binary(Binary::Add), vec![x.clone(), x]),
        Pass::Quotient => (Op::Binary(Binary::Div), vec![x.clone(), x]),
        Pass::Exponential => (Op::Unary(Unary::Silu), vec![x]),
        Pass::Erf => (Op::Unary(Unary::Gelu), vec![x]),
        Pass::Tanh => (Op::Unary(Unary::GeluTanh), vec![x]),
        // Rows are queries, and as many keys as a row has elements: a score for each element.
        Pass::Score => {
            let [q, kv] = [rows, ROW].map(|length| filled(DType::F32, vec![1, 1, length, HEAD]));
            let (q, kv, mask) = (q?, kv?, filled(DType::F32, vec![1, 1, rows, ROW])?);
            let attention = Attention {
                scale: Real(0.125),
                causal: false,
                softcap: Real(0.0),
                window: None,
                statistics: false,
            };
            (Op::Attention(attention), vec![q, kv.clone(), kv, mask])
        }
        Pass::Softmax => (Op::Softmax { dim: 1 }, vec![x]),
        Pass::Norm => (Op::LayerNorm { dims: 1, epsilon: Real(1e-5) }, vec![x, row()?, row()?]),
        Pass::Reduce => (Op::Reduce { reduction: Reduction::Sum, dims: vec![1] }, vec![x]),
        Pass::Transpose => (Op::Transpose { permutation: vec![1, 0] }, vec![x]),
        Pass::Copy => (Op::Concat { dim: 0 }, vec![x.clone(), x]),
    })
}

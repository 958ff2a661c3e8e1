//! What operations take that touch each element a few times.

use cost_models::machine::Pass;
use kernels::{Array, KernelError};
use planner_ir::{Attention, Binary, Blind, DType, Op, Real, Reduction, Type, Unary};

use super::filled;
use super::timing::{self, Effort};

/// Rows of a small and of a larger value, and of one between.
pub(super) const ROWS: [u64; 3] = [1, 32, 256];
/// The length of a row.
pub(super) const ROW: u64 = 256;
/// Queries of attention, which are as many as keys: of one stretch, of more, and between.
pub(super) const QUERIES: [u64; 3] = [64, 128, 256];
/// The size of a head of attention.
const HEAD: u64 = 32;

/// How many rows are measured of a kind.
pub(super) fn rows(pass: Pass) -> [u64; 3] {
    if pass == Pass::Score { QUERIES } else { ROWS }
}

/// The time of one operation of a kind on so many rows that are where a step finds them (seconds).
pub(super) fn time(effort: Effort, pass: Pass, rows: u64) -> Result<f64, KernelError> {
    let (op, types) = example(pass, rows);
    let made = op.infer(&types).map_err(|_| KernelError::Size)?;
    let bytes = types.iter().chain(&made).map(Type::bytes).sum();
    let mut copies = timing::copies(bytes, || {
        let operands = types.iter().map(|it| filled(it.dtype, it.shape.clone()));
        let results = made.iter().map(|it| Array::zeros(it.clone()));
        Ok((operands.collect::<Result<Vec<_>, _>>()?, results.collect::<Result<Vec<_>, _>>()?))
    })?;
    timing::in_turn(effort, &mut copies, |(operands, results)| {
        let operands: Vec<_> = operands.iter().map(Array::tensor).collect();
        let mut results: Vec<_> = results.iter_mut().map(Array::tensor_mut).collect();
        kernels::compute(&op, &operands, &mut results)
    })
}

/// The operation that stands for a kind, and the types of what it is done on.
pub(super) fn example(pass: Pass, rows: u64) -> (Op, Vec<Type>) {
    let x = Type::new(DType::F32, [rows, ROW]);
    let row = Type::new(DType::F32, [ROW]);
    match pass {
        Pass::Sum => (Op::Binary(Binary::Add), vec![x.clone(), x]),
        Pass::Quotient => (Op::Binary(Binary::Div), vec![x.clone(), x]),
        Pass::Exponential => (Op::Unary(Unary::Silu), vec![x]),
        Pass::Erf => (Op::Unary(Unary::Gelu), vec![x]),
        Pass::Tanh => (Op::Unary(Unary::GeluTanh), vec![x]),
        // Rows are queries, each of which sees as many keys as there are up to it.
        Pass::Score => {
            let attention = Attention {
                scale: Real(0.125),
                causal: true,
                softcap: Real(0.0),
                window: None,
                blind: Blind::Zero,
                sinks: false,
                statistics: false,
            };
            (Op::Attention(attention), vec![Type::new(DType::F32, [1, 1, rows, HEAD]); 3])
        }
        Pass::Softmax => (Op::Softmax { dim: 1 }, vec![x]),
        Pass::Norm => (Op::LayerNorm { dims: 1, epsilon: Real(1e-5) }, vec![x, row.clone(), row]),
        Pass::Reduce => (Op::Reduce { reduction: Reduction::Sum, dims: vec![1] }, vec![x]),
        Pass::Transpose => (Op::Transpose { permutation: vec![1, 0] }, vec![x]),
        Pass::Copy => (Op::Concat { dim: 0 }, vec![x.clone(), x]),
    }
}

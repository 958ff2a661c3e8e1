//! What operations take that touch each element a few times.

use cost_models::machine::Pass;
use cost_models::units::{Seconds, exact};
use kernels::{Array, KernelError};
use planner_ir::{Attention, Binary, DType, Op, Real, Reduction, Type, Unary};

use super::{filled, shortest};

/// Rows of a small and of a larger value, both of which lie in a cache.
const ROWS: [u64; 2] = [1, 256];
/// The length of a row.
const ROW: u64 = 256;
/// The size of a head of attention.
const HEAD: u64 = 32;

/// For each kind of operation, the time however few elements there are and that of an element, where
/// products have a rate (operations per second).
pub(super) fn paces(rate: f64, say: &dyn Fn(&str)) -> Result<Vec<(Pass, Seconds, Seconds)>, KernelError> {
    Pass::ALL
        .into_iter()
        .map(|pass| {
            say(&format!("operations of kind `{}`", pass.name()));
            let [few, many] = [time(pass, ROWS[0])?, time(pass, ROWS[1])?];
            let element = (many - few).max(many / 1000.0) / exact((ROWS[1] - ROWS[0]) * ROW);
            let start = (few - element * exact(ROWS[0] * ROW)).max(few / 100.0);
            // The products of attention have prices of their own.
            let products = if pass == Pass::Score { 4.0 * exact(HEAD) / rate } else { 0.0 };
            let element = (element - products).max(element / 10.0);
            Ok((pass, Seconds(start), Seconds(element)))
        })
        .collect()
}

/// The time of one operation of a kind on so many rows (seconds).
fn time(pass: Pass, rows: u64) -> Result<f64, KernelError> {
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

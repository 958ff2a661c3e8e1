//! The time of recurrences.
//!
//! Devices that multiply matrices take so many tokens at a time: what each makes of the others is a product
//! with a triangle between tokens, as in attention, and only from chunk to chunk does a state go. A thread
//! goes from token to token, and passes over the state several times for each.
//!
//! Sources: Dao and Gu, "Transformers are SSMs", 2024, section 6, and Yang, Wang, Zhang, Shen and Kim,
//! "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", 2024, section 3; the thread:
//! `kernels/src/recurrence.rs`.

use planner_ir::{Recurrence, Type};

use crate::compute::{MatrixProduct, matrix_product};
use crate::machine::{Device, Pass, Precision};
use crate::units::{Seconds, exact};

/// Tokens of a chunk.
///
/// Source: `chunk_gated_delta_rule` of the library flash-linear-attention; that of Mamba-2 takes up to 256.
const CHUNK: u64 = 64;

/// Time of a recurrence on these operands, without reading and writing them.
pub(super) fn time(device: &Device, it: Recurrence, operands: &[Type]) -> Seconds {
    let (k, v) = (&operands[1].shape, &operands[2].shape);
    let (tokens, sizes) = (v[1], [k[3], v[3]]);
    let heads = v[0] * v[2];
    // Of a gradient: states again, and two for each product or pass of the recurrence.
    let times = if it.gradient().is_some() { 1.0 } else { 3.0 };
    match device.passes.get(&Pass::Sum) {
        Some(pace) => {
            let passes = if it.replaces() { 4.0 } else { 3.0 };
            let elements = exact(heads * tokens) * exact(sizes[0]) * exact(sizes[1]);
            times * passes * elements * pace.element.value
        }
        None => {
            let chunk = tokens.clamp(1, CHUNK);
            let batch = heads * tokens.div_ceil(chunk);
            let precision = Precision::of(operands[0].dtype);
            let one =
                |&sizes: &[u64; 3]| matrix_product(device, &MatrixProduct::forward(batch, sizes, precision));
            times * products(it, chunk, sizes).iter().map(one).sum::<Seconds>()
        }
    }
}

/// The products of a chunk of a head: rows, columns and what is summed.
fn products(it: Recurrence, chunk: u64, [rows, columns]: [u64; 2]) -> Vec<[u64; 3]> {
    // Queries with keys, that with values, queries with the state, and keys with values into the state.
    let mut all =
        vec![[chunk, chunk, rows], [chunk, columns, chunk], [chunk, columns, rows], [rows, columns, chunk]];
    if it.replaces() {
        // Keys with keys, the inverse of that triangle, it with keys and with values, keys with the state.
        all.extend([
            [chunk, chunk, rows],
            [chunk, chunk, chunk],
            [chunk, rows, chunk],
            [chunk, columns, chunk],
            [chunk, columns, rows],
        ]);
    }
    all
}

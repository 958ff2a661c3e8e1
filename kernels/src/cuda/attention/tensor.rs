//! Attention on tensor cores, of numbers of 16 bits.

use planner_ir::{Attention, Blind};

use super::super::launch::{Kernel, Launch, Piece, Uncovered, Work};
use super::super::number::literal;
use super::super::strides::Arguments;
use super::{Masks, Shape, blind_score, fill, for_rows, scores, unless};

const TEMPLATE: &str = include_str!("../templates/attention_tensor.cu");

/// The queries that a block computes, and the keys of a tile.
const TILE: u64 = 64;

/// The threads of a block: four warps, of 16 queries each.
const THREADS: u32 = 128;

/// What a row in shared memory is longer than it has to be, so that rows begin in different banks
/// (elements).
const MARGIN: u64 = 8;

/// The kernel; operands and results are declared.
pub(super) fn attention(
    attention: &Attention,
    shape: &Shape,
    masks: Masks<'_>,
    begun: String,
    mut arguments: Arguments,
    results: &[Piece],
) -> Result<Work, Uncovered> {
    let scores = scores(attention, shape, masks, TILE, &mut arguments)?;
    let statistics = results.get(1).map_or(String::new(), |it| {
        format!(
            "            const float numbers[2] = {{most[r], sum[r]}};\n            \
             if (pair == 0) t_store_{}_2(stats + 2 * (rows + query), numbers);\n",
            it.type_.dtype.name()
        )
    });
    let mut texts = shape.texts();
    texts.extend([
        ("PARAMETERS", arguments.text()),
        (
            "BEGUN",
            for_rows(&begun, "for (int r = 0; r < 2; r++) {\n        const t_i64 query = own + r * 8;"),
        ),
        ("LOAD", "$NAME_load".to_owned()),
        ("BEGIN", scores.keys[0].clone()),
        ("END", scores.keys[1].clone()),
        ("WHOLE", scores.whole),
        ("SCALE", literal(shape.dtype, attention.scale.0)),
        ("SCORE", scores.text.replace("                SLOPE\n", "")),
        (
            "BLIND",
            if attention.blind == Blind::Zero { String::new() } else { sees_all(shape, &scores.twice) },
        ),
        ("STATISTICS", statistics),
    ]);
    let source = fill(TEMPLATE, &texts);
    // Two tiles of keys and of values, of two bytes an element.
    let shared = 2 * 2 * TILE * (shape.size + shape.value_size + 2 * MARGIN);
    let launch = Launch {
        kernel: Kernel::new("attention_tensor", &source, arguments.parameters),
        blocks: shape.batches * shape.heads * shape.queries.div_ceil(TILE),
        threads: THREADS,
        shared: u32::try_from(shared).unwrap_or(u32::MAX),
        arguments: arguments.given,
    };
    Ok(Work { launches: vec![launch], room: 0 })
}

/// Stores the mean that a row gets which sees no key: four lanes to a row, some columns after others, so that
/// it takes few registers.
fn sees_all(shape: &Shape, twice: &str) -> String {
    let (dtype, e) = (shape.dtype.name(), shape.value_size);
    format!(
        "            for (int c = 0; !sees && c < {e}; c += 8) {{
                float x[2], left = 0, right = 0, count = 0;
                for (t_i64 key = 0; key < keys; key++) {{
                    {twice}
{}                    t_load_{dtype}_2(v + key * v_r + c + pair, x);
                    left += x[0];
                    right += x[1];
                    count += 1;
                }}
                if (count == 0) break;
                *(t_u32 *)(y + query * y_r + c + pair) = t_pack_{dtype}(left / count, right / count);
                most[r] = {};
                sum[r] = count;
            }}
",
        unless(twice),
        blind_score(shape.dtype),
    )
}

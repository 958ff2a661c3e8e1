//! The gradients of attention.
//!
//! One kernel makes the gradients of queries, tile by tile of keys; another those of keys and values,
//! tile by tile of queries, of all heads that share them. Each sums in an order of its own: nothing
//! depends on which block is faster. Narrow numbers go through tensor cores, as in attention itself.

use planner_ir::{Attention, Blind, DType};

use super::super::launch::{Argument, Launch, Piece, Uncovered, Work};
use super::super::number::{computed, literal, suffix};
use super::super::strides::{Arguments, signed};
use super::{
    Masks, Shape, TILE, WARPS, blind_score, expect_rows, fill, launch, scores, stored, strides, wide,
};

mod tensor; // on tensor cores

const OWN: &str = include_str!("../templates/attention_own.cu");
const GRADIENT: &str = include_str!("../templates/attention_gradient.cu");
const MASK: &str = include_str!("../templates/attention_mask.cu");

/// What is read by every kernel but the first: the number of the operand, and its name.
const READ: [(usize, &str); 4] = [(0, "q"), (1, "k"), (2, "v"), (5, "dy")];

/// Which gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Towards {
    Queries,
    Keys,
}

/// Queries that see no key and have the mean of all values: keys of theirs are in every tile.
struct BlindRows {
    /// A function that says whether a tile of queries has one.
    rows: String,
    /// A statement that makes the score of such a query.
    score: String,
    towards: Towards,
    tile: u64,
}

impl BlindRows {
    /// Whether nothing of a tile counts, of which the first row is `first`: what is seen lies elsewhere.
    fn skips(&self, first: &str, begin: &str, end: &str) -> String {
        let of = match self.towards {
            Towards::Queries => "first_own",
            Towards::Keys => first,
        };
        format!(
            "({first} + {} <= {begin} || {first} >= {end}) && \
             !$NAME_blind(stats + 2 * (batch * heads + head) * queries, {of}, queries)",
            self.tile
        )
    }
}

/// A statement that makes the score of a key of a query whose largest score is `most`, if that sees no key.
fn blind_scores(dtype: DType, most: &str, twice: &str) -> String {
    let (low, infinity) = (blind_score(dtype), suffix(dtype).to_uppercase());
    let in_mean = if twice.is_empty() { "key < keys" } else { "key < keys && !twice" };
    format!(
        "                if ({most} == {low}) {{ {twice} s = {in_mean} ? {low} : -T_INFINITY_{infinity}; }}\n"
    )
}

/// What all kernels are made from.
struct Gradient<'a> {
    attention: &'a Attention,
    shape: Shape,
    operands: &'a [Piece],
    results: &'a [Piece],
}

/// The gradients towards q, k, v and perhaps the mask; operands q, k, v, y, statistics, dy and
/// perhaps the mask, and documents.
pub(in super::super) fn attention_gradient(
    attention: &Attention,
    operands: &[Piece],
    results: &[Piece],
) -> Result<Work, Uncovered> {
    let (Some([q, k, v, ..]), 3 | 4, 6..=9) = (operands.first_chunk::<6>(), results.len(), operands.len())
    else {
        return Err(Uncovered::Missing(format!("the gradient of attention of {} operands", operands.len())));
    };
    let strided = operands[..4].iter().chain([&operands[5]]).chain(&results[..3]);
    expect_rows(strided, &operands[4..5], &results[3..])?;
    expect_rows([], &operands[6..], &[])?;
    let gradient = Gradient { attention, shape: Shape::new([q, k, v])?, operands, results };
    let rows = gradient.shape.batches * gradient.shape.heads * gradient.shape.queries;
    let mut work = Work { launches: vec![], room: rows * wide(gradient.shape.dtype) };
    if rows > 0 {
        work.launches.push(gradient.own(rows)?);
    }
    for towards in [Towards::Queries, Towards::Keys] {
        let on_tensor_cores = gradient.is_for_tensor_cores();
        work.launches.push(if on_tensor_cores {
            gradient.on_tensor_cores(towards)?
        } else {
            gradient.towards(towards)?
        });
    }
    if let Some(mask) = results.get(3) {
        work.launches.push(gradient.mask(mask)?);
    }
    work.launches.retain(|launch| launch.blocks > 0);
    Ok(work)
}

impl Gradient<'_> {
    /// `dy . y` of every row, in the room.
    fn own(&self, rows: u64) -> Result<Launch, Uncovered> {
        let mut arguments = Arguments::default();
        arguments.reads("dy", self.shape.dtype, Argument::Operand(5));
        arguments.reads("y", self.shape.dtype, Argument::Operand(3));
        arguments.pointer(&format!("{} *own", computed(self.shape.dtype)), Argument::Room(0));
        arguments.integer("rows", signed(rows));
        arguments.integer("heads", signed(self.shape.heads));
        arguments.integer("queries", signed(self.shape.queries));
        for (name, operand) in [("dy", 5), ("y", 3)] {
            strides(name, &self.operands[operand], &mut arguments);
        }
        let mut texts = self.shape.texts();
        texts.push(("PARAMETERS", arguments.text()));
        launch("attention_own", &fill(OWN, &texts), arguments, rows.div_ceil(WARPS), 0)
    }

    /// What is read by every kernel but the first.
    fn reads(&self) -> Arguments {
        let mut arguments = Arguments::default();
        for (number, name) in READ {
            arguments.reads(name, self.shape.dtype, Argument::Operand(number));
        }
        for (number, name) in READ {
            strides(name, &self.operands[number], &mut arguments);
        }
        arguments.reads("stats", self.operands[4].type_.dtype, Argument::Operand(4));
        arguments.pointer(&format!("const {} *own", computed(self.shape.dtype)), Argument::Room(0));
        arguments
    }

    fn masks(&self) -> Masks<'_> {
        Masks { given: &self.operands[6..], first: 6 }
    }

    /// What the kernel towards one side reads and writes, and extents.
    fn arguments(&self, towards: Towards) -> Arguments {
        let mut arguments = self.reads();
        let written = match towards {
            Towards::Queries => &[(0, "out_d")][..],
            Towards::Keys => &[(1, "out_d"), (2, "out_e")],
        };
        for &(result, name) in written {
            arguments.writes(name, self.results[result].type_.dtype, Argument::Result(result));
            strides(name, &self.results[result], &mut arguments);
        }
        self.shape.extents(&mut arguments);
        arguments
    }

    /// Declares which block it is, in tiles of so many rows, and where its own rows and others are.
    fn places(&self, towards: Towards, tile: u64) -> String {
        let block = |of: &str| {
            format!(
                "    const t_u32 tiles = (t_u32)({of} + {}) / {tile}, tile = (t_u32)t_block() % tiles;\n    \
                 const t_u32 outer = (t_u32)t_block() / tiles;\n    \
                 const t_i64 first_own = (t_i64)tile * {tile};\n    \
                 const t_i64 own_count = {of};\n",
                tile - 1
            )
        };
        let d = format!("const {} *", stored(self.shape.dtype));
        match towards {
            Towards::Queries => format!(
                "{}    const t_i64 first_query = first_own, other_count = keys;\n    \
                 const t_i64 head = outer % (t_u32)heads, batch = outer / (t_u32)heads;\n    \
                 const t_i64 group = (t_u32)head / ((t_u32)heads / (t_u32)groups);\n    \
                 const t_i64 own_d_r = q_r, own_e_r = dy_r, other_d_r = k_r, other_e_r = v_r;\n    \
                 {d}own_d = q + batch * q_b + head * q_h;\n    \
                 {d}own_e = dy + batch * dy_b + head * dy_h;\n    \
                 {d}other_d = k + batch * k_b + group * k_h;\n    \
                 {d}other_e = v + batch * v_b + group * v_h;\n    \
                 out_d += batch * out_d_b + head * out_d_h;\n",
                block("queries"),
            ),
            Towards::Keys => format!(
                "{}    const t_i64 first_key = first_own, other_count = queries;\n    \
                 const t_i64 batch = outer / (t_u32)groups, group = outer % (t_u32)groups;\n    \
                 const t_i64 own_d_r = k_r, own_e_r = v_r, other_d_r = q_r, other_e_r = dy_r;\n    \
                 {d}own_d = k + batch * k_b + group * k_h;\n    \
                 {d}own_e = v + batch * v_b + group * v_h;\n    \
                 out_d += batch * out_d_b + group * out_d_h;\n    \
                 out_e += batch * out_e_b + group * out_e_h;\n",
                block("keys"),
            ),
        }
    }

    /// Begins a loop over the heads that share keys, if that is what the rows are towards.
    fn heads(&self, towards: Towards) -> String {
        let d = stored(self.shape.dtype);
        match towards {
            Towards::Queries => String::new(),
            Towards::Keys => format!(
                "    const t_u32 each = (t_u32)heads / (t_u32)groups, first_head = outer % (t_u32)groups * each;\n    \
                 for (t_i64 head = first_head; head < first_head + each; head++) {{\n        \
                 const {d} *other_d = q + batch * q_b + head * q_h;\n        \
                 const {d} *other_e = dy + batch * dy_b + head * dy_h;\n"
            ),
        }
    }

    fn towards(&self, towards: Towards) -> Result<Launch, Uncovered> {
        let shape = &self.shape;
        let (t, e) = (computed(shape.dtype), shape.value_size);
        let mut arguments = self.arguments(towards);
        let scores = scores(self.attention, shape, self.masks(), TILE, &mut arguments)?;
        let score = scores.text.replace("SLOPE", "slope = 1 - bent * bent;");
        let (first, second) = match towards {
            Towards::Queries => (0, None),
            Towards::Keys => (1, Some(2)),
        };
        let is_keys = towards == Towards::Keys;
        let [begin, end] = if is_keys { scores.queries } else { scores.keys };
        let blind = self.blind(towards, TILE, &scores.twice);
        let whole = |it: String, all: &str| if blind.is_some() { all.to_owned() } else { it };
        let skip = blind.as_ref().map_or(String::new(), |it| {
            format!("            if ({}) continue;\n", it.skips("first_other", &begin, &end))
        });
        let (begin, end) = (whole(begin, "0"), whole(end, "other_count"));
        let [rows, score_if_blind] = blind.map_or_else(Default::default, |it| [it.rows, it.score]);
        let columns = e.div_ceil(TILE);
        let only = |text: String| if is_keys { text } else { String::new() };
        let second_type = second.map_or("", |it| self.results[it].type_.dtype.name());
        let mut texts = shape.texts();
        texts.extend([
            ("DOC", if is_keys { "keys and values" } else { "queries" }.to_owned()),
            ("PARAMETERS", arguments.text()),
            ("PLACES", self.places(towards, TILE)),
            ("MADE", only(format!(", made_two[4][{columns}]"))),
            ("CLEAR", only(format!("        for (int c = 0; c < {columns}; c++) made_two[r][c] = 0;\n"))),
            ("BLINDROWS", rows),
            ("BLIND", score_if_blind),
            ("SKIP", skip),
            ("HEADS", self.heads(towards)),
            ("HEADSEND", only("    }\n".to_owned())),
            ("BEGIN", begin),
            ("END", end),
            ("OWN", if is_keys { "key" } else { "query" }.to_owned()),
            ("OTHER", if is_keys { "query" } else { "key" }.to_owned()),
            ("SCORE", score),
            ("P", self.operands[4].type_.dtype.name().to_owned()),
            (
                "SECOND",
                only(format!(
                    "                T_UNROLL\n                for (int c = 0; c < {columns}; c++) {{\n                    \
                     const int column = lane + 32 * c;\n                    \
                     if (column < {e}) T_UNROLL_FEW for (int t = 0; t < 32; t++) made_two[r][c] += weights[32 + t] * two_rows[t * {} + column];\n                }}\n",
                    e | 1
                )),
            ),
            ("SCALE", literal(shape.dtype, self.attention.scale.0)),
            ("F", self.results[first].type_.dtype.name().to_owned()),
            (
                "STORESECOND",
                only(format!(
                    "        T_UNROLL\n        for (int c = 0; c < {columns}; c++) {{\n            \
                     const int column = lane + 32 * c;\n            const {t} value = made_two[r][c];\n            \
                     if (column < {e}) t_store_{second_type}_1(out_e + place * out_e_r + column, &value);\n        }}\n"
                )),
            ),
        ]);
        let source = fill(GRADIENT, &texts);
        let (rows, outer) = match towards {
            Towards::Queries => (shape.queries, shape.batches * shape.heads),
            Towards::Keys => (shape.keys, shape.batches * shape.groups),
        };
        let shared = 2 * TILE * ((shape.size | 1) + (e | 1) + WARPS) * wide(shape.dtype);
        launch("attention_gradient", &source, arguments, outer * rows.div_ceil(TILE), shared)
    }

    /// How queries that see no key and have the mean of all values are known, if there are such.
    fn blind(&self, towards: Towards, tile: u64, twice: &str) -> Option<BlindRows> {
        if self.attention.blind == Blind::Zero {
            return None;
        }
        let statistics = self.operands[4].type_.dtype;
        let (t, low) = (computed(self.shape.dtype), blind_score(self.shape.dtype));
        let rows = format!(
            "/* Whether some of {tile} queries sees no key. */
FN int $NAME_blind(const {} *stats, t_i64 first, t_i64 queries) {{
    for (t_i64 query = first; query < first + {tile} && query < queries; query++) {{
        {t} pair[2];
        t_load_{}_2(stats + 2 * query, pair);
        if (pair[0] == {low}) return 1;
    }}
    return 0;
}}
",
            stored(statistics),
            statistics.name(),
        );
        let most = match (tile == TILE, towards) {
            (true, _) => "pair[0]",
            (_, Towards::Queries) => "numbers[own_at]",
            (_, Towards::Keys) => "numbers[stage * 192 + other_at]",
        };
        let score = blind_scores(self.shape.dtype, most, twice);
        Some(BlindRows { rows, score, towards, tile })
    }

    fn mask(&self, mask: &Piece) -> Result<Launch, Uncovered> {
        let shape = &self.shape;
        let mut arguments = self.reads();
        arguments.writes("dmask", mask.type_.dtype, Argument::Result(3));
        shape.extents(&mut arguments);
        arguments.integer("count", signed(mask.type_.elements()));
        let rank = mask.type_.shape.len();
        for (place, name) in
            ["mask_batches", "mask_heads", "mask_queries", "mask_keys"].into_iter().enumerate()
        {
            let dim = (rank + place).checked_sub(4);
            arguments.integer(name, signed(dim.map_or(1, |dim| mask.type_.shape[dim])));
        }
        let scores = scores(self.attention, shape, self.masks(), TILE, &mut arguments)?;
        let blind = match self.attention.blind {
            Blind::Zero => String::new(),
            _ => blind_scores(shape.dtype, "pair[0]", &scores.twice),
        };
        let mut texts = shape.texts();
        texts.extend([
            ("PARAMETERS", arguments.text()),
            ("SCORE", scores.text.replace("SLOPE", "slope = 1 - bent * bent;")),
            ("BLIND", blind),
            ("P", self.operands[4].type_.dtype.name().to_owned()),
            ("F", mask.type_.dtype.name().to_owned()),
        ]);
        let source = fill(MASK, &texts);
        launch("attention_mask", &source, arguments, mask.type_.elements().div_ceil(32 * WARPS), 0)
    }
}

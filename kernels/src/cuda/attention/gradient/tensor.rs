//! The gradients of attention on tensor cores, of numbers of 16 bits.

use super::super::super::launch::{Kernel, Launch, Uncovered};
use super::super::super::number::{literal, stored};
use super::super::{fill, scores};
use super::{Gradient, Towards};

const TEMPLATE: &str = include_str!("../../templates/attention_gradient_tensor.cu");

/// The rows that a block computes, and those of a tile of the other side.
const TILE: u64 = 64;

/// The threads of a block: four warps, of 16 rows each.
const THREADS: u32 = 128;

/// What a row in shared memory is longer than it has to be, so that rows begin in different banks
/// (elements).
const MARGIN: u64 = 8;

/// From which sum of the extents of keys and values on, sums take so many registers that fewer rows go
/// through tensor cores at a time.
const LONG: u64 = 192;

impl Gradient<'_> {
    /// Whether tensor cores compute it: where they compute attention, and results are as narrow.
    pub(super) fn is_for_tensor_cores(&self) -> bool {
        let narrow = |it: &super::Piece| it.type_.dtype == self.shape.dtype;
        self.shape.is_for_tensor_cores() && self.results[..3].iter().all(narrow)
    }

    /// The kernel towards one side.
    pub(super) fn on_tensor_cores(&self, towards: Towards) -> Result<Launch, Uncovered> {
        let shape = &self.shape;
        let (size, e) = (shape.size, shape.value_size);
        let mut arguments = self.arguments(towards);
        let scores = scores(self.attention, shape, self.masks(), TILE, &mut arguments)?;
        let statistics = self.operands[4].type_.dtype;
        let is_keys = towards == Towards::Keys;
        let only = |text: String| if is_keys { text } else { String::new() };
        let (own, other) = if is_keys { ("key", "query") } else { ("query", "key") };
        let [begin, end] = if is_keys { scores.queries } else { scores.keys };
        let blind = self.blind(towards, TILE, &scores.twice);
        let (range, next) = match &blind {
            None => (
                format!("        const t_i64 begin = {begin}, end = {end};\n"),
                "            next = first_other + 64;\n".to_owned(),
            ),
            Some(blind) => {
                let skips = |first: &str| blind.skips(first, "first_seen", "last_seen");
                let range = format!(
                    "        const t_i64 first_seen = {begin}, last_seen = {end}, end = other_count;
        t_i64 begin = 0;
        while (begin < end && {}) begin += 64;\n",
                    skips("begin")
                );
                let next = format!(
                    "            next = first_other + 64;
            while (next < end && {}) next += 64;\n",
                    skips("next")
                );
                (range, next)
            }
        };
        let [blind_rows, blind_score] = blind.map_or_else(Default::default, |it| [it.rows, it.score]);
        let rows = "const t_i64 rows = (batch * heads + head) * queries;\n";
        let read = |to: &str, first: &str| {
            format!("$NAME_rows({to}, stats + 2 * rows, own + rows, {first}, queries);\n")
        };
        // Where the numbers of a query are: own ones are read once.
        let at = if is_keys { "stage * 192 + other_at" } else { "own_at" };
        let queries =
            if is_keys { String::new() } else { format!("    {rows}    {}", read("numbers", "first_own")) };
        let step = if is_keys && size + e > LONG { 16 } else { 32 };
        let mut texts = shape.texts();
        texts.extend([
            ("DOC", if is_keys { "keys and values" } else { "queries" }.to_owned()),
            ("PARAMETERS", arguments.text()),
            ("P", statistics.name().to_owned()),
            ("PC", stored(statistics).to_owned()),
            ("PLACES", self.places(towards, TILE)),
            ("MADE", only(format!(", made_two[{}][4]", e / 8))),
            (
                "CLEAR",
                only(format!(
                    "    T_UNROLL\n    for (int c = 0; c < {}; c++) made_two[c][0] = made_two[c][1] = made_two[c][2] = made_two[c][3] = 0;\n",
                    e / 8
                )),
            ),
            ("ROWS", queries),
            ("HEADS", format!("{}{}", self.heads(towards), only(format!("        {rows}")))),
            ("HEADSEND", only("    }\n".to_owned())),
            ("ROWSFIRST", only(format!("            {}", read("numbers", "begin")))),
            (
                "ROWSNEXT",
                only(format!("                {}", read("numbers + (stage ^ 1) * 192", "next"))),
            ),
            ("RANGE", range),
            ("NEXT", next),
            ("BLINDROWS", blind_rows),
            ("BLIND", blind_score),
            ("WHOLE", scores.whole),
            ("OWN", own.to_owned()),
            ("OTHER", other.to_owned()),
            ("AT", at.to_owned()),
            ("STEP", step.to_string()),
            ("SCALE", literal(shape.dtype, self.attention.scale.0)),
            ("SCORE", scores.text.replace("SLOPE", "slope = 1 - bent * bent;")),
            ("SECOND", only(second(shape.dtype.name(), e))),
            ("STORESECOND", only(stored_second(shape.dtype.name(), e))),
        ]);
        let source = fill(TEMPLATE, &texts);
        let (rows, outer) = match towards {
            Towards::Queries => (shape.queries, shape.batches * shape.heads),
            Towards::Keys => (shape.keys, shape.batches * shape.groups),
        };
        // A tile of its own and two of the others, of two bytes an element; three numbers for each query.
        let shared = 3 * 2 * TILE * (size + e + 2 * MARGIN) + 2 * 3 * TILE * 4;
        Ok(Launch {
            kernel: Kernel::new("attention_gradient_tensor", &source, arguments.parameters),
            blocks: outer * rows.div_ceil(TILE),
            threads: THREADS,
            shared: u32::try_from(shared).unwrap_or(u32::MAX),
            arguments: arguments.given,
        })
    }
}

/// What some rows of a tile add to the gradients of values.
fn second(dtype: &str, columns: u64) -> String {
    format!(
        "                    T_UNROLL
                    for (int i = 0; i < 4; i++) {{
                        a[i] = t_pack_{dtype}(scores[2 * t + i / 2][i % 2 * 2], scores[2 * t + i / 2][i % 2 * 2 + 1]);
                    }}
                    T_UNROLL
                    for (int c = 0; c < {blocks}; c += 2) {{
                        t_load_matrices_turned(b, two + (part + t * 16 + down) * {pitch} + c * 8 + across);
                        t_mma_{dtype}(made_two[c], a, b);
                        t_mma_{dtype}(made_two[c + 1], a, b + 2);
                    }}
",
        blocks = columns / 8,
        pitch = columns + MARGIN,
    )
}

/// How they are stored.
fn stored_second(dtype: &str, columns: u64) -> String {
    format!(
        "        T_UNROLL
        for (int c = 0; c < {}; c++) {{
            *(t_u32 *)(out_e + place * out_e_r + c * 8 + pair) =
                t_pack_{dtype}(made_two[c][2 * r], made_two[c][2 * r + 1]);
        }}
",
        columns / 8,
    )
}

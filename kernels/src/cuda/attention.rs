//! Attention, its gradients, and the merging of its parts.
//!
//! Scores are never in memory: they are made tile by tile from keys in shared memory, and weighed as
//! they come, by what is the largest so far. Gradients make them again from the statistics.
//!
//! Source: Dao, "FlashAttention-2", 2023, algorithms 1 and 2.

use std::fmt::Write as _;

use planner_ir::{Attention, Blind, DType};

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::{computed, literal, stored, suffix};
use super::strides::{Arguments, repeated_strides, signed};
use super::text::filled;
use crate::array::Span;

mod gradient; // the gradients
mod merge; // parts made one
mod tensor; // on tensor cores

pub(super) use gradient::attention_gradient;
pub(super) use merge::attention_merge;

const TEMPLATE: &str = include_str!("templates/attention.cu");

/// The queries or keys of a tile.
const TILE: u64 = 32;

/// The warps of a block.
const WARPS: u64 = 8;

/// The shared memory that a block can have on every device that is compiled for (bytes).
const SHARED: u64 = 163_840;

/// Queries, keys and values, and where they lie.
struct Shape {
    dtype: DType,
    batches: u64,
    heads: u64,
    groups: u64,
    queries: u64,
    keys: u64,
    /// The extents of a query and of a value.
    size: u64,
    value_size: u64,
    query_span: Span,
    key_span: Span,
}

impl Shape {
    fn new([q, k, v]: [&Piece; 3]) -> Result<Self, Uncovered> {
        let missing = || Uncovered::Missing(format!("attention of {}", q.type_));
        let (&[batches, heads, queries, size], &[_, groups, keys, _], &[.., value_size]) =
            (&q.type_.shape[..], &k.type_.shape[..], &v.type_.shape[..])
        else {
            return Err(missing());
        };
        let dtype = q.type_.dtype;
        let same = k.type_.dtype == dtype && v.type_.dtype == dtype && dtype.is_float();
        if !same || groups == 0 || heads % groups != 0 {
            return Err(missing());
        }
        let (query_span, key_span) = (q.span(2), k.span(2));
        Ok(Self { dtype, batches, heads, groups, queries, keys, size, value_size, query_span, key_span })
    }

    fn extents(&self, arguments: &mut Arguments) {
        let named = [
            ("batches", self.batches),
            ("heads", self.heads),
            ("groups", self.groups),
            ("queries", self.queries),
            ("keys", self.keys),
        ];
        for (name, extent) in named {
            arguments.integer(name, signed(extent));
        }
    }

    /// Whether tensor cores compute it: narrow numbers, in rows that they take.
    fn is_for_tensor_cores(&self) -> bool {
        /// The longest rows whose sums stay in registers.
        const LONGEST: u64 = 128;
        let fits = |size: u64| size.is_multiple_of(16) && size > 0 && size <= LONGEST;
        matches!(self.dtype, DType::BF16 | DType::F16) && fits(self.size) && fits(self.value_size)
    }

    /// The texts that every template has.
    fn texts(&self) -> Vec<(&'static str, String)> {
        let s = suffix(self.dtype);
        vec![
            ("C", stored(self.dtype).to_owned()),
            ("T", computed(self.dtype).to_owned()),
            ("S", s.to_owned()),
            ("U", s.to_uppercase()),
            ("D", self.dtype.name().to_owned()),
            ("DE", self.size.to_string()),
            ("EE", self.value_size.to_string()),
            // Rows lie so that threads that read different ones read different banks.
            ("DP", (self.size | 1).to_string()),
            ("EP", (self.value_size | 1).to_string()),
            ("DC", self.size.div_ceil(TILE).to_string()),
            ("EC", self.value_size.div_ceil(TILE).to_string()),
        ]
    }
}

/// Declares how far apart batches, heads and rows of a value of that name are.
fn strides(name: &str, piece: &Piece, arguments: &mut Arguments) {
    for (stride, of) in piece.strides().into_iter().zip(["b", "h", "r"]) {
        arguments.integer(&format!("{name}_{of}"), stride);
    }
}

/// Refuses rows whose elements do not lie together, and any order of what is addressed without strides.
fn expect_rows<'a>(
    strided: impl IntoIterator<Item = &'a Piece>,
    operands: &[Piece],
    results: &[Piece],
) -> Result<(), Uncovered> {
    let apart = |it: &&Piece| it.strides().last() != Some(&1);
    let ordered = |it: &&Piece| !it.is_row_major();
    match strided.into_iter().find(apart).or_else(|| operands.iter().chain(results).find(ordered)) {
        None => Ok(()),
        Some(it) => Err(Uncovered::Missing(format!("attention of {} in the order {:?}", it.type_, it.order))),
    }
}

/// Which keys queries see, by their numbers in the blocks: `key <= step * query + shift`, and of a
/// window `key > step * query + shift - window`.
struct Sight {
    step: u64,
    shift: i64,
    window: Option<i64>,
}

impl Sight {
    fn new(attention: &Attention, shape: &Shape) -> Result<Self, Uncovered> {
        let (q, k) = (shape.query_span, shape.key_span);
        // Positions are aligned at the ends of both sequences.
        let distance = signed(q.start) + signed(k.extent) - signed(q.extent) - signed(k.start);
        let window = attention.window.map(signed);
        match (q, k) {
            // Of keys that lie k.stride apart, a query sees as many fewer.
            _ if q.run == 1 && k.run == 1 && q.stride.is_multiple_of(k.stride) => {
                let numbers = |positions: i64| positions.div_euclid(signed(k.stride));
                let shift = numbers(distance);
                let window = window.map(|window| shift - numbers(distance - window));
                Ok(Self { step: q.stride / k.stride, shift, window })
            }
            _ if !attention.causal && window.is_none() => Ok(Self { step: 1, shift: 0, window }),
            _ => Err(Uncovered::Missing("attention of queries and keys in other stripes".to_owned())),
        }
    }
}

/// What becomes of products before they are weighed.
struct Scores {
    /// Statements that make `s` of the product of `query` and `key`, at `batch` and `head`.
    text: String,
    /// The keys that some query of a tile sees: the first tile, and one past the last.
    keys: [String; 2],
    /// The queries that see some key of a tile, likewise.
    queries: [String; 2],
    /// Whether every query of a tile sees every key of another, and scores are only scaled.
    whole: String,
    /// Declares whether the mask hides `key` and where it is does too, of a `query` that gets the mean of
    /// what is hidden once; nothing where that does not matter.
    twice: String,
}

/// The score of keys that a query has the mean of.
fn blind_score(dtype: DType) -> String {
    literal(dtype, f64::from(Attention::BLIND))
}

/// The operands after those that every attention has, and the number of the first.
#[derive(Clone, Copy)]
struct Masks<'a> {
    given: &'a [Piece],
    first: usize,
}

/// What masks do to a score.
#[derive(Default)]
struct Hiding {
    /// Statements that read what they say of `query` and `key`, at `batch` and `head`; none without masks.
    read: Vec<String>,
    /// Under which conditions the key is hidden.
    conditions: Vec<&'static str>,
    /// A statement that applies the mask.
    applied: &'static str,
}

impl Masks<'_> {
    /// Declares them, and says what they do.
    fn declared(self, shape: &Shape, arguments: &mut Arguments) -> Result<Hiding, Uncovered> {
        let scores = [shape.batches, shape.heads, shape.queries, shape.keys];
        let mut read = |piece: &Piece, number: usize, [name, to, stride]: [&str; 3]| {
            let strides = repeated_strides(&piece.type_.shape, &scores)
                .ok_or_else(|| Uncovered::Missing(format!("a mask of {}", piece.type_)))?;
            arguments.reads(name, piece.type_.dtype, Argument::Operand(number));
            for (of, each) in ["b", "h", "q", "k"].into_iter().zip(strides) {
                arguments.integer(&format!("{stride}{of}"), each);
            }
            let (t, dtype) = (computed(piece.type_.dtype), piece.type_.dtype.name());
            let place = ["batch", "head", "query", "key"].map(|it| format!("{it} * {stride}{}", &it[..1]));
            Ok(format!("{t} {to}; t_load_{dtype}_1({name} + {}, &{to});", place.join(" + ")))
        };
        let (mask, documents) = Attention::masks_of(self.given);
        let mut hiding = Hiding::default();
        if let Some(mask) = mask {
            hiding.read.push(read(mask, self.first, ["mask", "adds", "m"])?);
            if mask.type_.dtype == DType::F16 {
                let [low, blind] = [Attention::LOW_F16, Attention::BLIND].map(f64::from);
                let [low, blind] = [low, blind].map(|it| literal(DType::F32, it));
                hiding.read.push(format!("if (adds <= {low} && adds > HIDDEN) adds = {blind};"));
            }
            let (condition, applied) = match mask.type_.dtype {
                DType::Bool => ("!adds", "if (!adds) s = HIDDEN;"),
                _ => ("adds == HIDDEN", "s += adds;"),
            };
            hiding.conditions.push(condition);
            hiding.applied = applied;
        }
        if let Some([queries, keys]) = documents {
            let first = self.first + self.given.len() - 2;
            hiding.read.push(read(queries, first, ["documents", "own_document", "document_"])?);
            hiding.read.push(read(keys, first + 1, ["key_documents", "document", "key_document_"])?);
            hiding.conditions.push("own_document != document");
        }
        Ok(hiding)
    }
}

/// Declares what scores need, and says how they are made.
fn scores(
    attention: &Attention,
    shape: &Shape,
    masks: Masks<'_>,
    tile: u64,
    arguments: &mut Arguments,
) -> Result<Scores, Uncovered> {
    let (dtype, s) = (shape.dtype, suffix(shape.dtype));
    let number = |value: f64| literal(dtype, value);
    let mut text = format!("                s *= {};\n", number(attention.scale.0));
    // Writing to a string does not fail.
    let softcap = attention.softcap.0;
    if softcap != 0.0 {
        let cap = number(softcap);
        let _ = writeln!(text, "                const {} bent = t_tanh_{s}(s / {cap});", computed(dtype));
        let _ = writeln!(text, "                s = {cap} * bent;\n                SLOPE");
    }
    let hiding = masks.declared(shape, arguments)?;
    let mut hides = None;
    if !hiding.read.is_empty() {
        let read = hiding.read.join(" ");
        let of_documents = hiding.conditions.last().filter(|it| it.contains("document"));
        let other = of_documents.map_or(String::new(), |it| format!(" if ({it}) s = HIDDEN;"));
        let applied = format!(" {}{other}", hiding.applied);
        let _ = writeln!(text, "                if (query < queries && key < keys) {{ {read}{applied} }}");
        hides = Some(format!("{read} twice = {};", hiding.conditions.join(" || ")));
    }
    let bounded = attention.causal || attention.window.is_some();
    let mut apart = String::new();
    let (mut keys, mut queries) =
        (["0".to_owned(), "keys".to_owned()], ["0".to_owned(), "queries".to_owned()]);
    let Sight { step, shift, window } = Sight::new(attention, shape)?;
    // What a query's number is worth in keys.
    let worth = if step == 1 { String::new() } else { format!(" * {step}") };
    if bounded {
        arguments.integer("shift", shift);
        apart.push_str(&format!(" || key > query{worth} + shift"));
        keys[1] = match step {
            1 => format!("t_min_i(keys, t_max_i(0, t_min_i(first_query + {tile}, queries) + shift))"),
            _ => format!(
                "t_min_i(keys, t_max_i(0, (t_min_i(first_query + {tile}, queries) - 1){worth} + shift + 1))"
            ),
        };
        queries[0] = format!("t_max_i(0, first_key - shift) / {} * {tile}", tile * step);
    }
    if let Some(window) = window {
        arguments.integer("window", window);
        apart.push_str(&format!(" || key <= query{worth} + shift - window"));
        keys[0] = format!("t_max_i(0, first_query{worth} + shift + 1 - window) / {tile} * {tile}");
        let last = format!("t_max_i(0, t_min_i(first_key + {tile}, keys) - 1 - shift + window)");
        queries[1] = match step {
            1 => format!("t_min_i(queries, {last})"),
            _ => format!("t_min_i(queries, ({last} + {}) / {step})", step - 1),
        };
    }
    let _ = writeln!(text, "                if (key >= keys{apart}) s = HIDDEN;");
    let twice = match hides.filter(|_| bounded && attention.blind == Blind::Once) {
        None => String::new(),
        Some(hides) => {
            format!("int twice = 0; if (query < queries && key < keys && (0{apart})) {{ {hides} }}")
        }
    };
    let mut whole = format!("first_key + {tile} <= keys");
    if bounded {
        let _ = write!(whole, " && first_key + {tile} - 1 <= first_query{worth} + shift");
    }
    if attention.window.is_some() {
        let _ = write!(whole, " && first_key > first_query{worth} + {} + shift - window", (tile - 1) * step);
    }
    if !masks.given.is_empty() || softcap != 0.0 {
        whole = "0".to_owned();
    }
    let [text, twice] =
        [text, twice].map(|it| it.replace("HIDDEN", &format!("-T_INFINITY_{}", s.to_uppercase())));
    Ok(Scores { text, keys, queries, whole, twice })
}

/// Declares the sinks, if there are some, and says how `most` and `sum` of row `r`, of `query`, begin with one; `own`
/// says which lane counts it.
fn begun(
    attention: &Attention,
    shape: &Shape,
    operands: &[Piece],
    own: &str,
    arguments: &mut Arguments,
) -> Result<String, Uncovered> {
    let Some((last, sinks)) = (0..).zip(operands).last().filter(|_| attention.sinks) else {
        return Ok(String::new());
    };
    let scores = [shape.batches, shape.heads, shape.queries, shape.keys];
    let strides = repeated_strides(&sinks.type_.shape, &scores)
        .ok_or_else(|| Uncovered::Missing(format!("sinks of {}", sinks.type_)))?;
    arguments.reads("sinks", sinks.type_.dtype, Argument::Operand(last));
    for (of, stride) in ["b", "h", "q"].into_iter().zip(strides) {
        arguments.integer(&format!("sink_{of}"), stride);
    }
    // Blocks of keys have the sink once, together.
    let share = shape.key_span.share(shape.keys);
    if share <= 0.0 {
        return Ok(String::new());
    }
    let (t, dtype, share) = (computed(shape.dtype), shape.dtype.name(), literal(shape.dtype, share.ln()));
    Ok(format!(
        "        if (query < queries) {{
            {t} sink;
            t_load_{dtype}_1(sinks + batch * sink_b + head * sink_h + query * sink_q, &sink);
            most[r] = sink + {share};
            sum[r] = {own};
        }}
"
    ))
}

/// Attention, and the statistics of its rows if there is a second result.
pub(super) fn attention(
    attention: &Attention,
    operands: &[Piece],
    results: &[Piece],
) -> Result<Work, Uncovered> {
    let (Some([q, k, v]), Some(y)) = (operands.first_chunk(), results.first()) else {
        return Err(Uncovered::Missing(format!("attention of {} operands", operands.len())));
    };
    let shape = Shape::new([q, k, v])?;
    if y.type_.elements() == 0 {
        return Ok(Work::default());
    }
    let mut arguments = Arguments::default();
    for (number, name) in ["q", "k", "v"].into_iter().enumerate() {
        arguments.reads(name, shape.dtype, Argument::Operand(number));
    }
    arguments.writes("y", y.type_.dtype, Argument::Result(0));
    if let Some(statistics) = results.get(1) {
        arguments.writes("stats", statistics.type_.dtype, Argument::Result(1));
    }
    shape.extents(&mut arguments);
    expect_rows(operands.iter().take(3).chain([y]), &operands[3..], &results[1..])?;
    for (name, piece) in [("q", q), ("k", k), ("v", v), ("y", y)] {
        strides(name, piece, &mut arguments);
    }
    let masks = Masks { given: attention.masking(&operands[3..]), first: 3 };
    if shape.is_for_tensor_cores() && y.type_.dtype == shape.dtype {
        let begun = begun(attention, &shape, operands, "pair == 0", &mut arguments)?;
        return tensor::attention(attention, &shape, masks, begun, arguments, results);
    }
    let begun = begun(attention, &shape, operands, "1", &mut arguments)?;
    let scores = scores(attention, &shape, masks, TILE, &mut arguments)?;
    let statistics = results.get(1).map_or(String::new(), |it| {
        format!(
            "        const {} pair[2] = {{most[r], sum[r]}};\n        \
             if (lane == 0) t_store_{}_2(stats + 2 * row, pair);\n",
            computed(shape.dtype),
            it.type_.dtype.name()
        )
    });
    let mut texts = shape.texts();
    texts.extend([
        ("PARAMETERS", arguments.text()),
        (
            "BEGUN",
            for_rows(
                &begun,
                "for (int r = 0; r < 4; r++) {\n        const t_i64 query = first_query + warp * 4 + r;",
            ),
        ),
        ("F", y.type_.dtype.name().to_owned()),
        ("BEGIN", scores.keys[0].clone()),
        ("END", scores.keys[1].clone()),
        ("SCORE", scores.text.replace("                SLOPE\n", "")),
        (
            "BLIND",
            if attention.blind == Blind::Zero { String::new() } else { sees_all(&shape, &scores.twice) },
        ),
        ("STATISTICS", statistics),
    ]);
    let source = fill(TEMPLATE, &texts);
    let shared = TILE * (2 * (shape.size | 1) + (shape.value_size | 1) + WARPS);
    let blocks = shape.batches * shape.heads * shape.queries.div_ceil(TILE);
    let launch = launch("attention", &source, arguments, blocks, shared * wide(shape.dtype))?;
    Ok(Work { launches: vec![launch], room: 0 })
}

/// Sums the values that a row gets which sees no key: a warp to a row.
fn sees_all(shape: &Shape, twice: &str) -> String {
    let (t, dtype, e) = (computed(shape.dtype), shape.dtype.name(), shape.value_size);
    format!(
        "        if (most[r] == -T_INFINITY_{}) {{
            for (t_i64 key = 0; key < keys; key++) {{
                {twice}
{}                sum[r] += 1;
                T_UNROLL
                for (int c = 0; c < {}; c++) {{
                    {t} x = 0;
                    if (lane + 32 * c < {e}) t_load_{dtype}_1(v + key * v_r + lane + 32 * c, &x);
                    made[r][c] += x;
                }}
            }}
            if (sum[r] > 0) most[r] = {};
        }}
",
        suffix(shape.dtype).to_uppercase(),
        unless(twice),
        e.div_ceil(TILE),
        blind_score(shape.dtype),
    )
}

/// Goes on with the next key, if one is hidden twice.
fn unless(twice: &str) -> &'static str {
    if twice.is_empty() { "" } else { "                if (twice) continue;\n" }
}

/// Statements for every row, if there are some.
fn for_rows(begun: &str, first: &str) -> String {
    if begun.is_empty() { String::new() } else { format!("    T_UNROLL\n    {first}\n{begun}    }}\n") }
}

/// The size of what is computed with (bytes).
fn wide(dtype: DType) -> u64 {
    if dtype == DType::F64 { 8 } else { 4 }
}

fn fill(template: &str, texts: &[(&str, String)]) -> String {
    let texts: Vec<(&str, &str)> = texts.iter().map(|(place, text)| (*place, text.as_str())).collect();
    filled(template, &texts)
}

fn launch(
    family: &str,
    source: &str,
    arguments: Arguments,
    blocks: u64,
    shared: u64,
) -> Result<Launch, Uncovered> {
    if shared > SHARED {
        return Err(Uncovered::Missing(format!("attention with {shared} bytes of shared memory")));
    }
    Ok(Launch {
        kernel: Kernel::new(family, source, arguments.parameters),
        blocks,
        threads: 256,
        shared: u32::try_from(shared).unwrap_or(u32::MAX),
        arguments: arguments.given,
    })
}

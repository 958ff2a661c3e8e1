//! Softmax, normalisations, cross entropy, and their gradients.
//!
//! A row is computed by a warp, or by a block if it is long. It is read again for each pass over it:
//! after the first it is in the cache.

use planner_ir::{DType, Real};

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::{WIDTHS, computed, literal, stored, suffix};
use super::strides::{Arguments, index_type, own_strides, repeated_strides, signed};
use super::text::filled;
use crate::array::Span;

const SOFTMAX: &str = include_str!("templates/softmax.cu");
const SOFTMAX_GRADIENT: &str = include_str!("templates/softmax_gradient.cu");
const NORM: &str = include_str!("templates/norm.cu");
const NORM_GRADIENT: &str = include_str!("templates/norm_gradient.cu");
const CROSS_ENTROPY: &str = include_str!("templates/cross_entropy.cu");
const CROSS_ENTROPY_GRADIENT: &str = include_str!("templates/cross_entropy_gradient.cu");

/// The threads of a warp.
const WARP: u64 = 32;

/// The shared memory in which a block's warps show each other a number each (bytes).
const SHARED: u32 = 256;

/// Rows of values, and by how many threads they are computed.
struct Rows {
    dtype: DType,
    /// The elements of the result.
    made: DType,
    rows: u64,
    /// The elements of a row, and how far apart they are.
    length: u64,
    inner: u64,
    /// How many elements a thread reads at once.
    width: u64,
    /// How many threads compute a row, and how many rows a block.
    group: u64,
    each: u64,
}

impl Rows {
    fn new(x: &Piece, made: DType, [rows, length, inner]: [u64; 3]) -> Result<Self, Uncovered> {
        let dtype = x.type_.dtype;
        if !dtype.is_float() {
            return Err(Uncovered::Missing(format!("rows of {dtype}")));
        }
        /// What a thread reads at once at most (bytes).
        const LOAD: u64 = 16;
        let fits = |width: u64| {
            width == 1 || inner == 1 && length.is_multiple_of(width) && width * dtype.bytes() <= LOAD
        };
        let width = WIDTHS.into_iter().filter(|&it| fits(it)).max().unwrap_or(1);
        let (group, each) = match length.div_ceil(width) {
            0..=512 => (WARP, 8),
            513..=4096 => (256, 1),
            _ => (1024, 1),
        };
        Ok(Self { dtype, made, rows, length, inner, width, group, each })
    }

    fn sum(&self, of: &str) -> String {
        let s = suffix(self.dtype);
        if self.group == WARP {
            format!("t_warp_sum_{s}({of})")
        } else {
            format!("t_block_sum_{s}({of}, {})", self.group)
        }
    }

    /// A template's text for these rows, with more texts.
    fn source(&self, template: &str, more: &[(&str, &str)]) -> String {
        let s = suffix(self.dtype);
        let most = self.sum("most").replace("_sum_", "_max_");
        let texts = [
            ("C", stored(self.dtype).to_owned()),
            ("I", index_type(self.rows * self.length).to_owned()),
            ("E", stored(self.made).to_owned()),
            ("T", computed(self.dtype).to_owned()),
            ("S", s.to_owned()),
            ("U", s.to_uppercase()),
            ("D", self.dtype.name().to_owned()),
            ("F", self.made.name().to_owned()),
            ("V", self.width.to_string()),
            ("G", self.group.to_string()),
            ("R", self.each.to_string()),
            ("THREADS", (self.group * self.each).to_string()),
            ("STEP", if self.inner == 1 { "1" } else { "inner" }.to_owned()),
            ("MAX", most),
            ("SUM", self.sum("sum")),
        ];
        let mut all: Vec<(&str, &str)> = texts.iter().map(|(place, text)| (*place, text.as_str())).collect();
        all.extend(more);
        filled(template, &all)
    }

    fn work(&self, family: &str, source: &str, arguments: Arguments) -> Work {
        if self.rows * self.length == 0 {
            return Work::default();
        }
        let launch = Launch {
            kernel: Kernel::new(family, source, arguments.parameters),
            blocks: self.rows.div_ceil(self.each),
            threads: u32::try_from(self.group * self.each).unwrap_or(u32::MAX),
            shared: if self.group == WARP { 0 } else { SHARED },
            arguments: arguments.given,
        };
        Work { launches: vec![launch], room: 0 }
    }

    fn extents(&self, arguments: &mut Arguments) {
        arguments.integer("rows", signed(self.rows));
        arguments.integer("length", signed(self.length));
    }
}

/// What softmax gives of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

fn along(shape: &[u64], dim: usize) -> [u64; 3] {
    let inner = shape[dim + 1..].iter().product();
    [shape[..dim].iter().product::<u64>() * inner, shape[dim], inner]
}

/// Softmax along a dimension, or its logarithm.
pub(super) fn softmax(scale: Scale, dim: usize, x: &Piece, y: &Piece) -> Result<Work, Uncovered> {
    let rows = Rows::new(x, y.type_.dtype, along(&x.type_.shape, dim))?;
    let s = suffix(rows.dtype);
    let (doc, last, written) = match scale {
        Scale::Linear => ("", "1 / sum".to_owned(), format!("t_exp_{s}(a[k] - most) * last")),
        Scale::Logarithmic => (", its logarithm", format!("t_log_{s}(sum)"), "a[k] - most - last".to_owned()),
    };
    let source = rows.source(SOFTMAX, &[("DOC", doc), ("LAST", &last), ("WRITTEN", &written)]);
    let mut arguments = Arguments::default();
    arguments.reads("x", rows.dtype, Argument::Operand(0));
    arguments.writes("y", rows.made, Argument::Result(0));
    rows.extents(&mut arguments);
    arguments.integer("inner", signed(rows.inner));
    Ok(rows.work("softmax", &source, arguments))
}

/// The gradient of softmax along a dimension, by its result.
pub(super) fn softmax_gradient(dim: usize, y: &Piece, dx: &Piece) -> Result<Work, Uncovered> {
    let rows = Rows::new(y, dx.type_.dtype, along(&y.type_.shape, dim))?;
    let source = rows.source(SOFTMAX_GRADIENT, &[]);
    let mut arguments = Arguments::default();
    arguments.reads("y", rows.dtype, Argument::Operand(0));
    arguments.reads("dy", rows.dtype, Argument::Operand(1));
    arguments.writes("dx", rows.made, Argument::Result(0));
    rows.extents(&mut arguments);
    arguments.integer("inner", signed(rows.inner));
    Ok(rows.work("softmax_gradient", &source, arguments))
}

/// A normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Norm {
    /// The first dimension of a sample.
    pub(super) first: usize,
    pub(super) epsilon: Real,
    /// Whether the mean is subtracted first.
    pub(super) centred: Centred,
    /// What scale and bias are numbers for.
    pub(super) factors: Factors,
}

/// What is subtracted from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Centred {
    Mean,
    Nothing,
}

/// What scale and bias have numbers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factors {
    /// Each element of a sample, or all.
    Elements,
    /// Each channel, of which there are so many.
    Channels(u64),
}

impl Norm {
    fn rows(&self, x: &Piece, y: &Piece) -> Result<Rows, Uncovered> {
        let shape = &x.type_.shape;
        let rows = shape[..self.first].iter().product();
        Rows::new(x, y.type_.dtype, [rows, shape[self.first..].iter().product(), 1])
    }

    /// How the number of a factor that belongs to an element is read: statements, and the number.
    fn factor(&self, rows: &Rows, x: &Piece, factor: &Piece, name: &str) -> Result<[String; 2], Uncovered> {
        let (t, d, v) = (computed(factor.type_.dtype), factor.type_.dtype.name(), rows.width);
        let one = |place: &str| {
            [format!("        {t} {name}s; t_load_{d}_1({name} + {place}, &{name}s);\n"), format!("{name}s")]
        };
        if let Factors::Channels(channels) = self.factors {
            return Ok(one(&format!("row % {channels}")));
        }
        if factor.type_.elements() == 1 {
            return Ok(one("0"));
        }
        let shape = &x.type_.shape;
        let strides = repeated_strides(&factor.type_.shape, shape);
        let sample = own_strides(&shape[self.first..]);
        let is_sample = strides.is_some_and(|strides| {
            let extents = shape[self.first..].iter();
            let own = strides[self.first..].iter().zip(&sample).zip(extents);
            own.into_iter().all(|((it, own), &extent)| extent == 1 || it == own)
                && strides[..self.first].iter().zip(shape).all(|(&it, &extent)| it == 0 || extent == 1)
        });
        if !is_sample {
            return Err(Uncovered::Missing(format!(
                "a normalisation of {} scaled by {}",
                x.type_, factor.type_
            )));
        }
        Ok([
            format!("        {t} {name}s[{v}]; t_load_{d}_{v}({name} + j, {name}s);\n"),
            format!("{name}s[k]"),
        ])
    }
}

/// The pass that finds the mean of a row, if it is subtracted.
fn middle(rows: &Rows, centred: Centred, more: &str, after: &str) -> String {
    if centred == Centred::Nothing {
        return String::new();
    }
    let (v, d) = (rows.width, rows.dtype.name());
    format!(
        "    for (t_i64 j = start; j < length; j += {group} * {v}) {{\n        \
         t_load_{d}_{v}(x + j, a);\n{more}        T_UNROLL\n        \
         for (int k = 0; k < {v}; k++) sum += a[k];\n    }}\n    \
         middle = {sum} / ({t})length;\n{after}    sum = 0;\n",
        group = rows.group,
        sum = rows.sum("sum"),
        t = computed(rows.dtype),
    )
}

/// A normalisation of the last dimensions; operands x, scale and perhaps bias.
pub(super) fn normalise(norm: &Norm, operands: &[Piece], y: &Piece, doc: &str) -> Result<Work, Uncovered> {
    let x = &operands[0];
    let rows = norm.rows(x, y)?;
    let (mut factors, mut scaled) = (String::new(), String::new());
    let mut arguments = Arguments::default();
    arguments.reads("x", rows.dtype, Argument::Operand(0));
    for (number, (factor, (name, sign))) in
        operands[1..].iter().zip([("scale", " * "), ("bias", " + ")]).enumerate()
    {
        arguments.reads(name, factor.type_.dtype, Argument::Operand(number + 1));
        let [statement, number] = norm.factor(&rows, x, factor, name)?;
        factors.push_str(&statement);
        scaled.push_str(&format!("{sign}{number}"));
    }
    arguments.writes("y", rows.made, Argument::Result(0));
    rows.extents(&mut arguments);
    let source = rows.source(
        NORM,
        &[
            ("DOC", doc),
            ("PARAMETERS", &arguments.text()),
            ("MIDDLE", &middle(&rows, norm.centred, "", "")),
            ("EPSILON", &literal(rows.dtype, norm.epsilon.0)),
            ("FACTORS", &factors),
            ("SCALED", &scaled),
        ],
    );
    Ok(rows.work("norm", &source, arguments))
}

/// The gradient of a normalisation towards x; operands x, scale, dy.
pub(super) fn normalise_gradient(
    norm: &Norm,
    operands: &[Piece],
    dx: &Piece,
    doc: &str,
) -> Result<Work, Uncovered> {
    let (x, scale) = (&operands[0], &operands[1]);
    let rows = norm.rows(x, dx)?;
    let mut arguments = Arguments::default();
    arguments.reads("x", rows.dtype, Argument::Operand(0));
    arguments.reads("scale", scale.type_.dtype, Argument::Operand(1));
    arguments.reads("dy", rows.dtype, Argument::Operand(2));
    arguments.writes("dx", rows.made, Argument::Result(0));
    rows.extents(&mut arguments);
    let [factors, number] = norm.factor(&rows, x, scale, "scale")?;
    let scaled = format!(" * {number}");
    let (v, d) = (rows.width, rows.dtype.name());
    let more = format!(
        "        t_load_{d}_{v}(dy + j, g);\n{factors}        T_UNROLL\n        \
         for (int k = 0; k < {v}; k++) mean += g[k]{scaled};\n"
    );
    let after = format!("    mean = {} / ({})length;\n", rows.sum("mean"), computed(rows.dtype));
    let source = rows.source(
        NORM_GRADIENT,
        &[
            ("DOC", doc),
            ("PARAMETERS", &arguments.text()),
            ("MIDDLE", &middle(&rows, norm.centred, &more, &after)),
            ("EPSILON", &literal(rows.dtype, norm.epsilon.0)),
            ("FACTORS", &factors),
            ("SCALED", &scaled),
            ("PRODUCT", &rows.sum("product")),
        ],
    );
    Ok(rows.work("norm_gradient", &source, arguments))
}

/// Rows of scores, and the arguments that a kernel over them and their labels begins with.
fn scored(operands: &[Piece], y: &Piece) -> Result<(Rows, Arguments), Uncovered> {
    let (x, labels) = (&operands[0], &operands[1]);
    let dim = x.type_.shape.len().saturating_sub(1);
    let rows = Rows::new(x, y.type_.dtype, along(&x.type_.shape, dim))?;
    if labels.type_.dtype.is_float() {
        return Err(Uncovered::Missing(format!("labels of {}", labels.type_.dtype)));
    }
    let mut arguments = Arguments::default();
    arguments.reads("x", rows.dtype, Argument::Operand(0));
    arguments.reads("labels", labels.type_.dtype, Argument::Operand(1));
    Ok((rows, arguments))
}

/// What follows the result among the arguments of such a kernel.
fn finish(rows: &Rows, span: Span, ignored: i64, arguments: &mut Arguments) {
    rows.extents(arguments);
    arguments.integer("first", signed(span.start));
    arguments.integer("ignored", ignored);
}

/// Cross entropy of scores and labels.
pub(super) fn cross_entropy(ignored: i64, operands: &[Piece], y: &Piece) -> Result<Work, Uncovered> {
    let (rows, mut arguments) = scored(operands, y)?;
    arguments.writes("y", rows.made, Argument::Result(0));
    let span = operands[0].span(operands[0].type_.shape.len() - 1);
    finish(&rows, span, ignored, &mut arguments);
    let source = rows.source(CROSS_ENTROPY, &[("L", stored(operands[1].type_.dtype))]);
    Ok(rows.work("cross_entropy", &source, arguments))
}

/// Its gradient towards scores; operands scores, labels, dloss.
pub(super) fn cross_entropy_gradient(ignored: i64, operands: &[Piece], y: &Piece) -> Result<Work, Uncovered> {
    let (rows, mut arguments) = scored(operands, y)?;
    arguments.reads("dloss", operands[2].type_.dtype, Argument::Operand(2));
    arguments.writes("y", rows.made, Argument::Result(0));
    let span = operands[0].span(operands[0].type_.shape.len() - 1);
    finish(&rows, span, ignored, &mut arguments);
    let source = rows.source(CROSS_ENTROPY_GRADIENT, &[("L", stored(operands[1].type_.dtype))]);
    Ok(rows.work("cross_entropy_gradient", &source, arguments))
}

//! Softmax, cross entropy, and their gradients; rows in general.
//!
//! A row is computed by a warp, or by a block if it is long. It is read again for each pass over it:
//! after the first it is in the cache.

use planner_ir::DType;

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::{computed, stored, suffix};
use super::strides::{Arguments, index_type, signed};
use super::text::filled;
use super::vectors::WIDTHS;
use crate::array::Span;

const SOFTMAX: &str = include_str!("templates/softmax.cu");
const SOFTMAX_GRADIENT: &str = include_str!("templates/softmax_gradient.cu");
const CROSS_ENTROPY: &str = include_str!("templates/cross_entropy.cu");
const CLASSIFIER: &str = include_str!("templates/classifier.cu");
const CROSS_ENTROPY_GRADIENT: &str = include_str!("templates/cross_entropy_gradient.cu");
/// The pass that makes the gradient, which the classifier ends with too.
const TOWARDS_SCORES: &str = include_str!("templates/towards_scores.cu");

/// The threads of a warp.
const WARP: u64 = 32;

/// The shared memory in which a block's warps show each other a number each (bytes).
const SHARED: u32 = 256;

/// Rows of values, and by how many threads they are computed.
pub(super) struct Rows {
    dtype: DType,
    /// The elements of the result.
    made: DType,
    pub(super) rows: u64,
    /// The elements of a row, and how far apart they are.
    length: u64,
    inner: u64,
    /// How many elements a thread reads at once.
    pub(super) width: u64,
    /// How many threads compute a row, and how many rows a block.
    pub(super) group: u64,
    each: u64,
}

impl Rows {
    fn new(x: &Piece, made: DType, extents: [u64; 3]) -> Result<Self, Uncovered> {
        let dtype = x.type_.dtype;
        if !dtype.is_float() {
            return Err(Uncovered::Missing(format!("rows of {dtype}")));
        }
        Ok(Self::sized([dtype, made], extents, dtype.bytes()))
    }

    /// Rows of elements made of others, so many that are so long, their elements so far apart; the
    /// smallest of what a thread reads or writes neighbours of has so many bytes.
    pub(super) fn sized([dtype, made]: [DType; 2], [rows, length, inner]: [u64; 3], bytes: u64) -> Self {
        /// What a thread reads at once at most (bytes).
        const LOAD: u64 = 16;
        let fits =
            |width: u64| width == 1 || inner == 1 && length.is_multiple_of(width) && width * bytes <= LOAD;
        let width = WIDTHS.into_iter().filter(|&it| fits(it)).max().unwrap_or(1);
        let (group, each) = match length.div_ceil(width) {
            0..=512 => (WARP, 8),
            513..=4096 => (256, 1),
            _ => (1024, 1),
        };
        Self { dtype, made, rows, length, inner, width, group, each }
    }

    /// The sum of what a row's threads have.
    pub(super) fn sum(&self, of: &str) -> String {
        let s = suffix(self.dtype);
        if self.group == WARP {
            format!("t_warp_sum_{s}({of})")
        } else {
            format!("t_block_sum_{s}({of}, {})", self.group)
        }
    }

    /// A template's text for these rows, with more texts.
    pub(super) fn source(&self, template: &str, more: &[(&str, &str)]) -> String {
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

    /// The launch of a source of a family.
    pub(super) fn work(&self, family: &str, source: &str, arguments: Arguments) -> Work {
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
    if operands[2].type_.dtype != rows.dtype {
        let (x, dloss) = (&operands[0].type_, &operands[2].type_);
        return Err(Uncovered::Missing(format!("a gradient of {x} from losses of {dloss}")));
    }
    arguments.reads("dloss", operands[2].type_.dtype, Argument::Operand(2));
    arguments.writes("y", rows.made, Argument::Result(0));
    let span = operands[0].span(operands[0].type_.shape.len() - 1);
    finish(&rows, span, ignored, &mut arguments);
    let towards = rows.source(TOWARDS_SCORES, &[]);
    let texts = [("L", stored(operands[1].type_.dtype)), ("TOWARDS", &towards)];
    let source = rows.source(CROSS_ENTROPY_GRADIENT, &texts);
    Ok(rows.work("cross_entropy_gradient", &source, arguments))
}

/// Cross entropy and its gradient towards scores by one kernel; operands scores, labels, dloss, results
/// losses, dscores. The gradient may be made where scores are. What is computed with may be wider than what
/// is read or made: then it is as if scores had been converted before and their gradient after.
pub fn classified(ignored: i64, operands: [&Piece; 3], results: [&Piece; 2]) -> Result<Work, Uncovered> {
    let [x, labels, dloss] = operands;
    let [losses, dx] = results;
    let (rows, mut arguments) = scored(&[x.clone(), labels.clone()], dx)?;
    let is_odd = |it: &&Piece| computed(it.type_.dtype) != computed(rows.dtype) || !it.type_.dtype.is_float();
    if [dloss, losses, dx].iter().any(is_odd) {
        let types = [&dloss.type_, &losses.type_, &dx.type_].map(ToString::to_string);
        return Err(Uncovered::Missing(format!("a classifier of {}, {}", x.type_, types.join(", "))));
    }
    arguments.reads("dloss", dloss.type_.dtype, Argument::Operand(2));
    arguments.writes("losses", losses.type_.dtype, Argument::Result(0));
    arguments.writes("y", rows.made, Argument::Result(1));
    let span = x.span(x.type_.shape.len().saturating_sub(1));
    finish(&rows, span, ignored, &mut arguments);
    let (back, losses) = (dloss.type_.dtype, losses.type_.dtype);
    let towards = rows.source(TOWARDS_SCORES, &[]);
    let texts = [
        ("L", stored(labels.type_.dtype)),
        ("B", stored(back)),
        ("H", back.name()),
        ("P", stored(losses)),
        ("Q", losses.name()),
        ("TOWARDS", &towards),
    ];
    Ok(rows.work("classifier", &rows.source(CLASSIFIER, &texts), arguments))
}

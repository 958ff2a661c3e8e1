//! Normalisations and their gradients, with the functions of elements around them.
//!
//! A chain that has a norm is computed row by row, in several passes over each row. The first pass
//! stores what is stored of what stands before the norm; later passes read that again, or compute it
//! again where nothing before the norm is stored. So a sum with a residual and the norm of it are one
//! kernel, which reads both addends from memory once.

mod writer; // the text of the passes

use planner_ir::{DType, Op, Real};

use super::chain::{Chain, Input};
use super::launch::{Uncovered, Work};
use super::number::{computed, literal, suffix};
use super::rows::Rows;
use super::strides::{Arguments, signed};
use writer::{Pass, Writer};

const TEMPLATE: &str = include_str!("templates/norm.cu");

/// A normalisation or its gradient, as an operation of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Norm {
    /// How many dimensions a row has; all but the first two if there are as many factors as channels.
    dims: Option<usize>,
    epsilon: Real,
    centred: Centred,
    makes: Makes,
}

/// What is subtracted from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Centred {
    Mean,
    Nothing,
}

/// What is made of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Makes {
    /// It, normalised.
    Normal,
    /// The gradient towards it.
    Gradient,
}

impl Norm {
    fn of(op: &Op) -> Option<Self> {
        let (dims, epsilon, centred, makes) = match *op {
            Op::LayerNorm { dims, epsilon } => (Some(dims), epsilon, Centred::Mean, Makes::Normal),
            Op::RmsNorm { dims, epsilon } => (Some(dims), epsilon, Centred::Nothing, Makes::Normal),
            Op::InstanceNorm { epsilon } => (None, epsilon, Centred::Mean, Makes::Normal),
            Op::LayerNormGradient { dims, epsilon } => (Some(dims), epsilon, Centred::Mean, Makes::Gradient),
            Op::RmsNormGradient { dims, epsilon } => (Some(dims), epsilon, Centred::Nothing, Makes::Gradient),
            _ => return None,
        };
        Some(Self { dims, epsilon, centred, makes })
    }

    /// The first dimension of a row of a value of so many dimensions.
    fn first(&self, rank: usize) -> Option<usize> {
        self.dims.map_or(Some(2), |dims| rank.checked_sub(dims)).filter(|&first| first <= rank)
    }
}

/// Whether an operation normalises rows, or is the gradient of one that does.
pub fn is_norm(op: &Op) -> bool {
    Norm::of(op).is_some()
}

/// The kernel of a chain one of whose operations is a norm.
pub(super) fn normalised(chain: &Chain, doc: &str) -> Result<Work, Uncovered> {
    let missing = || Uncovered::Missing(format!("{doc} over {:?}", chain.shape));
    let mut norms = chain.steps.iter().enumerate().filter_map(|(at, step)| Some((at, Norm::of(&step.op)?)));
    let ((at, norm), None) = (norms.next().ok_or_else(missing)?, norms.next()) else {
        return Err(missing());
    };
    let first = norm.first(chain.shape.len()).ok_or_else(missing)?;
    let step = &chain.steps[at];
    let counted = match norm.makes {
        Makes::Normal => matches!(step.inputs.len(), 2 | 3),
        Makes::Gradient => step.inputs.len() == 3,
    };
    let ([dtype], [x, ..]) = (&step.results[..], &step.inputs[..]) else { return Err(missing()) };
    let x = chain.dtype(*x);
    // Factors of channels are not what other operations would read.
    let alone = norm.dims.is_some() || chain.steps.len() == 1;
    if !counted || !alone || !x.is_float() || !dtype.is_float() {
        return Err(missing());
    }
    let (rows, length) = (chain.shape[..first].iter().product(), chain.shape[first..].iter().product());
    let mut writer = Writer::new(chain, at, first, norm.dims.is_none())?;
    let rows = Rows::sized([x, *dtype], [rows, length, 1], writer.smallest());
    (writer.width, writer.group) = (rows.width, rows.group);
    let mut arguments = writer.arguments();
    arguments.integer("rows", signed(rows.rows));
    arguments.integer("length", signed(length));
    let passes = Passes { norm, rows: &rows, writer: &writer, x };
    let (once, text) = passes.text(&mut arguments)?;
    let source = rows.source(
        TEMPLATE,
        &[("DOC", doc), ("PARAMETERS", &arguments.text()), ("ONCE", &once), ("PASSES", &text)],
    );
    let family = if norm.makes == Makes::Normal { "norm" } else { "norm_gradient" };
    Ok(rows.work(family, &source, arguments))
}

/// The passes of a norm over a row.
struct Passes<'a> {
    norm: Norm,
    rows: &'a Rows,
    writer: &'a Writer<'a>,
    /// The elements of what is normalised.
    x: DType,
}

impl Passes<'_> {
    /// What is read once before the passes, and the passes.
    fn text(&self, arguments: &mut Arguments) -> Result<(String, String), Uncovered> {
        let writer = self.writer;
        let inputs = &writer.step().inputs;
        let (t, s) = (computed(self.x), suffix(self.x));
        let sum = |of: &str| self.rows.sum(of);
        let once = writer.once(arguments);
        // What is normalised, how it is scaled, and, of gradients, what comes back.
        let (x, factors) = (inputs[0], &inputs[1..]);
        let is_gradient = self.norm.makes == Makes::Gradient;
        let read: Vec<Input> = if is_gradient { inputs.clone() } else { vec![x] };
        let mut text = String::new();
        let mut pass = Pass::First;
        if self.norm.centred == Centred::Mean {
            let more = |it: &[String]| {
                if is_gradient { format!(" mean += {} * {};", it[2], it[1]) } else { String::new() }
            };
            text.push_str(&writer.pass(pass, &read, |it| format!("sum += {};{}", it[0], more(it)))?);
            text.push_str(&format!("    middle = {} / ({t})length;\n", sum("sum")));
            if is_gradient {
                text.push_str(&format!("    mean = {} / ({t})length;\n", sum("mean")));
            }
            text.push_str("    sum = 0;\n");
            pass = Pass::Again;
        }
        text.push_str(&writer.pass(pass, &read, |it| {
            let x = format!("({} - middle)", it[0]);
            let more = if is_gradient {
                format!(" product += {x} * ({} * {});", it[2], it[1])
            } else {
                String::new()
            };
            format!("sum += {x} * {x};{more}")
        })?);
        text.push_str(&format!("    sum = {};\n", sum("sum")));
        if is_gradient {
            text.push_str(&format!("    product = {};\n", sum("product")));
        }
        let epsilon = literal(self.x, self.norm.epsilon.0);
        text.push_str(&format!(
            "    const {t} factor = ({t})1 / t_sqrt_{s}(sum / ({t})length + {epsilon});\n"
        ));
        if is_gradient {
            text.push_str(&format!("    const {t} bend = product / ({t})length * factor * factor;\n"));
        }
        text.push_str(&writer.last(|it| {
            let x = &it[0];
            if is_gradient {
                return format!("(({} * {}) - mean - ({x} - middle) * bend) * factor", it[2], it[1]);
            }
            let scaled: Vec<String> = factors
                .iter()
                .enumerate()
                .map(|(at, _)| format!(" {} {}", ["*", "+"][at], it[at + 1]))
                .collect();
            format!("({x} - middle) * factor{}", scaled.concat())
        })?);
        Ok((once, text))
    }
}

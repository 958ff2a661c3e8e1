//! Many elements to one.
//!
//! Where what is reduced lies together, a block makes one result; where results lie together, a
//! block makes 32 neighbouring ones, so that what it reads lies together too. If there are too few
//! results to keep a device busy, parts are reduced first, and then their results.

use planner_ir::{DType, Reduction};

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::{computed, suffix};
use super::strides::{Arguments, Levels, index_type, signed};
use super::text::filled;
use crate::number::computed_as;

const TEMPLATE: &str = include_str!("templates/reduce.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// Blocks that keep a device busy.
const BUSY: u64 = 512;

/// What a part has at least (elements).
const LEAST: u64 = 2048;

/// The size of what is computed with at most (bytes).
const WIDEST: u32 = 8;

/// One number for all the elements along some dimensions.
pub(super) fn reduce(reduction: Reduction, dims: &[usize], x: &Piece, y: &Piece) -> Result<Work, Uncovered> {
    let (dtype, shape) = (x.type_.dtype, &x.type_.shape);
    if dtype == DType::Bool {
        return Err(Uncovered::Missing(format!("{reduction:?} of {dtype}")));
    }
    if !y.is_row_major() {
        return Err(Uncovered::Missing(format!("{reduction:?} in the order {:?}", y.order)));
    }
    let strides = x.strides();
    let some = |reduced: bool| {
        let mut dims: Vec<usize> = (0..shape.len()).filter(|dim| dims.contains(dim) == reduced).collect();
        if reduced {
            dims.sort_by_key(|&dim| std::cmp::Reverse(strides[dim]));
        }
        let extents: Vec<u64> = dims.iter().map(|&dim| shape[dim]).collect();
        Levels::new(&extents, &[dims.iter().map(|&dim| strides[dim]).collect()])
    };
    let (kept, reduced) = (some(false), some(true));
    if y.type_.elements() == 0 {
        return Ok(Work::default());
    }
    let count: u64 = dims.iter().map(|&dim| x.span(dim).extent).product();
    let (made, mean) = (y.type_.dtype, Some(count));
    Ok(Pass { reduction, dtype, made, kept, reduced, parts: 1, mean, of: Of::Elements }.work())
}

/// Sums of products of two operands, which are the first two places of loops over results and over what is
/// summed.
pub(super) fn dots(dtype: DType, made: DType, kept: Levels, reduced: Levels) -> Work {
    if kept.count() == 0 {
        return Work::default();
    }
    Pass { reduction: Reduction::Sum, dtype, made, kept, reduced, parts: 1, mean: None, of: Of::Products }
        .work()
}

/// One kernel.
struct Pass {
    reduction: Reduction,
    dtype: DType,
    made: DType,
    /// The loops over results and over what is reduced.
    kept: Levels,
    reduced: Levels,
    /// Into how many parts that falls.
    parts: u64,
    /// How many elements a mean is of, if this pass divides.
    mean: Option<u64>,
    of: Of,
}

/// What is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Elements,
    /// Products of elements of two operands.
    Products,
}

impl Pass {
    /// The kernels: a pass over all, or one over parts and one over their results.
    fn work(self) -> Work {
        let (results, length) = (self.kept.count().unsigned_abs(), self.reduced.count().unsigned_abs());
        let blocks = results.div_ceil(self.together());
        let most = BUSY / blocks.max(1);
        let parts = (length * self.together() / LEAST).clamp(1, most.max(1));
        let from = Argument::Operand(0);
        if parts == 1 {
            return Work { launches: vec![self.launch(from, Argument::Result(0))], room: 0 };
        }
        let wide = computed_as(self.dtype);
        let second = Self {
            reduction: self.reduction,
            dtype: wide,
            made: self.made,
            parts: 1,
            mean: self.mean,
            kept: Levels { extents: vec![signed(results)], strides: vec![vec![1]] },
            reduced: Levels { extents: vec![signed(parts)], strides: vec![vec![signed(results)]] },
            of: Of::Elements,
        };
        let first = Self { made: wide, parts, mean: None, ..self };
        let launches = vec![
            first.launch(from, Argument::Room(0)),
            second.launch(Argument::Room(0), Argument::Result(0)),
        ];
        Work { launches, room: parts * results * wide.bytes() }
    }

    /// How many neighbouring results a block makes.
    fn together(&self) -> u64 {
        let neighbours = |levels: &Levels| levels.strides[0].last() == Some(&1);
        if neighbours(&self.kept) && !neighbours(&self.reduced) { 32 } else { 1 }
    }

    fn launch(&self, from: Argument, to: Argument) -> Launch {
        let results = self.kept.count().unsigned_abs();
        let length = self.reduced.count().unsigned_abs();
        let together = self.together();
        // A thread takes an index apart for each element that it reads.
        let index = index_type(length);
        let s = suffix(self.dtype);
        let mut arguments = Arguments::default();
        arguments.reads("x", self.dtype, from);
        let is_products = self.of == Of::Products;
        if is_products {
            arguments.reads("z", self.dtype, Argument::Operand(1));
        }
        arguments.writes("y", self.made, to);
        arguments.integer("results", signed(results));
        arguments.integer("length", signed(length));
        arguments.integer("parts", signed(self.parts));
        arguments.integer("part", signed(length.div_ceil(self.parts).max(1)));
        self.kept.declare_extents("k", &mut arguments);
        self.reduced.declare_extents("r", &mut arguments);
        self.kept.declare_strides(0, "k", &mut arguments);
        self.reduced.declare_strides(0, "r", &mut arguments);
        if is_products {
            self.kept.declare_strides(1, "z", &mut arguments);
            self.reduced.declare_strides(1, "q", &mut arguments);
        }
        let second = |levels: &Levels, name: &str, prefix: &str| levels.offset("t_i64", 1, name, prefix);
        let (base, factor) = if is_products {
            let base = format!(", z_base = {}", second(&self.kept, "z", "k"));
            let from = second(&self.reduced, "q", "r");
            let name = self.dtype.name();
            let a = computed(self.dtype);
            (
                base,
                format!(
                    "            {a} factor; t_load_{name}_1(z + z_base + ({from}), &factor);\n            next *= factor;\n"
                ),
            )
        } else {
            Default::default()
        };
        let infix = |sign: &str| format!("total {sign} next");
        let named = |name: &str| format!("t_{name}_{s}(total, next)");
        let combined = match self.reduction {
            Reduction::Sum | Reduction::Mean => infix("+"),
            Reduction::Product => infix("*"),
            Reduction::Max => named("max"),
            Reduction::Min => named("min"),
        };
        let finished = match (self.reduction, self.mean) {
            (Reduction::Mean, Some(count)) => {
                arguments.integer("count", signed(count));
                format!("total / ({})count", computed(self.dtype))
            }
            _ => "total".to_owned(),
        };
        let source = filled(
            TEMPLATE,
            &[
                (
                    "DOC",
                    &if is_products { "Sum of products".to_owned() } else { format!("{:?}", self.reduction) },
                ),
                ("FACTOR", &factor),
                ("SECOND", &base),
                ("A", computed(self.dtype)),
                ("D", self.dtype.name()),
                ("F", self.made.name()),
                ("K", &together.to_string()),
                ("R", &(THREADS / together).to_string()),
                ("PARAMETERS", &arguments.text()),
                ("IDENTITY", &identity(self.reduction, self.dtype)),
                ("KEPT", &self.kept.taken_apart("t_i64", "result", "k")),
                ("BASE", &self.kept.offset("t_i64", 0, "k", "k")),
                ("REDUCED", &self.reduced.taken_apart(index, &format!("({index})j"), "r")),
                ("OFFSET", &self.reduced.offset("t_i64", 0, "r", "r")),
                ("COMBINED", &combined),
                ("FINISHED", &finished),
            ],
        );
        Launch {
            kernel: Kernel::new("reduce", &source, arguments.parameters),
            blocks: results.div_ceil(together) * self.parts,
            threads: 256,
            shared: 256 * WIDEST,
            arguments: arguments.given,
        }
    }
}

/// What changes nothing when it is combined.
fn identity(reduction: Reduction, dtype: DType) -> String {
    let low = |highest: &str| match computed_as(dtype) {
        DType::U64 => "0".to_owned(),
        DType::I64 => "-0x7fffffffffffffffll - 1".to_owned(),
        _ => format!("-{highest}"),
    };
    let infinity = if computed_as(dtype) == DType::F64 { "T_INFINITY_D" } else { "T_INFINITY_F" };
    match reduction {
        Reduction::Sum | Reduction::Mean => "0".to_owned(),
        Reduction::Product => "1".to_owned(),
        Reduction::Max => low(infinity),
        Reduction::Min => match computed_as(dtype) {
            DType::U64 => "0xffffffffffffffffull".to_owned(),
            DType::I64 => "0x7fffffffffffffffll".to_owned(),
            _ => infinity.to_owned(),
        },
    }
}

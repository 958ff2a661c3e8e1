//! Elements and slices that indices and their own places name.

use std::fmt::Write as _;

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::stored;
use super::strides::{Arguments, own_strides, signed};
use super::text::filled;

const TEMPLATE: &str = include_str!("templates/gather_places.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// What is written so far of a kernel that gathers.
struct Gathering<'a> {
    data: &'a Piece,
    indices: &'a Piece,
    arguments: Arguments,
    statements: String,
}

impl<'a> Gathering<'a> {
    fn new([data, indices]: [&'a Piece; 2], y: &Piece) -> Result<Self, Uncovered> {
        if indices.type_.dtype.is_float() {
            return Err(Uncovered::Missing(format!("indices of {}", indices.type_.dtype)));
        }
        let mut arguments = Arguments::default();
        arguments.reads("data", data.type_.dtype, Argument::Operand(0));
        arguments.reads("indices", indices.type_.dtype, Argument::Operand(1));
        arguments.writes("y", y.type_.dtype, Argument::Result(0));
        arguments.integer("count", signed(y.type_.elements()));
        Ok(Self { data, indices, arguments, statements: String::new() })
    }

    fn say(&mut self, statement: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.statements, "    {statement}");
    }

    /// Takes `left` apart by the extents of some dimensions, innermost first: `i` of each.
    fn apart(&mut self, shape: &[u64]) {
        for (dim, &extent) in shape.iter().enumerate().rev() {
            self.arguments.integer(&format!("e{dim}"), signed(extent));
            self.say(&format!("const t_i64 i{dim} = left % e{dim}; left /= e{dim};"));
        }
    }

    /// Goes along a dimension of data to a position of the whole value; from its end if that is
    /// negative.
    fn go(&mut self, dim: usize, position: &str) {
        let (span, shape) = (self.data.span(dim), &self.data.type_.shape);
        for (name, number) in [
            ("first", signed(span.start)),
            ("extent", signed(span.extent)),
            ("length", signed(shape[dim])),
            ("step", own_strides(shape)[dim]),
        ] {
            self.arguments.integer(&format!("{name}{dim}"), number);
        }
        self.say(&format!("t_i64 p{dim} = {position};"));
        self.say(&format!("p{dim} += (p{dim} < 0 ? extent{dim} : 0) - first{dim};"));
        self.say(&format!("inside &= p{dim} >= 0 && p{dim} < length{dim};"));
        self.say(&format!("place += p{dim} * step{dim};"));
    }

    fn work(self, y: &Piece) -> Work {
        let count = y.type_.elements();
        if count == 0 {
            return Work::default();
        }
        let source = filled(
            TEMPLATE,
            &[
                ("PARAMETERS", &self.arguments.text()),
                ("PLACES", &self.statements),
                ("C", stored(self.data.type_.dtype)),
            ],
        );
        let launch = Launch {
            kernel: Kernel::new("gather_places", &source, self.arguments.parameters),
            blocks: count.div_ceil(THREADS),
            threads: 256,
            shared: 0,
            arguments: self.arguments.given,
        };
        Work { launches: vec![launch], room: 0 }
    }
}

/// `y[i..] = data[i.. with the dim-th replaced by indices[i..]]`.
pub(super) fn gather_elements(dim: usize, operands: [&Piece; 2], y: &Piece) -> Result<Work, Uncovered> {
    let mut gathering = Gathering::new(operands, y)?;
    let shape = gathering.indices.type_.shape.clone();
    gathering.say("t_i64 left = at;");
    gathering.apart(&shape);
    for other in 0..shape.len() {
        if other == dim {
            gathering.go(dim, "(t_i64)indices[at]");
        } else {
            let start = signed(gathering.indices.span(other).start);
            gathering.arguments.integer(&format!("start{other}"), start);
            gathering.go(other, &format!("start{other} + i{other}"));
        }
    }
    Ok(gathering.work(y))
}

/// `y[b.., i.., r..] = data[b.., indices[b.., i.., :], r..]`.
pub(super) fn gather_nd(batch_dims: usize, operands: [&Piece; 2], y: &Piece) -> Result<Work, Uncovered> {
    let mut gathering = Gathering::new(operands, y)?;
    let (data, indices) = (operands[0].type_.shape.clone(), operands[1].type_.shape.clone());
    let misfit = || Uncovered::Missing(format!("elements of {data:?} at {indices:?}"));
    let (&width, around) = indices.split_last().ok_or_else(misfit)?;
    let indexed = batch_dims + usize::try_from(width).map_err(|_| misfit())?;
    let (Some(rest), true) = (data.get(indexed..), batch_dims <= around.len()) else { return Err(misfit()) };
    let (run, batch) = (rest.iter().product::<u64>(), data[..batch_dims].iter().product::<u64>());
    let each: u64 = around[batch_dims..].iter().product();
    for (name, number) in [("run", run), ("each", each), ("width", width)] {
        gathering.arguments.integer(name, signed(number));
    }
    gathering.say("const t_i64 tuple = at / run, block = tuple / each;");
    let inner: u64 = data[batch_dims..].iter().product();
    gathering.arguments.integer("inner", signed(inner));
    gathering.say("place = block * inner + at % run;");
    for dim in batch_dims..indexed {
        gathering.go(dim, &format!("(t_i64)indices[tuple * width + {}]", dim - batch_dims));
    }
    debug_assert!(batch * inner == operands[0].type_.elements());
    Ok(gathering.work(y))
}

//! Elements at places that are data.

use planner_ir::Op;

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::{computed, stored};
use super::single::single;
use super::strides::{Arguments, signed};
use super::text::filled;

const GATHER: &str = include_str!("templates/gather.cu");
const LINKS: &str = include_str!("templates/links.cu");
const GATHER_GRADIENT: &str = include_str!("templates/gather_gradient.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// The shared memory for the indices of a block's threads (bytes).
const INDICES: u32 = 256 * 8;

pub(super) fn launch(family: &str, source: &str, arguments: Arguments, blocks: u64, shared: u32) -> Launch {
    Launch {
        kernel: Kernel::new(family, source, arguments.parameters),
        blocks,
        threads: 256,
        shared,
        arguments: arguments.given,
    }
}

fn expect_integers(indices: &Piece) -> Result<(), Uncovered> {
    if indices.type_.dtype.is_float() {
        return Err(Uncovered::Missing(format!("indices of {}", indices.type_.dtype)));
    }
    Ok(())
}

/// `y[.., i.., ..] = data[.., indices[i..], ..]` along a dimension of data.
pub(super) fn gather(dim: usize, operands: &[Piece], y: &Piece) -> Result<Work, Uncovered> {
    let (data, indices) = (&operands[0], &operands[1]);
    expect_integers(indices)?;
    let (shape, dtype) = (&data.type_.shape, data.type_.dtype);
    let mut run: u64 = shape[dim + 1..].iter().product();
    let mut count = y.type_.elements();
    if count == 0 {
        return Ok(Work::default());
    }
    let mut arguments = Arguments::default();
    let (texts, unit) = if dtype == y.type_.dtype {
        // The widest elements that runs consist of.
        let mut bytes = dtype.bytes();
        while bytes < 16 && run.is_multiple_of(2) {
            bytes *= 2;
            run /= 2;
            count /= 2;
        }
        let unit = match bytes {
            1 => "t_u8",
            2 => "t_u16",
            4 => "t_u32",
            8 => "t_u64",
            _ => "t_v16",
        };
        let texts = ["value = data[(o * length + place) * run + r];".to_owned(), "y[at] = value;".to_owned()];
        (texts, [unit; 3])
    } else {
        let load = format!("t_load_{}_1(data + (o * length + place) * run + r, &value);", dtype.name());
        let store = format!("t_store_{}_1(y + at, &value);", y.type_.dtype.name());
        ([load, store], [stored(dtype), stored(y.type_.dtype), computed(dtype)])
    };
    arguments.pointer("data", Argument::Operand(0));
    arguments.pointer("indices", Argument::Operand(1));
    arguments.pointer("y", Argument::Result(0));
    arguments.integer("count", signed(count));
    arguments.integer("picked", signed(indices.type_.elements()));
    arguments.integer("run", signed(run));
    arguments.integer("length", signed(shape[dim]));
    arguments.integer("extent", signed(data.span(dim).extent));
    arguments.integer("first", signed(data.span(dim).start));
    let source = filled(
        GATHER,
        &[
            ("C", unit[0]),
            ("E", unit[1]),
            ("T", unit[2]),
            ("L", stored(indices.type_.dtype)),
            ("LOAD", &texts[0]),
            ("STORE", &texts[1]),
        ],
    );
    Ok(Work { launches: vec![launch("gather", &source, arguments, count.div_ceil(THREADS), 0)], room: 0 })
}

/// The links of equal ones of so many indices, of that type in C; where indices, next ones and firsts
/// are. Negative indices count from the extent.
pub(super) fn links(type_: &str, picked: u64, extent: i64, [indices, next, first]: [Argument; 3]) -> Launch {
    let mut arguments = Arguments::default();
    arguments.pointer("indices", indices);
    arguments.pointer("next", next);
    arguments.pointer("first", first);
    arguments.integer("picked", signed(picked));
    arguments.integer("extent", extent);
    launch("links", &filled(LINKS, &[("L", type_)]), arguments, picked.div_ceil(THREADS), INDICES)
}

/// `ddata[.., j, ..] = sum of dy[.., i.., ..] where indices[i..] = j`; operands indices, dy.
///
/// Equal indices are linked first, and each chain of them is summed in its order: the sums do not
/// depend on who is faster.
pub(super) fn gather_gradient(dim: usize, operands: &[Piece], y: &Piece) -> Result<Work, Uncovered> {
    let (indices, dy) = (&operands[0], &operands[1]);
    expect_integers(indices)?;
    let (shape, picked) = (&y.type_.shape, indices.type_.elements());
    let [outer, run]: [u64; 2] = [shape[..dim].iter().product(), shape[dim + 1..].iter().product()];
    let zero = Op::Fill { result: y.type_.clone(), value: planner_ir::Real(0.0) };
    let mut work = single(&zero, &[], std::slice::from_ref(y))?;
    if picked * outer * run == 0 {
        return Ok(work);
    }
    let span = y.span(dim);
    let bytes = picked * 4;
    let places = [Argument::Operand(0), Argument::Room(0), Argument::Room(bytes)];
    work.launches.push(links(stored(indices.type_.dtype), picked, signed(span.extent), places));
    let mut sums = Arguments::default();
    sums.pointer("indices", Argument::Operand(0));
    sums.pointer("dy", Argument::Operand(1));
    sums.pointer("next", Argument::Room(0));
    sums.pointer("first", Argument::Room(bytes));
    sums.pointer("y", Argument::Result(0));
    let count = outer * picked * run;
    for (name, number) in [("count", count), ("picked", picked), ("run", run), ("length", shape[dim])] {
        sums.integer(name, signed(number));
    }
    sums.integer("extent", signed(span.extent));
    sums.integer("start", signed(span.start));
    let source = filled(
        GATHER_GRADIENT,
        &[
            ("L", stored(indices.type_.dtype)),
            ("C", stored(dy.type_.dtype)),
            ("E", stored(y.type_.dtype)),
            ("T", computed(dy.type_.dtype)),
            ("D", dy.type_.dtype.name()),
            ("F", y.type_.dtype.name()),
        ],
    );
    work.launches.push(launch("gather_gradient", &source, sums, count.div_ceil(THREADS), 0));
    work.room = 2 * bytes;
    Ok(work)
}

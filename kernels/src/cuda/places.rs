//! Elements and slices that indices and their own places name: gathered, mirrored, scattered.

use std::fmt::Write as _;

use planner_ir::{Binary, Edge, Scatter};

use super::functions::binary;
use super::indexing::{launch, links};
use super::launch::{Argument, Launch, Piece, Uncovered, Work};

use super::number::{computed, stored};
use super::strides::{Arguments, own_strides, signed};
use super::text::filled;

const GATHER: &str = include_str!("templates/gather_places.cu");
const SCATTER: &str = include_str!("templates/scatter_lines.cu");
const ONCE: &str = include_str!("templates/scatter_once.cu");
const PLACES: &str = include_str!("templates/places.cu");
const SCATTER_SLICES: &str = include_str!("templates/scatter_slices.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// What is written so far of a kernel that finds places of data.
struct Finding<'a> {
    data: &'a Piece,
    arguments: Arguments,
    statements: String,
}

impl<'a> Finding<'a> {
    /// Of a kernel that gathers elements of data.
    fn gathering(data: &'a Piece, indices: Option<&Piece>, y: &Piece) -> Result<Self, Uncovered> {
        let mut arguments = Arguments::default();
        arguments.reads("data", data.type_.dtype, Argument::Operand(0));
        if let Some(indices) = indices {
            arguments.reads("indices", expect_integers(indices)?, Argument::Operand(1));
        }
        arguments.writes("y", y.type_.dtype, Argument::Result(0));
        arguments.integer("count", signed(y.type_.elements()));
        Ok(Self { data, arguments, statements: String::new() })
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

    /// Goes to the place that a tuple of indices, number `tuple`, names.
    fn follow(&mut self, dims: std::ops::Range<usize>) {
        let first = dims.start;
        for dim in dims {
            self.go(dim, &format!("(t_i64)indices[tuple * width + {}]", dim - first));
        }
    }

    /// The launch of a kernel with these statements, for so many threads.
    fn launched(self, family: &str, template: &str, texts: &[(&str, &str)], count: u64) -> Launch {
        let parameters = self.arguments.text();
        let mut all = vec![("PARAMETERS", parameters.as_str()), ("PLACES", &self.statements)];
        all.extend_from_slice(texts);
        launch(family, &filled(template, &all), self.arguments, count.div_ceil(THREADS), 0)
    }

    fn gathered(self, y: &Piece) -> Work {
        let count = y.type_.elements();
        if count == 0 {
            return Work::default();
        }
        let element = stored(self.data.type_.dtype);
        Work { launches: vec![self.launched("gather_places", GATHER, &[("C", element)], count)], room: 0 }
    }
}

fn expect_integers(indices: &Piece) -> Result<planner_ir::DType, Uncovered> {
    let dtype = indices.type_.dtype;
    if dtype.is_float() { Err(Uncovered::Missing(format!("indices of {dtype}"))) } else { Ok(dtype) }
}

/// `y[i..] = data[i.. with the dim-th replaced by indices[i..]]`.
pub(super) fn gather_elements(dim: usize, operands: [&Piece; 2], y: &Piece) -> Result<Work, Uncovered> {
    let [data, indices] = operands;
    let mut gathering = Finding::gathering(data, Some(indices), y)?;
    let shape = indices.type_.shape.clone();
    gathering.say("t_i64 left = at;");
    gathering.apart(&shape);
    for other in 0..shape.len() {
        if other == dim {
            gathering.go(dim, "(t_i64)indices[at]");
        } else {
            let start = signed(indices.span(other).start);
            gathering.arguments.integer(&format!("start{other}"), start);
            gathering.go(other, &format!("start{other} + i{other}"));
        }
    }
    Ok(gathering.gathered(y))
}

/// `y[b.., i.., r..] = data[b.., indices[b.., i.., :], r..]`.
pub(super) fn gather_nd(batch_dims: usize, operands: [&Piece; 2], y: &Piece) -> Result<Work, Uncovered> {
    let mut gathering = Finding::gathering(operands[0], Some(operands[1]), y)?;
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
    gathering.follow(batch_dims..indexed);
    debug_assert!(batch * inner == operands[0].type_.elements());
    Ok(gathering.gathered(y))
}

/// x and around it its own elements: mirrored, repeated, or from its other end.
pub(super) fn pad(before: &[i64], edge: Edge, x: &Piece, y: &Piece) -> Result<Work, Uncovered> {
    let mut gathering = Finding::gathering(x, None, y)?;
    gathering.say("t_i64 left = at;");
    gathering.apart(&y.type_.shape);
    for (dim, before) in before.iter().enumerate() {
        gathering.arguments.integer(&format!("shift{dim}"), signed(y.span(dim).start) - before);
        let (position, extent) = (format!("i{dim} + shift{dim}"), format!("extent{dim}"));
        let position = match edge {
            Edge::Repeat => format!("t_clamp({position}, 0, {extent} - 1)"),
            Edge::Wrap => format!("t_mod_i({position}, {extent})"),
            Edge::Reflect => format!("t_mirrored({position}, {extent})"),
            Edge::Constant(_) => return Err(Uncovered::Missing("padding by a number".to_owned())),
        };
        if x.span(dim).extent == 0 {
            return Err(Uncovered::Missing("padding by elements of nothing".to_owned()));
        }
        gathering.go(dim, &position);
    }
    Ok(gathering.gathered(y))
}

/// What becomes of what is `there` with an update, `value`; none if the update replaces it.
fn combined(scatter: Scatter, y: &Piece) -> Result<Option<String>, Uncovered> {
    let function = match scatter {
        Scatter::Replace | Scatter::Write => return Ok(None),
        Scatter::Add => Binary::Add,
        Scatter::Mul => Binary::Mul,
        Scatter::Max => Binary::Max,
        Scatter::Min => Binary::Min,
    };
    binary(function, [y.type_.dtype; 2], ["there", "value"]).map(Some)
}

/// The statements that combine updates with elements of y: declarations with what is at `place`, one
/// update from there, and what puts the result back.
fn steps(y: &Piece, made: &str, from: &str) -> [String; 3] {
    let (d, t) = (y.type_.dtype.name(), computed(y.type_.dtype));
    [
        format!("{t} there, value; t_load_{d}_1(y + place, &there);"),
        format!("t_load_{d}_1(&{from}, &value); there = {made};"),
        format!("t_store_{d}_1(y + place, &there);"),
    ]
}

/// data with elements replaced by, or combined with, those of updates; operands data, indices,
/// updates. Indices along a dimension may be equal: a thread takes all of a line in their order. Numbers
/// that are rounded when they are stored are stored once, with all that is combined with them. It comes behind what
/// puts data where the result is.
pub(super) fn scatter_elements(
    dim: usize,
    scatter: Scatter,
    [data, indices, updates]: [&Piece; 3],
    y: &Piece,
    mut work: Work,
) -> Result<Work, Uncovered> {
    let (shape, held) = (&updates.type_.shape, &data.type_.shape);
    let lines: u64 =
        shape.iter().enumerate().filter(|(other, _)| *other != dim).map(|(_, extent)| extent).product();
    if lines * shape[dim] == 0 {
        return Ok(work);
    }
    let mut finding = Finding { data, arguments: Arguments::default(), statements: String::new() };
    finding.arguments.reads("indices", expect_integers(indices)?, Argument::Operand(1));
    finding.arguments.reads("updates", updates.type_.dtype, Argument::Operand(2));
    finding.arguments.writes("y", y.type_.dtype, Argument::Result(0));
    let own = own_strides(shape);
    // Indices of extent 1 repeat.
    let asked = &indices.type_.shape;
    let pitches = own_strides(asked);
    let pitches: Vec<i64> = (0..asked.len()).map(|it| if asked[it] == 1 { 0 } else { pitches[it] }).collect();
    for (name, number) in [
        ("count", signed(lines)),
        ("length", signed(shape[dim])),
        ("pitch", own[dim]),
        ("spread", pitches[dim]),
    ] {
        finding.arguments.integer(name, number);
    }
    for other in (0..shape.len()).rev().filter(|&other| other != dim) {
        for (name, number) in [
            ("e", signed(shape[other])),
            ("g", own[other]),
            ("h", pitches[other]),
            ("start", signed(updates.span(other).start)),
        ] {
            finding.arguments.integer(&format!("{name}{other}"), number);
        }
        finding.say(&format!("const t_i64 i{other} = left % e{other}; left /= e{other};"));
        finding.say(&format!("given += i{other} * g{other}; asked += i{other} * h{other};"));
        finding.go(other, &format!("start{other} + i{other}"));
    }
    let span = data.span(dim);
    for (name, number) in [
        ("first", signed(span.start)),
        ("extent", signed(span.extent)),
        ("held", signed(held[dim])),
        ("step", own_strides(held)[dim]),
    ] {
        finding.arguments.integer(name, number);
    }
    let combine = match combined(scatter, y)? {
        None => "y[place] = updates[given + j * pitch];".to_owned(),
        Some(made) if y.type_.dtype.bytes() < 4 && y.type_.dtype.is_float() => {
            let [start, step, end] = steps(y, &made, "updates[given + k * pitch]");
            filled(ONCE, &[("START", &start), ("STEP", &step), ("END", &end)])
        }
        Some(made) => steps(y, &made, "updates[given + j * pitch]").join(" "),
    };
    work.launches.push(finding.launched("scatter_lines", SCATTER, &[("COMBINE", &combine)], lines));
    Ok(work)
}

/// data with slices replaced by, or combined with, those of updates; operands data, indices, updates.
/// Slices at one place are linked, and each chain of them taken in its order. It comes behind what puts data where the
/// result is.
pub(super) fn scatter_nd(
    scatter: Scatter,
    [data, indices, updates]: [&Piece; 3],
    y: &Piece,
    mut work: Work,
) -> Result<Work, Uncovered> {
    let (shape, picked) = (&data.type_.shape, &indices.type_.shape);
    let misfit = || Uncovered::Missing(format!("slices of {shape:?} at {picked:?}"));
    let (&width, around) = picked.split_last().ok_or_else(misfit)?;
    let indexed = usize::try_from(width).map_err(|_| misfit())?;
    let run: u64 = shape.get(indexed..).ok_or_else(misfit)?.iter().product();
    let tuples: u64 = around.iter().product();
    if tuples * run == 0 {
        return Ok(work);
    }
    let mut finding = Finding { data, arguments: Arguments::default(), statements: String::new() };
    finding.arguments.reads("indices", expect_integers(indices)?, Argument::Operand(1));
    finding.arguments.pointer("t_i64 *places", Argument::Room(0));
    finding.arguments.integer("count", signed(tuples));
    finding.arguments.integer("width", signed(width));
    finding.follow(0..indexed);
    work.launches.push(finding.launched("places", PLACES, &[], tuples));
    let [next, first] = [tuples * 8, tuples * 12];
    work.launches.push(links(
        "t_i64",
        tuples,
        0,
        [Argument::Room(0), Argument::Room(next), Argument::Room(first)],
    ));
    let mut arguments = Arguments::default();
    arguments.pointer("const t_i64 *places", Argument::Room(0));
    arguments.pointer("const t_i32 *next", Argument::Room(next));
    arguments.pointer("const t_i32 *first", Argument::Room(first));
    arguments.reads("updates", updates.type_.dtype, Argument::Operand(2));
    arguments.writes("y", y.type_.dtype, Argument::Result(0));
    for (name, number) in [("count", tuples * run), ("tuples", tuples), ("run", run)] {
        arguments.integer(name, signed(number));
    }
    let [start, step, end] = match combined(scatter, y)? {
        None => ["".to_owned(), "y[place] = updates[i * run + r];".to_owned(), "".to_owned()],
        Some(made) => steps(y, &made, "updates[i * run + r]"),
    };
    let source = filled(
        SCATTER_SLICES,
        &[("PARAMETERS", &arguments.text()), ("START", &start), ("STEP", &step), ("END", &end)],
    );
    work.launches.push(launch("scatter_slices", &source, arguments, (tuples * run).div_ceil(THREADS), 0));
    work.room = tuples * 16;
    Ok(work)
}

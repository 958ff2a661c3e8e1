//! The same elements in other places: copies whatever the elements.
//!
//! Neighbours that stay neighbours are copied as wider elements, of 16 bytes at most. Where
//! neighbours of what is read are not those of what is written, squares go through shared memory.

use super::launch::{Argument, Kernel, Launch, Work};
use super::strides::{Arguments, Levels};
use super::text::filled;

const COPY: &str = include_str!("templates/copy.cu");
const TRANSPOSE: &str = include_str!("templates/transpose.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// The rows and columns of what goes through shared memory at once.
const SQUARE: u64 = 32;

/// The size of a square of the widest elements, a row of them longer than it has to be (bytes).
const ROOM: u32 = 32 * 33 * 8;

/// A copy of elements: `to[Σ i · to] = from[Σ i · from]`, each from a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copying {
    /// The size of an element (bytes).
    pub bytes: u64,
    /// Where reading and writing start (elements).
    pub starts: [i64; 2],
    /// For each loop, how often it runs, and how far it moves reading and writing (elements).
    pub loops: Vec<(u64, [i64; 2])>,
}

impl Copying {
    /// The kernel that copies from one place to another.
    pub(super) fn work(&self, from: Argument, to: Argument) -> Work {
        let shape: Vec<u64> = self.loops.iter().map(|it| it.0).collect();
        if shape.contains(&0) {
            return Work::default();
        }
        let places: Vec<Vec<i64>> =
            [0, 1].map(|place| self.loops.iter().map(|it| it.1[place]).collect()).into();
        let mut levels = Levels::new(&shape, &places);
        let (mut bytes, mut starts) = (self.bytes, self.starts);
        widen(&mut levels, &mut bytes, &mut starts);
        let launch = match turned(&levels) {
            Some([row, column]) => transposition(&levels, [row, column], bytes, starts, [from, to]),
            None => plain(&levels, bytes, starts, [from, to]),
        };
        Work { launches: vec![launch], room: 0 }
    }
}

/// Makes neighbours that stay neighbours one element.
fn widen(levels: &mut Levels, bytes: &mut u64, starts: &mut [i64; 2]) {
    /// The widest element (bytes).
    const WIDEST: u64 = 16;
    while *bytes < WIDEST {
        let Some(last) = levels.extents.len().checked_sub(1) else { return };
        let runs = levels.strides.iter().all(|it| it[last] == 1);
        let outer = levels.strides.iter().flat_map(|it| &it[..last]);
        let even = outer.chain(starts.iter()).chain([&levels.extents[last]]).all(|it| it % 2 == 0);
        if !runs || !even {
            return;
        }
        *bytes *= 2;
        levels.extents[last] /= 2;
        starts.iter_mut().for_each(|it| *it /= 2);
        for strides in &mut levels.strides {
            strides[..last].iter_mut().for_each(|it| *it /= 2);
        }
    }
}

/// The loop along which neighbours are written and that along which they are read, if these are two.
fn turned(levels: &Levels) -> Option<[usize; 2]> {
    let along = |place: usize| levels.strides[place].iter().rposition(|&it| it == 1);
    let (row, column) = (along(1)?, along(0)?);
    (row != column).then_some([row, column])
}

/// An unsigned number of that size.
fn unit(bytes: u64) -> &'static str {
    match bytes {
        1 => "t_u8",
        2 => "t_u16",
        4 => "t_u32",
        8 => "t_u64",
        _ => "t_v16",
    }
}

/// The pointers, and where reading and writing start.
fn declare(bytes: u64, starts: [i64; 2], [from, to]: [Argument; 2]) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.pointer(&format!("const {} *x", unit(bytes)), from);
    arguments.pointer(&format!("{} *y", unit(bytes)), to);
    arguments.integer("x0", starts[0]);
    arguments.integer("y0", starts[1]);
    arguments
}

/// The arguments of loops, and texts: indices from `at`, where is read, where is written.
fn nest(levels: &Levels, arguments: &mut Arguments) -> [String; 3] {
    levels.declare_extents("", arguments);
    for (place, name) in ["x", "y"].into_iter().enumerate() {
        levels.declare_strides(place, name, arguments);
    }
    let offset = |place: usize, name: &str| levels.offset("t_i64", place, name, "");
    [levels.taken_apart("t_i64", "at", ""), offset(0, "x"), offset(1, "y")]
}

fn plain(levels: &Levels, bytes: u64, starts: [i64; 2], places: [Argument; 2]) -> Launch {
    let mut arguments = declare(bytes, starts, places);
    let count = levels.count();
    arguments.integer("count", count);
    let [apart, from, to] = nest(levels, &mut arguments);
    let source =
        filled(COPY, &[("PARAMETERS", &arguments.text()), ("APART", &apart), ("FROM", &from), ("TO", &to)]);
    Launch {
        kernel: Kernel::new("copy", &source, arguments.parameters),
        blocks: count.unsigned_abs().div_ceil(THREADS),
        threads: 256,
        shared: 0,
        arguments: arguments.given,
    }
}

fn transposition(
    levels: &Levels,
    [row, column]: [usize; 2],
    bytes: u64,
    starts: [i64; 2],
    places: [Argument; 2],
) -> Launch {
    let around = |all: &[i64]| -> Vec<i64> {
        let rest = all.iter().enumerate().filter(|(level, _)| ![row, column].contains(level));
        rest.map(|(_, &it)| it).collect()
    };
    let outer = Levels {
        extents: around(&levels.extents),
        strides: levels.strides.iter().map(|it| around(it)).collect(),
    };
    let mut arguments = declare(bytes, starts, places);
    arguments.integer("rows", levels.extents[row]);
    arguments.integer("columns", levels.extents[column]);
    arguments.integer("row_from", levels.strides[0][row]);
    arguments.integer("column_to", levels.strides[1][column]);
    let [apart, from, to] = nest(&outer, &mut arguments);
    let source = filled(
        TRANSPOSE,
        &[
            ("C", unit(bytes)),
            ("PARAMETERS", &arguments.text()),
            ("APART", &apart),
            ("FROM", &from),
            ("TO", &to),
        ],
    );
    let squares = |level: usize| levels.extents[level].unsigned_abs().div_ceil(SQUARE);
    Launch {
        kernel: Kernel::new("transpose", &source, arguments.parameters),
        blocks: squares(row) * squares(column) * outer.count().unsigned_abs(),
        threads: 256,
        shared: ROOM,
        arguments: arguments.given,
    }
}

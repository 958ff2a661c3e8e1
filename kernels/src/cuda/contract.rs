//! Sums of products: which a library computes, and what has to be copied for it; sums along one line;
//! the others.
//!
//! Labels fall into four groups: those of all three values, which count products, and those of the rows, the
//! columns and the length of a product. A contraction is a product of matrices where each group is one
//! strided loop in both values that have it. Where that is not so, the smallest values that stand in the way
//! are copied to where it is, or from there.

use planner_ir::{Contract, DType, Label, Type};

use super::copying::Copying;
use super::launch::{Argument, Kernel, Launch, Matrix, MatrixProduct, Multiplied, Piece, Uncovered, Work};
use super::number::computed;
use super::reduce;
use super::strides::{Arguments, Levels, index_type, own_strides, signed};
use super::text::filled;

const TEMPLATE: &str = include_str!("templates/contract.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// What a thread to a result may compute of floating-point numbers (multiplications): more is copied, if it
/// has to be, so that a library computes it.
const SMALL: u64 = 1 << 18;

/// What starts of copies are multiples of (bytes).
const ALIGNED: u64 = 256;

/// Which values have the labels of a group, by group: the left operand, the right one, the result.
const BATCHES: [bool; 3] = [true, true, true];
const ROWS: [bool; 3] = [true, false, true];
const COLUMNS: [bool; 3] = [false, true, true];
const LENGTH: [bool; 3] = [true, true, false];

/// A contraction with the extents of its labels, and where the elements of its values lie.
#[derive(Clone)]
struct Labels<'a> {
    /// Of the left operand, the right one, the result.
    lists: [&'a [Label]; 3],
    shapes: [&'a [u64]; 3],
    strides: [Vec<i64>; 3],
}

impl<'a> Labels<'a> {
    fn new(contract: &'a Contract, [a, b]: [&'a Piece; 2], y: &'a Piece) -> Self {
        Self {
            lists: [&contract.left, &contract.right, &contract.result],
            shapes: [&a.type_.shape, &b.type_.shape, &y.type_.shape],
            strides: [a, b, y].map(Piece::strides),
        }
    }

    fn extent(&self, label: Label) -> u64 {
        let place = |value: usize| self.lists[value].iter().position(|it| *it == label);
        (0..3).find_map(|value| Some(self.shapes[value][place(value)?])).unwrap_or(1)
    }

    /// How far a label moves a value.
    fn stride(&self, value: usize, label: Label) -> i64 {
        let dim = self.lists[value].iter().position(|it| *it == label);
        dim.map_or(0, |dim| self.strides[value][dim])
    }

    /// The loops over labels, with the places of the left operand, the right one and the result.
    fn levels(&self, labels: &[Label]) -> Levels {
        let shape: Vec<u64> = labels.iter().map(|&it| self.extent(it)).collect();
        let of = |value: usize| labels.iter().map(|&it| self.stride(value, it)).collect();
        Levels::new(&shape, &[of(0), of(1), of(2)])
    }

    /// Labels as they lie in a value, the outermost first.
    fn lying(&self, value: usize, mut labels: Vec<Label>) -> Vec<Label> {
        labels.sort_by_key(|&it| std::cmp::Reverse(self.stride(value, it)));
        labels
    }

    /// The labels that just these values have, as they lie in that one of them.
    fn group_in(&self, has: [bool; 3], value: usize) -> Vec<Label> {
        let is_member = |label: &&Label| (0..3).all(|value| self.lists[value].contains(label) == has[value]);
        self.lying(value, self.lists[value].iter().filter(is_member).copied().collect())
    }

    /// The labels that just these values have, as they lie in the first that has them.
    fn group(&self, has: [bool; 3]) -> Vec<Label> {
        has.iter().position(|it| *it).map_or(vec![], |first| self.group_in(has, first))
    }

    /// How many elements a value has.
    fn elements(&self, value: usize) -> u64 {
        self.shapes[value].iter().product()
    }

    /// The one matrix product that it is, or one for each batch, if every group of labels is one strided
    /// loop, and rows or columns of each matrix lie together.
    fn product(&self) -> Option<MatrixProduct> {
        let groups = [BATCHES, ROWS, COLUMNS, LENGTH].map(|it| self.group(it));
        let levels = groups.map(|group| self.levels(&group));
        if levels.iter().any(|it| it.extents.len() > 1) {
            return None;
        }
        let stride = |group: usize, value: usize| levels[group].strides[value].first().copied();
        let together = |value: usize, groups: [usize; 2]| {
            groups.iter().any(|&group| stride(group, value).is_none_or(|it| it == 1))
        };
        if !(together(0, [1, 3]) && together(1, [2, 3]) && together(2, [1, 2])) {
            return None;
        }
        let matrix = |value: usize, rows: usize, columns: usize| Matrix {
            row: stride(rows, value),
            column: stride(columns, value),
            batch: stride(0, value).unwrap_or(0),
        };
        let [batches, rows, columns, length] = [0, 1, 2, 3].map(|group| levels[group].count().unsigned_abs());
        Some(MatrixProduct {
            batches,
            rows,
            columns,
            length,
            left: matrix(0, 1, 3),
            right: matrix(1, 3, 2),
            result: matrix(2, 1, 2),
        })
    }

    /// The contraction with some values in other places, where groups lie together: as they do in a value
    /// that stays, if one does.
    fn moved(&self, moves: [bool; 3]) -> Self {
        let mut moved = self.clone();
        for value in (0..3).filter(|&it| moves[it]) {
            let groups = [BATCHES, ROWS, COLUMNS, LENGTH].into_iter().filter(|has| has[value]);
            let labels: Vec<Label> = groups
                .flat_map(|has| {
                    let others = || (0..3).filter(|&it| has[it]);
                    let kept = others().find(|&it| !moves[it]).or_else(|| others().next());
                    kept.map_or(vec![], |kept| self.group_in(has, kept))
                })
                .collect();
            let extents: Vec<u64> = labels.iter().map(|&it| self.extent(it)).collect();
            for (label, stride) in labels.iter().zip(own_strides(&extents)) {
                for (dim, own) in self.lists[value].iter().enumerate() {
                    if own == label {
                        moved.strides[value][dim] = stride;
                    }
                }
            }
        }
        moved
    }

    /// The copy of a value from where its elements are to where another has them.
    fn copying(&self, to: &Self, value: usize, bytes: u64) -> Copying {
        let labels = to.lying(value, self.lists[value].to_vec());
        let strides = |label: Label| [self.stride(value, label), to.stride(value, label)];
        Copying {
            bytes,
            starts: [0, 0],
            loops: labels.iter().map(|&it| (self.extent(it), strides(it))).collect(),
        }
    }

    /// The product that it is when the fewest bytes are copied, and which values are.
    fn after_copies(&self, bytes: [u64; 3]) -> Option<([bool; 3], Self, MatrixProduct)> {
        let copied = |moves: &[bool; 3]| -> u64 {
            (0..3).filter(|&it| moves[it]).map(|it| bytes[it] * self.elements(it)).sum()
        };
        let mut all: Vec<[bool; 3]> = (0..8).map(|it| [it & 1, it & 2, it & 4].map(|it| it != 0)).collect();
        all.sort_by_key(copied);
        all.into_iter().find_map(|moves| {
            let moved = self.moved(moves);
            let product = moved.product()?;
            Some((moves, moved, product))
        })
    }
}

/// A contraction of floating-point numbers as matrix products, if it is one as its values lie.
pub fn product(contract: &Contract, operands: [&Type; 2], y: &Type) -> Option<MatrixProduct> {
    let [a, b, y] = [operands[0], operands[1], y].map(|it| Piece::whole(it.clone()));
    if a.type_.dtype.is_float() { Labels::new(contract, [&a, &b], &y).product() } else { None }
}

/// The orders of the dimensions of one of the values of a contraction, operands first, by which each group of
/// its labels lies together, as it does in another value.
pub fn orders(contract: &Contract, operands: [&Piece; 2], y: &Piece, value: usize) -> Vec<Vec<usize>> {
    let labels = Labels::new(contract, operands, y);
    let group = |has: [bool; 3]| {
        let other = (0..3).find(|&it| has[it] && it != value);
        other.map_or(vec![], |other| labels.group_in(has, other))
    };
    let [one, other] = match value {
        0 => [ROWS, LENGTH],
        1 => [COLUMNS, LENGTH],
        _ => [ROWS, COLUMNS],
    };
    let dim = |label: &Label| labels.lists[value].iter().position(|it| it == label);
    let order =
        |groups: [[bool; 3]; 3]| groups.into_iter().flat_map(group).filter_map(|it| dim(&it)).collect();
    vec![order([BATCHES, one, other]), order([BATCHES, other, one])]
}

/// `y[..] = sum of a[..] * b[..]`, and added to what lies as y does, if something is said.
pub(super) fn contract(
    contract: &Contract,
    operands: [&Piece; 2],
    addend: Option<&Piece>,
    y: &Piece,
) -> Result<Work, Uncovered> {
    let [a, b] = operands;
    let labels = Labels::new(contract, operands, y);
    let dtypes = [a, b, y].map(|it| it.type_.dtype);
    let adds = match addend {
        None => Adds::Nothing,
        Some(it) if it.type_.dtype == y.type_.dtype => Adds::Operand,
        Some(it) => {
            let (is, made) = (it.type_.dtype, y.type_.dtype);
            return Err(Uncovered::Missing(format!("a product of {made} that is added to {is}")));
        }
    };
    if !dtypes[0].is_float() {
        return Ok(plain_product(&labels, dtypes, adds));
    }
    let count = |has: [bool; 3]| labels.levels(&labels.group(has)).count();
    if count(ROWS) == 1 && count(COLUMNS) == 1 && dtypes[0] == dtypes[1] && adds == Adds::Nothing {
        let kept = labels.levels(&labels.lying(2, contract.result.clone()));
        let summed = labels.levels(&labels.group(LENGTH));
        return Ok(reduce::dots(dtypes[0], y.type_.dtype, kept, summed));
    }
    let is_large = labels.elements(2).saturating_mul(count(LENGTH).unsigned_abs()) > SMALL;
    let found = labels.product().map(|it| ([false; 3], labels.clone(), it));
    match found.or_else(|| is_large.then(|| labels.after_copies(dtypes.map(DType::bytes))).flatten()) {
        Some(found) => Err(Uncovered::Library(Box::new(multiplied(&labels, dtypes, adds, &found)))),
        None => Ok(plain_product(&labels, dtypes, adds)),
    }
}

/// What a product is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Adds {
    Nothing,
    /// The third operand.
    Operand,
}

/// The product of values some of which are copied.
fn multiplied(
    labels: &Labels,
    dtypes: [DType; 3],
    adds: Adds,
    (moves, moved, product): &([bool; 3], Labels, MatrixProduct),
) -> Multiplied {
    let mut matrices = [Argument::Operand(0), Argument::Operand(1), Argument::Result(0)];
    let (mut before, mut after, mut room) = (vec![], vec![], 0);
    let mut addend = (adds == Adds::Operand).then_some(Argument::Operand(2));
    for value in (0..3).filter(|&it| moves[it]) {
        let bytes = dtypes[value].bytes();
        let there = Argument::Room(room);
        let own = std::mem::replace(&mut matrices[value], there);
        room += (bytes * labels.elements(value)).next_multiple_of(ALIGNED);
        if value == 2 {
            after = moved.copying(labels, value, bytes).work(there, own).launches;
            if let Some(addend) = &mut addend {
                // The product is made where what it is added to has been copied.
                before.extend(labels.copying(moved, value, bytes).work(*addend, there).launches);
                *addend = there;
            }
        } else {
            before.extend(labels.copying(moved, value, bytes).work(own, there).launches);
        }
    }
    let plain = plain_product(moved, dtypes, adds).given(|argument| match argument {
        Argument::Operand(2) => addend.unwrap_or(argument),
        Argument::Operand(number) => matrices[number],
        Argument::Result(_) => matrices[2],
        other => other,
    });
    Multiplied { before, product: *product, dtypes, matrices, addend, after, room, plain }
}

/// The kernel that does without a library what one would do.
fn plain_product(labels: &Labels, [dtype, _, to]: [DType; 3], adds: Adds) -> Work {
    let count = labels.elements(2);
    if count == 0 {
        return Work::default();
    }
    let made = labels.levels(&labels.lying(2, labels.lists[2].to_vec()));
    let summed = labels.levels(&labels.group(LENGTH));
    let mut arguments = Arguments::default();
    arguments.reads("a", dtype, Argument::Operand(0));
    arguments.reads("b", dtype, Argument::Operand(1));
    if adds == Adds::Operand {
        arguments.reads("z", to, Argument::Operand(2));
    }
    arguments.writes("y", to, Argument::Result(0));
    arguments.integer("count", signed(count));
    arguments.integer("length", summed.count());
    for (levels, prefix) in [(&made, "m"), (&summed, "j")] {
        levels.declare_extents(prefix, &mut arguments);
        for (value, name) in ["a", "b"].into_iter().enumerate() {
            levels.declare_strides(value, &format!("{prefix}{name}"), &mut arguments);
        }
    }
    let offset = |levels: &Levels, value: usize, prefix: &str| {
        let name = ["a", "b"][value];
        levels.offset("t_i64", value, &format!("{prefix}{name}"), prefix)
    };
    let before = match adds {
        Adds::Nothing => String::new(),
        Adds::Operand => format!("    t_load_{}_1(z + at, &sum);\n", to.name()),
    };
    // A thread takes an index apart for each number that it sums.
    let index = index_type(summed.count().unsigned_abs());
    let source = filled(
        TEMPLATE,
        &[
            ("PARAMETERS", &arguments.text()),
            ("APART", &made.taken_apart("t_i64", "at", "m")),
            ("SUMMED", &summed.taken_apart(index, &format!("({index})j"), "j")),
            ("LEFT", &offset(&made, 0, "m")),
            ("RIGHT", &offset(&made, 1, "m")),
            ("LEFTSTEP", &offset(&summed, 0, "j")),
            ("RIGHTSTEP", &offset(&summed, 1, "j")),
            ("BEFORE", &before),
            ("T", computed(dtype)),
            ("D", dtype.name()),
            ("F", to.name()),
        ],
    );
    let launch = Launch {
        kernel: Kernel::new("contract", &source, arguments.parameters),
        blocks: count.div_ceil(THREADS),
        threads: 256,
        shared: 0,
        arguments: arguments.given,
    };
    Work { launches: vec![launch], room: 0 }
}

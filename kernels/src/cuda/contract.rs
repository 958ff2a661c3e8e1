//! Sums of products that no library computes: of integers, or where labels do not lie as rows and
//! columns of matrices do.

use planner_ir::{Contract, Label, Type};

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::computed;
use super::strides::{Arguments, Levels, own_strides, signed};
use super::text::filled;

const TEMPLATE: &str = include_str!("templates/contract.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// A contraction with the extents and strides of its labels.
struct Labels<'a> {
    lists: [&'a [Label]; 3],
    shapes: [&'a [u64]; 3],
}

impl Labels<'_> {
    /// The loops over labels, with the places of the left operand, the right one and the result.
    fn levels(&self, labels: &[Label]) -> Levels {
        let strides = self.shapes.map(own_strides);
        let place = |value: usize, label: &Label| self.lists[value].iter().position(|it| it == label);
        let extent = |label: &Label| {
            let value = (0..3).find_map(|value| Some(self.shapes[value][place(value, label)?]));
            value.unwrap_or(1)
        };
        let shape: Vec<u64> = labels.iter().map(extent).collect();
        let of = |value: usize| {
            labels.iter().map(|label| place(value, label).map_or(0, |dim| strides[value][dim])).collect()
        };
        Levels::new(&shape, &[of(0), of(1), of(2)])
    }

    /// The labels that just these values have, in the order of the first that has them.
    fn group(&self, has: [bool; 3]) -> Vec<Label> {
        let Some(first) = has.iter().position(|it| *it) else { return vec![] };
        let is_member = |label: &&Label| (0..3).all(|value| self.lists[value].contains(label) == has[value]);
        self.lists[first].iter().filter(is_member).copied().collect()
    }

    /// The one matrix product that it is, or one for each batch, if every group of labels is one strided
    /// loop, and rows or columns of each matrix lie together.
    fn product(&self) -> Option<MatrixProduct> {
        let groups = [
            self.group([true, true, true]),
            self.group([true, false, true]),
            self.group([false, true, true]),
            self.group([true, true, false]),
        ];
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
}

/// `result[b, i, j] = sum over l of left[b, i, l] * right[b, l, j]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixProduct {
    /// How many products there are.
    pub batches: u64,
    /// Rows of the left matrix and of the result.
    pub rows: u64,
    /// Columns of the right matrix and of the result.
    pub columns: u64,
    /// Columns of the left matrix and rows of the right one.
    pub length: u64,
    /// Where the elements of the left matrices are.
    pub left: Matrix,
    /// Where those of the right ones are.
    pub right: Matrix,
    /// Where those of the results are.
    pub result: Matrix,
}

/// Where the elements of matrices are: rows or columns lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// How far a row is from the one before it (elements); none if there is one row.
    pub row: Option<i64>,
    /// How far a column is from the one before it (elements); none if there is one column.
    pub column: Option<i64>,
    /// How far a matrix is from the one before it (elements).
    pub batch: i64,
}

/// A contraction of floating-point numbers as matrix products, if it is: what a library computes.
pub fn product(contract: &Contract, operands: [&Type; 2], y: &Type) -> Option<MatrixProduct> {
    let [a, b] = operands;
    let labels = Labels {
        lists: [&contract.left, &contract.right, &contract.result],
        shapes: [&a.shape, &b.shape, &y.shape],
    };
    if a.dtype.is_float() { labels.product() } else { None }
}

/// `y[..] = sum of a[..] * b[..]`.
pub(super) fn contract(contract: &Contract, operands: [&Piece; 2], y: &Piece) -> Result<Work, Uncovered> {
    let [a, b] = operands;
    if product(contract, [&a.type_, &b.type_], &y.type_).is_some() {
        return Err(Uncovered::Library("cuBLASLt"));
    }
    Ok(plain_product(contract, operands, y))
}

/// The kernel that does without a library what one would do.
pub fn plain_product(contract: &Contract, [a, b]: [&Piece; 2], y: &Piece) -> Work {
    let dtype = a.type_.dtype;
    let labels = Labels {
        lists: [&contract.left, &contract.right, &contract.result],
        shapes: [&a.type_.shape, &b.type_.shape, &y.type_.shape],
    };
    let count = y.type_.elements();
    if count == 0 {
        return Work::default();
    }
    let made = labels.levels(&contract.result);
    let summed = labels.levels(&labels.group([true, true, false]));
    let mut arguments = Arguments::default();
    arguments.reads("a", dtype, Argument::Operand(0));
    arguments.reads("b", dtype, Argument::Operand(1));
    arguments.writes("y", y.type_.dtype, Argument::Result(0));
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
    let source = filled(
        TEMPLATE,
        &[
            ("PARAMETERS", &arguments.text()),
            ("APART", &made.taken_apart("t_i64", "at", "m")),
            ("SUMMED", &summed.taken_apart("t_i64", "j", "j")),
            ("LEFT", &offset(&made, 0, "m")),
            ("RIGHT", &offset(&made, 1, "m")),
            ("LEFTSTEP", &offset(&summed, 0, "j")),
            ("RIGHTSTEP", &offset(&summed, 1, "j")),
            ("T", computed(dtype)),
            ("D", dtype.name()),
            ("F", y.type_.dtype.name()),
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

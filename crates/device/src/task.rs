//! One or more instructions of a program as kernels.

use std::ops::Range;

use kernels::cuda::{Piece, Uncovered, Work};
use lower::{BufferId, Program};
use planner_ir::Op;

/// One or more instructions of a program as kernels, in the order of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Which instructions, in order; others between them are not part of it.
    pub instructions: Vec<usize>,
    /// Where they are issued: where one of them stands.
    pub at: usize,
    /// What they do.
    pub what: String,
    /// What the kernels read.
    pub operands: Vec<BufferId>,
    /// What they write.
    pub results: Vec<BufferId>,
    /// The kernels, or why there are none.
    pub work: Result<Work, Uncovered>,
}

/// Whether repetitions or the guard of states begin or end at one of these instructions.
pub(crate) fn is_cut(program: &Program, numbers: Range<usize>) -> bool {
    let repeated = program.repeated.as_ref().map(|it| it.instructions.clone());
    let ends = repeated.into_iter().flat_map(|it| [it.start, it.end]);
    let cuts = ends.chain(program.barriers()).chain(program.guard);
    cuts.into_iter().any(|cut| numbers.contains(&cut))
}

/// Blocks of values that lie row-major.
pub(crate) fn pieces(program: &Program, blocks: &[lower::Block]) -> Vec<Piece> {
    let piece = |block: &lower::Block| {
        let type_ = program.buffer(block.buffer).type_.clone();
        Piece { spans: block.spans.clone(), ..Piece::whole(type_) }
    };
    blocks.iter().map(piece).collect()
}

pub(crate) fn buffers(blocks: &[lower::Block]) -> Vec<BufferId> {
    blocks.iter().map(|block| block.buffer).collect()
}

/// What an operation is called, without its numbers: functions by their own names.
pub fn named(op: &Op) -> String {
    match op {
        Op::Unary(function) => format!("{function:?}"),
        Op::Binary(function) => format!("{function:?}"),
        _ => format!("{op:?}").chars().take_while(char::is_ascii_alphanumeric).collect(),
    }
}

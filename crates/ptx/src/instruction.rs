//! Decoded instructions.

use crate::comparisons::Comparison;
use crate::functions::Function;

/// An instruction, its names resolved.
#[derive(Debug)]
pub(crate) struct Instruction {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// The predicate that it depends on, and whether that has to be false.
    pub(crate) guard: Option<(usize, bool)>,
    pub(crate) operation: Operation,
}

/// A register: its number, and how long it is (bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) number: usize,
    pub(crate) width: u32,
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Register(usize),
    /// A number; also where a symbol is.
    Immediate(u64),
    /// The number of the thread in its block.
    Thread,
    /// The number of the block.
    Block,
    /// How many threads a block has.
    Threads,
    /// How many blocks there are.
    Blocks,
    /// The number of the thread in its warp.
    Lane,
}

/// A truth value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Truth {
    Predicate(usize),
    /// A predicate, negated.
    Not(usize),
    Known(bool),
}

/// Memory by whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
}

/// An address: a register or a symbol, and how far behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) base: Source,
    pub(crate) behind: u64,
}

/// What is between two truth values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Connective {
    And,
    Or,
    Xor,
}

/// Elements of 16 bits that are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    Half,
    Bf16,
}

/// Of which lane a shuffle takes the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    /// That whose number differs in these bits.
    Differing,
    /// That of this number.
    Numbered,
    /// So many above.
    Above,
    /// So many below.
    Below,
}

/// What is done.
#[derive(Debug)]
pub(crate) enum Operation {
    Compute {
        function: Function,
        to: Register,
        from: [Source; 4],
    },
    /// A register from its parts, the lowest first.
    Join {
        to: Register,
        from: Vec<(Source, u32)>,
    },
    /// A register to its parts, the lowest first.
    Split {
        to: Vec<Register>,
        from: Source,
    },
    Compare {
        comparison: Comparison,
        to: usize,
        from: [Source; 2],
        with: Option<(Connective, Truth)>,
    },
    Connect {
        connective: Connective,
        to: usize,
        from: [Truth; 2],
    },
    Select {
        to: Register,
        from: [Source; 2],
        by: Truth,
    },
    /// The bits of an argument that start so far behind the start of all (bytes).
    Parameter {
        to: Register,
        at: usize,
        bytes: usize,
    },
    Load {
        space: Space,
        to: Vec<Option<Register>>,
        element: Element,
        address: Address,
        used: u64,
    },
    Store {
        space: Space,
        from: Vec<Source>,
        element: Element,
        address: Address,
    },
    Branch {
        to: usize,
    },
    Exit,
    /// All threads of the block meet.
    Barrier,
    /// The lanes of a mask meet.
    WarpBarrier {
        mask: Source,
    },
    Shuffle {
        how: Shuffle,
        to: Register,
        given: Option<usize>,
        from: Source,
        by: Source,
        clamp: Source,
        mask: Source,
    },
    /// Bytes on their way to shared memory: as many as are asked for, zeros behind what there is.
    CopyAsync {
        to: Address,
        from: Address,
        bytes: u64,
        there: Option<Source>,
    },
    /// What is on its way is a group.
    Commit,
    /// At most so many groups are still on their way.
    Wait {
        but: u64,
    },
    /// 8x8 matrices of 16 bits.
    LoadMatrices {
        to: Vec<Register>,
        address: Address,
        turned: bool,
    },
    /// `d = a b + c`: m16n8k16.
    Multiply {
        narrow: Narrow,
        to: [Register; 4],
        a: [Source; 4],
        b: [Source; 2],
        c: [Source; 4],
    },
    /// What orders memory for others than the block's threads.
    Fence,
}

/// An element in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    /// How long it is.
    pub(crate) bytes: u64,
    /// Whether longer registers are filled with its sign.
    pub(crate) signed: bool,
}

impl Operation {
    /// The lanes that have to take part, where an instruction asks for them: a mask, or all.
    pub(crate) fn together(&self) -> Option<Source> {
        match self {
            Self::WarpBarrier { mask } | Self::Shuffle { mask, .. } => Some(*mask),
            Self::Barrier | Self::LoadMatrices { .. } | Self::Multiply { .. } => {
                Some(Source::Immediate(u32::MAX.into()))
            }
            _ => None,
        }
    }
}

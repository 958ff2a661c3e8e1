//! What a kernel does wrong, and where.

use std::fmt;

/// Something that a kernel may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel.
    pub kernel: String,
    /// The line of its PTX, from 1; 0 if it is none of an instruction.
    pub line: usize,
    /// The block.
    pub block: u64,
    /// The thread of the block.
    pub thread: usize,
    /// What it does.
    pub what: What,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An access to bytes that are in no buffer.
    Outside {
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: u64,
        /// The buffer below, and how far behind its start.
        near: String,
    },
    /// An access at no multiple of its size.
    Misaligned {
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: u64,
        /// In which buffer, and how far behind its start.
        near: String,
    },
    /// A read of bytes that nobody wrote, or that are still on their way.
    Unwritten {
        /// Where.
        address: u64,
        /// In which buffer, and how far behind its start.
        near: String,
    },
    /// A write to what is only to be read.
    ReadOnly {
        /// Where.
        address: u64,
        /// In which buffer, and how far behind its start.
        near: String,
    },
    /// Two accesses to the same bytes, of which one is a write, with nothing between them that orders them.
    Race {
        /// Where.
        address: u64,
        /// In which buffer, and how far behind its start.
        near: String,
        /// Who the other is.
        other: String,
    },
    /// Lanes of a warp wait for others that never come.
    Diverged {
        /// Those that wait.
        waiting: u32,
        /// Those that they wait for.
        missing: u32,
    },
    /// A lane is asked for a value that it does not give.
    Absent {
        /// Which lane.
        lane: usize,
    },
    /// Threads of the block that never reach a barrier at which others wait.
    Barrier {
        /// How many.
        missing: usize,
    },
    /// More instructions than a warp may run.
    Endless {
        /// How many.
        most: u64,
    },
    /// A launch that the kernel does not allow.
    Launch(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, line, block, thread, what } = self;
        write!(f, "{kernel}, line {line} of its PTX, block {block}, thread {thread}: {what}")
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { address, bytes, near } => {
                write!(f, "{bytes} bytes at {address:#x} are outside every buffer: {near}")
            }
            Self::Misaligned { address, bytes, near } => {
                write!(f, "{address:#x} is no multiple of the {bytes} bytes that are accessed: {near}")
            }
            Self::Unwritten { address, near } => {
                write!(f, "the byte at {address:#x} is read and nobody has written it: {near}")
            }
            Self::ReadOnly { address, near } => {
                write!(f, "the byte at {address:#x} is written and is only to be read: {near}")
            }
            Self::Race { address, near, other } => {
                write!(
                    f,
                    "the byte at {address:#x} is accessed by {other} too, and no barrier is between: {near}"
                )
            }
            Self::Diverged { waiting, missing } => {
                write!(f, "lanes {waiting:#010x} wait for lanes {missing:#010x}, which do not come")
            }
            Self::Absent { lane } => write!(f, "lane {lane} is asked for a value and does not take part"),
            Self::Barrier { missing } => {
                write!(f, "a barrier that {missing} threads of the block never reach")
            }
            Self::Endless { most } => write!(f, "more than {most} instructions: it does not end"),
            Self::Launch(why) => f.write_str(why),
        }
    }
}

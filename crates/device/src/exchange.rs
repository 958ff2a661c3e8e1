//! What happens where ranks meet: what a transport does on devices.
//!
//! One thread issues the instructions of all ranks that are in this process, a rank at a time, in the
//! order of its program. At an exchange it asks the transport, which issues what is to be done on the
//! stream of the instruction: after what the stream has been told to wait for, and before what is issued
//! on it next. An exchange is over when the stream gets past it: then its output is there, and its input
//! may be written again.
//!
//! A transport whose ranks are all in this process ([`crate::together`]) says that a rank has to wait
//! until others have been issued to the same point; it is asked again then. One whose ranks are in other
//! processes never does: it issues a call of its library.

use kernels::cuda::Work;
use lower::{Action, BufferId, Collective, CollectiveKind, Direction, Program, Remote, Way};
use planner_ir::DType;

use crate::cache::Loaded;
use crate::error::DeviceError;
use crate::rank::Rank;
use crate::ready::Given;
use crate::tasks::strided;

/// An exchange that has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Which of the ranks in this process.
    pub(crate) rank: usize,
    /// Which instruction of its program: a collective, a message, a send or a receive.
    pub(crate) instruction: usize,
    /// For which micro-batch.
    pub(crate) micro_batch: u64,
}

/// How far an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything of it has been issued.
    Issued,
    /// Other ranks of this process have to be issued first.
    Waiting,
}

/// Which half of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// What is done in any case.
    First,
    /// What is left out if outputs are not finite.
    Guarded,
}

/// How ranks on devices exchange.
pub(crate) trait Exchange {
    /// The kernels that exchanges of these programs, those of this process, need: sums, strided copies.
    fn works(&self, programs: &[&Program]) -> Vec<Work>;

    /// Whether what is issued can be captured, and issued again at once.
    fn captures(&self) -> bool;

    /// Everything that is allocated, connected and loaded, before the first step; the ranks have their
    /// memory and streams, the kernels are loaded.
    fn prepare(&mut self, ranks: &[Rank], loaded: &Loaded) -> Result<(), DeviceError>;

    /// A half of a step begins to be issued.
    fn begins(&mut self, _half: Half) {}

    /// Issues an exchange. Nothing is allocated here, and nobody waits on the host.
    fn issue(&mut self, ranks: &[Rank], now: Now, given: &mut Given) -> Result<Progress, DeviceError>;

    /// A half of a step has been issued, and is over on the ranks' streams: waits until what is exchanged
    /// is over too.
    fn ends(&mut self, _half: Half) -> Result<(), DeviceError> {
        Ok(())
    }

    /// The device goes away, maybe in the middle of a step: nothing of it may wait for other ranks.
    fn leaves(&mut self) {}
}

/// The parts of an instruction that go to other ranks, or come from them.
pub(crate) fn remotes(action: &Action) -> Option<(BufferId, &[Remote])> {
    match action {
        Action::Send(it) => Some((it.input, &it.parts)),
        Action::Receive(it) => Some((it.output, &it.parts)),
        _ => None,
    }
}

/// The copy between a buffer of that type and a message.
pub(crate) fn copy(remote: &Remote, dtype: DType) -> Work {
    let direction = if remote.way == Way::To { Direction::Take } else { Direction::Put };
    strided(&remote.strided, direction, dtype.bytes())
}

/// The copies between buffers and messages of these programs.
pub(crate) fn copies(programs: &[&Program]) -> Vec<Work> {
    let mut works = Vec::new();
    for program in programs {
        for (buffer, parts) in program.instructions.iter().filter_map(|it| remotes(&it.action)) {
            let dtype = program.buffer(buffer).type_.dtype;
            works.extend(parts.iter().map(|it| copy(it, dtype)));
        }
    }
    works
}

/// Whether a member's block of a sum lies where its input starts. It is made in its own place of the input, where
/// nobody else reads, and copied from there when all have read.
pub(crate) fn is_settled(kind: CollectiveKind, input: u64, output: u64) -> bool {
    kind == CollectiveKind::ReduceScatter && input == output
}

/// Refuses a collective whose output lies where others still read its input: a sum may lie exactly there, and a
/// block of one where that starts.
pub(crate) fn expect_apart(rank: &Rank, number: usize, collective: &Collective) -> Result<(), DeviceError> {
    let place = |buffer: BufferId| {
        let start = rank.address(buffer, 0);
        start..start + rank.bytes(buffer)
    };
    let (input, output) = (place(collective.input), place(collective.output));
    let apart = input.end <= output.start || output.end <= input.start;
    let sums = matches!(collective.kind, CollectiveKind::AllReduce | CollectiveKind::Reduce(_));
    if apart || sums && input == output || is_settled(collective.kind, input.start, output.start) {
        return Ok(());
    }
    let (own, text) = (rank.program.rank, rank.program.show(&rank.program.instructions[number]));
    Err(DeviceError::Program(format!("rank {own}, instruction {number} ({text}) writes what others read")))
}

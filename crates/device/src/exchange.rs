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
use lower::Program;

use crate::cache::Loaded;
use crate::error::DeviceError;
use crate::rank::Rank;
use crate::ready::Given;

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

/// How ranks on devices exchange.
pub(crate) trait Exchange {
    /// The kernels that exchanges of these programs, those of this process, need: sums, strided copies.
    fn works(&self, programs: &[&Program]) -> Vec<Work>;

    /// Whether what is issued can be captured, and issued again at once.
    fn captures(&self) -> bool;

    /// Everything that is allocated, connected and loaded, before the first step; the ranks have their
    /// memory and streams, the kernels are loaded.
    fn prepare(&mut self, ranks: &[Rank], loaded: &Loaded) -> Result<(), DeviceError>;

    /// Issues an exchange. Nothing is allocated here, and nobody waits on the host.
    fn issue(&mut self, ranks: &[Rank], now: Now, given: &mut Given) -> Result<Progress, DeviceError>;
}

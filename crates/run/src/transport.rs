//! How a rank reaches others.

use std::ops::Range;

/// What a rank stops with when another one has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenUp;

/// What a member of a communicator takes of what another has put down.
pub(crate) struct Taken<'a> {
    /// Whose, in the order of blocks; it may be its own.
    pub(crate) member: usize,
    /// Which part of what it has put down (bytes).
    pub(crate) part: Range<usize>,
    /// Where it is put, of the part's size.
    pub(crate) into: &'a mut [u8],
}

/// How a rank reaches others in a step.
///
/// Communicators are those of the rank's program. In each round of one, every member puts bytes down
/// and then takes parts of what the members have put down. What it gives is what the others take, in
/// the same sizes.
pub(crate) trait Transport {
    /// An instruction begins, of a micro-batch: for records of what was done last.
    fn begins(&self, _instruction: usize, _micro_batch: u64) {}

    /// Which member of a communicator this rank is, in the order of blocks.
    fn number(&self, communicator: usize) -> usize;

    /// The first part of a round: puts bytes down.
    fn put(&mut self, communicator: usize, bytes: &[u8]) -> Result<(), GivenUp>;

    /// The second part: gives to other members parts of what was put down, and takes parts of what
    /// the members have put down.
    fn take(
        &mut self,
        communicator: usize,
        gives: &[(usize, Range<usize>)],
        takes: Vec<Taken<'_>>,
    ) -> Result<(), GivenUp>;

    /// Sends bytes to another rank, without waiting for it; nothing if it is not one that this rank
    /// sends to.
    fn send(&mut self, to: u64, bytes: Vec<u8>) -> Option<()>;

    /// Waits for the next bytes that another rank sends, as many as said; nothing if it is not one
    /// that sends to this rank.
    fn receive(&mut self, from: u64, length: usize) -> Option<Result<Vec<u8>, GivenUp>>;
}

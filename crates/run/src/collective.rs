//! Exchanges between ranks.
//!
//! An all-reduce is a reduce-scatter, in blocks that differ by one element at most, and an
//! all-gather. A message is a meeting of all members in which each takes what one of them has put
//! down. Each block of a sum is made by one rank, from the addends in the order of the
//! communicator's ranks: all have the same bits, whatever the timing. Narrow numbers (bf16, f16)
//! are added in f32 and rounded once, by the kernel that sums, however many ranks there are; single
//! elements of sixteen ranks and more are added in another order, the same everywhere.

use std::ops::Range;

use kernels::{Array, KernelError, Tensor, TensorMut};
use lower::CollectiveKind;
use planner_ir::{DType, Op, Reduction, Type};

use crate::meeting::{Failure, GivenUp, Meeting};

/// Why a rank stops in a collective.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another one has failed.
    GivenUp,
    /// It has.
    Kernel(KernelError),
}

impl From<GivenUp> for Stop {
    fn from(_: GivenUp) -> Self {
        Self::GivenUp
    }
}

impl From<KernelError> for Stop {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

/// A member of a meeting.
pub(crate) struct Member<'a> {
    pub(crate) meeting: &'a Meeting,
    pub(crate) failure: &'a Failure,
    /// Which one it is, in the order of blocks.
    pub(crate) number: usize,
    /// In how many rounds it has taken part.
    pub(crate) rounds: usize,
    /// What it has received from others (bytes).
    pub(crate) received: u64,
}

/// Where what a rank gets is put.
pub(crate) struct Target<'a> {
    pub(crate) dtype: DType,
    pub(crate) bytes: &'a mut [u8],
    /// For the addends of a sum.
    pub(crate) scratch: &'a mut Array,
}

impl Member<'_> {
    /// The first part of a collective: gives the input.
    pub(crate) fn give(&mut self, input: &[u8]) -> Result<(), GivenUp> {
        self.rounds += 1;
        self.meeting.give(self.number, self.rounds, input, self.failure)
    }

    /// The second part: gets the output.
    pub(crate) fn get(&mut self, kind: CollectiveKind, target: Target) -> Result<(), Stop> {
        let Target { dtype, bytes: output, scratch } = target;
        let members = self.meeting.members.len();
        match kind {
            CollectiveKind::AllGather => self.collect(output, |length| 0..length),
            CollectiveKind::AllToAll => {
                let own = self.number;
                self.collect(output, |length| own * length..(own + 1) * length);
            }
            CollectiveKind::Broadcast(root) => self.take(root, 0..output.len(), output),
            CollectiveKind::Reduce(root) => {
                if root == self.number {
                    self.sum(0, dtype, output, scratch)?;
                }
            }
            CollectiveKind::ReduceScatter => {
                let length = output.len();
                self.sum(self.number * length, dtype, output, scratch)?;
            }
            CollectiveKind::AllReduce => {
                let own = block(output.len(), members, self.number, dtype)?;
                self.sum(own.start, dtype, &mut output[own.clone()], scratch)?;
                self.give(&output[own])?;
                for member in 0..members {
                    if member == self.number {
                        continue;
                    }
                    let block = block(output.len(), members, member, dtype)?;
                    let length = block.len();
                    self.take(member, 0..length, &mut output[block]);
                }
            }
        }
        Ok(())
    }

    /// The second part of a message: gets what a rank has given.
    ///
    /// # Panics
    /// If that is no member.
    pub(crate) fn get_from(&mut self, rank: u64, output: &mut [u8]) {
        let member = self.meeting.members.iter().position(|&it| it == rank);
        let member = member.expect("messages are between members, which is verified");
        self.take(member, 0..output.len(), output);
    }

    /// Sets equal parts of the output to the named part of what each member gives.
    fn collect(&mut self, output: &mut [u8], part: impl Fn(usize) -> Range<usize>) {
        let length = output.len() / self.meeting.members.len();
        for member in 0..self.meeting.members.len() {
            let target = &mut output[member * length..(member + 1) * length];
            self.take(member, part(length), target);
        }
    }

    /// Sets the output to the sum of what all members give from that place on.
    fn sum(
        &mut self,
        start: usize,
        dtype: DType,
        output: &mut [u8],
        scratch: &mut Array,
    ) -> Result<(), KernelError> {
        let (members, length) = (self.meeting.members.len(), output.len());
        if scratch.bytes().len() < members * length {
            let bytes = u64::try_from(members * length).map_err(|_| KernelError::Size)?;
            *scratch = Array::zeros(Type::new(DType::U8, [bytes]))?;
        }
        let addends = &mut scratch.bytes_mut()[..members * length];
        for member in 0..members {
            let target = &mut addends[member * length..(member + 1) * length];
            self.take(member, start..start + length, target);
        }
        let count = |it: usize| u64::try_from(it).map_err(|_| KernelError::Size);
        let elements = count(length)? / dtype.bytes();
        let shape = [count(members)?, elements];
        let addends = Tensor { dtype, shape: &shape, bytes: addends, spans: &[] };
        let sum = TensorMut { dtype, shape: &[1, elements], bytes: output, spans: &[] };
        let op = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
        kernels::compute(&op, &[addends], &mut [sum])
    }

    /// Copies a part of what a member has given in the last round.
    fn take(&mut self, member: usize, part: Range<usize>, target: &mut [u8]) {
        let given = self.meeting.given(member, self.rounds);
        target.copy_from_slice(&given[part]);
        if member != self.number {
            // A length always fits.
            self.received += u64::try_from(target.len()).unwrap_or(u64::MAX);
        }
    }
}

/// The bytes of one of so many blocks that differ by one element at most.
fn block(bytes: usize, blocks: usize, number: usize, dtype: DType) -> Result<Range<usize>, KernelError> {
    let size = usize::try_from(dtype.bytes()).map_err(|_| KernelError::Size)?;
    let elements = bytes / size;
    let start = |number: usize| (number * (elements / blocks) + number.min(elements % blocks)) * size;
    Ok(start(number)..start(number + 1))
}

//! Exchanges between ranks.
//!
//! An all-reduce is a reduce-scatter, in blocks that differ by one element at most, and an
//! all-gather. A message is a meeting of all members in which each takes what one of them has put
//! down. Each block of a sum is made by one rank, from the addends in the order of the
//! communicator's ranks: all have the same bits, whatever the timing. Narrow numbers (bf16, f16)
//! are added in f32 and rounded once, by the kernel that sums, however many ranks there are (what is made of rows that
//! one rank of a set passes on, twice); single
//! elements of sixteen ranks and more are added in another order, the same everywhere.

use std::ops::Range;

use kernels::{Array, KernelError, Tensor, TensorMut};
use lower::CollectiveKind;
use planner_ir::{DType, Op, Reduction, Type};

use crate::transport::{GivenUp, Taken, Transport};

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

/// A member of a communicator.
pub(crate) struct Member<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    /// Which communicator of the rank's program it is.
    pub(crate) communicator: usize,
    /// Who, in the order of their blocks.
    pub(crate) members: &'a [u64],
    /// Which one it is, in that order.
    pub(crate) number: usize,
    /// What it has put down in the last round (bytes).
    pub(crate) given: usize,
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
        self.given = input.len();
        self.transport.put(self.communicator, input)
    }

    /// The second part: gets the output.
    pub(crate) fn get(&mut self, kind: CollectiveKind, target: Target) -> Result<(), Stop> {
        let Target { dtype, bytes: output, scratch } = target;
        let (own, given, length) = (self.number, self.given, output.len());
        match kind {
            CollectiveKind::AllGather => {
                let gives = self.to_others(|_| 0..given);
                self.take(&gives, equal(output, self.members.len(), |length| 0..length))?;
            }
            CollectiveKind::AllToAll => {
                let part = length / self.members.len();
                let gives = self.to_others(|member| member * part..(member + 1) * part);
                let takes = equal(output, self.members.len(), |part| own * part..(own + 1) * part);
                self.take(&gives, takes)?;
            }
            CollectiveKind::Broadcast(root) => {
                let gives = if root == own { self.to_others(|_| 0..given) } else { Vec::new() };
                self.take(&gives, vec![Taken { member: root, part: 0..length, into: output }])?;
            }
            CollectiveKind::Reduce(root) if root == own => self.sum(&[], 0, dtype, output, scratch)?,
            CollectiveKind::Reduce(root) => self.take(&[(root, 0..given)], Vec::new())?,
            CollectiveKind::ReduceScatter => {
                let gives = self.to_others(|member| member * length..(member + 1) * length);
                self.sum(&gives, own * length, dtype, output, scratch)?;
            }
            CollectiveKind::AllReduce => self.all_reduce(dtype, output, scratch)?,
            CollectiveKind::Dispatch | CollectiveKind::Combine => {
                return Err(Stop::Kernel(KernelError::Size));
            }
        }
        Ok(())
    }

    /// The second part of a message: gives the input to some ranks, and gets what a rank has given.
    ///
    /// # Panics
    /// If one is no member.
    pub(crate) fn get_from(&mut self, to: &[u64], from: u64, output: &mut [u8]) -> Result<(), Stop> {
        let member = |rank: u64| {
            let member = self.members.iter().position(|&it| it == rank);
            member.expect("messages are between members, which is verified")
        };
        let gives: Vec<_> = to.iter().map(|&rank| (member(rank), 0..self.given)).collect();
        let taken = Taken { member: member(from), part: 0..output.len(), into: output };
        Ok(self.take(&gives, vec![taken])?)
    }

    /// Sums a block, and exchanges it for those of the others.
    fn all_reduce(&mut self, dtype: DType, output: &mut [u8], scratch: &mut Array) -> Result<(), Stop> {
        let members = self.members.len();
        let blocks = (0..members).map(|member| block(output.len(), members, member, dtype));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        let own = blocks[self.number].clone();
        let gives = self.to_others(|member| blocks[member].clone());
        self.sum(&gives, own.start, dtype, &mut output[own.clone()], scratch)?;
        self.give(&output[own])?;
        let given = self.given;
        let gives = self.to_others(|_| 0..given);
        let mut takes = Vec::with_capacity(members);
        let mut rest = output;
        for (member, block) in blocks.iter().enumerate() {
            let (into, tail) = rest.split_at_mut(block.len());
            if member != self.number {
                takes.push(Taken { member, part: 0..block.len(), into });
            }
            rest = tail;
        }
        Ok(self.take(&gives, takes)?)
    }

    /// Sets the output to the sum of what all members give from that place on, and gives parts.
    fn sum(
        &mut self,
        gives: &[(usize, Range<usize>)],
        start: usize,
        dtype: DType,
        output: &mut [u8],
        scratch: &mut Array,
    ) -> Result<(), Stop> {
        let (members, length) = (self.members.len(), output.len());
        let addends = addends(scratch, members * length)?;
        self.take(gives, equal(addends, members, |_| start..start + length))?;
        Ok(add(addends, members, dtype, output)?)
    }

    /// To each other member, a part of what was given.
    fn to_others(&self, part: impl Fn(usize) -> Range<usize>) -> Vec<(usize, Range<usize>)> {
        let others = (0..self.members.len()).filter(|&member| member != self.number);
        others.map(|member| (member, part(member))).collect()
    }

    /// Gives and takes parts of what members have given in the last round.
    pub(crate) fn take(
        &mut self,
        gives: &[(usize, Range<usize>)],
        takes: Vec<Taken<'_>>,
    ) -> Result<(), GivenUp> {
        let others = takes.iter().filter(|taken| taken.member != self.number);
        let received: usize = others.map(|taken| taken.into.len()).sum();
        // A length always fits.
        self.received += u64::try_from(received).unwrap_or(u64::MAX);
        self.transport.take(self.communicator, gives, takes)
    }
}

/// Room for the addends of a sum: so many bytes.
pub(crate) fn addends(scratch: &mut Array, length: usize) -> Result<&mut [u8], KernelError> {
    if scratch.bytes().len() < length {
        let bytes = u64::try_from(length).map_err(|_| KernelError::Size)?;
        *scratch = Array::zeros(Type::new(DType::U8, [bytes]))?;
    }
    Ok(&mut scratch.bytes_mut()[..length])
}

/// Sets the output to the sum of so many addends, in their order.
pub(crate) fn add(
    addends: &[u8],
    members: usize,
    dtype: DType,
    output: &mut [u8],
) -> Result<(), KernelError> {
    let count = |it: usize| u64::try_from(it).map_err(|_| KernelError::Size);
    let elements = count(output.len())? / dtype.bytes();
    let shape = [count(members)?, elements];
    let addends = Tensor { dtype, shape: &shape, bytes: addends, spans: &[] };
    let sum = TensorMut { dtype, shape: &[1, elements], bytes: output, spans: &[] };
    let op = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
    kernels::compute(&op, &[addends], &mut [sum])
}

/// Equal parts of the output, one for the named part of what each member gives.
fn equal(output: &mut [u8], members: usize, part: impl Fn(usize) -> Range<usize>) -> Vec<Taken<'_>> {
    let length = output.len() / members;
    let mut rest = output;
    let taken = |member: usize| {
        let (into, tail) = std::mem::take(&mut rest).split_at_mut(length);
        rest = tail;
        Taken { member, part: part(length), into }
    };
    (0..members).map(taken).collect()
}

/// The bytes of one of so many blocks that differ by one element at most.
fn block(bytes: usize, blocks: usize, number: usize, dtype: DType) -> Result<Range<usize>, KernelError> {
    let size = usize::try_from(dtype.bytes()).map_err(|_| KernelError::Size)?;
    let elements = bytes / size;
    let start = |number: usize| (number * (elements / blocks) + number.min(elements % blocks)) * size;
    Ok(start(number)..start(number + 1))
}

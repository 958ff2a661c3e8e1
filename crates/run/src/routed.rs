//! Rows that go to the ranks that have parts which they use, and what is made of them back.
//!
//! Both sides know from gates which rows go. Where they go straight, each rank puts those for another one after
//! another, at the start of the block that is that rank's, and takes what there is of them. Where one of a set of
//! ranks passes rows on, see [`relayed`].

mod relayed; // rows that pass through one rank of a set

use lower::CollectiveKind;
use planner_ir::DType;

use crate::collective::{Member, Stop, Target, add, addends};
use crate::transport::Taken;

/// Which rows of a block go to each member, and which come from it, in order.
pub(crate) struct Routes {
    back: bool,
    /// How many rows a block has.
    count: usize,
    /// How many members a set has of which one passes rows on; 1 where rows go straight.
    by: usize,
    /// For each member, the own rows that use a part of it.
    own: Vec<Vec<usize>>,
    /// For each member, its rows that use an own part.
    others: Vec<Vec<usize>>,
}

impl Routes {
    /// Those of a dispatch, or of a combine, by the gates of the own rows and of the others'.
    pub(crate) fn of(
        kind: CollectiveKind,
        (count, by): (usize, usize),
        members: usize,
        [own, others]: [&[u8]; 2],
        dtype: DType,
    ) -> Self {
        let size = usize::try_from(dtype.bytes()).unwrap_or(1);
        let used = |gates: &[u8]| -> Vec<Vec<usize>> {
            let block = gates.len() / members.max(1);
            let row = (block / count.max(1)).max(size);
            let of = |block: &[u8]| {
                let rows = block.chunks_exact(row).enumerate();
                rows.filter(|(_, row)| row.chunks_exact(size).any(is_not_zero)).map(|it| it.0).collect()
            };
            gates.chunks(block.max(1)).map(of).collect()
        };
        let back = kind == CollectiveKind::Combine;
        Self { back, count, by: by.max(1), own: used(own), others: used(others) }
    }

    fn gives(&self) -> &[Vec<usize>] {
        if self.back { &self.others } else { &self.own }
    }

    fn gets(&self) -> &[Vec<usize>] {
        if self.back { &self.own } else { &self.others }
    }

    /// What is given: for each member a block that starts with the rows that it gets, or all as it lies where others
    /// pass rows on.
    pub(crate) fn pack(&self, input: &[u8]) -> Vec<u8> {
        if self.by > 1 {
            return input.to_vec();
        }
        let members = self.own.len();
        let block = if self.back { input.len() / members.max(1) } else { input.len() };
        let row = block / self.count.max(1);
        let mut packed = vec![0; block * members];
        for (member, (rows, into)) in self.gives().iter().zip(packed.chunks_mut(block.max(1))).enumerate() {
            let from = if self.back { &input[member * block..] } else { input };
            for (&number, into) in rows.iter().zip(into.chunks_exact_mut(row.max(1))) {
                into.copy_from_slice(&from[number * row..(number + 1) * row]);
            }
        }
        packed
    }
}

/// Whether a number is neither 0 nor -0, as its bytes are.
fn is_not_zero(bytes: &[u8]) -> bool {
    let Some((&last, others)) = bytes.split_last() else { return false };
    last & 0x7f != 0 || others.iter().any(|&it| it != 0)
}

impl Member<'_> {
    /// A dispatch or a combine: gives and gets rows.
    pub(crate) fn route(&mut self, routes: &Routes, packed: &[u8], target: Target) -> Result<(), Stop> {
        if routes.by > 1 {
            return self.relay(routes, packed, target);
        }
        self.give(packed)?;
        let Target { dtype, bytes: output, scratch } = target;
        let members = self.members.len();
        let block = if routes.back { output.len() } else { output.len() / members };
        let row = block / routes.count.max(1);
        let own = self.number;
        let gives: Vec<_> = (0..members)
            .filter(|&it| it != own && !routes.gives()[it].is_empty())
            .map(|it| (it, it * block..it * block + routes.gives()[it].len() * row))
            .collect();
        let mut got = vec![0; routes.gets().iter().map(|rows| rows.len() * row).sum()];
        let mut rest = &mut got[..];
        let mut takes = Vec::with_capacity(members);
        for (member, rows) in routes.gets().iter().enumerate() {
            let (into, tail) = std::mem::take(&mut rest).split_at_mut(rows.len() * row);
            if !into.is_empty() {
                takes.push(Taken { member, part: own * block..own * block + into.len(), into });
            }
            rest = tail;
        }
        self.take(&gives, takes)?;
        let place = |to: &mut [u8]| {
            to.fill(0);
            let mut from = got.chunks_exact(row.max(1));
            for (rows, to) in routes.gets().iter().zip(to.chunks_mut(block.max(1))) {
                for (&number, from) in rows.iter().zip(&mut from) {
                    to[number * row..(number + 1) * row].copy_from_slice(from);
                }
            }
        };
        if routes.back {
            let addends = addends(scratch, members * block)?;
            place(addends);
            add(addends, members, dtype, output)?;
        } else {
            place(output);
        }
        Ok(())
    }
}

//! Rows that pass through one rank of a set.
//!
//! A set is so many members of a communicator, one after another. A row of the member at a place of its set goes once to
//! the member at the same place of each other set that uses it, and from there to those of the set that use it: over
//! a network between nodes, a row goes once for a node. What is made of it comes back the same way, and is added up
//! on it: within a set first, by members in their order, and then by sets in theirs. Narrow numbers are rounded
//! twice.
//!
//! The member that passes a row on has no gates of it: bits that say who uses it go ahead.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Routes;
use crate::collective::{Member, Stop, Target, add, addends};
use crate::transport::Taken;

/// For each set, the rows of its member at the own place: for each member of the own set those that it uses, in order.
type Marks = Vec<Vec<Vec<usize>>>;

/// Where a member is.
#[derive(Clone, Copy)]
struct Here {
    /// How many sets there are, and members in each.
    sets: usize,
    by: usize,
    /// The own set, and the own place in it.
    set: usize,
    place: usize,
    /// How many rows a block has, and the size of one (bytes).
    count: usize,
    row: usize,
}

impl Here {
    fn member(&self, set: usize, place: usize) -> usize {
        set * self.by + place
    }

    /// The members at the own place of other sets.
    fn across(&self) -> impl Iterator<Item = usize> + use<> {
        let here = *self;
        (0..here.sets).filter(move |&it| it != here.set)
    }

    /// The places of the others of the own set.
    fn within(&self) -> impl Iterator<Item = usize> + use<> {
        let here = *self;
        (0..here.by).filter(move |&it| it != here.place)
    }
}

impl Member<'_> {
    /// A dispatch of a block, or a combine of a block for each member.
    pub(super) fn relay(&mut self, routes: &Routes, held: &[u8], target: Target) -> Result<(), Stop> {
        let (members, by) = (self.members.len(), routes.by);
        let block = if routes.back { target.bytes.len() } else { held.len() };
        let here = Here {
            sets: members / by,
            by,
            set: self.number / by,
            place: self.number % by,
            count: routes.count,
            row: block / routes.count.max(1),
        };
        let marks = self.marks(routes, &here)?;
        if routes.back {
            self.gather_sums(routes, &marks, held, (&here, target))
        } else {
            self.scatter_rows(routes, &marks, held, (&here, target.bytes))
        }
    }

    /// Tells members at the own place who of their sets uses which own rows, and is told the same.
    fn marks(&mut self, routes: &Routes, here: &Here) -> Result<Marks, Stop> {
        let of_member = here.count.div_ceil(8);
        let of_set = here.by * of_member;
        let mut given = vec![0; here.sets * of_set];
        for (rows, bits) in routes.own.iter().zip(given.chunks_mut(of_member.max(1))) {
            for &row in rows {
                bits[row / 8] |= 1 << (row % 8);
            }
        }
        let mut gotten = vec![0; here.sets * of_set];
        let part = |set: usize| set * of_set..(set + 1) * of_set;
        gotten[part(here.set)].copy_from_slice(&given[part(here.set)]);
        self.give(&given)?;
        let gives: Vec<_> = here.across().map(|set| (here.member(set, here.place), part(set))).collect();
        let parts = gotten.chunks_mut(of_set.max(1)).enumerate().filter(|(set, _)| *set != here.set);
        let takes = parts.map(|(set, into)| Taken {
            member: here.member(set, here.place),
            part: part(here.set),
            into,
        });
        let takes = takes.collect();
        self.take(&gives, takes)?;
        let rows = |bits: &[u8]| (0..here.count).filter(|it| bits[it / 8] >> (it % 8) & 1 == 1).collect();
        let of_members = |bits: &[u8]| bits.chunks(of_member.max(1)).map(rows).collect();
        Ok(gotten.chunks(of_set.max(1)).map(of_members).collect())
    }

    /// Rows to where they are used.
    fn scatter_rows(
        &mut self,
        routes: &Routes,
        marks: &Marks,
        held: &[u8],
        (here, output): (&Here, &mut [u8]),
    ) -> Result<(), Stop> {
        let (row, block) = (here.row, here.count * here.row);
        // For each set a block, of rows where they belong: the own ones, and those to be passed on.
        let mut passed = vec![0; here.sets * block];
        passed[here.set * block..(here.set + 1) * block].copy_from_slice(held);
        let gives = here.across().map(|set| {
            let rows = of_set(&routes.own, here, set);
            (here.member(set, here.place), set, rows_of(held, &rows, row))
        });
        let takes = here.across().map(|set| (here.member(set, here.place), union(&marks[set]).len() * row));
        let got = self.swap((block, here.set), &gives.collect::<Vec<_>>(), &takes.collect::<Vec<_>>())?;
        for (set, got) in here.across().zip(got) {
            place(&got, &union(&marks[set]), row, &mut passed[set * block..(set + 1) * block]);
        }
        let for_place = |place: usize| -> Vec<u8> {
            let sets = marks.iter().zip(passed.chunks(block.max(1)));
            sets.flat_map(|(of_members, rows)| rows_of(rows, &of_members[place], row)).collect()
        };
        let from_place = |place: usize| {
            (0..here.sets).map(|set| &routes.others[here.member(set, place)]).collect::<Vec<_>>()
        };
        let gives = here.within().map(|it| (here.member(here.set, it), it, for_place(it)));
        let takes = here.within().map(|it| {
            let rows: usize = from_place(it).iter().map(|rows| rows.len()).sum();
            (here.member(here.set, it), rows * row)
        });
        let size = here.sets * block;
        let got = self.swap((size, here.place), &gives.collect::<Vec<_>>(), &takes.collect::<Vec<_>>())?;
        output.fill(0);
        let own = std::iter::once((here.place, for_place(here.place)));
        for (from, got) in here.within().zip(got).chain(own) {
            let mut got = &got[..];
            for (set, rows) in from_place(from).into_iter().enumerate() {
                let (of_set, rest) = got.split_at(rows.len() * row);
                let member = here.member(set, from);
                place(of_set, rows, row, &mut output[member * block..(member + 1) * block]);
                got = rest;
            }
        }
        Ok(())
    }

    /// What was made of rows back to where these are, added up.
    fn gather_sums(
        &mut self,
        routes: &Routes,
        marks: &Marks,
        held: &[u8],
        (here, target): (&Here, Target),
    ) -> Result<(), Stop> {
        let Target { dtype, bytes: output, scratch } = target;
        let (row, block) = (here.row, here.count * here.row);
        let of_member = |member: usize| &held[member * block..(member + 1) * block];
        let for_place = |place: usize| -> Vec<u8> {
            let members = (0..here.sets).map(|set| here.member(set, place));
            members.flat_map(|it| rows_of(of_member(it), &routes.others[it], row)).collect()
        };
        let gives = here.within().map(|it| (here.member(here.set, it), it, for_place(it)));
        let takes = here.within().map(|it| {
            let rows: usize = marks.iter().map(|of_members| of_members[it].len()).sum();
            (here.member(here.set, it), rows * row)
        });
        let size = here.sets * block;
        let mut made =
            self.swap((size, here.place), &gives.collect::<Vec<_>>(), &takes.collect::<Vec<_>>())?;
        made.insert(here.place, for_place(here.place));
        let mut rest: Vec<&[u8]> = made.iter().map(Vec::as_slice).collect();
        // For each set, what the own one has made of its rows.
        let mut sums = vec![0; here.sets * block];
        for (of_members, sum) in marks.iter().zip(sums.chunks_mut(block.max(1))) {
            let addends = addends(scratch, here.by * block)?;
            addends.fill(0);
            for ((rows, rest), into) in of_members.iter().zip(&mut rest).zip(addends.chunks_mut(block.max(1)))
            {
                let (own, others) = rest.split_at(rows.len() * row);
                place(own, rows, row, into);
                *rest = others;
            }
            add(addends, here.by, dtype, sum)?;
        }
        let sum_of = |set: usize| &sums[set * block..(set + 1) * block];
        let gives = here
            .across()
            .map(|set| (here.member(set, here.place), set, rows_of(sum_of(set), &union(&marks[set]), row)));
        let takes = here
            .across()
            .map(|set| (here.member(set, here.place), of_set(&routes.own, here, set).len() * row));
        let got = self.swap((block, here.set), &gives.collect::<Vec<_>>(), &takes.collect::<Vec<_>>())?;
        let addends = addends(scratch, here.sets * block)?;
        addends.fill(0);
        addends[here.set * block..(here.set + 1) * block].copy_from_slice(sum_of(here.set));
        for (set, got) in here.across().zip(got) {
            place(&got, &of_set(&routes.own, here, set), row, &mut addends[set * block..(set + 1) * block]);
        }
        Ok(add(addends, here.sets, dtype, output)?)
    }

    /// Gives bytes to members, each in the slot of that number and of that size, and gets as many as said of what members
    /// have in the own slot.
    fn swap(
        &mut self,
        (size, own): (usize, usize),
        gives: &[(usize, usize, Vec<u8>)],
        takes: &[(usize, usize)],
    ) -> Result<Vec<Vec<u8>>, Stop> {
        let slots = gives.iter().map(|it| it.1 + 1).max().unwrap_or(0).max(own + 1);
        let mut given = vec![0; slots * size];
        for (_, slot, bytes) in gives {
            given[slot * size..slot * size + bytes.len()].copy_from_slice(bytes);
        }
        self.give(&given)?;
        let part = |(member, slot, bytes): &(usize, usize, Vec<u8>)| {
            (*member, slot * size..slot * size + bytes.len())
        };
        let gives: Vec<(usize, Range<usize>)> =
            gives.iter().filter(|it| !it.2.is_empty()).map(part).collect();
        let mut got: Vec<Vec<u8>> = takes.iter().map(|it| vec![0; it.1]).collect();
        let takes = takes.iter().zip(&mut got).filter(|(it, _)| it.1 > 0);
        let takes = takes.map(|(&(member, length), into)| Taken {
            member,
            part: own * size..own * size + length,
            into,
        });
        let takes = takes.collect();
        self.take(&gives, takes)?;
        Ok(got)
    }
}

/// The rows that a member of a set uses, each once, in order.
fn of_set(own: &[Vec<usize>], here: &Here, set: usize) -> Vec<usize> {
    union(&own[here.member(set, 0)..here.member(set + 1, 0)])
}

/// The rows that are in one of these lists, each once, in order.
fn union(lists: &[Vec<usize>]) -> Vec<usize> {
    let all: BTreeSet<usize> = lists.iter().flatten().copied().collect();
    all.into_iter().collect()
}

/// Rows of a block, one after another.
fn rows_of(block: &[u8], rows: &[usize], size: usize) -> Vec<u8> {
    rows.iter().flat_map(|it| &block[it * size..(it + 1) * size]).copied().collect()
}

/// Puts rows that come one after another where they belong in a block.
fn place(rows: &[u8], numbers: &[usize], size: usize, block: &mut [u8]) {
    for (&number, row) in numbers.iter().zip(rows.chunks_exact(size.max(1))) {
        block[number * size..(number + 1) * size].copy_from_slice(row);
    }
}

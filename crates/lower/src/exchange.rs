//! One move of a value: pack, collective, unpack.
//!
//! A local block's dimension that digits leave or join is a product of factors: `kept`, the
//! blocks held for free digits before them; the digits; and `inner`, what a block holds.
//! Collectives work on contiguous blocks, one for each member, so the members' digits have to
//! stand outermost: packing brings them there, unpacking brings them back.

use planner_ir::{AxisId, Digit, Layout, Mesh, Move, MoveError, Type, sources};

use crate::action::{CollectiveKind, Rows};
use crate::strided::{Factor, Strided};

/// What one rank does for a move.
pub(crate) struct Exchange {
    /// From what it holds to what it gives; none if that is the same.
    pub(crate) pack: Option<Strided>,
    /// Between whom what is exchanged; nothing if each has what it needs.
    pub(crate) between: Option<Between>,
    /// From what it gets to what it holds then; none if that is the same.
    pub(crate) unpack: Option<Strided>,
    /// The layout then.
    pub(crate) after: Layout,
}

/// What a group of ranks does.
#[derive(Clone)]
pub(crate) struct Between {
    /// The axes along which the group lies, in the order of its blocks.
    pub(crate) axes: Vec<AxisId>,
    pub(crate) how: How,
    /// Which rows go, where not all do.
    pub(crate) rows: Option<Rows>,
}

/// How a group of ranks exchanges blocks.
#[derive(Clone)]
pub(crate) enum How {
    /// Collectively; with the elements that one rank gives to one other, or, of an all-reduce,
    /// gives and gets.
    Collective(CollectiveKind, u64),
    /// By messages; with the rank that each rank of the mesh gets its block from.
    Messages(Vec<u64>),
}

impl Between {
    /// Messages between all ranks, given whom each gets its block from; nothing if all have it.
    pub(crate) fn messages(mesh: &Mesh, sources: Vec<u64>) -> Option<Self> {
        let apart = |axis: &AxisId| {
            let place = |device: u64| mesh.coordinates(device)[axis.0];
            (0..).zip(&sources).any(|(device, &source)| place(device) != place(source))
        };
        let axes: Vec<AxisId> = mesh.axis_ids().filter(apart).collect();
        (!axes.is_empty()).then_some(Self { axes, how: How::Messages(sources), rows: None })
    }
}

/// Why a move is not such an exchange.
pub(crate) enum ExchangeError {
    /// It cannot be made.
    Move(MoveError),
    /// It exchanges unequal blocks.
    Interleaved,
}

impl From<MoveError> for ExchangeError {
    fn from(error: MoveError) -> Self {
        Self::Move(error)
    }
}

/// What a device does for a move of a value of that type.
pub(crate) fn exchange(
    step: &Move,
    mesh: &Mesh,
    device: u64,
    type_: &Type,
    before: &Layout,
) -> Result<Exchange, ExchangeError> {
    let after = step.apply(mesh, type_, before)?;
    let block = Local { shape: before.local_shape(&type_.shape), type_, before };
    let held = block.shape.iter().product::<u64>();
    let axes = step.axes(before);
    let group: u64 = axes.iter().map(|&axis| mesh.size(axis)).product();
    let (pack, kind, elements, unpack) = match step {
        Move::Slice { dim, digits } => {
            let digits = &splitting(digits);
            let (dims, names) = block.gaining(*dim, digits);
            let coordinates = mesh.coordinates(device);
            let fixed: Vec<(usize, u64)> =
                names.iter().map(|&(name, digit)| (name, digits[digit].at(&coordinates, 0))).collect();
            let pack = Strided::between(&dims, &without(&dims, &names), &fixed);
            let pack = (pack.elements() != held || !pack.is_identity()).then_some(pack);
            return Ok(Exchange { pack, between: None, unpack: None, after });
        }
        Move::AllGather { dim, digits } => {
            (None, CollectiveKind::AllGather, held, Some(block.gathered(*dim, *digits)))
        }
        Move::AllReduce { .. } => (None, CollectiveKind::AllReduce, held, None),
        Move::ReduceScatter { dim, digits } => {
            let (dims, names) = block.gaining(*dim, &splitting(digits));
            (Some(outermost(&dims, &names)), CollectiveKind::ReduceScatter, held / group, None)
        }
        Move::AllToAll { from, to, digits } => {
            let (pack, unpack) = block.turned(*from, *to, digits).ok_or(ExchangeError::Interleaved)?;
            (Some(pack), CollectiveKind::AllToAll, held / group, Some(unpack))
        }
        Move::Permute { .. } => {
            let sources = sources(mesh, before, &after).ok_or(MoveError::Blocks)?;
            let between = Between::messages(mesh, sources);
            return Ok(Exchange { pack: None, between, unpack: None, after });
        }
    };
    let how = How::Collective(kind, elements);
    let between = (group > 1).then_some(Between { axes, how, rows: None });
    let needed = |copy: Option<Strided>| copy.filter(|it| !it.is_identity());
    Ok(Exchange { pack: needed(pack), between, unpack: needed(unpack), after })
}

/// The copies before and after an exchange of a value, held in a layout at rest, that is split along one
/// dimension by the last digits there, and then along another one instead: the first has the blocks of all
/// members after one another, the second what is held then. Or the way back.
pub(crate) fn dealt(
    type_: &Type,
    at_rest: &Layout,
    (rows, routed): (usize, &[Digit]),
    (parts, split): (usize, &[Digit]),
    back: bool,
) -> [Strided; 2] {
    let local = |before: &Layout| before.local_shape(&type_.shape);
    let mut both = at_rest.clone();
    both.dims[parts] = split.to_vec();
    let given = |before: &Layout, dim: usize, digits: &[Digit]| {
        let (dims, names) = Local { shape: local(before), type_, before }.gaining(dim, &splitting(digits));
        outermost(&dims, &names)
    };
    let gotten =
        |dim: usize, count: usize| Local { shape: local(&both), type_, before: &both }.gathered(dim, count);
    if back {
        let mut met = both.clone();
        let own = met.dims[rows].len().saturating_sub(routed.len());
        met.dims[rows].truncate(own);
        [given(&met, rows, routed), gotten(parts, split.len())]
    } else {
        [given(at_rest, parts, split), gotten(rows, routed.len())]
    }
}

/// The block that a device holds before a move.
struct Local<'a> {
    shape: Vec<u64>,
    type_: &'a Type,
    before: &'a Layout,
}

/// Names of factors: a dimension has `SLOTS`, the first three of these and then its digits.
const SLOTS: usize = 1 << 16;
const KEPT: usize = 0;
const INNER: usize = 1;
const MEMBER: usize = 2;
const DIGITS: usize = 3;

/// Digits by the names of their factors: which name, which digit.
type Named = Vec<(usize, usize)>;

impl Local<'_> {
    /// How many blocks of a dimension the device holds, and what one holds (elements).
    fn blocks(&self, dim: usize) -> (u64, u64) {
        let count: u64 = self.before.dims[dim].iter().map(|digit| digit.size).product();
        let inner = self.type_.shape[dim] / count;
        (self.shape[dim].checked_div(inner).unwrap_or(1), inner)
    }

    /// The factors of all dimensions; those of some are given.
    fn factors(&self, given: &[(usize, Vec<Factor>)]) -> Vec<Factor> {
        let of = |(dim, &size): (usize, &u64)| {
            given.iter().find(|(it, _)| *it == dim).map_or_else(
                || vec![Factor { name: dim * SLOTS + KEPT, size }],
                |(_, factors)| factors.clone(),
            )
        };
        self.shape.iter().enumerate().flat_map(of).collect()
    }

    /// The factors of all dimensions when one is about to gain digits, and the names of those
    /// that are not free.
    fn gaining(&self, dim: usize, digits: &[Digit]) -> (Vec<Factor>, Named) {
        let (kept, block) = self.blocks(dim);
        let (split, names) = split(dim, kept, block, digits);
        (self.factors(&[(dim, split)]), names)
    }

    /// From the blocks of all members to the block after an all-gather of the last digits.
    fn gathered(&self, dim: usize, count: usize) -> Strided {
        let held = &self.before.dims[dim];
        let lost = &held[held.len().saturating_sub(count)..];
        let (_, inner) = self.blocks(dim);
        let repeated: u64 = lost.iter().map(|digit| digit.size).product();
        let own: u64 =
            lost.iter().filter(|digit| digit.is_free()).map(|digit| digit.size).product::<u64>() * inner;
        let kept = self.shape[dim].checked_div(own).unwrap_or(1);
        let (split, names) = split(dim, kept, inner * repeated, lost);
        let after = self.factors(&[(dim, split)]);
        let members = names.iter().filter_map(|&(name, _)| named(&after, name));
        let gotten: Vec<Factor> = members.chain(without(&after, &names)).collect();
        Strided::between(&gotten, &after, &[])
    }

    /// Both copies of an all-to-all that takes the last digit of one dimension and gives digits
    /// to another; none if the blocks exchanged are not equal.
    fn turned(&self, from: usize, to: usize, digits: &[Digit]) -> Option<(Strided, Strided)> {
        let lost = self.before.dims[from].last()?.size;
        let member = Factor { name: from * SLOTS + MEMBER, size: lost };
        let (kept, inner) = self.blocks(from);
        let outer = Factor { name: from * SLOTS + KEPT, size: kept };
        let (dims, names, after) = if from == to {
            // The lost digit numbers runs of `inner` elements, the gained one numbers shorter
            // blocks in periods. Parts are equal if each run is made of whole periods.
            let blocks: u64 = digits.iter().map(|digit| digit.size).product();
            let period = (inner * lost).checked_div(blocks)? * lost;
            if period == 0 || !inner.is_multiple_of(period) {
                return None;
            }
            let alone = [Digit::free(inner / period), digits.last()?.clone()];
            let (split, names) = split(to, kept, inner, &alone);
            let mut after = without(&split, &names);
            after.insert(1, member);
            (self.factors(&[(to, split)]), names, self.factors(&[(to, after)]))
        } else {
            let (held, block) = self.blocks(to);
            let (split, names) = split(to, held, block, digits);
            let run = Factor { name: from * SLOTS + INNER, size: inner };
            let before = self.factors(&[(from, vec![outer, run]), (to, split.clone())]);
            let after = self.factors(&[(from, vec![outer, member, run]), (to, without(&split, &names))]);
            (before, names, after)
        };
        let given = without(&dims, &names);
        let gotten: Vec<Factor> = std::iter::once(member).chain(given).collect();
        Some((outermost(&dims, &names), Strided::between(&gotten, &after, &[])))
    }
}

/// The factors of a dimension of `kept` blocks of `block` elements that are split by digits, and
/// the names of the digits that are not free.
fn split(dim: usize, kept: u64, block: u64, digits: &[Digit]) -> (Vec<Factor>, Named) {
    let name = |digit: usize| dim * SLOTS + DIGITS + digit;
    let blocks: u64 = digits.iter().map(|digit| digit.size).product();
    let mut factors = vec![Factor { name: dim * SLOTS + KEPT, size: kept }];
    factors.extend(digits.iter().enumerate().map(|(it, digit)| Factor { name: name(it), size: digit.size }));
    factors.push(Factor { name: dim * SLOTS + INNER, size: block / blocks });
    let named = digits.iter().enumerate().filter(|(_, digit)| !digit.is_free());
    (factors, named.map(|(it, _)| (name(it), it)).collect())
}

/// The digits without those of one block and free ones behind the last of the others: a dimension
/// is not split by them, and need not be a multiple of them.
fn splitting(digits: &[Digit]) -> Vec<Digit> {
    let mut digits: Vec<Digit> = digits.iter().filter(|digit| digit.size != 1).cloned().collect();
    while digits.last().is_some_and(Digit::is_free) {
        digits.pop();
    }
    digits
}

fn named(factors: &[Factor], name: usize) -> Option<Factor> {
    factors.iter().copied().find(|factor| factor.name == name)
}

fn without(factors: &[Factor], names: &Named) -> Vec<Factor> {
    let stays = |factor: &&Factor| names.iter().all(|&(name, _)| name != factor.name);
    factors.iter().filter(stays).copied().collect()
}

/// The copy that brings the named factors to the front, in their order.
fn outermost(factors: &[Factor], names: &Named) -> Strided {
    let first = names.iter().filter_map(|&(name, _)| named(factors, name));
    let to: Vec<Factor> = first.chain(without(factors, names)).collect();
    Strided::between(factors, &to, &[])
}

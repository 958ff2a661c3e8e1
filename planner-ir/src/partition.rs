//! Which block of an operation's loops each device computes, and when.

use std::fmt;

mod motion; // how blocks of operands and results move between time steps
mod routed; // rows that go to where what they use is

use crate::layout::{Digit, Layout, LayoutError, canonical_digits, check_digits, named_axes, onto};
use crate::loops::{Loop, LoopId, Loops, Role};
use crate::mesh::{AxisId, Mesh};

pub use motion::{Motion, Shift};
pub use routed::{Route, RoutedRows};

/// Which block of its loops each device computes at each step, in one phase of an operation.
///
/// The layouts of operands and results follow from it and from the loops: a dimension's digits
/// are those of the loops that index it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// How many time steps there are.
    pub steps: u64,
    /// For each loop its digits, outermost first, in canonical form.
    pub loops: Vec<Vec<Digit>>,
    /// Axes over which operands are already addends of a sum owed, ascending.
    pub passed: Vec<AxisId>,
    /// Which set of `Loops::linear` those operands are; without meaning if none are passed.
    pub through: usize,
    /// Axes over which blocks that are numbered by time alone lie at rest, one with each device:
    /// each operand or result takes the first that it does not name.
    pub streams: Vec<AxisId>,
    /// Which way round blocks that rotate go.
    pub ways: Ways,
    /// How many slots a block that rotates has.
    pub slots: Slots,
    /// What rows are split by at rest beyond the digits of their loop, outermost first, where each goes to
    /// the devices that have parts that it uses ([`Loops::routed`]): digits of the axes that split the parts,
    /// and free ones between them. Empty where rows are where they are used.
    pub routed: Vec<Digit>,
    /// Of how many devices, one after another in a group in which rows are routed, one gets each row that any of
    /// them uses, and passes it on to the others of them; 1 where each row goes straight to all that use it.
    pub routed_by: u64,
}

/// Which way round a ring its blocks go.
///
/// Affine digits have one neighbour for all blocks. Where blocks go both ways, each block of the
/// loop that time turns falls into two equal halves: the first are where the digits say, the
/// second where they say with time and the constant subtracted. So a partition that goes both ways
/// is two of one way ([`Partition::each_way`]), over the two halves of that loop. At rest the halves of
/// a block are together, and layouts are those of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ways {
    /// All one way.
    #[default]
    One,
    /// Half of each block the other way.
    Both,
}

impl Ways {
    /// Into how many parts a block falls that go ways of their own.
    pub fn count(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Both => 2,
        }
    }
}

/// How many slots a device has for a block that rotates.
///
/// With one, what comes next lies where the block lies that is there now, once that has been worked
/// on: chunk by chunk, each of which comes when the one that lay there has gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slots {
    /// The next block comes while the device works on this one.
    #[default]
    Two,
    /// The next block comes over this one, when the device has worked on it; a sum that travels does so
    /// while its next addend is computed, which is added where it lies.
    One,
}

/// Into how many chunks a block falls at most that comes over another.
const CHUNKS: u64 = 8;

/// Into how many equal chunks a block of so many elements falls that comes over another.
pub fn chunks(elements: u64) -> u64 {
    (1..=CHUNKS).rev().find(|&it| elements.is_multiple_of(it)).unwrap_or(1)
}

/// One block of a loop, as a device computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// How many iterations the loop has.
    pub extent: u64,
    /// The first iteration of the block.
    pub start: u64,
    /// How many iterations the block has.
    pub length: u64,
}

/// Why a partition does not suit an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionError {
    /// Not as many loops; found, expected.
    Loops(usize, usize),
    /// Digits that do not suit the mesh.
    Digits(LayoutError),
    /// A split of a loop that has to be whole.
    Whole(LoopId),
    /// A loop whose blocks are not equal: which, its size, how many blocks.
    Uneven(LoopId, u64, u64),
    /// Blocks that no device computes.
    NotOnto,
    /// An axis that is passed through and also split over, or passed without a set of operands.
    Passed(AxisId),
    /// Blocks that an operation that depends on positions cannot be told of: not contiguous, or
    /// not stripes at equal distances where it takes those.
    Strided(LoopId),
    /// Addends of a block that no group of devices along axes has, each once.
    Sums,
    /// Time steps without a digit that depends on them, or the reverse; or blocks that do not
    /// come and go once in so many steps.
    Steps(u64),
    /// Blocks that cannot go both ways: not one digit in time, halves that are not at rest together,
    /// or nothing that rotates.
    Ways,
    /// One slot where nothing rotates, or where something is streamed.
    Slots,
    /// Rows of an operation that has none to route, or routed over other axes than those that split what they
    /// use, or in several steps.
    Routed,
    /// Rows that pass through one of so many devices, in groups of so many: not several of each of several.
    RoutedBy(u64, u64),
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loops(found, expected) => {
                write!(f, "partition of {found} loops, expected {expected}")
            }
            Self::Digits(error) => error.fmt(f),
            Self::Whole(it) => write!(f, "loop {} is split, expected whole", it.0),
            Self::Uneven(it, size, blocks) => {
                write!(f, "loop {} of {size} iterations does not fall into {blocks} equal blocks", it.0)
            }
            Self::NotOnto => f.write_str("no device computes some of the blocks"),
            Self::Passed(axis) => write!(f, "axis {} cannot pass through", axis.0),
            Self::Strided(it) => {
                write!(f, "loop {} has blocks whose positions the operation cannot be told", it.0)
            }
            Self::Sums => f.write_str("no group of devices has each addend of a sum once"),
            Self::Steps(steps) => write!(f, "{steps} steps do not suit the digits"),
            Self::Ways => f.write_str("blocks cannot go both ways"),
            Self::Slots => f.write_str("no block can come over another"),
            Self::Routed => {
                f.write_str("rows are not routed over exactly the axes that split what they use, at one step")
            }
            Self::RoutedBy(by, group) => {
                write!(f, "rows pass through one of {by} devices, expected a part of {group} below {group}")
            }
        }
    }
}

impl std::error::Error for PartitionError {}

impl Partition {
    /// Every device computes everything.
    pub fn replicated(loops: &Loops) -> Self {
        Self {
            steps: 1,
            loops: vec![Vec::new(); loops.loops.len()],
            passed: Vec::new(),
            through: 0,
            streams: Vec::new(),
            ways: Ways::One,
            slots: Slots::Two,
            routed: Vec::new(),
            routed_by: 1,
        }
    }

    /// The same but for how blocks and rows are exchanged, which no layout shows and no pin says: blocks go one way and
    /// have two slots, rows go straight.
    #[must_use]
    pub fn exchanged_plainly(&self) -> Self {
        Self { ways: Ways::One, slots: Slots::Two, routed_by: 1, ..self.clone() }
    }

    /// The partitions of one way that this is, each over its part of the loop that time turns.
    pub fn each_way(&self) -> Vec<Self> {
        let forth = Self { ways: Ways::One, ..self.clone() };
        match self.ways {
            Ways::One => vec![forth],
            Ways::Both => {
                let mut back = forth.clone();
                let timed = back.loops.iter_mut().flatten().filter(|digit| digit.step != 0);
                timed.for_each(|digit| *digit = digit.back());
                vec![forth, back]
            }
        }
    }

    /// The loop of whose blocks parts go ways of their own, if they do.
    pub fn halved(&self) -> Option<LoopId> {
        let timed = |digits: &Vec<Digit>| digits.iter().any(|digit| digit.step != 0);
        (self.ways == Ways::Both).then(|| self.loops.iter().position(timed).map(LoopId)).flatten()
    }

    /// Into how many equal parts digits and ways divide a loop.
    pub fn parts(&self, it: LoopId) -> u64 {
        let blocks: u64 = self.loops[it.0].iter().map(|digit| digit.size).product();
        if self.halved() == Some(it) { blocks * self.ways.count() } else { blocks }
    }

    /// The axes that digits name, ascending.
    pub fn axes(&self) -> Vec<AxisId> {
        named_axes(self.loops.iter().flatten())
    }

    /// The layout in which an operand is used; of one that moves, that in which it is at rest.
    pub fn operand(&self, loops: &Loops, index: usize) -> Layout {
        let passes = loops.linear.get(self.through).is_some_and(|set| set.contains(&index));
        let mut owed = if passes { self.passed.clone() } else { Vec::new() };
        if let Some(left) = self.left_in_added(loops, index) {
            owed.extend(left);
            owed.sort_unstable();
        }
        let motion = self.operand_motion(loops, index);
        self.layout(loops, &loops.operands[index], owed, &|digit| motion.at_rest(digit, 0))
    }

    /// The layout in which a result is made; of one that moves, that in which it is at rest.
    pub fn result(&self, loops: &Loops, index: usize) -> Layout {
        let dims = &loops.results[index];
        let motion = self.result_motion(loops, index);
        let mut owed = self.left_in(loops, index);
        owed.extend(&self.passed);
        owed.sort_unstable();
        self.layout(loops, dims, owed, &|digit| motion.at_rest(digit, self.steps.saturating_sub(1)))
    }

    /// The axes over which the operation itself leaves sums owed in a result.
    fn left_in(&self, loops: &Loops, result: usize) -> Vec<AxisId> {
        let dims = &loops.results[result];
        let mut owed = self.left(loops, dims, &self.result_motion(loops, result));
        if self.route(loops, dims) != Route::Stays {
            let routed = self.routed_axes();
            owed.retain(|axis| !routed.contains(axis));
        }
        owed
    }

    /// The axes over which the operation leaves sums owed in the result that an operand is added to, if it is to one.
    pub(crate) fn left_in_added(&self, loops: &Loops, operand: usize) -> Option<Vec<AxisId>> {
        let (_, result) = loops.added.iter().find(|it| it.0 == operand)?;
        Some(self.left_in(loops, *result))
    }

    /// The axes over which the operation itself leaves sums owed in results that no summed loop
    /// indexes.
    pub fn owed(&self, loops: &Loops) -> Vec<AxisId> {
        self.left(loops, &[], &Motion::Stationary)
    }

    /// The axes over which the operation itself leaves sums owed in a result of these dimensions.
    fn left(&self, loops: &Loops, dims: &[Vec<LoopId>], motion: &Motion) -> Vec<AxisId> {
        let adds =
            |it: &LoopId| loops.get(*it).role.makes_parts() && !dims.iter().any(|dim| dim.contains(it));
        let digits =
            || loops.ids().filter(adds).flat_map(|it| &self.loops[it.0]).filter(|digit| !digit.is_free());
        if digits().all(|digit| digit.plain().is_some()) && *motion == Motion::Stationary {
            return named_axes(digits());
        }
        self.owed_by(loops, dims, motion).unwrap_or_else(|| named_axes(digits()))
    }

    fn layout(
        &self,
        loops: &Loops,
        dims: &[Vec<LoopId>],
        owed: Vec<AxisId>,
        at_rest: &dyn Fn(&Digit) -> Digit,
    ) -> Layout {
        let dim = |dim: &Vec<LoopId>| {
            let own = dim.iter().map(|&it| (it, self.own_digits(loops, dims, it)));
            digits(loops, own, at_rest)
        };
        Layout { dims: dims.iter().map(dim).collect(), owed }
    }

    /// Whether this is a partition of those loops on the mesh.
    pub fn check(&self, mesh: &Mesh, loops: &Loops) -> Result<(), PartitionError> {
        if self.loops.len() != loops.loops.len() {
            return Err(PartitionError::Loops(self.loops.len(), loops.loops.len()));
        }
        if !self.routed.is_empty() || self.routed_by != 1 {
            self.check_routed(mesh, loops)?;
        }
        for it in loops.ids() {
            let digits = &self.loops[it.0];
            check_digits(mesh, digits).map_err(PartitionError::Digits)?;
            let Loop { size, role } = loops.get(it);
            let at_once = self.steps == 1 && role == Role::Merge;
            if (role == Role::Whole || at_once) && !digits.is_empty() {
                return Err(PartitionError::Whole(it));
            }
            let ways = if self.halved() == Some(it) { self.ways.count() } else { 1 };
            let blocks = digits.iter().try_fold(ways, |blocks, digit| blocks.checked_mul(digit.size));
            if blocks.is_none_or(|blocks| !size.is_multiple_of(blocks) || (size == 0 && blocks > 1)) {
                return Err(PartitionError::Uneven(it, size, blocks.unwrap_or(u64::MAX)));
            }
            if !loops.tells(it, digits) {
                return Err(PartitionError::Strided(it));
            }
        }
        let axes = self.axes();
        for &axis in &self.passed {
            if axis.0 >= mesh.axes.len() || axes.contains(&axis) || self.through >= loops.linear.len() {
                return Err(PartitionError::Passed(axis));
            }
        }
        let temporal = self.loops.iter().flatten().any(|digit| digit.step != 0);
        if self.steps == 0 || temporal != (self.steps > 1) {
            return Err(PartitionError::Steps(self.steps));
        }
        let digits: Vec<&Digit> = self.loops.iter().flatten().filter(|digit| !digit.is_free()).collect();
        if !onto(&mesh.sizes(), &digits, self.steps) {
            return Err(PartitionError::NotOnto);
        }
        self.check_ways(loops)?;
        self.check_slots(loops)?;
        self.each_way().iter().try_for_each(|it| it.check_motion(mesh, loops))
    }

    /// The block of each loop that a device computes at a step, with both halves of one that goes
    /// both ways where the digits say (`start` is meaningful where blocks are contiguous).
    pub fn blocks(&self, mesh: &Mesh, loops: &Loops, device: u64, step: u64) -> Vec<Block> {
        let coordinates = mesh.coordinates(device);
        let block = |it: LoopId| {
            let extent = loops.get(it).size;
            let mut block = Block { extent, start: 0, length: extent };
            let mut unit = extent;
            for digit in &self.loops[it.0] {
                unit /= digit.size;
                if !digit.is_free() {
                    block.length /= digit.size;
                    block.start += unit * digit.at(&coordinates, step);
                }
            }
            block
        };
        loops.ids().map(block).collect()
    }

    /// How many times each block is computed, all devices and steps counted.
    pub fn copies(&self, mesh: &Mesh) -> u64 {
        let blocks: u64 =
            self.loops.iter().flatten().filter(|digit| !digit.is_free()).map(|digit| digit.size).product();
        mesh.devices() * self.steps / blocks
    }
}

/// The digits of a dimension that a product of loops with these digits indexes.
fn digits(
    loops: &Loops,
    dim: impl Iterator<Item = (LoopId, Vec<Digit>)>,
    at_rest: &dyn Fn(&Digit) -> Digit,
) -> Vec<Digit> {
    let mut digits = Vec::new();
    for (it, own) in dim {
        let blocks: u64 = own.iter().map(|digit| digit.size).product();
        digits.extend(own.iter().map(at_rest));
        digits.push(Digit::free(loops.get(it).size / blocks));
    }
    canonical_digits(digits)
}

#[cfg(test)]
mod tests;

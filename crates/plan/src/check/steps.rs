//! Rules of partitions in time, by counting: which block each device works on at each step, from
//! where it has it, and which addends a block of a result collects.
//!
//! Nothing is derived: every device is asked at every step. Of an operand or result,
//! - what no digit turns with time stays with its device;
//! - what time alone numbers, one block for each step, is given by (or summed to) the device of
//!   that number along the first axis streamed over along which all work on the same;
//! - what the same neighbour has worked on a step before, for all devices, comes from there;
//! - of anything else a device has the blocks of all steps.
//!
//! Where blocks go both ways this is asked of each half: of the second with time and the constants
//! subtracted. Both have to be at rest as the other.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{AxisId, Digit, LoopId, Loops, Mesh, Partition, Role, Ways};

use super::blocks::{Factor, add, all_held, value};

/// A partition in time, device by device.
pub(super) struct Timetable<'a> {
    mesh: &'a Mesh,
    loops: &'a Loops,
    partition: &'a Partition,
    /// The coordinates of each device.
    devices: Vec<Vec<u64>>,
    turning: Turning,
}

/// The way that blocks go.
#[derive(Clone, Copy)]
enum Turning {
    Forth,
    Back,
}

/// How blocks come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// They do not.
    Stay,
    /// For each device, the one that had its block a step before.
    From(Vec<usize>),
    /// Along an axis, the device whose coordinate is the step has the block at rest.
    Along(AxisId),
    /// Every device has those of all steps.
    All,
}

/// What devices hold of an operand before the first step, or of a result after the last.
pub(super) struct Rest {
    /// For each device and dimension, its share.
    pub(super) shares: Vec<Vec<Vec<Factor>>>,
    /// Into how many blocks it falls.
    pub(super) blocks: u128,
    /// How many blocks all devices together receive during the steps.
    pub(super) received: u64,
    /// Whether what is received is a sum so far, which is not rounded on its way.
    pub(super) sums: bool,
}

/// For each device and step the number of a block.
struct Numbers {
    steps: usize,
    of: Vec<u64>,
}

impl Numbers {
    fn at(&self, device: usize, step: usize) -> u64 {
        self.of[device * self.steps + step]
    }

    /// The number of a device's block at each step.
    fn row(&self, device: usize) -> &[u64] {
        &self.of[device * self.steps..(device + 1) * self.steps]
    }
}

impl<'a> Timetable<'a> {
    pub(super) fn new(mesh: &'a Mesh, loops: &'a Loops, partition: &'a Partition) -> Self {
        let devices = (0..mesh.devices()).map(|device| mesh.coordinates(device)).collect();
        Self { mesh, loops, partition, devices, turning: Turning::Forth }
    }

    /// What devices hold of an operand before the first step.
    pub(super) fn operand(&self, index: usize) -> Result<Rest, String> {
        self.each_way(|it| it.operand_one_way(index))
    }

    /// What devices hold of a result after the last step, if they then owe sums over those axes.
    pub(super) fn result(&self, index: usize, owed: &[AxisId]) -> Result<Rest, String> {
        self.each_way(|it| it.result_one_way(index, owed))
    }

    /// What devices hold if halves of blocks that go both ways do so alike.
    fn each_way(&self, rest: impl Fn(&Self) -> Result<Rest, String>) -> Result<Rest, String> {
        let mut forth = rest(self)?;
        if self.partition.ways == Ways::Both {
            let devices = self.devices.clone();
            let back = rest(&Self { devices, turning: Turning::Back, ..*self })?;
            if back.shares != forth.shares || back.sums != forth.sums {
                return Err("what goes both ways is not at rest together".to_owned());
            }
            forth.received += back.received;
            forth.blocks *= 2;
        }
        Ok(forth)
    }

    /// The value of a digit for a device at a time step.
    fn value(&self, digit: &Digit, device: &[u64], step: u64) -> u64 {
        match self.turning {
            Turning::Back if digit.step != 0 => {
                let still = value(&Digit { step: 0, offset: 0, ..digit.clone() }, device, 0);
                let turned = value(&Digit { terms: vec![], ..digit.clone() }, device, step);
                (still + digit.size - turned) % digit.size
            }
            _ => value(digit, device, step),
        }
    }

    fn operand_one_way(&self, index: usize) -> Result<Rest, String> {
        let dims = &self.loops.operands[index];
        let way = self.way(dims)?;
        let numbers = self.numbers(&self.digits_of(dims));
        for device in 0..self.devices.len() {
            for step in 0..self.steps() {
                let has = match &way {
                    Way::Stay => numbers.at(device, 0),
                    Way::From(neighbours) if step > 0 => numbers.at(neighbours[device], step - 1),
                    Way::Along(axis) => numbers.at(self.along(device, *axis, step), step),
                    Way::From(_) | Way::All => numbers.at(device, step),
                };
                if has != numbers.at(device, step) {
                    return Err(format!("device {device} gets another block than it needs at step {step}"));
                }
            }
        }
        let when = |device: usize| match way {
            Way::Stay | Way::From(_) => Some(0),
            Way::Along(axis) => Some(self.devices[device][axis.0]),
            Way::All => None,
        };
        Ok(self.rest(dims, &way, when))
    }

    fn result_one_way(&self, index: usize, owed: &[AxisId]) -> Result<Rest, String> {
        let dims = &self.loops.results[index];
        let mut way = self.way(dims)?;
        let travels = |way: &Way| self.subsets().iter().any(|axes| self.adds_up(dims, way, axes));
        if matches!(way, Way::From(_)) && !travels(&way) {
            way = Way::All;
        }
        if !self.adds_up(dims, &way, owed) {
            let names = |axes: &[AxisId]| super::owed_text(self.mesh, axes);
            let right = self.subsets().into_iter().find(|axes| self.adds_up(dims, &way, axes));
            let expected = right.map_or_else(|| "no such partition".to_owned(), |axes| names(&axes));
            return Err(format!("owes sums of its own over {}, expected over {expected}", names(owed)));
        }
        let last = self.partition.steps - 1;
        let when = |device: usize| match way {
            Way::Stay | Way::From(_) => Some(last),
            Way::Along(axis) => Some(self.devices[device][axis.0]),
            Way::All => None,
        };
        let sums = matches!(way, Way::From(_));
        Ok(Rest { sums, ..self.rest(dims, &way, when) })
    }

    /// What devices hold: the blocks of one step each, or of all.
    fn rest(&self, dims: &[Vec<LoopId>], way: &Way, when: impl Fn(usize) -> Option<u64>) -> Rest {
        let shares = (0..self.devices.len()).map(|device| self.share(dims, device, when(device))).collect();
        let received = match way {
            Way::Stay | Way::All => 0,
            Way::From(neighbours) => {
                let others = neighbours.iter().enumerate().filter(|(own, from)| own != *from).count();
                others * (self.steps() - 1)
            }
            Way::Along(axis) => {
                let others = |step| {
                    (0..self.devices.len()).filter(move |&it| self.along(it, *axis, step) != it).count()
                };
                (0..self.steps()).map(others).sum()
            }
        };
        let blocks = self.digits_of(dims).iter().map(|digit| u128::from(digit.size)).product();
        Rest { shares, blocks, received: u64::try_from(received).unwrap_or(u64::MAX), sums: false }
    }

    /// A device's share of each dimension: its block at a step, or those of all steps.
    fn share(&self, dims: &[Vec<LoopId>], device: usize, when: Option<u64>) -> Vec<Vec<Factor>> {
        let dim = |dim: &Vec<LoopId>| {
            let mut factors = Vec::new();
            for it in dim {
                let mut inner = self.loops.loops[it.0].size;
                for digit in &self.partition.loops[it.0] {
                    inner /= digit.size;
                    let all = all_held(digit) || (when.is_none() && digit.step != 0);
                    let index = (!all).then(|| self.value(digit, &self.devices[device], when.unwrap_or(0)));
                    add(&mut factors, (digit.size, index));
                }
                add(&mut factors, (inner, None));
            }
            factors
        };
        dims.iter().map(dim).collect()
    }

    /// How blocks that these dimensions number come and go.
    fn way(&self, dims: &[Vec<LoopId>]) -> Result<Way, String> {
        let digits = self.digits_of(dims);
        let timed: Vec<&Digit> = digits.iter().copied().filter(|digit| digit.step != 0).collect();
        if timed.is_empty() {
            return Ok(Way::Stay);
        }
        let numbers = self.numbers(&timed);
        if (0..self.devices.len()).any(|device| numbers.row(device) != numbers.row(0)) {
            return Ok(self.neighbour(&digits).map_or(Way::All, Way::From));
        }
        // A block for each step, in their order.
        let one = timed.len() == 1 && numbers.row(0).iter().copied().eq(0..self.partition.steps);
        let blocks = self.numbers(&digits);
        let alike = |axis: &AxisId| {
            let same = |it: usize| blocks.row(it) == blocks.row(self.along(it, *axis, 0));
            (0..self.devices.len()).all(same)
        };
        let Some(&axis) = self.partition.streams.iter().find(|axis| alike(axis)).filter(|_| one) else {
            return Ok(Way::All);
        };
        let (size, steps) = (self.mesh.axes[axis.0].size, self.partition.steps);
        if size == steps {
            return Ok(Way::Along(axis));
        }
        Err(format!("blocks of {steps} steps lie with {size} devices, expected one with each"))
    }

    /// For each device the one that has at each step the block that it needs at the next: the same
    /// neighbour for all, the nearest one along axes that the digits name.
    fn neighbour(&self, digits: &[&Digit]) -> Option<Vec<usize>> {
        let numbers = self.numbers(digits);
        let named = |axis: usize| digits.iter().any(|digit| digit.terms.iter().any(|term| term.0.0 == axis));
        let sizes = self.mesh.sizes();
        let mut distances: Vec<&Vec<u64>> = self.devices.iter().collect();
        distances.retain(|it| it.iter().enumerate().all(|(axis, &by)| by == 0 || named(axis)));
        // Of neighbours equally near, the first, where the first axis runs fastest.
        distances.sort_by_key(|it| {
            let far: u64 = it.iter().zip(&sizes).map(|(&by, size)| by.min(size - by)).sum();
            (far, it.iter().rev().copied().collect::<Vec<u64>>())
        });
        let place = |device: &[u64], by: &[u64]| {
            let moved = device.iter().zip(by).zip(&sizes).map(|((own, by), size)| (own + by) % size);
            usize::try_from(self.mesh.device(&moved.collect::<Vec<u64>>())).unwrap_or(usize::MAX)
        };
        let has = |device: usize, by: &[u64]| {
            let from = place(&self.devices[device], by);
            numbers.row(from)[..self.steps() - 1] == numbers.row(device)[1..]
        };
        let right = |by: &&&Vec<u64>| has(0, by) && (1..self.devices.len()).all(|device| has(device, by));
        let by = distances.iter().find(right)?;
        Some(self.devices.iter().map(|device| place(device, by)).collect())
    }

    /// Whether the devices of each group along those axes then have every addend of each of their
    /// blocks once, and are the only ones.
    fn adds_up(&self, dims: &[Vec<LoopId>], way: &Way, owed: &[AxisId]) -> bool {
        let adds = |it: LoopId| {
            let role = self.loops.loops[it.0].role;
            matches!(role, Role::Sum | Role::Merge) && !dims.iter().any(|dim| dim.contains(&it))
        };
        // What devices have cannot be merged, nor what travels if it is not all that parts have.
        let at_home = match way {
            Way::Stay => true,
            Way::From(_) => !self.loops.larger_parts,
            Way::Along(_) | Way::All => false,
        };
        if self.is_merged() && !(at_home && owed.is_empty()) {
            return false;
        }
        let of = |summed: bool| -> Vec<&Digit> {
            let ids = (0..self.loops.loops.len()).map(LoopId).filter(|&it| adds(it) == summed);
            ids.flat_map(|it| &self.partition.loops[it.0]).filter(|digit| !all_held(digit)).collect()
        };
        let (addends, blocks) = (self.numbers(&of(true)), self.numbers(&of(false)));
        let all = of(true).iter().try_fold(1u64, |all, digit| all.checked_mul(digit.size));
        let mut groups: BTreeMap<Vec<u64>, Group> = BTreeMap::new();
        for device in 0..self.devices.len() {
            let mut first = self.devices[device].clone();
            owed.iter().for_each(|axis| first[axis.0] = 0);
            let group = groups.entry(first).or_default();
            let mut own = BTreeSet::new();
            for (block, maker, step) in self.made(device, way, &blocks) {
                if blocks.at(maker, step) != block {
                    return false;
                }
                own.insert(block);
                group.addends.entry(block).or_default().push(addends.at(maker, step));
            }
            group.members.insert(own);
        }
        let once = |addends: &Vec<u64>| {
            let different: BTreeSet<&u64> = addends.iter().collect();
            different.len() == addends.len() && u64::try_from(addends.len()).ok() == all
        };
        groups.values().all(|group| group.members.len() == 1 && group.addends.values().all(once))
    }

    /// Whether steps make parts of results that are merged instead of added.
    fn is_merged(&self) -> bool {
        let loops = self.loops.loops.iter().zip(&self.partition.loops);
        loops.into_iter().any(|(it, digits)| it.role == Role::Merge && !digits.iter().all(all_held))
    }

    /// What is added to a device's blocks: to which block, made where and when.
    fn made(&self, device: usize, way: &Way, blocks: &Numbers) -> Vec<(u64, usize, usize)> {
        let last = self.steps() - 1;
        match way {
            Way::Stay => (0..=last).map(|step| (blocks.at(device, 0), device, step)).collect(),
            Way::All => (0..=last).map(|step| (blocks.at(device, step), device, step)).collect(),
            Way::From(neighbours) => {
                let before = std::iter::successors(Some(device), |&it| Some(neighbours[it]));
                let steps = (0..=last).rev();
                steps.zip(before).map(|(step, maker)| (blocks.at(device, last), maker, step)).collect()
            }
            Way::Along(axis) => {
                let step = usize::try_from(self.devices[device][axis.0]).unwrap_or(usize::MAX);
                let size = usize::try_from(self.mesh.axes[axis.0].size).unwrap_or(0);
                let group = (0..size).map(|it| self.along(device, *axis, it));
                group.map(|maker| (blocks.at(device, step), maker, step)).collect()
            }
        }
    }

    /// The device that differs from one in its coordinate along an axis only.
    fn along(&self, device: usize, axis: AxisId, coordinate: usize) -> usize {
        let mut moved = self.devices[device].clone();
        moved[axis.0] = u64::try_from(coordinate).unwrap_or(u64::MAX);
        usize::try_from(self.mesh.device(&moved)).unwrap_or(usize::MAX)
    }

    /// The sets of axes, small ones first.
    fn subsets(&self) -> Vec<Vec<AxisId>> {
        let count = self.mesh.axes.len();
        let set = |bits: usize| (0..count).filter(|axis| bits >> axis & 1 == 1).map(AxisId).collect();
        let mut sets: Vec<Vec<AxisId>> = (0..1 << count).map(set).collect();
        sets.sort_by_key(Vec::len);
        sets
    }

    /// The digits of the loops that index some dimensions, but those of which all blocks are held.
    fn digits_of(&self, dims: &[Vec<LoopId>]) -> Vec<&'a Digit> {
        let digits = dims.iter().flatten().flat_map(|it| &self.partition.loops[it.0]);
        digits.filter(|digit| !all_held(digit)).collect()
    }

    fn numbers(&self, digits: &[&Digit]) -> Numbers {
        let number = |device: &Vec<u64>, step: u64| {
            let next = |number: u64, digit: &&Digit| number * digit.size + self.value(digit, device, step);
            digits.iter().fold(0, next)
        };
        let row = |device| (0..self.partition.steps).map(move |step| number(device, step));
        Numbers { steps: self.steps(), of: self.devices.iter().flat_map(row).collect() }
    }

    fn steps(&self) -> usize {
        usize::try_from(self.partition.steps).unwrap_or(usize::MAX)
    }
}

/// What devices that differ along axes owed only have of a result.
#[derive(Default)]
struct Group {
    /// For each block, the numbers of its addends.
    addends: BTreeMap<u64, Vec<u64>>,
    /// The blocks that each member has.
    members: BTreeSet<BTreeSet<u64>>,
}

//! Devices that execute a partition of a product on integers.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Motion;
use crate::layout::Layout;
use crate::loops::{LoopId, Loops};
use crate::mesh::Mesh;
use crate::partition::Partition;

/// Elements of a matrix by row and column.
type Held = BTreeMap<(u64, u64), i64>;
/// Which elements.
type Region = BTreeSet<(u64, u64)>;

pub(super) struct Machine<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) loops: &'a Loops,
    pub(super) partition: &'a Partition,
    /// Of each of the loops m, k and n.
    pub(super) extent: u64,
}

/// What goes one of the ways.
struct Way<'a> {
    mesh: &'a Mesh,
    loops: &'a Loops,
    /// Of one way.
    partition: &'a Partition,
    /// What is at rest goes by this.
    whole: &'a Partition,
    extent: u64,
    /// The indices of each loop.
    indices: [BTreeSet<u64>; 3],
}

/// An element of an operand: different everywhere.
fn element(operand: usize, (row, column): (u64, u64)) -> i64 {
    let number = (row * 31 + column * 17 + u64::try_from(operand).unwrap() * 7) % 101;
    i64::try_from(number).unwrap() - 50
}

impl Machine<'_> {
    /// Executes it; what went wrong, if something did.
    pub(super) fn run(&self) -> Result<(), String> {
        let mut sums = vec![Held::new(); at(self.mesh.devices())];
        for (number, partition) in (0..).zip(self.partition.each_way()) {
            let indices = [0, 1, 2].map(|it| self.indices(LoopId(it), number));
            let Machine { mesh, loops, extent, .. } = *self;
            let way = Way { mesh, loops, partition: &partition, whole: self.partition, extent, indices };
            for (sum, made) in sums.iter_mut().zip(way.run()?) {
                for (place, value) in made {
                    *sum.entry(place).or_insert(0) += value;
                }
            }
        }
        self.check(&sums)
    }

    /// The indices of a loop that go one way: of one that is halved, those of half of each block.
    fn indices(&self, it: LoopId, way: u64) -> BTreeSet<u64> {
        let half = self.extent / self.partition.parts(it);
        let halved = self.partition.halved() == Some(it);
        (0..self.extent).filter(|index| !halved || index / half % 2 == way).collect()
    }

    /// Makes the sums owed and compares.
    fn check(&self, sums: &[Held]) -> Result<(), String> {
        let layout = self.partition.result(self.loops, 0);
        for device in 0..self.mesh.devices() {
            let mut total = Held::new();
            for member in self.mesh.group(device, &layout.owed) {
                for (place, value) in &sums[at(member)] {
                    *total.entry(*place).or_insert(0) += value;
                }
            }
            let right =
                |(m, n): (u64, u64)| (0..self.extent).map(|k| element(0, (m, k)) * element(1, (k, n))).sum();
            let expected: Held = places(self.mesh, self.extent, &layout, device)
                .into_iter()
                .map(|it| (it, right(it)))
                .collect();
            if total != expected {
                return Err(format!("device {device} has a wrong sum"));
            }
        }
        Ok(())
    }
}

impl Way<'_> {
    /// What each device has made.
    fn run(&self) -> Result<Vec<Held>, String> {
        let operands = [self.operand(0)?, self.operand(1)?];
        let motion = self.partition.result_motion(self.loops, 0);
        let mut sums: Vec<Held> = vec![Held::new(); self.devices().count()];
        for step in 0..self.partition.steps {
            if let Motion::Rotating(shift) = &motion
                && step > 0
            {
                sums = self.devices().map(|it| sums[at(shift.of(self.mesh, it))].clone()).collect();
            }
            for device in self.devices() {
                let made = self.block(device, step, &operands);
                let to = match motion {
                    Motion::Streaming(axis) => self.mesh.group(device, &[axis])[at(step)],
                    _ => device,
                };
                let held = &mut sums[at(to)];
                let same = matches!(motion, Motion::Rotating(_) | Motion::Stationary);
                if same && !held.is_empty() && !held.keys().eq(made.keys()) {
                    return Err(format!("device {device} adds to another block at step {step}"));
                }
                for (place, value) in made {
                    *held.entry(place).or_insert(0) += value;
                }
            }
        }
        Ok(sums)
    }

    /// For each step and device, its block of an operand.
    fn operand(&self, index: usize) -> Result<Vec<Vec<Held>>, String> {
        let layout = self.whole.operand(self.loops, index);
        let motion = self.partition.operand_motion(self.loops, index);
        let at_rest: Vec<Held> = self.devices().map(|device| self.at_rest(&layout, device, index)).collect();
        let mut steps: Vec<Vec<Held>> = Vec::new();
        for step in 0..self.partition.steps {
            let one = |device: u64| -> Held {
                match &motion {
                    Motion::Rotating(shift) if step > 0 => {
                        steps[at(step) - 1][at(shift.of(self.mesh, device))].clone()
                    }
                    Motion::Streaming(axis) => {
                        at_rest[at(self.mesh.group(device, &[*axis])[at(step)])].clone()
                    }
                    Motion::Whole => {
                        let region = self.region(device, step, index);
                        let own = at_rest[at(device)].iter().filter(|it| region.contains(it.0));
                        own.map(|(&place, &value)| (place, value)).collect()
                    }
                    _ => at_rest[at(device)].clone(),
                }
            };
            let held: Vec<Held> = self.devices().map(one).collect();
            for device in self.devices() {
                let has: Region = held[at(device)].keys().copied().collect();
                if has != self.region(device, step, index) {
                    return Err(format!("device {device} lacks its block of operand {index} at step {step}"));
                }
            }
            steps.push(held);
        }
        Ok(steps)
    }

    fn block(&self, device: u64, step: u64, operands: &[Vec<Vec<Held>>; 2]) -> Held {
        let [x, w] = [0, 1].map(|it: usize| &operands[it][at(step)][at(device)]);
        let mut made = Held::new();
        for (&(m, k), left) in x {
            for (&(from, n), right) in w {
                if k == from {
                    *made.entry((m, n)).or_insert(0) += left * right;
                }
            }
        }
        made
    }

    /// What a device works on at a step, by the partition's blocks of the loops.
    fn region(&self, device: u64, step: u64, operand: usize) -> Region {
        let blocks = self.partition.blocks(self.mesh, self.loops, device, step);
        let (rows, columns) = if operand == 0 { (&blocks[0], &blocks[1]) } else { (&blocks[1], &blocks[2]) };
        let range = |it: &crate::Block| it.start..it.start + it.length;
        let all = range(rows).flat_map(|row| range(columns).map(move |column| (row, column)));
        all.filter(|&place| self.goes(operand, place)).collect()
    }

    /// Whether an element of an operand goes this way.
    fn goes(&self, operand: usize, (row, column): (u64, u64)) -> bool {
        self.indices[operand].contains(&row) && self.indices[operand + 1].contains(&column)
    }

    fn at_rest(&self, layout: &Layout, device: u64, operand: usize) -> Held {
        let mut places = places(self.mesh, self.extent, layout, device);
        places.retain(|&place| self.goes(operand, place));
        places.into_iter().map(|place| (place, element(operand, place))).collect()
    }

    fn devices(&self) -> std::ops::Range<u64> {
        0..self.mesh.devices()
    }
}

fn at(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// The elements that a device holds in a layout.
fn places(mesh: &Mesh, extent: u64, layout: &Layout, device: u64) -> Vec<(u64, u64)> {
    let pieces = layout.pieces(mesh, device, &[extent, extent]);
    let along = |dim: usize| -> Vec<u64> {
        let mut held = vec![0];
        for piece in &pieces[dim] {
            let digits = piece.index.map_or(0..piece.size, |it| it..it + 1);
            let longer = |it: u64| digits.clone().map(move |digit| it * piece.size + digit);
            held = held.into_iter().flat_map(longer).collect();
        }
        held
    };
    let columns = along(1);
    along(0).into_iter().flat_map(|row| columns.iter().map(move |&column| (row, column))).collect()
}

//! The time of work that is done in steps, blocks moving meanwhile.
//!
//! ```text
//! t = c + (T − 1) · max(c, m) + b
//! ```
//!
//! `c` is what a device computes in a step, `m` what moves while it does, `T` the number of steps
//! and `b` what no step hides: the first block of a streamed operand, the last of a streamed
//! result. Each message pays its latency again.
//!
//! What goes both ways is computed with half by half, moves at once, and is cut out of what is at
//! rest, or put together to it, by a copy that no step hides.
//!
//! With one slot a block comes over the one that was worked on, when that step is over: nothing hides
//! it. It comes in chunks, each a message of its own, and is copied out and in. A sum that travels so
//! does it while the next addend is computed.
//!
//! Source: Wang et al., "PrimePar", ASPLOS 2024, equation 7 (the slower of computing and moving in
//! each step); van de Geijn and Watts, "SUMMA", Concurrency 9(4), 1997 (broadcasts of the next
//! block while the last one is used).

use cost_models::topology::Group;
use cost_models::units::Bytes;
use cost_models::{collective, work};
use planner_ir::{AxisId, Motion, Partition, Slots, Type, Ways, chunks};

use super::{MachinePrices, Work};
use crate::problem::real;

/// What the steps of an operation take (seconds).
#[derive(Default)]
pub(super) struct Taken {
    /// Computing, in a step.
    computing: f64,
    /// Moving, while the next step is computed.
    moving: f64,
    /// Moving when a step has been computed, before the next one.
    between: f64,
    /// What no step hides.
    bare: f64,
    /// For how long what moves has links for itself: in a step, and where no step hides it.
    links: [f64; 2],
    /// How many steps follow the first.
    later: f64,
}

impl Taken {
    /// All steps (seconds).
    pub(super) fn seconds(&self) -> f64 {
        let later = self.computing.max(self.moving) + self.between;
        self.computing + self.later * later + self.bare
    }

    /// For how long what moves has links for itself, without its latencies (seconds).
    pub(super) fn on_links(&self) -> f64 {
        let [step, bare] = self.links;
        (self.later * step + bare).min(self.seconds())
    }
}

impl MachinePrices<'_> {
    /// What work that is done in steps takes.
    pub(super) fn in_steps(&self, work: &Work<'_>) -> Taken {
        let Work { op, whole, partition, loops, .. } = *work;
        let Ok(made) = op.infer(whole) else { return Taken { bare: f64::INFINITY, ..Taken::default() } };
        let operands: Vec<Type> =
            whole.iter().enumerate().map(|(it, type_)| partition.operand_block(loops, it, type_)).collect();
        let results: Vec<Type> =
            made.iter().enumerate().map(|(it, type_)| partition.result_block(loops, it, type_)).collect();
        let mut taken = Taken {
            computing: self.at_once(&Work { operands: &operands, results: &results, ..*work }),
            later: real(partition.steps.saturating_sub(1)),
            ..Taken::default()
        };
        taken.computing += self.merge(work, &results);
        for (index, block) in operands.iter().enumerate() {
            let motion = partition.operand_motion(loops, index);
            self.operand(&motion, partition, block, &mut taken);
        }
        for (index, block) in results.iter().enumerate() {
            let motion = partition.result_motion(loops, index);
            self.result(&motion, partition, block, &mut taken);
        }
        taken.computing *= real(partition.ways.count());
        taken
    }

    /// What it takes to merge what a step has made with what steps before have, beyond adding it
    /// (seconds): a sum is added to as it is made, but a part is written, and read again.
    fn merge(&self, work: &Work<'_>, results: &[Type]) -> f64 {
        if !work.partition.merges(work.loops) {
            return 0.0;
        }
        // Statistics are few.
        let kept: Vec<Type> = results.iter().map(accumulated).collect();
        work::touch(&self.machine.device, &kept, &[]).0
    }

    fn operand(&self, motion: &Motion, partition: &Partition, type_: &Type, taken: &mut Taken) {
        let block = Bytes(type_.bytes());
        match motion {
            Motion::Stationary => {}
            Motion::Rotating(shift) => {
                let seconds = self.messages(&shift.axes(), partition, type_, taken);
                match partition.slots {
                    Slots::Two => taken.moving += seconds,
                    Slots::One => taken.between += seconds,
                }
            }
            Motion::Streaming(axis) => {
                self.streamed(*axis, block, taken);
            }
            // Cut out of what the device has.
            Motion::Whole => taken.computing += self.copy(block),
        }
    }

    fn result(&self, motion: &Motion, partition: &Partition, type_: &Type, taken: &mut Taken) {
        let block = Bytes(type_.bytes());
        let sum = accumulated(type_);
        match motion {
            // Added up, or merged into.
            Motion::Stationary => taken.computing += self.copy(Bytes(sum.bytes())),
            // Put in place.
            Motion::Whole => taken.computing += self.copy(block),
            Motion::Rotating(shift) => {
                taken.computing += self.copy(Bytes(sum.bytes()));
                taken.moving += self.messages(&shift.axes(), partition, &sum, taken);
            }
            Motion::Streaming(axis) => {
                // As much as a broadcast the other way.
                self.streamed(*axis, block, taken);
            }
        }
    }

    /// A block to all devices along an axis.
    fn streamed(&self, axis: AxisId, block: Bytes, taken: &mut Taken) {
        let broadcast = |it: &Group, bytes: Bytes| collective::broadcast(self.machine, it, bytes);
        let [sent, links] = self.sent(&[axis], block, broadcast);
        taken.moving += sent;
        taken.bare += sent;
        taken.links = taken.links.map(|it| it + links);
    }

    /// A block to the next device, or half of one to each of two neighbours (seconds); what no step hides
    /// of it is added.
    fn messages(&self, axes: &[AxisId], partition: &Partition, type_: &Type, taken: &mut Taken) -> f64 {
        let (count, copies) = match partition.slots {
            Slots::Two => (1, 0.0),
            Slots::One => (chunks(type_.elements()), 2.0),
        };
        let all = Bytes(partition.ways.count() * type_.bytes());
        let chunk = Bytes(all.0 / count);
        let [sent, links] = match partition.ways {
            Ways::One => self.sent(axes, chunk, |it, bytes| collective::send(self.machine, it, bytes)),
            Ways::Both => {
                taken.bare += self.copy(all);
                self.sent(axes, chunk, |it, bytes| collective::send_both_ways(self.machine, it, bytes))
            }
        };
        taken.links[0] += real(count) * links;
        real(count) * sent + copies * self.copy(all)
    }
}

/// A block as it is while steps add to it: sums so far are not rounded.
fn accumulated(block: &Type) -> Type {
    Type { dtype: block.dtype.accumulated(), ..block.clone() }
}

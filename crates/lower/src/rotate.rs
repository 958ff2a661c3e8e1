//! Blocks of neighbours: in places of their own, or over what was there.
//!
//! A block that comes over another comes in equal chunks. Of each, what lies there is copied out, given
//! to one neighbour while as much is gotten from the other, and that is copied in. So there are two
//! chunks besides the block at any time, one that goes and one that comes; that two places suffice for
//! all of them follows from their lifetimes. All of it is on one stream, one after another.

use planner_ir::{Type, chunks};

use crate::action::{Action, Copied, Direction, Origin};
use crate::build::Build;
use crate::exchange::Between;
use crate::program::{Program, Stream};
use crate::storage::{BufferId, Kind};
use crate::strided::{Factor, Strided};

/// A block to be brought.
pub(crate) struct Brought {
    pub(crate) stream: Stream,
    pub(crate) between: Between,
    /// What this rank has of it.
    pub(crate) held: BufferId,
    pub(crate) origin: Origin,
}

impl Build<'_> {
    /// What a neighbour holds, in a place of its own.
    pub(crate) fn brought(&mut self, it: Brought) -> BufferId {
        let slot = self.buffer(Kind::Communication, self.program.buffer(it.held).type_.clone());
        self.between_on(it.stream, it.between, it.held, slot, it.origin);
        slot
    }

    /// What neighbours hold, over what this rank holds: nothing may use that later. Chunks of all of it
    /// take turns, so that those of different streams move at once.
    pub(crate) fn brought_over(&mut self, all: Vec<Brought>) -> Vec<BufferId> {
        let slots: Vec<BufferId> = all.iter().map(|it| self.over(it.held, Kind::Communication)).collect();
        let count = |program: &Program, it: &Brought| chunks(program.buffer(it.held).type_.elements());
        let most = all.iter().map(|it| count(&self.program, it)).max().unwrap_or(0);
        for number in 0..most {
            let mut moving = Vec::new();
            for (it, &slot) in all.iter().zip(&slots) {
                let count = count(&self.program, it);
                if number >= count {
                    continue;
                }
                let Type { dtype, .. } = self.program.buffer(it.held).type_;
                let elements = self.program.buffer(it.held).type_.elements() / count;
                let factors = [Factor { name: 0, size: count }, Factor { name: 1, size: elements }];
                let strided = Strided::between(&factors, &factors[1..], &[(0, number)]);
                let chunk = Type::new(dtype, [elements]);
                let [going, coming] = [(); 2].map(|()| self.buffer(Kind::Communication, chunk.clone()));
                self.copy_elements(it.stream, it.held, going, strided.clone(), it.origin);
                let (from, to, direction) = (coming, slot, Direction::Put);
                moving.push((it, going, Copied { from, to, strided, direction }));
            }
            for (it, going, put) in &moving {
                self.between_on(it.stream, it.between.clone(), *going, put.from, it.origin);
            }
            for (it, _, put) in moving {
                self.push(it.stream, Action::Copy(put), it.origin);
            }
        }
        slots
    }

    /// A buffer of the same type that takes the place of another.
    pub(crate) fn over(&mut self, held: BufferId, kind: Kind) -> BufferId {
        let storage = self.program.buffer(held).storage;
        let over = self.buffer(kind, self.program.buffer(held).type_.clone());
        let own = self.program.buffer(over).storage;
        self.program.storages[own.0].over = Some(storage);
        over
    }
}

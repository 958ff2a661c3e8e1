//! In which order ranks' instructions are issued.
//!
//! One thread issues them all: a rank goes on until it has to wait for others to be issued, then the next
//! one. A step is a list of stretches of a program: what comes before turns, the turns, what follows.

use std::ops::Range;

use lower::{Action, Program};

use crate::error::DeviceError;
use crate::exchange::{Exchange, Half, Now, Progress};
use crate::rank::Rank;
use crate::ready::Given;

/// Instructions that are issued one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    instructions: Range<usize>,
    micro_batch: u64,
    begins: Begins,
}

/// What happens before a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    /// Nothing: it follows the one before it.
    Follows,
    /// Everything before it is waited for.
    Waits,
    /// That, and inputs are taken.
    Turn,
}

/// The stretches of half a step.
fn stretches(program: &Program, half: Half) -> Vec<Stretch> {
    let count = program.instructions.len();
    let guard = program.guard.unwrap_or(count);
    if half == Half::Guarded {
        return vec![Stretch { instructions: guard..count, micro_batch: 0, begins: Begins::Follows }];
    }
    let repetition = program.repetition();
    let mut all =
        vec![Stretch { instructions: 0..repetition.start, micro_batch: 0, begins: Begins::Follows }];
    let mut after = Begins::Follows;
    if let Some(repeated) = &program.repeated {
        all.extend(repeated.turns.iter().map(|turn| Stretch {
            instructions: repeated.parts[turn.part].instructions.clone(),
            micro_batch: turn.micro_batch,
            begins: Begins::Turn,
        }));
        if repeated.parts.len() > 1 {
            after = Begins::Waits;
        }
    }
    all.push(Stretch { instructions: repetition.end..guard, micro_batch: 0, begins: after });
    all
}

/// Where the issuing of a rank is.
struct Cursor {
    stretches: Vec<Stretch>,
    stretch: usize,
    /// The next instruction; none if the stretch has not begun.
    next: Option<usize>,
    /// Whether its stream waits already for what it waits for.
    waits: bool,
    /// The first instruction of this half: what is before it is over.
    since: usize,
}

/// Issues half a step of all ranks.
pub(crate) fn issue(
    ranks: &[Rank],
    exchange: &mut dyn Exchange,
    half: Half,
    given: &mut Given,
) -> Result<(), DeviceError> {
    let cursor = |rank: &Rank| Cursor {
        stretches: stretches(&rank.program, half),
        stretch: 0,
        next: None,
        waits: false,
        since: if half == Half::Guarded { rank.program.guard.unwrap_or(0) } else { 0 },
    };
    let mut cursors: Vec<Cursor> = ranks.iter().map(cursor).collect();
    loop {
        let mut issued = false;
        for (number, cursor) in cursors.iter_mut().enumerate() {
            issued |= cursor.go(ranks, number, exchange, given)?;
        }
        let left = cursors.iter().zip(ranks).find(|(cursor, _)| !cursor.is_over());
        let Some((cursor, rank)) = left else { return Ok(()) };
        if !issued {
            let at = cursor.next.unwrap_or(0);
            let text = rank.program.instructions.get(at).map(|it| rank.program.show(it));
            let own = rank.program.rank;
            let text = text.unwrap_or_default();
            return Err(DeviceError::Program(format!(
                "rank {own} waits at instruction {at} ({text}) for ranks that never come there"
            )));
        }
    }
}

impl Cursor {
    fn is_over(&self) -> bool {
        self.stretch >= self.stretches.len()
    }

    /// Issues as much as can be: whether something was.
    fn go(
        &mut self,
        ranks: &[Rank],
        number: usize,
        exchange: &mut dyn Exchange,
        given: &mut Given,
    ) -> Result<bool, DeviceError> {
        let rank = &ranks[number];
        let mut issued = false;
        while let Some(stretch) = self.stretches.get(self.stretch) {
            let Stretch { instructions, micro_batch, begins } = stretch;
            let next = match self.next {
                Some(next) => next,
                None => {
                    if *begins != Begins::Follows {
                        rank.begin(*micro_batch, instructions.clone(), *begins == Begins::Turn)?;
                    }
                    instructions.start
                }
            };
            if next >= instructions.end {
                (self.stretch, self.next) = (self.stretch + 1, None);
                issued = true;
                continue;
            }
            self.next = Some(next);
            if !self.waits {
                rank.wait(next, self.since)?;
                self.waits = true;
            }
            let meets =
                !matches!(rank.program.instructions[next].action, Action::Compute(_) | Action::Copy(_));
            if meets {
                let now = Now { rank: number, instruction: next, micro_batch: *micro_batch };
                if exchange.issue(ranks, now, given)? == Progress::Waiting {
                    return Ok(issued);
                }
            } else {
                rank.work(next, *micro_batch, given)?;
            }
            rank.signal(next, *micro_batch)?;
            (self.next, self.waits, issued) = (Some(next + 1), false, true);
        }
        Ok(issued)
    }
}

//! Instructions that are issued: what is held then, and until when.

use super::{BESIDE, UnderWay, WAITED, Walk};

impl Walk {
    /// Issues an instruction if no more is held then than may be: whether it is.
    pub(super) fn try_issue(&mut self, instruction: usize) -> bool {
        let fits = self.try_hold(instruction);
        if fits {
            self.issued_now(instruction);
        }
        fits
    }

    /// The same of an exchange that may only be early if what it reads has room until it is over.
    pub(super) fn try_issue_kept(&mut self, exchange: usize) -> bool {
        let (held, started, under_way) = (self.held.now(), self.held.started(exchange), self.under_way.len());
        if !self.try_hold(exchange) {
            return false;
        }
        let kept = self.keep(exchange, self.end(exchange));
        if kept {
            self.issued_now(exchange);
        } else {
            for it in self.under_way.split_off(under_way) {
                self.held.release(it.space);
            }
            self.held.take_back(exchange, &started);
            self.held.again(held);
        }
        kept
    }

    /// Holds what an instruction uses, if that is no more than may be held: whether it is.
    fn try_hold(&mut self, instruction: usize) -> bool {
        if self.left[instruction] > 0 {
            return false;
        }
        let started = self.held.started(instruction);
        let fits = self.held.issue(instruction, self.budget);
        if !fits {
            self.held.take_back(instruction, &started);
        }
        fits
    }

    /// Issues an instruction.
    pub(super) fn issue(&mut self, instruction: usize) {
        self.held.issue(instruction, i64::MAX);
        self.issued_now(instruction);
    }

    /// When an instruction that is issued now is over: beside computing exchanges go between the same ranks after those
    /// that computing waits for (seconds).
    fn end(&self, instruction: usize) -> f64 {
        let lane = self.lanes[instruction];
        let met = self.groups[instruction].filter(|_| lane == BESIDE).and_then(|it| self.met.get(&it));
        let start = self.start(instruction).max(self.clock[lane]).max(met.copied().unwrap_or(0.0));
        start + self.seconds[instruction]
    }

    fn issued_now(&mut self, instruction: usize) {
        let (exchanges, lane, end) =
            (self.exchanges(instruction), self.lanes[instruction], self.end(instruction));
        if let Some(group) = self.groups[instruction].filter(|_| lane == WAITED) {
            self.met.insert(group, end);
        }
        self.clock[lane] = end;
        self.over[instruction] = end;
        self.issued[instruction] = true;
        self.order.push(instruction);
        self.ready[lane].remove(&(self.needed[instruction], instruction));
        for &after in &self.depends.after[instruction] {
            self.left[after] -= 1;
            self.apart[after] -= usize::from(!self.depends.known[instruction]);
            if self.apart[after] == 0
                && !self.issued[after]
                && self.exchanges(after)
                && !self.depends.stays[after]
            {
                self.ready[self.lanes[after]].insert((self.needed[after], after));
            }
        }
        if exchanges {
            self.keep(instruction, end);
        } else {
            self.remaining.issue(instruction, self.seconds[instruction]);
            self.release();
        }
    }

    /// Keeps what an exchange was the last to use until it is over, where there is room: whether there is.
    fn keep(&mut self, exchange: usize, end: f64) -> bool {
        if end <= self.clock[0] {
            return true;
        }
        let until = self.remaining.reached(end - self.clock[0]).min(self.issued.len() - 1);
        let mut all = true;
        for space in self.held.ended_by(exchange) {
            let kept = self.held.keep(space, until, self.budget);
            if kept {
                self.under_way.push(UnderWay { space, end });
            }
            all &= kept;
        }
        all
    }

    /// Gives back what was kept for exchanges that are over.
    fn release(&mut self) {
        let last = self.order.len() - 1;
        for it in std::mem::take(&mut self.under_way) {
            if it.end <= self.clock[0] {
                self.held.release(it.space);
                self.kept.push((it.space, last));
            } else {
                self.under_way.push(it);
            }
        }
    }
}

//! One block of a segment, minimised for given prices: what it costs from each state at its entry to each at its
//! exit. Where messages take the place of elimination, that lies between a bound and what was found, and what
//! is asked brings them together.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::segment::Ready;
use crate::eliminate::{Reduced, first_least};
use crate::messages::{Bounds, Found, Interval, Start, Wide};

/// A block minimised for given prices.
pub(crate) struct Block<'a> {
    /// For each choice of the globals, from each state at the entry to each at the exit.
    pub(super) bound: Costs,
    /// What was found, in the same order; nothing if it is the bound.
    pub(super) found: Option<Costs>,
    pub(super) bodies: Vec<Minimised<'a>>,
    /// What was asked of bodies that messages minimise.
    asked: BTreeSet<Question>,
}

/// A side of what a block costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// At least this.
    Bound,
    /// The best that was found.
    Found,
}

/// What a block costs.
pub(super) struct Costs {
    /// The least of its bodies.
    pub(super) table: Vec<f64>,
    /// The body that it is.
    pub(super) body: Vec<usize>,
}

/// A body minimised for given prices.
pub(super) struct Minimised<'a> {
    pub(super) by: By<'a>,
    /// For each entry of the block's table, its own least cost, or a bound of it.
    pub(super) table: Vec<f64>,
    /// What is live whatever is chosen costs.
    pub(super) constant: f64,
}

/// How a body was minimised.
pub(super) enum By<'a> {
    /// Exactly, by elimination.
    Elimination(Reduced<'a>),
    /// By messages: its table has bounds.
    Messages(Wide<'a>),
}

/// What may be asked of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// What it costs with one state at its entry or exit, and any at the other.
    End { body: usize, row: usize, side: Side, state: usize },
    /// What it costs at a place of the table.
    Place { body: usize, place: usize },
}

/// An end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Entry,
    Exit,
}

/// What was asked about blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    /// Nothing new.
    Nothing,
    /// What they cost with choices at their ends.
    Ends,
    /// What they cost.
    Blocks,
}

/// What a question comes to.
enum Answer {
    End(Bounds, Option<Found>),
    Place(Interval),
}

impl<'a> Block<'a> {
    pub(super) fn new(bodies: Vec<Minimised<'a>>) -> Self {
        let mut bound = Costs {
            table: bodies.first().map(|body| body.table.clone()).unwrap_or_default(),
            body: Vec::new(),
        };
        bound.body = vec![0; bound.table.len()];
        let mut block = Self { bound, found: None, bodies, asked: BTreeSet::new() };
        for (number, body) in block.bodies.iter().enumerate().skip(1) {
            block.bound.take(number, &body.table);
        }
        if block.bodies.iter().any(|body| matches!(body.by, By::Messages(_))) {
            let nothing = vec![f64::INFINITY; block.bound.table.len()];
            let mut found = Costs { body: vec![0; nothing.len()], table: nothing };
            for (number, body) in block.bodies.iter().enumerate() {
                if let By::Elimination(_) = body.by {
                    found.take(number, &body.table);
                }
            }
            block.found = Some(found);
        }
        block
    }

    /// For each body, where its messages ended.
    pub(super) fn starts(&self) -> Vec<Option<Start>> {
        let start = |body: &Minimised<'_>| match &body.by {
            By::Elimination(_) => None,
            By::Messages(wide) => Some(wide.start()),
        };
        self.bodies.iter().map(start).collect()
    }

    /// One side of what it costs.
    pub(super) fn costs(&self, of: Of) -> &Costs {
        match of {
            Of::Bound => &self.bound,
            Of::Found => self.found.as_ref().unwrap_or(&self.bound),
        }
    }

    /// Asks what is not known yet of the blocks between these states: of their ends, then of them. What
    /// was asked.
    pub(super) fn ask(&mut self, ready: &Ready, row: usize, states: &[usize]) -> Asked {
        let mut ends: BTreeSet<Question> = BTreeSet::new();
        let mut places: BTreeSet<Question> = BTreeSet::new();
        for pair in states.windows(2) {
            let place = ready.place(row, [pair[0], pair[1]]);
            let body = self.bound.body[place];
            if let By::Messages(_) = self.bodies[body].by {
                let sides = [(Side::Entry, pair[0]), (Side::Exit, pair[1])];
                ends.extend(sides.map(|(side, state)| Question::End { body, row, side, state }));
                places.insert(Question::Place { body, place });
            }
        }
        let new = |of: &BTreeSet<Question>| of.difference(&self.asked).copied().collect::<Vec<_>>();
        let mut questions = new(&ends);
        if questions.is_empty() {
            questions = new(&places);
        }
        let answers: Vec<Option<Answer>> = questions.par_iter().map(|it| self.answer(ready, *it)).collect();
        for (question, answer) in questions.iter().zip(answers) {
            if let Some(answer) = answer {
                self.learn(ready, *question, answer);
            }
            self.asked.insert(*question);
        }
        match questions.first() {
            None => Asked::Nothing,
            Some(Question::Place { .. }) => Asked::Blocks,
            Some(_) => Asked::Ends,
        }
    }

    fn answer(&self, ready: &Ready, question: Question) -> Option<Answer> {
        match question {
            Question::End { body, row, side, state } => {
                let By::Messages(wide) = &self.bodies[body].by else { return None };
                let (bounds, found) = wide.given(&ready.fixed(body, row, side, state));
                Some(Answer::End(bounds, found))
            }
            Question::Place { body, place } => {
                let By::Messages(wide) = &self.bodies[body].by else { return None };
                Some(Answer::Place(wide.solve(&ready.kept(body, place))))
            }
        }
    }

    fn learn(&mut self, ready: &Ready, question: Question, answer: Answer) {
        match (question, answer) {
            (Question::End { body, row, side, state }, Answer::End(bounds, found)) => {
                for pair in ready.pairs_of(side, state) {
                    let place = ready.place(row, pair);
                    self.raise(body, place, bounds.of(&ready.kept(body, place)));
                }
                if let (Some(found), By::Messages(wide)) = (found, &self.bodies[body].by) {
                    let place = ready.place_of(body, row, &wide.kept_of(&found.0));
                    self.offer(body, place, found);
                }
            }
            (Question::Place { body, place }, Answer::Place(Interval { bound, found })) => {
                self.raise(body, place, bound);
                if let Some(found) = found {
                    self.offer(body, place, found);
                }
            }
            _ => {}
        }
    }

    /// A bound of what a body costs at a place.
    fn raise(&mut self, number: usize, place: usize, bound: f64) {
        let body = &mut self.bodies[number];
        let bound = bound + body.constant;
        if bound > body.table[place] {
            body.table[place] = bound;
            if self.bound.body[place] == number {
                let least = first_least(self.bodies.iter().map(|body| body.table[place]));
                (self.bound.body[place], self.bound.table[place]) = (least, self.bodies[least].table[place]);
            }
        }
    }

    /// An assignment of a body, found for a place.
    fn offer(&mut self, number: usize, place: usize, found: Found) {
        let body = &mut self.bodies[number];
        let cost = found.1 + body.constant;
        if let (Some(costs), By::Messages(wide)) = (&mut self.found, &mut body.by) {
            wide.remember(found);
            if cost < costs.table[place] {
                (costs.table[place], costs.body[place]) = (cost, number);
            }
        }
    }
}

impl Costs {
    /// Those of a body, where they are less.
    fn take(&mut self, number: usize, table: &[f64]) {
        for ((least, body), cost) in self.table.iter_mut().zip(&mut self.body).zip(table) {
            if *cost < *least {
                (*least, *body) = (*cost, number);
            }
        }
    }
}

impl By<'_> {
    /// Choices of a body's nodes with these of those kept.
    pub(super) fn recover(&self, kept: &[usize]) -> Vec<usize> {
        match self {
            Self::Elimination(reduced) => reduced.recover(kept),
            Self::Messages(wide) => wide.recover(kept),
        }
    }
}

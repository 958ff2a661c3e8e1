//! One block of a segment, minimised for given prices: what it costs from each state at its entry to each at its
//! exit. Where messages take the place of elimination, that lies between a bound and what was found, and what
//! is asked brings them together.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::Ready;
use crate::eliminate::{Reduced, first_least};
use crate::messages::{Found, Interval, Start, Wide};

/// A block minimised for given prices.
pub(crate) struct Block<'a> {
    /// For each choice of the globals, from each state at the entry to each at the exit.
    pub(in crate::chain) bound: Costs,
    /// What was found, in the same order; nothing if it is the bound.
    pub(in crate::chain) found: Option<Costs>,
    pub(in crate::chain) bodies: Vec<Minimised<'a>>,
    /// What was asked of bodies that messages minimise.
    asked: BTreeSet<Question>,
}

/// A side of what a block costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::chain) enum Of {
    /// At least this.
    Bound,
    /// The best that was found.
    Found,
}

/// What a block costs.
pub(in crate::chain) struct Costs {
    /// The least of its bodies.
    pub(in crate::chain) table: Vec<f64>,
    /// The body that it is.
    pub(in crate::chain) body: Vec<usize>,
}

/// A body minimised for given prices.
pub(in crate::chain) struct Minimised<'a> {
    pub(in crate::chain) by: By<'a>,
    /// For each entry of the block's table, its own least cost, or a bound of it.
    pub(in crate::chain) table: Vec<f64>,
    /// What was found besides, where that is a bound.
    pub(in crate::chain) found: Option<Vec<f64>>,
    /// What is live whatever is chosen costs.
    pub(in crate::chain) constant: f64,
}

/// How a body was minimised.
pub(in crate::chain) enum By<'a> {
    /// Exactly, by elimination.
    Elimination(Reduced<'a>),
    /// By messages: its table has bounds.
    Messages(Box<Wide<'a>>),
}

/// What may be asked of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// What it costs: messages are sent for a turn.
    Body { body: usize },
    /// What it costs with one state at its entry or exit, and any at the other.
    End { body: usize, row: usize, side: Side, state: usize },
    /// What it costs at a place of the table.
    Place { body: usize, place: usize },
}

/// An end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::chain) enum Side {
    Entry,
    Exit,
}

/// What was asked about blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::chain) enum Asked {
    /// Nothing new.
    Nothing,
    /// What bodies cost whose bounds still rise.
    Bodies,
    /// What they cost with choices at their ends.
    Ends,
    /// What they cost.
    Blocks,
}

/// What a question comes to, of one body.
enum Answer<'a> {
    /// All that it costs.
    Whole { body: usize, wide: Box<Wide<'a>>, tables: [Vec<f64>; 2] },
    /// What it costs at some places.
    Part {
        body: usize,
        /// Places of the table, and bounds of what the body costs there.
        bounds: Vec<(usize, f64)>,
        /// What was found, and for which place.
        found: Option<(usize, Found)>,
    },
}

impl<'a> Block<'a> {
    pub(in crate::chain) fn new(bodies: Vec<Minimised<'a>>) -> Self {
        let found = |body: &'_ Minimised<'_>| body.found.as_ref().unwrap_or(&body.table).clone();
        let is_wide = bodies.iter().any(|body| body.found.is_some());
        let found = is_wide.then(|| Costs::of(bodies.iter().map(found)));
        Self {
            bound: Costs::of(bodies.iter().map(|it| it.table.clone())),
            found,
            bodies,
            asked: BTreeSet::new(),
        }
    }

    /// The bodies to which messages were sent at these prices.
    #[cfg(test)]
    pub(in crate::chain) fn swept(&self) -> Vec<usize> {
        let is_swept = |body: &usize| matches!(&self.bodies[*body].by, By::Messages(it) if it.is_sent());
        (0..self.bodies.len()).filter(is_swept).collect()
    }

    /// The least that messages found of its bodies.
    #[cfg(test)]
    pub(in crate::chain) fn found_by_bodies(&self, ready: &Ready) -> Vec<f64> {
        let of = |(number, body): (usize, &Minimised<'_>)| match &body.by {
            By::Messages(wide) => ready.tables(number, wide, body.constant)[1].clone(),
            By::Elimination(_) => body.table.clone(),
        };
        Costs::of(self.bodies.iter().enumerate().map(of)).table
    }

    /// For each body, where its messages ended.
    pub(in crate::chain) fn starts(&self) -> Vec<Option<Start>> {
        let start = |body: &Minimised<'_>| match &body.by {
            By::Elimination(_) => None,
            By::Messages(wide) => Some(wide.start()),
        };
        self.bodies.iter().map(start).collect()
    }

    /// One side of what it costs.
    pub(in crate::chain) fn costs(&self, of: Of) -> &Costs {
        match of {
            Of::Bound => &self.bound,
            Of::Found => self.found.as_ref().unwrap_or(&self.bound),
        }
    }

    /// Asks what is not known yet of the blocks between these states: of the bodies that they are, then of their
    /// ends, then of them. What was asked.
    pub(in crate::chain) fn ask(&mut self, ready: &Ready, row: usize, states: &[usize]) -> Asked {
        let mut bodies: BTreeSet<Question> = BTreeSet::new();
        let mut ends: BTreeSet<Question> = BTreeSet::new();
        let mut places: BTreeSet<Question> = BTreeSet::new();
        for pair in states.windows(2) {
            let place = ready.place(row, [pair[0], pair[1]]);
            let body = self.bound.body[place];
            if let By::Messages(wide) = &self.bodies[body].by {
                if !wide.is_swept() {
                    bodies.insert(Question::Body { body });
                }
                let sides = [(Side::Entry, pair[0]), (Side::Exit, pair[1])];
                ends.extend(sides.map(|(side, state)| Question::End { body, row, side, state }));
                places.insert(Question::Place { body, place });
            }
        }
        let new = |of: &BTreeSet<Question>| of.difference(&self.asked).copied().collect::<Vec<_>>();
        let mut questions = new(&bodies);
        for others in [&ends, &places] {
            if questions.is_empty() {
                questions = new(others);
            }
        }
        let answers: Vec<Option<Answer<'a>>> =
            questions.par_iter().map(|it| self.answer(ready, *it)).collect();
        answers.into_iter().flatten().for_each(|answer| self.learn(answer));
        self.asked.extend(questions.iter().filter(|it| !matches!(it, Question::Body { .. })));
        match questions.first() {
            None => Asked::Nothing,
            Some(Question::Place { .. }) => Asked::Blocks,
            Some(Question::End { .. }) => Asked::Ends,
            Some(Question::Body { .. }) => Asked::Bodies,
        }
    }

    /// What is to be known; nothing of what elimination minimised.
    fn answer(&self, ready: &Ready, question: Question) -> Option<Answer<'a>> {
        let (Question::Body { body } | Question::End { body, .. } | Question::Place { body, .. }) = question;
        let Minimised { by: By::Messages(wide), constant, .. } = &self.bodies[body] else { return None };
        Some(match question {
            Question::Body { .. } => {
                let wide = wide.rested().turned();
                let tables = ready.tables(body, &wide, *constant);
                Answer::Whole { body, wide: Box::new(wide), tables }
            }
            Question::End { row, side, state, .. } => {
                let (bounds, found) = wide.given(&ready.fixed(body, row, side, state));
                let places = ready.pairs_of(side, state).map(|pair| ready.place(row, pair));
                let bound = |place: usize| bounds.of(&ready.kept(body, place)) + constant;
                let place_of = |found: Found| (ready.place_of(body, row, &wide.kept_of(&found.0)), found);
                Answer::Part {
                    body,
                    bounds: places.map(|place| (place, bound(place))).collect(),
                    found: found.map(place_of),
                }
            }
            Question::Place { place, .. } => {
                let Interval { bound, found } = wide.solve(&ready.kept(body, place));
                Answer::Part {
                    body,
                    bounds: vec![(place, bound + constant)],
                    found: found.map(|found| (place, found)),
                }
            }
        })
    }

    fn learn(&mut self, answer: Answer<'a>) {
        let (number, bounds, found) = match answer {
            Answer::Part { body, bounds, found } => (body, bounds, found),
            Answer::Whole { body: number, wide, tables: [bounds, found] } => {
                self.bodies[number].by = By::Messages(wide);
                if let Some(costs) = &mut self.found {
                    for (place, cost) in found.into_iter().enumerate() {
                        if cost < costs.table[place] {
                            (costs.table[place], costs.body[place]) = (cost, number);
                        }
                    }
                }
                (number, bounds.into_iter().enumerate().collect(), None)
            }
        };
        for (place, bound) in bounds {
            let body = &mut self.bodies[number];
            if bound > body.table[place] {
                body.table[place] = bound;
                if self.bound.body[place] == number {
                    let least = first_least(self.bodies.iter().map(|body| body.table[place]));
                    (self.bound.body[place], self.bound.table[place]) =
                        (least, self.bodies[least].table[place]);
                }
            }
        }
        let body = &mut self.bodies[number];
        if let (Some((place, found)), Some(costs), By::Messages(wide)) =
            (found, &mut self.found, &mut body.by)
        {
            let cost = found.1 + body.constant;
            wide.remember(found);
            if cost < costs.table[place] {
                (costs.table[place], costs.body[place]) = (cost, number);
            }
        }
    }
}

impl Costs {
    /// The least of tables of bodies.
    fn of(bodies: impl Iterator<Item = Vec<f64>>) -> Self {
        let mut costs = Self { table: Vec::new(), body: Vec::new() };
        for (number, table) in bodies.enumerate() {
            costs.table.resize(table.len(), f64::INFINITY);
            costs.body.resize(table.len(), 0);
            for ((least, which), cost) in costs.table.iter_mut().zip(&mut costs.body).zip(table) {
                if cost < *least {
                    (*least, *which) = (cost, number);
                }
            }
        }
        costs
    }
}

impl By<'_> {
    /// Choices of a body's nodes with these of those kept.
    pub(in crate::chain) fn recover(&self, kept: &[usize]) -> Vec<usize> {
        match self {
            Self::Elimination(reduced) => reduced.recover(kept),
            Self::Messages(wide) => wide.recover(kept),
        }
    }
}

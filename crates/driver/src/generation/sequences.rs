//! Sequences that grow, token by token: what each step is given, and where the next logits are.
//!
//! Where entries come behind all others, prompts are filled up at the left, to whole steps; where they
//! come at the first empty place, at the right. Where all sequences stand at the same place, each takes
//! the next token that it has, of its prompt or chosen since.

use std::collections::BTreeMap;

use kernels::Array;
use plan::{Cache, Form, Generation, Growth, Plan};
use planner_ir::{Op, Source};
use run::{Handed, RunError, Session};

/// What a token is given as that nobody reads: one that every vocabulary has.
const NOTHING: i64 = 0;

/// Sequences, and the sessions in which they grow.
pub struct Sequences<'a> {
    generation: &'a Generation,
    prefill: Option<Session>,
    decode: Session,
    handed: Vec<Handed>,
    /// For each sequence its tokens: the prompt and what was chosen.
    tokens: Vec<Vec<i64>>,
    /// How many steps' tokens have been taken of all sequences, where they stand at the same place;
    /// else whether prompts have been.
    taken: usize,
    /// How many steps of one token there have been since those of several.
    singles: usize,
}

/// For each sequence what the model says of its next token; nothing of one whose prompt is not over.
/// In processes that do not lead nothing is known, and the lists are empty.
pub type Logits = Vec<Option<Vec<f64>>>;

impl<'a> Sequences<'a> {
    /// Prompts of at least one token each, as many as there are sequences; sessions of the plans'
    /// programs.
    pub fn new(
        generation: &'a Generation,
        prefill: Option<Session>,
        decode: Session,
        prompts: Vec<Vec<i64>>,
    ) -> Result<Self, RunError> {
        let cache = &generation.cache;
        // Of a state nobody has less than all along its last dimension.
        let last = |name: &str| {
            let output = generation.decode.graph.outputs.iter().find(|it| it.name == name);
            let rank = output.map(|it| generation.decode.graph.type_of(it.value).rank());
            rank.unwrap_or(0).saturating_sub(1)
        };
        let handed = |part: &plan::Kept| Handed {
            output: part.present.clone(),
            input: part.past.clone(),
            dim: match part.form {
                Form::Entries => cache.dim,
                Form::State => last(&part.present),
            },
        };
        let handed: Vec<Handed> = cache.kept.iter().map(handed).collect();
        let (mut prefill, mut decode) = (prefill, decode);
        decode.keep(&handed)?;
        if let Some(prefill) = &mut prefill {
            // What a step of one token finds comes of prompts.
            prefill.take_turn(&mut decode)?;
            prefill.keep(&handed)?;
        }
        Ok(Self { generation, prefill, decode, handed, tokens: prompts, taken: 0, singles: 0 })
    }

    /// What each rank on a processor of this process holds (bytes).
    pub fn held(&self) -> Vec<u64> {
        self.decode.held_together(self.prefill.as_ref())
    }

    /// The tokens of all sequences.
    pub fn tokens(&self) -> &[Vec<i64>] {
        &self.tokens
    }

    /// Adds a token to each sequence that has been given logits.
    pub fn push(&mut self, next: &[Option<i64>]) {
        for (tokens, next) in self.tokens.iter_mut().zip(next) {
            tokens.extend(next);
        }
    }

    /// Takes the tokens that have not been: what comes after those of at least one sequence.
    pub fn logits(&mut self) -> Result<Logits, RunError> {
        match self.generation.cache.growth {
            Growth::AtPosition => loop {
                let logits = self.in_step()?;
                if logits.iter().any(Option::is_some) {
                    return Ok(logits);
                }
            },
            Growth::Behind | Growth::AtLength if self.taken == 0 => self.prompts(),
            Growth::Behind | Growth::AtLength => {
                let last: Vec<usize> = self.tokens.iter().map(|tokens| tokens.len() - 1).collect();
                let logits = self.step(&last, 1)?;
                self.rows(&logits, |_| Some(0))
            }
        }
    }

    /// All prompts, as many steps as they take, and what they leave given to single tokens.
    fn prompts(&mut self) -> Result<Logits, RunError> {
        self.taken = 1;
        let logits = self.prompt_steps()?;
        let prefill = self.prefill.as_mut().filter(|_| self.generation.width() > 1);
        if let Some(prefill) = prefill {
            self.decode.take(prefill, &self.handed)?;
        }
        Ok(logits)
    }

    fn prompt_steps(&mut self) -> Result<Logits, RunError> {
        let width = usize::try_from(self.generation.width()).unwrap_or(usize::MAX);
        let longest = self.tokens.iter().map(Vec::len).max().unwrap_or(0);
        if self.generation.cache.growth == Growth::AtLength && self.prefill.is_some() {
            let first = vec![0; self.tokens.len()];
            let logits = self.step(&first, width)?;
            let last: Vec<usize> = self.tokens.iter().map(|it| it.len() - 1).collect();
            return self.rows(&logits, |sequence| Some(last[sequence]));
        }
        let steps = longest.div_ceil(width);
        let mut logits = None;
        for step in 0..steps {
            // Places before the first token count down from 0.
            let first = |tokens: &Vec<i64>| (step * width + tokens.len()).wrapping_sub(steps * width);
            let first: Vec<usize> = self.tokens.iter().map(first).collect();
            logits = self.step(&first, width)?;
        }
        self.rows(&logits, |_| width.checked_sub(1))
    }

    /// The next token of each sequence, all at the same place.
    fn in_step(&mut self) -> Result<Logits, RunError> {
        let place = self.taken;
        self.taken += 1;
        let logits = self.step(&vec![place; self.tokens.len()], 1)?;
        let over: Vec<bool> = self.tokens.iter().map(|tokens| tokens.len() == place + 1).collect();
        self.rows(&logits, |sequence| over[sequence].then_some(0))
    }

    /// Takes so many tokens of each sequence, from that place on; what the model says of each, where
    /// this process knows it.
    fn step(&mut self, first: &[usize], width: usize) -> Result<Option<Array>, RunError> {
        let generation = self.generation;
        let plan = generation.prefill.as_ref().filter(|_| width > 1).unwrap_or(&generation.decode);
        let inputs = self.given(plan, first, width)?;
        let session = match &mut self.prefill {
            Some(prefill) if width > 1 => {
                prefill.take_turn(&mut self.decode)?;
                prefill
            }
            Some(prefill) => {
                self.decode.take_turn(prefill)?;
                &mut self.decode
            }
            None => &mut self.decode,
        };
        let mut outcome = session.step(&inputs)?;
        self.singles += usize::from(width == 1);
        Ok(outcome.outputs.remove(&generation.cache.logits))
    }

    /// The inputs of a step.
    fn given(&self, plan: &Plan, first: &[usize], width: usize) -> Result<BTreeMap<String, Array>, RunError> {
        let Cache { tokens, mask, positions, growth, capacity, slot, .. } = &self.generation.cache;
        let capacity = usize::try_from(*capacity).unwrap_or(usize::MAX);
        let mut inputs = BTreeMap::new();
        // A place may be before the first token, or behind the last.
        let token =
            |(sequence, place): (usize, usize)| self.tokens[sequence].get(place).copied().unwrap_or(NOTHING);
        let places = |sequence: usize| (0..width).map(move |it| (sequence, first[sequence].wrapping_add(it)));
        let all = || (0..first.len()).flat_map(places);
        give(&mut inputs, plan, tokens, &all().map(token).collect::<Vec<_>>())?;
        if let Some(name) = mask {
            let length = |sequence: usize| {
                let end = first[sequence].wrapping_add(width);
                // Before the first token, or as many as there are.
                if end > usize::MAX / 2 { 0 } else { end.min(self.tokens[sequence].len()) }
            };
            let room = if *growth == Growth::AtLength && width > 1 { width } else { capacity };
            let holds = |sequence: usize| {
                let held = length(sequence);
                let empty = room.saturating_sub(held);
                (0..room).map(move |place| match growth {
                    Growth::Behind => i64::from(place >= empty),
                    Growth::AtLength | Growth::AtPosition => i64::from(place < held),
                })
            };
            give(&mut inputs, plan, name, &(0..first.len()).flat_map(holds).collect::<Vec<_>>())?;
        }
        if let Some(positions) = positions {
            let position = |(_, place): (usize, usize)| i64::try_from(place).unwrap_or(0);
            let shared = *growth == Growth::AtPosition;
            let positions_of: Vec<i64> =
                if shared { places(0).map(position).collect() } else { all().map(position).collect() };
            give(&mut inputs, plan, &positions.name, &positions_of)?;
        }
        if let Some(name) = slot.as_ref().filter(|_| width == 1) {
            // What prompts leave is in order: its first place is the oldest.
            let period = usize::try_from(self.generation.cache.period()).unwrap_or(usize::MAX);
            let slot = i64::try_from(self.singles % period.max(1)).unwrap_or(0);
            give(&mut inputs, plan, name, &[slot])?;
        }
        Ok(inputs)
    }

    /// Of each sequence the logits of a column of the step, if there is one.
    fn rows(
        &self,
        logits: &Option<Array>,
        column: impl Fn(usize) -> Option<usize>,
    ) -> Result<Logits, RunError> {
        let count = self.tokens.len();
        let Some(logits) = logits else {
            return Ok((0..count).map(|it| column(it).map(|_| vec![])).collect());
        };
        let name = &self.generation.cache.logits;
        let failed = |error| RunError::Whole(name.clone(), error);
        let numbers = logits.to_floats().map_err(failed)?;
        let size = |dim: usize| usize::try_from(logits.shape().get(dim).copied().unwrap_or(0)).unwrap_or(0);
        let (width, vocabulary) = (size(1), size(2));
        let row = |sequence: usize| {
            let start = (sequence * width + column(sequence)?) * vocabulary;
            numbers.get(start..start + vocabulary).map(<[f64]>::to_vec)
        };
        Ok((0..count).map(row).collect())
    }
}

/// Adds an input of a plan, converted; nothing if the plan does not use it.
fn give(
    inputs: &mut BTreeMap<String, Array>,
    plan: &Plan,
    name: &str,
    numbers: &[i64],
) -> Result<(), RunError> {
    let is_it = |source: &Source| matches!(source, Source::Input(input) if input == name);
    let Some(value) = plan.graph.values.iter().find(|value| is_it(&value.source)) else { return Ok(()) };
    let failed = |error| RunError::Whole(name.to_owned(), error);
    let array = Array::of(value.type_.shape.clone(), numbers).map_err(failed)?;
    let array = if value.type_.dtype == array.dtype() {
        array
    } else {
        let mut cast = kernels::evaluate(&Op::Cast(value.type_.dtype), &[&array]).map_err(failed)?;
        cast.pop().unwrap_or(array)
    };
    inputs.insert(name.to_owned(), array);
    Ok(())
}

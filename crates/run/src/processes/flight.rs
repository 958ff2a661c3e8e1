//! What a process has done last, for whoever wants to know why all were ended.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many events are kept.
const KEPT: usize = 512;

/// What a process says that it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doing {
    /// The step, from 1; 0 before the first one.
    pub(crate) step: u64,
    /// The number of the program, of those that this process has: those of prompts and of single tokens
    /// take turns.
    pub(crate) program: u64,
    /// The number of the instruction in that.
    pub(crate) instruction: u64,
    /// For whom it waits, if it does; of several the first one.
    pub(crate) waits_for: Option<u64>,
}

/// What is done with the last words of a process: these, which are none where another one says them,
/// what it did last, and its exit code.
pub type Ended = Box<dyn Fn(Option<&str>, &str, u8) + Send + Sync>;

/// What a process does before it ends with an exit code, by whatever thread and for whatever reason.
pub(super) type Last = Box<dyn Fn(u8) + Send + Sync>;

/// What a process has done last.
pub(crate) struct Flight {
    start: Instant,
    ended: Ended,
    last: Mutex<Option<Last>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// For each program, its instructions in words.
    texts: Vec<Vec<String>>,
    events: VecDeque<Event>,
    doing: Doing,
}

struct Event {
    /// When (seconds since the process joined).
    at: f64,
    doing: Doing,
    what: What,
}

enum What {
    /// An instruction begins, of a micro-batch.
    Begins(u64),
    /// A wait for these ranks begins.
    Waits(Vec<u64>),
    /// A wait is over.
    Goes,
}

impl Flight {
    pub(crate) fn new(ended: Ended) -> Self {
        Self { start: Instant::now(), ended, last: Mutex::default(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the instructions of one more program of this process, in words: its number.
    pub(crate) fn add_program(&self, texts: Vec<String>) -> usize {
        let mut state = self.state();
        state.texts.push(texts);
        state.texts.len() - 1
    }

    /// A step of a program begins.
    pub(crate) fn step(&self, program: usize) {
        let mut state = self.state();
        state.doing.program = u64::try_from(program).unwrap_or(u64::MAX);
        state.doing.step += 1;
        state.doing.instruction = 0;
    }

    /// An instruction begins.
    pub(crate) fn begins(&self, instruction: usize, micro_batch: u64) {
        let mut state = self.state();
        state.doing.instruction = u64::try_from(instruction).unwrap_or(u64::MAX);
        self.note(&mut state, What::Begins(micro_batch));
    }

    /// A wait begins.
    pub(crate) fn waits(&self, ranks: Vec<u64>) {
        let mut state = self.state();
        state.doing.waits_for = ranks.first().copied();
        self.note(&mut state, What::Waits(ranks));
    }

    /// It is over.
    pub(crate) fn goes(&self) {
        let mut state = self.state();
        state.doing.waits_for = None;
        self.note(&mut state, What::Goes);
    }

    fn note(&self, state: &mut State, what: What) {
        if state.events.len() == KEPT {
            state.events.pop_front();
        }
        let (at, doing) = (self.start.elapsed().as_secs_f64(), state.doing);
        state.events.push_back(Event { at, doing, what });
    }

    /// What this process does.
    pub(crate) fn doing(&self) -> Doing {
        self.state().doing
    }

    /// Hands over the last words, and what was done last.
    pub(crate) fn ended(&self, words: Option<&str>, code: u8) {
        (self.ended)(words, &self.record(), code);
    }

    /// What is to be done before this process ends.
    pub(super) fn set_last(&self, last: Last) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    /// Does what is to be done before this process ends, once.
    pub(super) fn leave(&self, code: u8) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(last) = last {
            last(code);
        }
    }

    /// What was done last: a line for each event, the newest at the end.
    fn record(&self) -> String {
        let state = self.state();
        let mut text = String::new();
        for Event { at, doing: Doing { step, program, instruction, .. }, what } in &state.events {
            let words = match what {
                What::Begins(micro_batch) => {
                    let [program, index] =
                        [*program, *instruction].map(|it| usize::try_from(it).unwrap_or(usize::MAX));
                    let text = state.texts.get(program).and_then(|it| it.get(index));
                    let text = text.map_or("", String::as_str);
                    format!("micro-batch {micro_batch}: {text}")
                }
                What::Waits(ranks) => {
                    let names: Vec<String> = ranks.iter().map(u64::to_string).collect();
                    format!("waits for {}", names.join(", "))
                }
                What::Goes => "goes on".to_owned(),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{at:.6} s  program {program}  step {step}  instruction {instruction}  {words}"
            );
        }
        let now = self.start.elapsed().as_secs_f64();
        let _ = writeln!(text, "{now:.6} s  ended");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Two programs take turns, as those of prompts and of single tokens do.
    #[test]
    fn each_instruction_has_the_words_of_its_own_program() {
        let kept = Arc::new(Mutex::new(String::new()));
        let record = Arc::clone(&kept);
        let flight = Flight::new(Box::new(move |_, done, _| done.clone_into(&mut record.lock().unwrap())));
        let programs = [&["a prompt"][..], &["a token", "its cache"]];
        let numbers = programs.map(|it| flight.add_program(it.iter().map(|&it| it.to_owned()).collect()));
        for (program, instruction) in [(0, 0), (1, 0), (1, 1), (0, 0)] {
            flight.step(numbers[program]);
            flight.begins(instruction, 0);
        }
        flight.ended(None, 1);
        let record = kept.lock().unwrap();
        let lines: Vec<&str> = record.lines().filter_map(|it| it.split_once(" s  ")).map(|it| it.1).collect();
        assert_eq!(
            lines,
            [
                "program 0  step 1  instruction 0  micro-batch 0: a prompt",
                "program 1  step 2  instruction 0  micro-batch 0: a token",
                "program 1  step 3  instruction 1  micro-batch 0: its cache",
                "program 0  step 4  instruction 0  micro-batch 0: a prompt",
                "ended"
            ]
        );
    }
}

//! The text form of schedules: a line for each group, a word for each task.
//!
//! ```text
//! F0 F1 B0 W0 B1 W1     // forward for micro-batch 0, for micro-batch 1, backward for 0, ...
//! F0 B0 W0 F1 B1 W1
//! ```
//!
//! Where groups have several chunks, a word says which: `F3.1` is for micro-batch 3 on chunk 1, and
//! `F3` is `F3.0`. `//` begins a comment, and lines without words count for nothing. The backward
//! part is in two if there is a `W`.

use std::fmt;
use std::str::FromStr;

use super::{MAX_TASKS, Schedule, Task, Work};
use planner_ir::ParseError;

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tasks in &self.groups {
            for (position, task) in tasks.iter().enumerate() {
                let separator = if position == 0 { "" } else { " " };
                write!(f, "{separator}{}", self.word(task))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Schedule {
    /// A task in the text form of this schedule: with its chunk only if groups have several.
    pub fn word(&self, task: &Task) -> String {
        match self.chunks {
            1 if task.chunk == 0 => format!("{}{}", task.work.letter(), task.micro_batch),
            _ => task.to_string(),
        }
    }
}

impl FromStr for Schedule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut groups: Vec<Vec<Task>> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let tasks = words(line).map(|(column, word)| task(number + 1, column, word));
            let tasks: Vec<Task> = tasks.collect::<Result<_, _>>()?;
            groups.extend((!tasks.is_empty()).then_some(tasks));
        }
        if groups.is_empty() {
            let (found, expected) = ("the end".to_owned(), "a task such as `F0`".to_owned());
            return Err(ParseError { line: text.lines().count().max(1), column: 1, found, expected });
        }
        let all = || groups.iter().flatten();
        Ok(Self {
            chunks: all().map(|task| task.chunk + 1).max().unwrap_or(1),
            splits_backward: all().any(|task| task.work == Work::Weight),
            groups,
        })
    }
}

/// The words of a line before its comment, each with its column from 1 (characters).
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = line.split_once("//").map_or(line, |(code, _)| code);
    code.split_whitespace().map(move |word| {
        let before = word.as_ptr().addr() - code.as_ptr().addr();
        (code[..before].chars().count() + 1, word)
    })
}

/// The task that a word is.
fn task(line: usize, column: usize, word: &str) -> Result<Task, ParseError> {
    let error = |expected: String| ParseError { line, column, found: format!("`{word}`"), expected };
    let work = Work::ALL.into_iter().find(|work| word.starts_with(work.letter()));
    let work =
        work.ok_or_else(|| error("a task: `F`, `B` or `W` and the micro-batch, such as `F0`".to_owned()))?;
    let (micro_batch, chunk) = word[1..].split_once('.').unwrap_or((&word[1..], "0"));
    let number = |digits: &str, what: &str| {
        let plain = digits.bytes().all(|it| it.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| plain && *number < MAX_TASKS);
        number.ok_or_else(|| error(format!("the {what} as a number below {MAX_TASKS}")))
    };
    Ok(Task { work, chunk: number(chunk, "chunk")?, micro_batch: number(micro_batch, "micro-batch")? })
}

//! Examples from a file of token numbers: windows of the plan's sequence.
//!
//! A file of n tokens has `(n - 1) / sequence` windows, one after the other; what is left at its
//! end is not used. Each input of the plan has a part in a window.

use std::path::Path;

use files::mapped::Mapped;
use kernels::Array;
use plan::{Loss, Recipe};
use planner_ir::{DType, Type};

use super::input::{Input, bytes_of};
use super::job::Width;

/// A file of tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    file: Mapped,
    pub(super) width: Width,
    /// For each input, what it is of a window.
    parts: Vec<Part>,
    /// How many windows a micro-batch has.
    pub(super) batch: u64,
    /// How many tokens a window has.
    sequence: u64,
}

/// What an input is of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Its tokens.
    Tokens,
    /// For each of its tokens the next.
    Next,
    /// One for each of its tokens.
    Ones,
    /// Each token's place in it.
    Places,
}

impl Tokens {
    /// Maps a file.
    pub(super) fn open(path: &Path, width: Width, inputs: &[Input], recipe: &Recipe) -> Result<Self, String> {
        let (parts, [batch, sequence]) = parts(inputs, recipe)?;
        let file = Mapped::open(path).map_err(|error| format!("cannot be read: {error}"))?;
        let length = bytes_of(file.as_ref().len());
        let bytes = bytes_of(width.bytes());
        if !length.is_multiple_of(bytes) {
            return Err(format!(
                "{length} bytes are no whole number of tokens of {bytes} bytes (`--tokens`)"
            ));
        }
        if length / bytes <= sequence {
            return Err(format!(
                "has {} tokens, expected {} at least: a window of {sequence}, and the token after it",
                length / bytes,
                sequence + 1
            ));
        }
        Ok(Self { file, width, parts, batch, sequence })
    }

    /// How many windows there are.
    pub(super) fn examples(&self) -> u64 {
        let tokens = bytes_of(self.file.as_ref().len() / self.width.bytes());
        (tokens - 1) / self.sequence
    }

    /// An input for some windows, as many as its type says.
    pub(super) fn input(&self, number: usize, type_: &Type, windows: &[u64]) -> Result<Array, String> {
        self.file.check()?;
        let part = self.parts[number];
        // Places may be there once for all windows.
        let rows = usize::try_from(type_.elements() / self.sequence).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        for window in windows.iter().take(rows) {
            for place in 0..self.sequence {
                let number = match part {
                    Part::Tokens => self.token(window * self.sequence + place),
                    Part::Next => self.token(window * self.sequence + place + 1),
                    Part::Ones => 1,
                    Part::Places => place,
                };
                let size = usize::try_from(type_.dtype.bytes()).unwrap_or(0);
                bytes.extend_from_slice(&number.to_le_bytes()[..size]);
            }
        }
        Array::from_bytes(type_.clone(), &bytes).map_err(|error| error.to_string())
    }

    fn token(&self, number: u64) -> u64 {
        let width = self.width.bytes();
        let start = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(width);
        let bytes = self.file.as_ref().get(start..start.saturating_add(width)).unwrap_or_default();
        bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

/// What each input is of a window; how many windows there are in a micro-batch, of how many tokens.
fn parts(inputs: &[Input], recipe: &Recipe) -> Result<(Vec<Part>, [u64; 2]), String> {
    let labels = match &recipe.loss {
        Loss::CrossEntropy { labels, .. } => Some(labels.as_str()),
        Loss::Output(_) => None,
    };
    // A model that has its own loss compares each token with the next.
    let part = |input: &Input| match input.name.as_str() {
        name if labels == Some(name) => Some(Part::Next),
        "labels" => Some(Part::Tokens),
        name if name.contains("mask") => Some(Part::Ones),
        name if name.contains("position") => Some(Part::Places),
        _ => None,
    };
    let found: Vec<Option<Part>> = inputs.iter().map(part).collect();
    let rest: Vec<&Input> =
        inputs.iter().zip(&found).filter(|(_, part)| part.is_none()).map(|(input, _)| input).collect();
    let tokens = match rest[..] {
        [only] => only,
        [] => return Err("a file of tokens, but no input takes tokens; give arrays (.npz)".to_owned()),
        _ => *rest.iter().find(|it| it.name == "input_ids").unwrap_or(&rest[0]),
    };
    if let Some(other) = rest.iter().find(|it| it.name != tokens.name) {
        return Err(format!(
            "a file of tokens has nothing for input `{}` {} (`{}` takes the tokens); give arrays (.npz)",
            other.name, other.type_, tokens.name
        ));
    }
    let [batch, sequence] = tokens.type_.shape[..] else {
        return Err(unfit(tokens, "of two dimensions, batch and sequence"));
    };
    let parts: Vec<Part> = found.into_iter().map(|part| part.unwrap_or(Part::Tokens)).collect();
    for (input, part) in inputs.iter().zip(&parts) {
        let shape = &input.type_.shape;
        let alone = *part == Part::Places && *shape == [sequence];
        let single = *part == Part::Places && *shape == [1, sequence];
        if *shape != [batch, sequence] && !alone && !single {
            return Err(unfit(input, &format!("[{batch},{sequence}], the shape of `{}`", tokens.name)));
        }
        let counts = !input.type_.dtype.is_float();
        if !counts || input.type_.dtype == DType::Bool && *part != Part::Ones {
            return Err(unfit(input, "of integers"));
        }
    }
    if batch == 0 || sequence == 0 {
        return Err(unfit(tokens, "not empty"));
    }
    Ok((parts, [batch, sequence]))
}

fn unfit(input: &Input, expected: &str) -> String {
    format!(
        "input `{}` is {}, and from a file of tokens it can only be made {expected}; give arrays (.npz)",
        input.name, input.type_
    )
}

#[cfg(test)]
mod tests;

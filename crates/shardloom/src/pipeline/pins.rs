//! How operations are computed that a user has fixed, beside what they are called.

use planner_ir::Graph;
use search::{Fixed, names};

use crate::failure::Failure;

/// How many names a refusal shows.
const NEAR: usize = 4;

/// Refuses what names no operation of a model.
pub(super) fn known(fixed: &[Fixed], graph: &Graph) -> Result<(), Failure> {
    let Some(unknown) = fixed.iter().find(|it| !it.names(graph)) else { return Ok(()) };
    let mut near: Vec<&str> = names(graph).into_iter().collect();
    near.sort_by_key(|name| distance(&unknown.operations, name));
    near.truncate(NEAR);
    Err(Failure::Usage(format!(
        "`--pin {unknown}` names no operation that is computed at every step, near are `{}`; `explain` prints \
         all, and `*` stands for any text",
        near.join("`, `")
    )))
}

/// How many letters are to be added, left out or changed until one text is the other.
///
/// Source: Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", 1966.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], above + 1);
        for (place, its) in other.chars().enumerate() {
            let changed = corner + usize::from(letter != its);
            corner = row[place + 1];
            row[place + 1] = changed.min(1 + corner.min(row[place]));
        }
    }
    row[row.len() - 1]
}

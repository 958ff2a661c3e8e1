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

/// How many letters of a pattern are to be added, left out or changed until a name is one of it; `*` is
/// any text.
///
/// Source: Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", 1966.
fn distance(pattern: &str, name: &str) -> usize {
    let mut row: Vec<usize> = (0..=name.chars().count()).collect();
    for letter in pattern.chars() {
        let each = usize::from(letter != '*');
        let mut corner = row[0];
        row[0] += each;
        for (place, its) in name.chars().enumerate() {
            let changed = corner + usize::from(letter != its);
            corner = row[place + 1];
            row[place + 1] = changed.min(each + corner.min(row[place]));
        }
    }
    row[row.len() - 1]
}

//! How operations are computed that a user has fixed, beside what they are called.

use std::collections::BTreeSet;

use files::Failure;
use planner_ir::Graph;
use search::{Fixed, names};

/// How many names a refusal shows.
const NEAR: usize = 4;

/// Refuses what is of no operation of a model, given in all its forms: those of a product that is computed
/// alone, and as part of a larger one of more loops.
pub(crate) fn known(fixed: &[Fixed], graphs: &[&Graph]) -> Result<(), Failure> {
    named(fixed, graphs)?;
    fixed.iter().try_for_each(|it| counted(it, &graphs.iter().flat_map(|graph| it.counts(graph)).collect()))
}

/// Refuses what names no operation of a model.
pub(crate) fn named(fixed: &[Fixed], graphs: &[&Graph]) -> Result<(), Failure> {
    let unnamed = fixed.iter().find(|it| !graphs.iter().any(|graph| it.names(graph)));
    unnamed.map_or(Ok(()), |it| Err(unknown(it, graphs)))
}

/// Refuses a partition of a number of loops that none of the operations of its name has.
pub(crate) fn counted(fixed: &Fixed, counts: &BTreeSet<usize>) -> Result<(), Failure> {
    if fixed.loops().is_none_or(|own| counts.contains(&own)) {
        return Ok(());
    }
    let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
    Err(Failure::Usage(format!(
        "`--pin {fixed}`: operations of that name have {} loops, expected a partition of as many",
        counts.join(" or ")
    )))
}

fn unknown(unknown: &Fixed, graphs: &[&Graph]) -> Failure {
    let all: BTreeSet<&str> = graphs.iter().flat_map(|graph| names(graph)).collect();
    let mut near: Vec<&str> = all.into_iter().collect();
    near.sort_by_key(|name| planner_ir::distance(&unknown.operations, name));
    near.truncate(NEAR);
    Failure::Usage(format!(
        "`--pin {unknown}` names no operation that is computed at every step, near are `{}`; `explain` prints \
         all, and `*` stands for any text",
        near.join("`, `")
    ))
}

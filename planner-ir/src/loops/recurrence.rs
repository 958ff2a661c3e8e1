//! The loops of recurrences.

use super::nest::{Index, Nest};
use super::{LoopId, Role};
use crate::data::Type;
use crate::op::Recurrence;

/// The operands that [`Recurrence`] says.
///
/// Tokens follow each other: each needs the whole state of the one before. Columns of the state do not meet,
/// and where keys do not ask what is there, rows meet in results only, as addends.
pub(super) fn recurrence_dims(nest: &mut Nest, it: Recurrence, operands: &[Type]) -> (Index, Index) {
    let (k, v) = (&operands[1].shape, &operands[2].shape);
    let batch = nest.dim(v[0], Role::Map);
    let tokens = nest.dim(v[1], Role::Whole);
    let groups = nest.dim(k[2], Role::Map);
    let per_group = nest.dim(v[2] / k[2], Role::Map);
    let rows = nest.dim(k[3], if it.replaces() { Role::Whole } else { Role::Map });
    let columns = nest.dim(v[3], Role::Map);
    let heads: Vec<LoopId> = groups.iter().chain(&per_group).copied().collect();
    let of_tokens =
        |more: [&Vec<LoopId>; 2]| vec![batch.clone(), tokens.clone(), more[0].clone(), more[1].clone()];
    let decays = if operands[3].shape[3] == 1 { vec![] } else { rows.clone() };
    let made = of_tokens([&heads, &columns]);
    let state = vec![batch.clone(), heads.clone(), rows.clone(), columns.clone()];
    let keys = of_tokens([&groups, &rows]);
    let mut given = vec![keys.clone(), keys, made.clone(), of_tokens([&heads, &decays])];
    if it.replaces() {
        given.push(vec![batch.clone(), tokens.clone(), heads.clone()]);
    }
    given.push(state.clone());
    let results = vec![made, state];
    let (operands, results) = match it.gradient() {
        Some(_) => (given, results),
        None => ([&given[..], &results].concat(), given),
    };
    nest.sum_where_missing(&results);
    (operands, results)
}

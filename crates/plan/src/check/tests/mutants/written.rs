//! Mutants whose devices hold the same blocks by digits that are written otherwise.

use super::{Mutant, computed};

pub(super) const WRITTEN: &[Mutant] = &[
    ("a result written otherwise", &["written", "move"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        let value = *u.choose(&plan.graph.nodes[node].results)?;
        let mut digits = plan.layouts[value.0].dims.iter_mut().flatten();
        let Some(digit) = digits.find(|digit| digit.plain().is_some()) else { return Ok(false) };
        digit.terms[0].1 += i64::try_from(digit.size).unwrap_or(0);
        Ok(true)
    }),
    ("a copy written otherwise", &["written", "move"], |plan, u| {
        if plan.transfers.is_empty() {
            return Ok(false);
        }
        let transfer = u.choose_index(plan.transfers.len())?;
        let mut digits = plan.transfers[transfer].layout.dims.iter_mut().flatten();
        let Some(digit) = digits.find(|digit| digit.plain().is_some()) else { return Ok(false) };
        digit.offset += i64::try_from(digit.size).unwrap_or(0);
        Ok(true)
    }),
];

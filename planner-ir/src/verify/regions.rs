//! Programs whose shapes depend on data.

use super::Violations;
use crate::op::{Dynamic, Op, Region};

/// How deep regions may be nested.
const MAX_DEPTH: usize = 32;

/// Whether a region is well numbered; `name` says which, for messages.
pub(super) fn region(region: &Region, name: &str, found: &mut Violations) {
    nested(region, name, 1, found);
}

fn nested(region: &Region, name: &str, depth: usize, found: &mut Violations) {
    const RULE: &str = "region-numbering";
    if depth > MAX_DEPTH {
        return found.add(RULE, name, format!("more than {MAX_DEPTH} nested regions"));
    }
    let mut count = region.operands;
    for node in &region.nodes {
        let place = format!("{name}, in its region %{count}");
        for operand in node.operands.iter().filter(|&&operand| operand >= count) {
            found.add(RULE, &place, format!("uses %{operand}, which comes later"));
        }
        match &node.op {
            Op::Region(inner) => {
                agrees(inner, node.operands.len(), node.results, &place, found);
                nested(inner, &place, depth + 1, found);
            }
            Op::Dynamic(Dynamic::If { yes, no }) => {
                let taken = yes.operands.saturating_add(no.operands);
                if node.operands.len() != taken.saturating_add(1) {
                    let message =
                        format!("{} operands, expected {taken} and a condition", node.operands.len());
                    found.add(RULE, &place, message);
                }
                for branch in [yes, no] {
                    agrees(branch, branch.operands, node.results, &place, found);
                    nested(branch, &place, depth + 1, found);
                }
            }
            Op::Dynamic(Dynamic::Loop { states, body }) => {
                if *states > node.results {
                    found.add(RULE, &place, format!("{states} states of {} results", node.results));
                }
                agrees(body, node.operands.len(), node.results.saturating_add(1), &place, found);
                nested(body, &place, depth + 1, found);
            }
            _ => {}
        }
        count = count.saturating_add(node.results);
    }
    for result in region.results.iter().filter(|&&result| result >= count) {
        found.add(RULE, name, format!("its region returns %{result}, which does not exist"));
    }
    if region.results.len() != region.types.len() {
        let message = format!("{} types for {} results", region.types.len(), region.results.len());
        found.add(RULE, name, message);
    }
}

/// Whether a region takes and gives as much as the operation that it is of.
fn agrees(region: &Region, operands: usize, results: usize, place: &str, found: &mut Violations) {
    const RULE: &str = "region-numbering";
    if region.operands != operands {
        found.add(RULE, place, format!("{operands} operands, expected {}", region.operands));
    }
    if region.results.len() != results {
        found.add(RULE, place, format!("{results} results, expected {}", region.results.len()));
    }
}

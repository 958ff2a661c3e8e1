//! States that go from token to token, and their gradients.

use super::Elements::Small;
use super::{Case, Elements, case};

/// Extents: batches, tokens, key heads, heads, rows, columns, decays.
type Sizes = [u64; 7];

pub(in super::super) fn recurrences() -> Vec<Case> {
    let sizes = [[2, 2, 2, 4, 2, 2, 1], [1, 4, 1, 2, 4, 2, 4]];
    let names = ["selective_scan", "gated_delta", "selective_scan_gradient", "gated_delta_gradient"];
    names.into_iter().flat_map(|name| sizes.map(|sizes| recurrence(name, sizes))).collect()
}

fn recurrence(name: &str, [b, s, n, h, d, e, decays]: Sizes) -> Case {
    let (keys, values, state) = ([b, s, n, d], [b, s, h, e], [b, h, d, e]);
    let (decay, rate) = ([b, s, h, decays], [b, s, h]);
    let mut operands: Vec<Elements<'_>> = vec![Small(&keys), Small(&keys), Small(&values), Small(&decay)];
    if name.starts_with("gated_delta") {
        operands.push(Small(&rate));
    }
    operands.push(Small(&state));
    if name.ends_with("_gradient") {
        operands.extend([Small(&values), Small(&state)]);
    }
    case(name, &operands)
}

//! Graphs in text form whose values have any numbers, and their caches, for tests that put parts of them together.

use std::collections::BTreeMap;

use plan::{Cache, Form, Growth, Kept};

/// What is said of a step with keys, and perhaps values, of so many places.
pub(super) fn cache(parts: &[&str], capacity: u64) -> Cache {
    let kept = |it: &&str| Kept {
        past: format!("past_{it}"),
        present: (*it).to_owned(),
        form: Form::Entries,
        window: None,
    };
    Cache {
        tokens: "q".to_owned(),
        mask: None,
        positions: None,
        logits: "y".to_owned(),
        kept: parts.iter().map(kept).collect(),
        dim: 2,
        growth: Growth::Behind,
        capacity,
        slot: None,
    }
}

/// A graph's text with its values numbered in order.
pub(super) fn numbered(text: &str) -> String {
    let defined = text.lines().filter_map(|line| line.trim_start().strip_prefix('%')?.split(' ').next());
    let numbers: BTreeMap<&str, usize> = defined.enumerate().map(|(number, it)| (it, number)).collect();
    let mut parts = text.split('%');
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|it: char| !it.is_ascii_digit()).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        made.push_str(&format!("%{}{rest}", numbers[name]));
    }
    made
}

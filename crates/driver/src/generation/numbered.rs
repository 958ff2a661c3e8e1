//! Graphs in text form whose values have any numbers, for tests that put parts of them together.

use std::collections::BTreeMap;

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

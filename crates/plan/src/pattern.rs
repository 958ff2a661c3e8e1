//! Names with `*` for any text.

/// Whether a name is one of a pattern, in which `*` stands for any text, also none.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether a name with dots, or what it begins with before one of them, is one of a pattern. Slashes are dots, so that
/// paths of nodes may be given as files have them.
pub(crate) fn within(pattern: &str, name: &str) -> bool {
    let [pattern, name] = [pattern, name].map(|it| it.trim_start_matches('/').replace('/', "."));
    let mut ends = name.match_indices('.').map(|it| it.0).chain([name.len()]);
    ends.any(|end| matches(&pattern, &name[..end]))
}

#[cfg(test)]
mod tests;

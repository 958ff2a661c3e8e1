//! Names that are nearly what was written.

/// How many letters of a pattern are to be added, left out or changed until a name is one of it; `*` is
/// any text.
///
/// Source: Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", 1966;
/// row by row as Wagner and Fischer, 1974.
pub fn distance(pattern: &str, name: &str) -> usize {
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

/// The name that takes fewest changes to become, the first of equals; none where more than half of it would change.
pub fn nearest<'a>(said: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|name| (distance(said, name), name)).min_by_key(|it| it.0);
    near.filter(|(changes, name)| 2 * changes <= name.chars().count()).map(|it| it.1)
}

/// `, did you mean `NAME`?`, for a message about a name that nothing has; nothing where no name is near.
pub fn did_you_mean<'a>(said: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(said, known).map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, nearest};

    #[test]
    fn a_name_is_near_if_half_of_it_stays() {
        let known = ["batch", "sequence", "s"];
        let near = |said: &str| nearest(said, known);
        assert_eq!(near("sequnce"), Some("sequence"));
        assert_eq!(near("Batch"), Some("batch"));
        assert_eq!(near("tokens"), None);
        assert_eq!(near("x"), None);
        assert_eq!(did_you_mean("bach", known), ", did you mean `batch`?");
        assert_eq!(did_you_mean("zzzzzzz", known), "");
    }
}

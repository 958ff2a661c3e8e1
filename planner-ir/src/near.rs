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

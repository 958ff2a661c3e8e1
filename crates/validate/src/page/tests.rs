//! The page of the repository is the one that its prices give.

use std::path::Path;

use predict::rows::{kinds, outcomes};

use super::*;
use crate::outside::{outside, root};

/// Compares a file with what it should be, or writes it where `BLESS` is set.
fn compare(path: &Path, expected: &str) {
    if std::fs::read_to_string(path).is_ok_and(|found| found == expected) {
        return;
    }
    assert!(
        std::env::var_os("BLESS").is_some(),
        "{} is not what prices give now (BLESS=1 writes it)",
        path.display()
    );
    std::fs::write(path, expected).unwrap();
}

#[test]
fn the_page_is_what_prices_give() {
    let Some(data) = outside("reference/data/validation") else { return };
    let mut all = Vec::new();
    let mut kinds = kinds();
    kinds.sort_by_key(|kind| kind.file());
    for kind in kinds {
        let text = std::fs::read_to_string(data.join(kind.file())).unwrap();
        all.extend(outcomes(kind.as_ref(), &text).unwrap());
    }
    let page = page(&all);
    // Nothing is far off for a reason that nobody has said.
    assert!(!page.text.contains("| not known |"), "a source above 15 % without a cause");
    compare(&root().join("docs/price-validation.md"), &page.text);
    for (name, picture) in &page.pictures {
        compare(&root().join("docs/images").join(name), picture);
    }
}

//! Reading, computing and solving expressions.

use expect_test::expect;

use super::{Extent, Sizes};

fn sizes(sizes: &[(&str, u64)]) -> Sizes {
    sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect()
}

#[test]
fn expressions_of_exporters_are_read() {
    let known = sizes(&[("past", 3), ("seq", 4), ("s53", 5), ("n.m", 7)]);
    for (text, expected) in [
        ("past + seq", Some(7)),
        ("2*s53*seq", Some(40)),
        ("seq - past + 1", Some(2)),
        ("seq - (past + 1)", Some(0)),
        ("past - seq", None),
        ("floor(s53/2)", Some(2)),
        ("s53//2 + s53%2", Some(3)),
        ("Max(past, seq, 2)", Some(4)),
        ("min(past, seq)", Some(3)),
        ("n.m", Some(7)),
        ("seq/0", None),
        ("12", Some(12)),
    ] {
        assert_eq!(Extent::parse(text).size(&known), expected, "{text}");
    }
}

#[test]
fn texts_that_are_no_expressions_are_symbols() {
    for text in ["", "unk__123?", "seq +", "f(seq)", "a b", "(((((seq", "99999999999999999999999"] {
        assert_eq!(Extent::parse(text), Extent::Symbol(text.to_owned()), "{text}");
    }
    let deep = format!("{}x{}", "(".repeat(1000), ")".repeat(1000));
    assert_eq!(Extent::parse(&deep), Extent::Symbol(deep.clone()));
}

#[test]
fn linear_expressions_are_solved() {
    let known = sizes(&[("past", 3)]);
    for (text, size, expected) in [
        ("seq", 9, Some(9)),
        ("past + seq", 9, Some(6)),
        ("past + seq", 2, None),
        ("2*seq + past", 9, Some(3)),
        ("2*seq + past", 8, None),
        ("10 - seq", 4, Some(6)),
        ("past*seq + seq", 8, Some(2)),
        ("seq*seq", 9, None),
        ("seq//2", 4, None),
        ("max(seq, 1)", 4, None),
        ("seq + other", 4, None),
        ("past", 3, None),
    ] {
        let solution = Extent::parse(text).solve(size, &known);
        assert_eq!(solution.map(|(_, size)| size), expected, "{text} = {size}");
    }
}

#[test]
fn expressions_are_shown_as_they_are_meant() {
    let shown = Extent::parse("2*s53*s72 + floor((past + seq)/4)").to_string();
    expect!["(2*s53*s72 + (past + seq)//(4))"].assert_eq(&shown);
}

/// What reads and drops an expression calls itself once for each operation.
#[test]
fn long_expressions_are_symbols() {
    for (joined, long) in [(vec!["x"; 257].join("*"), false), (vec!["x"; 258].join("+"), true)] {
        assert_eq!(Extent::parse(&joined) == Extent::Symbol(joined.clone()), long);
    }
    for text in [vec!["a"; 100_000].join("*"), format!("max({})", vec!["a"; 100_000].join(","))] {
        assert_eq!(Extent::parse(&text), Extent::Symbol(text.clone()));
    }
}

//! Comparisons against those of Rust.

use super::Comparison;

/// Registers: small numbers, large ones, ones that are negative in 16, 32 and 64 bits.
const BITS: [u64; 12] = [
    0,
    1,
    2,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

const NAMES: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

/// Which of its names hold of two numbers, as Rust has them.
fn of<T: PartialOrd>(one: &T, other: &T) -> [bool; 18] {
    let (less, more, same) = (one < other, one > other, one == other);
    let none = !(less || more || same);
    [
        same,
        less || more,
        less,
        less || same,
        more,
        more || same,
        less,
        less || same,
        more,
        more || same,
        same || none,
        !same,
        less || none,
        !more,
        more || none,
        !less,
        !none,
        none,
    ]
}

/// Every comparison of a type on all pairs, and that it has no others.
fn check<T: PartialOrd>(type_: &str, has: fn(usize) -> bool, number: impl Fn(u64) -> T) {
    for (at, name) in NAMES.into_iter().enumerate() {
        let comparison = Comparison::named(name, type_);
        assert_eq!(comparison.is_some(), has(at), "{name}.{type_}");
        let Some(comparison) = comparison else { continue };
        for (one, other) in BITS.into_iter().flat_map(|one| BITS.map(|other| (one, other))) {
            let expected = of(&number(one), &number(other))[at];
            assert_eq!(comparison.holds(one, other), expected, "{name}.{type_} of {one:#x} and {other:#x}");
        }
    }
}

#[test]
fn comparisons_are_those_of_numbers() {
    let low = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap();
    let short = |bits: u64| u16::try_from(bits & 0xffff).unwrap();
    let signed = |at| at < 6;
    let unsigned = |at| at < 10;
    let floating = |at| !(6..10).contains(&at);
    check("s16", signed, |it| short(it).cast_signed());
    check("s32", signed, |it| low(it).cast_signed());
    check("s64", signed, u64::cast_signed);
    for kind in ["u", "b"] {
        check(&format!("{kind}16"), unsigned, short);
        check(&format!("{kind}32"), unsigned, low);
        check(&format!("{kind}64"), unsigned, |it| it);
    }
    check("f32", floating, |it| f32::from_bits(low(it)));
    check("f64", floating, f64::from_bits);
    assert!(Comparison::named("eq", "pred").is_none());
}

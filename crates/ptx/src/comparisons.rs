//! Comparisons of two registers: how numbers of a type are ordered, and in which orders a comparison holds.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use crate::bits::{double, low, short, signed, single};

/// A comparison of two registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// How one is to the other; nothing where one is not a number.
    order: fn(u64, u64) -> Option<Ordering>,
    /// Where it holds.
    holds: &'static [Option<Ordering>],
}

impl Comparison {
    /// The comparison of that name for that type, if it is known.
    pub(crate) fn named(name: &str, type_: &str) -> Option<Self> {
        let order: fn(u64, u64) -> Option<Ordering> = match type_ {
            "s16" => |a, b| Some(short(a).cast_signed().cmp(&short(b).cast_signed())),
            "u16" | "b16" => |a, b| Some(short(a).cmp(&short(b))),
            "s32" => |a, b| Some(signed(a).cmp(&signed(b))),
            "u32" | "b32" => |a, b| Some(low(a).cmp(&low(b))),
            "s64" => |a, b| Some(a.cast_signed().cmp(&b.cast_signed())),
            "u64" | "b64" => |a, b| Some(a.cmp(&b)),
            "f32" => |a, b| single(a).partial_cmp(&single(b)),
            "f64" => |a, b| double(a).partial_cmp(&double(b)),
            _ => return None,
        };
        let holds: &[Option<Ordering>] = match (name, &type_[..1]) {
            ("eq", _) => &[Some(Equal)],
            ("ne", _) => &[Some(Less), Some(Greater)],
            ("lt", _) | ("lo", "u" | "b") => &[Some(Less)],
            ("le", _) | ("ls", "u" | "b") => &[Some(Less), Some(Equal)],
            ("gt", _) | ("hi", "u" | "b") => &[Some(Greater)],
            ("ge", _) | ("hs", "u" | "b") => &[Some(Greater), Some(Equal)],
            // Those that end in `u` hold where one is not a number.
            ("equ", "f") => &[Some(Equal), None],
            ("neu", "f") => &[Some(Less), Some(Greater), None],
            ("ltu", "f") => &[Some(Less), None],
            ("leu", "f") => &[Some(Less), Some(Equal), None],
            ("gtu", "f") => &[Some(Greater), None],
            ("geu", "f") => &[Some(Greater), Some(Equal), None],
            ("num", "f") => &[Some(Less), Some(Equal), Some(Greater)],
            ("nan", "f") => &[None],
            _ => return None,
        };
        Some(Self { order, holds })
    }

    /// Whether it holds.
    pub(crate) fn holds(self, one: u64, other: u64) -> bool {
        self.holds.contains(&(self.order)(one, other))
    }
}

#[cfg(test)]
mod tests;

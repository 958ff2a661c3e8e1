//! Numbers, names, lists and types as attributes.

use std::fmt;

use super::print::Print;
use super::scan::{Result, Scan};
use crate::data::{DType, Real, Type};
use crate::op::{
    Blind, Contract, Edge, Extreme, Interpolation, Label, Pairing, Recurrence, Reduction, Scatter, Triangle,
    Unary,
};

/// What can stand as an attribute of an operation.
pub(super) trait Attribute: Sized {
    /// Writes it.
    fn print(&self, print: &mut Print<'_>) -> fmt::Result;
    /// Reads it.
    fn parse(scan: &mut Scan<'_>) -> Result<Self>;
}

/// What is one of several, each with a name.
pub(super) trait Named: Copy + PartialEq + 'static {
    /// What it is, for messages.
    const WHAT: &'static str;
    /// Each with its name.
    const NAMES: &'static [(&'static str, Self)];

    /// Its name.
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }

    /// The one of that name.
    fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(it, _)| *it == name).map(|(_, it)| *it)
    }
}

impl<T: Named> Attribute for T {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.text(self.name())
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        let at = scan.place();
        let name = scan.word(T::WHAT)?;
        T::named(name).map_or_else(|| scan.error_at(at, T::WHAT), Ok)
    }
}

impl Unary {
    /// What it is called in the text form, and by kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        Named::name(self)
    }
}

impl Named for Unary {
    const WHAT: &'static str = "a function of one element";
    const NAMES: &'static [(&'static str, Self)] = &[
        ("abs", Self::Abs),
        ("ceil", Self::Ceil),
        ("cos", Self::Cos),
        ("erf", Self::Erf),
        ("exp", Self::Exp),
        ("floor", Self::Floor),
        ("gelu", Self::Gelu),
        ("gelu_tanh", Self::GeluTanh),
        ("gelu_quick", Self::GeluQuick),
        ("is_inf", Self::IsInf),
        ("is_nan", Self::IsNan),
        ("log", Self::Log),
        ("neg", Self::Neg),
        ("not", Self::Not),
        ("reciprocal", Self::Reciprocal),
        ("relu", Self::Relu),
        ("round", Self::Round),
        ("sigmoid", Self::Sigmoid),
        ("sign", Self::Sign),
        ("silu", Self::Silu),
        ("sin", Self::Sin),
        ("softplus", Self::Softplus),
        ("sqrt", Self::Sqrt),
        ("tanh", Self::Tanh),
    ];
}

impl Named for Reduction {
    const WHAT: &'static str = "a reduction";
    const NAMES: &'static [(&'static str, Self)] = &[
        ("reduce_max", Self::Max),
        ("reduce_mean", Self::Mean),
        ("reduce_min", Self::Min),
        ("reduce_product", Self::Product),
        ("reduce_sum", Self::Sum),
    ];
}

impl Named for Recurrence {
    const WHAT: &'static str = "a recurrence";
    const NAMES: &'static [(&'static str, Self)] = &[
        ("gated_delta", Self::GatedDelta),
        ("gated_delta_gradient", Self::GatedDeltaGradient),
        ("selective_scan", Self::SelectiveScan),
        ("selective_scan_gradient", Self::SelectiveScanGradient),
    ];
}

impl Named for Extreme {
    const WHAT: &'static str = "`largest` or `smallest`";
    const NAMES: &'static [(&'static str, Self)] =
        &[("largest", Self::Largest), ("smallest", Self::Smallest)];
}

impl Named for Triangle {
    const WHAT: &'static str = "`upper` or `lower`";
    const NAMES: &'static [(&'static str, Self)] = &[("upper", Self::Upper), ("lower", Self::Lower)];
}

impl Named for Pairing {
    const WHAT: &'static str = "`halves` or `neighbours`";
    const NAMES: &'static [(&'static str, Self)] =
        &[("halves", Self::Halves), ("neighbours", Self::Neighbours)];
}

impl Named for Scatter {
    const WHAT: &'static str = "`replace`, `write`, `add`, `mul`, `max` or `min`";
    const NAMES: &'static [(&'static str, Self)] = &[
        ("replace", Self::Replace),
        ("write", Self::Write),
        ("add", Self::Add),
        ("mul", Self::Mul),
        ("max", Self::Max),
        ("min", Self::Min),
    ];
}

impl Named for Blind {
    const WHAT: &'static str = "`zero`, `mean` or `once`";
    const NAMES: &'static [(&'static str, Self)] =
        &[("zero", Self::Zero), ("mean", Self::Mean), ("once", Self::Once)];
}

impl Named for Interpolation {
    const WHAT: &'static str = "`nearest_floor`, `nearest_prefer_floor` or `linear`";
    const NAMES: &'static [(&'static str, Self)] = &[
        ("nearest_floor", Self::NearestFloor),
        ("nearest_prefer_floor", Self::NearestPreferFloor),
        ("linear", Self::Linear),
    ];
}

impl Named for bool {
    const WHAT: &'static str = "`true` or `false`";
    const NAMES: &'static [(&'static str, Self)] = &[("true", true), ("false", false)];
}

impl Attribute for u64 {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.text(self)
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        scan.number("a number from 0")
    }
}

impl Attribute for usize {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.text(self)
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        scan.number("a number from 0")
    }
}

impl Attribute for i64 {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.text(self)
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        scan.number("an integer")
    }
}

impl<A: Attribute> Attribute for Option<A> {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        match self {
            Some(it) => it.print(print),
            None => print.text("none"),
        }
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        if scan.eat_word("none") { Ok(None) } else { A::parse(scan).map(Some) }
    }
}

/// The bits of the not-a-number that is written without them.
const NAN: u64 = f64::NAN.to_bits();

impl Attribute for Real {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        match self.0.to_bits() {
            NAN => print.text("nan"),
            bits if self.0.is_nan() => print.text(format_args!("nan_{bits:016x}")),
            _ => print.text(format_args!("{:?}", self.0)),
        }
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        const EXPECTED: &str = "a number, `inf`, `-inf` or `nan`";
        let at = scan.place();
        let text = scan.run(|it| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.' | '_'));
        let number = match text {
            "nan" => Some(f64::from_bits(NAN)),
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            _ => match text.strip_prefix("nan_") {
                Some(bits) => u64::from_str_radix(bits, 16).ok().map(f64::from_bits).filter(|it| it.is_nan()),
                None => text.parse().ok().filter(|it: &f64| it.is_finite()),
            },
        };
        number.map_or_else(|| scan.error_at(at, EXPECTED), |number| Ok(Self(number)))
    }
}

impl<T: Attribute> Attribute for Vec<T> {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.text("[")?;
        print.list(self, ",", |print, it| it.print(print))?;
        print.text("]")
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        scan.expect("[")?;
        let mut list = Self::new();
        if scan.eat("]") {
            return Ok(list);
        }
        loop {
            list.push(T::parse(scan)?);
            if scan.eat("]") {
                return Ok(list);
            }
            if !scan.eat(",") {
                return scan.error("`,` or `]`");
            }
        }
    }
}

impl Attribute for DType {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.text(self)
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        const EXPECTED: &str = "an element type such as `f32`";
        let at = scan.place();
        let name = scan.word(EXPECTED)?;
        Self::named(name).map_or_else(|| scan.error_at(at, EXPECTED), Ok)
    }
}

impl Attribute for Type {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.text(self)
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        Ok(Self { dtype: DType::parse(scan)?, shape: Vec::parse(scan)? })
    }
}

impl Attribute for Edge {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => {
                print.text("constant(")?;
                value.print(print)?;
                print.text(")")
            }
            Self::Reflect => print.text("reflect"),
            Self::Repeat => print.text("repeat"),
            Self::Wrap => print.text("wrap"),
        }
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        const EXPECTED: &str = "`constant(..)`, `reflect`, `repeat` or `wrap`";
        let at = scan.place();
        match scan.word(EXPECTED)? {
            "constant" => {
                scan.expect("(")?;
                let value = Real::parse(scan)?;
                scan.expect(")")?;
                Ok(Self::Constant(value))
            }
            "reflect" => Ok(Self::Reflect),
            "repeat" => Ok(Self::Repeat),
            "wrap" => Ok(Self::Wrap),
            _ => scan.error_at(at, EXPECTED),
        }
    }
}

/// The labels that are written as a letter, by number.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

impl Attribute for Label {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        match LETTERS.chars().nth(usize::from(self.0)) {
            Some(letter) => print.text(letter),
            None => print.text(format_args!("{{{}}}", self.0)),
        }
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        if scan.eat("{") {
            let label = Self(scan.number("the number of a label")?);
            scan.expect("}")?;
            return Ok(label);
        }
        let letter = scan.character(|it| it.is_ascii_alphabetic());
        let label = letter.and_then(|it| LETTERS.find(it)).and_then(|it| u8::try_from(it).ok());
        label.map_or_else(|| scan.error("a letter"), |label| Ok(Self(label)))
    }
}

impl Attribute for Contract {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        for (before, labels) in [("\"", &self.left), (",", &self.right), ("->", &self.result)] {
            print.text(before)?;
            print.list(labels, "", |print, label| label.print(print))?;
        }
        print.text("\"")
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        let labels = |scan: &mut Scan<'_>, end: &str| {
            let mut labels = Vec::new();
            while !scan.eat(end) {
                labels.push(Label::parse(scan)?);
            }
            Ok(labels)
        };
        scan.expect("\"")?;
        Ok(Self { left: labels(scan, ",")?, right: labels(scan, "->")?, result: labels(scan, "\"")? })
    }
}

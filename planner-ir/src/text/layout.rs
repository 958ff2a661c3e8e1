//! Layouts and partitions, with the names of the mesh's axes.

use std::fmt;

use super::print::Print;
use super::scan::{Result, Scan};
use crate::layout::{Digit, Layout};
use crate::mesh::{AxisId, Mesh};
use crate::near::did_you_mean;
use crate::partition::{Partition, Slots, Ways};

/// The layout of a text such as `[-,a.b] owes c`.
pub fn parse_layout(mesh: &Mesh, text: &str) -> Result<Layout> {
    let mut scan = Scan::new(text);
    let dims = parse_dims(mesh, &mut scan)?;
    let owed = if scan.eat_word("owes") { parse_axes(mesh, &mut scan)? } else { vec![] };
    scan.end()?;
    Ok(Layout { dims, owed })
}

/// The partition of a text such as `4 steps [a,(a+@t:4)] passes b through 0`,
/// `2 steps [a,b,(@t:2)] streams a,b`, `4 steps both ways [a,-,(a+@t:4)]`,
/// `4 steps in place [a,-,(a+@t:4)]`, `[-,a,-,-,-] routes a`, or `[-,a,-,-,-] routes a by 8`.
pub fn parse_partition(mesh: &Mesh, text: &str) -> Result<Partition> {
    const STEPS: &str = "the number of steps";
    let mut scan = Scan::new(text);
    let (steps, ways, slots) = if scan.eat("[") {
        scan = Scan::new(text);
        (1, Ways::One, Slots::Two)
    } else {
        let steps = scan.number(STEPS)?;
        scan.expect("steps")?;
        let both = scan.eat_word("both");
        if both {
            scan.expect("ways")?;
        }
        let one = scan.eat_word("in");
        if one {
            scan.expect("place")?;
        }
        (steps, if both { Ways::Both } else { Ways::One }, if one { Slots::One } else { Slots::Two })
    };
    let loops = parse_dims(mesh, &mut scan)?;
    let passed = if scan.eat_word("passes") { parse_axes(mesh, &mut scan)? } else { vec![] };
    let through = if scan.eat_word("through") { scan.number("which set of operands")? } else { 0 };
    let streams = if scan.eat_word("streams") { parse_axes(mesh, &mut scan)? } else { vec![] };
    let routed = if scan.eat_word("routes") { parse_digits(mesh, &mut scan)? } else { vec![] };
    let routed_by =
        if scan.eat_word("by") { scan.number("of how many devices one passes rows on")? } else { 1 };
    scan.end()?;
    Ok(Partition { steps, loops, passed, through, streams, ways, slots, routed, routed_by })
}

impl Layout {
    /// The text form, with the axes' names.
    pub fn display<'a>(&'a self, mesh: &'a Mesh) -> impl fmt::Display + 'a {
        fmt::from_fn(|f| {
            let mut print = Print::new(f);
            print_dims(&self.dims, mesh, &mut print)?;
            print_axes(" owes ", &self.owed, mesh, &mut print)
        })
    }
}

impl Partition {
    /// The text form, with the axes' names.
    pub fn display<'a>(&'a self, mesh: &'a Mesh) -> impl fmt::Display + 'a {
        fmt::from_fn(|f| {
            let mut print = Print::new(f);
            if self.steps != 1 || self.ways == Ways::Both || self.slots == Slots::One {
                print.text(format_args!("{} steps ", self.steps))?;
            }
            if self.ways == Ways::Both {
                print.text("both ways ")?;
            }
            if self.slots == Slots::One {
                print.text("in place ")?;
            }
            print_dims(&self.loops, mesh, &mut print)?;
            print_axes(" passes ", &self.passed, mesh, &mut print)?;
            if self.through != 0 {
                print.text(format_args!(" through {}", self.through))?;
            }
            print_axes(" streams ", &self.streams, mesh, &mut print)?;
            if self.routed.is_empty() {
                return Ok(());
            }
            print.text(" routes ")?;
            print.list(&self.routed, ".", |print, digit| print_digit(digit, mesh, print))?;
            match self.routed_by {
                1 => Ok(()),
                by => print.text(format_args!(" by {by}")),
            }
        })
    }
}

fn print_dims(dims: &[Vec<Digit>], mesh: &Mesh, print: &mut Print<'_>) -> fmt::Result {
    print.text("[")?;
    print.list(dims, ",", |print, digits| {
        if digits.is_empty() {
            return print.text("-");
        }
        print.list(digits, ".", |print, digit| print_digit(digit, mesh, print))
    })?;
    print.text("]")
}

fn print_axes(before: &str, axes: &[AxisId], mesh: &Mesh, print: &mut Print<'_>) -> fmt::Result {
    if axes.is_empty() {
        return Ok(());
    }
    print.text(before)?;
    print.list(axes, ",", |print, &axis| print.text(axis_name(mesh, axis)))
}

fn axis_name(mesh: &Mesh, axis: AxisId) -> &str {
    mesh.axes.get(axis.0).map_or("?", |axis| &axis.name)
}

fn print_digit(digit: &Digit, mesh: &Mesh, print: &mut Print<'_>) -> fmt::Result {
    if *digit == Digit::free(digit.size) {
        return print.text(format_args!("*{}", digit.size));
    }
    if let Some(axis) = digit.plain()
        && mesh.axes.get(axis.0).is_some_and(|axis| axis.size == digit.size)
    {
        return print.text(axis_name(mesh, axis));
    }
    print.text("(")?;
    for (index, &(axis, coefficient)) in digit.terms.iter().enumerate() {
        print_term(coefficient, axis_name(mesh, axis), index == 0, print)?;
    }
    if digit.step != 0 {
        print_term(digit.step, "@t", digit.terms.is_empty(), print)?;
    }
    if digit.offset != 0 {
        print.text(format_args!("{:+}", digit.offset))?;
    }
    print.text(format_args!(":{})", digit.size))
}

/// A coefficient of 1 is left out, unless the name begins like a number.
fn print_term(coefficient: i64, name: &str, first: bool, print: &mut Print<'_>) -> fmt::Result {
    let numeric = name.starts_with(|it: char| it.is_ascii_digit());
    match coefficient {
        1 if !numeric && first => print.text(name),
        1 if !numeric => print.text(format_args!("+{name}")),
        -1 if !numeric => print.text(format_args!("-{name}")),
        _ if first => print.text(format_args!("{coefficient}*{name}")),
        _ => print.text(format_args!("{coefficient:+}*{name}")),
    }
}

fn parse_dims(mesh: &Mesh, scan: &mut Scan<'_>) -> Result<Vec<Vec<Digit>>> {
    let mut dims = Vec::new();
    scan.expect("[")?;
    if scan.eat("]") {
        return Ok(dims);
    }
    loop {
        dims.push(parse_digits(mesh, scan)?);
        if scan.eat("]") {
            return Ok(dims);
        }
        if !scan.eat(",") {
            return scan.error("`.`, `,` or `]`");
        }
    }
}

fn parse_digits(mesh: &Mesh, scan: &mut Scan<'_>) -> Result<Vec<Digit>> {
    if scan.eat("-") {
        return Ok(vec![]);
    }
    let mut digits = vec![parse_digit(mesh, scan)?];
    while scan.eat(".") {
        digits.push(parse_digit(mesh, scan)?);
    }
    Ok(digits)
}

fn parse_digit(mesh: &Mesh, scan: &mut Scan<'_>) -> Result<Digit> {
    const SIZE: &str = "the size of the digit";
    if scan.eat("*") {
        return Ok(Digit::free(scan.number(SIZE)?));
    }
    if !scan.eat("(") {
        return Ok(Digit::axis(mesh, parse_axis(mesh, scan)?));
    }
    let mut digit = Digit::free(0);
    while !scan.eat(":") {
        parse_term(mesh, scan, &mut digit)?;
    }
    digit.size = scan.number(SIZE)?;
    scan.expect(")")?;
    Ok(digit)
}

/// `[+-][number*]axis`, the same with `@t`, or `[+-]number`.
fn parse_term(mesh: &Mesh, scan: &mut Scan<'_>, digit: &mut Digit) -> Result<()> {
    const EXPECTED: &str = "an axis, a number, `@t` or `:`";
    let at = scan.place();
    let sign = if scan.eat("-") {
        "-"
    } else {
        let _plus = scan.eat("+");
        ""
    };
    let digits = scan.run(|it| it.is_ascii_digit());
    let coefficient: i64 = match digits {
        "" => i64::from(sign.is_empty()) * 2 - 1,
        _ => format!("{sign}{digits}").parse().or_else(|_| scan.error_at(at, EXPECTED))?,
    };
    if !digits.is_empty() && !scan.eat("*") {
        digit.offset = coefficient;
    } else if scan.eat("@t") {
        digit.step = coefficient;
    } else {
        digit.terms.push((parse_axis(mesh, scan)?, coefficient));
    }
    Ok(())
}

fn parse_axis(mesh: &Mesh, scan: &mut Scan<'_>) -> Result<AxisId> {
    let at = scan.place();
    let name = scan.word("an axis")?;
    let names: Vec<&str> = mesh.axes.iter().map(|axis| axis.name.as_str()).collect();
    let near = || did_you_mean(name, names.iter().copied());
    let expected = || format!("one of the axes `{}`{}", names.join("`, `"), near());
    mesh.axis_named(name).map_or_else(|| scan.error_at(at, expected()), Ok)
}

fn parse_axes(mesh: &Mesh, scan: &mut Scan<'_>) -> Result<Vec<AxisId>> {
    let mut axes = vec![parse_axis(mesh, scan)?];
    while scan.eat(",") {
        axes.push(parse_axis(mesh, scan)?);
    }
    Ok(axes)
}

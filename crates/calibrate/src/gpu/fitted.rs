//! Numbers of a machine file that explain measured times.
//!
//! Some are found at once: the launch, and the part of the rate of memory that a large sum reaches. Those of
//! products are sought together, so that the sum of the squares of `ln(priced/measured)` is least, by products
//! of bf16 at rest and after long work; then one by one what other types and gradients of products reach, and
//! attention. What nothing measures stays as the file that it starts from has it, with its source.

use cost_models::compute::Role;
use cost_models::machine::Machine;
use cost_models::machine::Precision;
use files::Failure;

use super::draft::Draft;
use super::least::least;
use super::trials::{Price, Timed};
use super::{Facts, Measured};

/// How many times less or more than stated a rate or a start may be.
const RANGE: f64 = 4.0;

/// The least part of a peak that is sought.
const LEAST: f64 = 0.02;

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of something.
    Part,
    /// A rate or a time.
    Amount,
}

/// Numbers that are sought together, in the order in which that is done, and which times they are sought by.
type Sought = (&'static [(&'static str, Kind)], fn(&Timed) -> bool);

/// All of them.
const SOUGHT: [Sought; 8] = [
    (
        &[
            ("device.matrix_reached.bf16", Kind::Part),
            ("device.products.feed", Kind::Amount),
            ("device.products.tile_start", Kind::Amount),
            ("device.products.start", Kind::Amount),
            ("device.products.sustained", Kind::Part),
            ("device.products.heating", Kind::Amount),
        ],
        |it| is_product(it, Precision::Bf16, Role::Forward),
    ),
    (&[("device.matrix_reached.f16", Kind::Part)], |it| is_product(it, Precision::F16, Role::Forward)),
    (&[("device.matrix_reached.f32", Kind::Part)], |it| is_product(it, Precision::F32, Role::Forward)),
    (&[("device.matrix_reached.f64", Kind::Part)], |it| is_product(it, Precision::F64, Role::Forward)),
    (&[("device.products.input_gradient", Kind::Part)], |it| {
        is_product(it, Precision::Bf16, Role::InputGradient)
    }),
    (&[("device.products.weight_gradient", Kind::Part)], |it| {
        is_product(it, Precision::Bf16, Role::WeightGradient)
    }),
    (&[("device.attention_forward", Kind::Part)], |it| matches!(it.price, Price::Attention(_))),
    (&[("device.attention_backward", Kind::Part)], |it| matches!(it.price, Price::AttentionGradient(_))),
];

fn is_product(timed: &Timed, precision: Precision, role: Role) -> bool {
    matches!(&timed.price, Price::Product(it) if it.precision == precision && it.role == role)
}

/// A machine whose numbers explain what was measured.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The machine.
    pub machine: Machine,
    /// Its measured numbers: the field, what the file it starts from states, what is found.
    pub numbers: Vec<(String, f64, f64)>,
    /// Fields that are as large as a part can be: what they are parts of is too small.
    pub full: Vec<String>,
}

/// The machine of this name that explains what was measured, with what was not from another one's file.
pub fn fitted(
    name: &str,
    like: &Machine,
    facts: &Facts,
    measured: &Measured,
    source: &str,
) -> Result<Fitted, Failure> {
    let before = Draft::of(like, name)?;
    let mut draft = before.clone();
    let mut fields: Vec<(&str, String)> = Vec::new();
    let said = format!("said by the driver of {}", facts.name);
    for (field, number) in [
        ("device.memory_capacity", facts.memory),
        ("device.products.processors", u64::from(facts.processors)),
    ] {
        draft.set(field, number);
        fields.push((field, said.clone()));
    }
    for (field, number) in direct(measured, &draft)? {
        draft.set(field, number);
        fields.push((field, source.to_owned()));
    }
    for (numbers, is_theirs) in SOUGHT {
        let rows: Vec<&(Timed, f64)> = measured.rows.iter().filter(|(it, _)| is_theirs(it)).collect();
        if rows.is_empty() {
            continue;
        }
        seek(&mut draft, numbers, &rows, &Timed::priced);
        let from = format!("{source}: fitted to {} times", rows.len());
        fields.extend(numbers.iter().map(|(field, _)| (*field, from.clone())));
    }
    for (field, source) in &fields {
        draft.cite(field, source);
    }
    let numbers =
        fields.iter().map(|(it, _)| ((*it).to_owned(), before.number(it), draft.number(it))).collect();
    let parts = SOUGHT.iter().flat_map(|it| it.0).filter(|it| it.1 == Kind::Part).map(|it| it.0);
    let peaks = parts.filter(|it| it.contains("reached") || it.contains("attention"));
    let full = peaks.filter(|it| draft.number(it) > 0.995).map(str::to_owned).collect();
    Ok(Fitted { machine: draft.machine()?, numbers, full })
}

/// Numbers that single times say.
fn direct(measured: &Measured, draft: &Draft) -> Result<Vec<(&'static str, f64)>, Failure> {
    let mut found = Vec::new();
    let of = |is: fn(&Price) -> bool| measured.rows.iter().find(|(it, _)| is(&it.price));
    let launch = of(|it| matches!(it, Price::Launch)).map(|it| it.1);
    if let Some(launch) = launch {
        found.push(("device.launch", launch));
    }
    if let Some((Timed { price: Price::Sum(bytes), .. }, seconds)) = of(|it| matches!(it, Price::Sum(_))) {
        let moving = (seconds - launch.unwrap_or(0.0)).max(seconds / 2.0);
        let rate = cost_models::units::exact(bytes.0) / moving;
        let peak = draft.number("device.memory_bandwidth");
        if rate > peak {
            return Err(Failure::Input(format!(
                "a large sum moves {:.0} GB/s, and the file that this starts from says that memory has {:.0}: \
                 say with `--like` which machine this is like",
                rate / 1e9,
                peak / 1e9
            )));
        }
        found.push(("device.memory_efficiency", rate / peak));
    }
    Ok(found)
}

/// Seeks numbers by times and what these are priced at, by their logarithms: rates and starts may be
/// anything.
pub fn seek<T>(
    draft: &mut Draft,
    numbers: &[(&str, Kind)],
    rows: &[&(T, f64)],
    priced: &dyn Fn(&T, &Machine) -> Option<f64>,
) {
    let stated: Vec<f64> = numbers.iter().map(|(field, _)| draft.number(field).ln()).collect();
    let range = |((_, kind), stated): (&(&str, Kind), &f64)| match kind {
        Kind::Part => (LEAST.ln(), 0.0),
        Kind::Amount => (stated - RANGE.ln(), stated + RANGE.ln()),
    };
    let ranges: Vec<(f64, f64)> = numbers.iter().zip(&stated).map(range).collect();
    let with = |found: &[f64]| {
        let mut draft = draft.clone();
        for ((field, _), number) in numbers.iter().zip(found) {
            draft.set(field, number.exp());
        }
        draft
    };
    let off = |found: &[f64]| {
        let machine = with(found).machine().ok()?;
        rows.iter().map(|(timed, seconds)| Some((priced(timed, &machine)? / seconds).ln())).collect()
    };
    if let Some(found) = least(&stated, &ranges, &off) {
        *draft = with(&found);
    }
}

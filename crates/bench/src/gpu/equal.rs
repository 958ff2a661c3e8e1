//! Kernels on the GPU against the same operations on processors.
//!
//! There is something of every family of kernels (`kernels::cuda::FAMILIES`): a test holds the two lists
//! together.

mod case; // one thing that is compared
mod elements; // functions of elements, optimizers
mod rows; // softmax, losses, norms, reductions
mod moved; // movement, packing, indices, sums of ranks
mod attended; // attention, rotary embedding
mod products; // sums of products, convolutions, experts

use std::collections::BTreeSet;

use device::{Bench, DeviceError};
use files::Failure;
use kernels::Array;
use planner_ir::DType;

use super::{Given, Row, Section};
pub use case::Case;
use case::Cases;

const SECTION: Section = Section {
    name: "kernels against processors",
    beside: "the same operation on a processor, as a part of the largest number; all have to be right",
};

/// How far results in 32 bits and in 16 may be from the reference, as a part of the largest number: sums are
/// made in another order, and narrow ones are rounded once more.
const APART: [(DType, f64); 3] = [(DType::F32, 1e-4), (DType::BF16, 2e-2), (DType::F16, 5e-3)];

/// How many operations are made ready before they are computed: what processors make of them is kept so long.
const TOGETHER: usize = 96;

/// How large values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// So that every kernel has tiles that are full and others that are not.
    Small,
    /// Some as in models, besides.
    Models,
}

/// For each operation and each type of numbers, how far the GPU is from a processor.
pub(super) fn rows(given: &Given<'_>, bench: &mut Bench) -> Vec<Row> {
    let extent = if given.options.quick { Extent::Small } else { Extent::Models };
    let mut rows = Vec::new();
    for make in makers() {
        (given.say)("computing on a processor".into());
        let cases = match make(extent) {
            Ok(cases) => cases,
            Err(error) => {
                rows.push(Row::new(&SECTION, "what processors make").failed(error));
                continue;
            }
        };
        for some in cases.chunks(TOGETHER) {
            (given.say)("compiling kernels".into());
            let trials: Vec<_> = some.iter().map(|it| &it.trial).collect();
            // What does not compile is said where it is computed.
            let _ = bench.prepare(&trials);
            for case in some {
                (given.say)(case.name.clone().into());
                let row = Row::new(&SECTION, case.name.as_str());
                rows.push(match found(bench, case) {
                    Ok(apart) => row.apart(apart, case.most),
                    Err(error) => row.failed(error),
                });
            }
        }
    }
    rows
}

/// Everything that is held against processors, in its smallest extents: some at a time.
pub fn cases() -> impl Iterator<Item = Result<Vec<Case>, Failure>> {
    makers().into_iter().map(|make| make(Extent::Small))
}

/// The names of the operations of which kernels are held against processors (`device::named`).
pub fn compared() -> Result<BTreeSet<String>, Failure> {
    let mut compared = BTreeSet::new();
    for some in cases() {
        compared.extend(some?.into_iter().flat_map(|it| it.of));
    }
    Ok(compared)
}

/// How far the GPU is from what is expected.
fn found(bench: &mut Bench, case: &Case) -> Result<f64, DeviceError> {
    let found = bench.compute(&case.trial, &case.operands.iter().collect::<Vec<_>>())?;
    Ok(found.iter().zip(&case.expected).map(|(a, b)| apart(a, b)).fold(0.0, f64::max))
}

type Make = Box<dyn Fn(Extent) -> Result<Vec<Case>, Failure>>;

/// What makes cases, some at a time.
fn makers() -> Vec<Make> {
    let mut makers: Vec<Make> = Vec::new();
    for (dtype, most) in APART {
        makers.push(Box::new(move |extent| {
            let mut cases = Cases::new(dtype, most);
            elements::of(&mut cases)?;
            moved::of(&mut cases)?;
            products::of(&mut cases)?;
            attended::of(&mut cases, extent == Extent::Models)?;
            rows::of(&mut cases, extent == Extent::Models)?;
            Ok(cases.all)
        }));
    }
    makers.push(Box::new(|_| {
        let mut cases = Cases::new(DType::F32, APART[0].1);
        elements::optimizers(&mut cases)?;
        Ok(cases.all)
    }));
    for dtype in [DType::I64, DType::I32, DType::U8] {
        makers.push(Box::new(move |_| {
            let mut cases = Cases::new(dtype, 0.0);
            moved::of_whole_numbers(&mut cases)?;
            products::of_whole_numbers(&mut cases)?;
            Ok(cases.all)
        }));
    }
    makers
}

/// The largest difference, as a part of the largest number; infinite where a number is none that should be
/// one.
pub fn apart(found: &Array, expected: &Array) -> f64 {
    let (Ok(found), Ok(expected)) = (numbers(found), numbers(expected)) else { return f64::INFINITY };
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let finite = expected.iter().filter(|it| it.is_finite());
    let largest = finite.fold(f64::MIN_POSITIVE, |most, it| most.max(it.abs()));
    let pairs = found.iter().zip(&expected);
    // Infinities are no distance from themselves.
    let is_same = |a: f64, b: f64| a.total_cmp(&b).is_eq() || a.is_nan() && b.is_nan();
    let differences = pairs.map(|(&a, &b)| if is_same(a, b) { 0.0 } else { (a - b).abs() });
    let worst = differences.fold(0.0_f64, |most, it| if it.is_nan() { f64::INFINITY } else { most.max(it) });
    worst / largest
}

/// Elements of any type as numbers; truth values are 0 and 1.
fn numbers(array: &Array) -> Result<Vec<f64>, kernels::KernelError> {
    if array.dtype().is_float() {
        return array.to_floats();
    }
    #[expect(clippy::cast_precision_loss, reason = "a difference of large whole numbers is still one")]
    let whole = |it: i64| it as f64;
    Ok(array.to_integers()?.into_iter().map(whole).collect())
}

#[cfg(test)]
mod tests;

//! The gradient of every operation against differences of what it computes, on small random cases.
//!
//! Every operation that there is has random cases here, or is listed as one without a gradient.

mod case; // an operation with operands, and random numbers
mod elements; // functions of elements
mod movement; // operations that move elements
mod products; // contractions, norms, attention, convolutions, experts
mod none; // operations without a gradient
mod differences; // what gradients have to be

use planner_ir::{Op, parse_op};

use case::{Case, Random};

/// How many random cases each operation has.
const CASES: u64 = 60;

/// How many wrong gradients are shown.
const SHOWN: usize = 20;

/// A random case of the operation of that name, unless it has no gradient.
fn random_case(name: &str, random: &mut Random) -> Option<Case> {
    elements::case(name, random)
        .or_else(|| movement::case(name, random))
        .or_else(|| products::case(name, random))
}

/// The name of the operation that a text is.
fn name(text: &str) -> &'static str {
    parse_op(text).unwrap_or_else(|error| panic!("{text}: {error}")).name()
}

#[test]
fn every_operation_has_cases_or_is_listed_as_without_a_gradient() {
    for it in Op::names() {
        let has_cases = random_case(it, &mut Random::new(0)).is_some();
        let places = [
            has_cases,
            none::NEVER.iter().any(|text| name(text) == it),
            none::ZERO.iter().any(|text| name(text) == it),
        ];
        let count = places.iter().filter(|&&is| is).count();
        assert_eq!(count, 1, "`{it}` is in {count} of: cases, operations without a gradient, zero gradients");
    }
}

#[test]
fn gradients_are_those_of_differences() {
    let mut wrong = Vec::new();
    for (number, name) in (0_u64..).zip(Op::names()) {
        for seed in 0..CASES {
            let random = &mut Random::new(number << 32 | seed);
            let Some(case) = random_case(name, random) else { break };
            if let Err(error) = differences::check(&case, random) {
                let types: Vec<_> = case.operands.iter().map(|it| it.array.type_().to_string()).collect();
                wrong.push(format!("{} of {}: {error}", case.op, types.join(", ")));
            }
        }
    }
    let shown: Vec<_> = wrong.iter().take(SHOWN).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} wrong gradients:\n{}", wrong.len(), shown.join("\n"));
}

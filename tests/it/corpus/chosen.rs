//! The plans that the search chooses.

use rayon::prelude::*;
use search::MachinePrices;

use super::cases::{self, Case};
use super::{expect_none, faults_of, trial};

/// The meshes that every case is planned for.
const MESHES: [&str; 5] = ["1", "2", "4", "8", "2x4"];

/// Meshes with spaces so large that only every so many cases is planned for them.
const LARGE: [(&str, usize); 2] = [("2x2", 1), ("2x2x2", 7)];

/// Models whose spaces are too large for that.
const TOO_LARGE: [&str; 4] = ["dit-", "mamba-", "unet2dcond-", "genai"];

/// The meshes for a case of that number.
fn meshes(number: usize, case: &Case) -> Vec<&'static str> {
    let small = !TOO_LARGE.iter().any(|it| case.title.contains(it));
    let large =
        LARGE.iter().filter(|(_, every)| small && number.is_multiple_of(*every)).map(|(mesh, _)| *mesh);
    MESHES.into_iter().filter(|it| small || !it.contains('x')).chain(large).collect()
}

/// A case planned for these meshes; what is wrong.
fn check(number: usize, case: &Case) -> Vec<String> {
    let subject = match case.open() {
        Ok(subject) => subject,
        Err(error) => return vec![error],
    };
    let mut failures = Vec::new();
    for name in meshes(number, case) {
        let (mesh, machine) = trial::machine(name);
        let prices = MachinePrices::new(&machine, &mesh).unwrap();
        let plan = subject.chosen(&mesh, &machine, &prices);
        if let Err(error) = plan.and_then(|plan| subject.check(&plan)) {
            failures.push(format!("{} on {name}: {error}", case.title));
        }
    }
    failures
}

#[test]
fn chosen_plans_compute_what_the_oracles_say() {
    let (cases, mut failures) = cases::all();
    let checked = |(number, case): (usize, &Case)| faults_of(&case.title, || check(number, case));
    let found: Vec<Vec<String>> = cases.par_iter().enumerate().map(checked).collect();
    println!("{} cases", cases.len());
    failures.extend(found.into_iter().flatten());
    expect_none(&failures);
}

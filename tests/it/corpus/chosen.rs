//! The plans that the search chooses, by shipped prices and where links are fast. With `DIFFERENTIAL=1`
//! every model is planned for every mesh by both; `MODEL=` names the models.

use rayon::prelude::*;
use search::MachinePrices;

use super::cases::{self, Case};
use super::trial::{Priced, machine_by};
use super::{EVERY_MESH, expect_none, faults_of, is_whole};

/// The meshes that every case is planned for.
const MESHES: [&str; 5] = ["1", "2", "4", "8", "2x4"];

/// Meshes with spaces so large that only every so many cases is planned for them.
const LARGE: [(&str, usize); 2] = [("2x2", 1), ("2x2x2", 7)];

/// Where links are fast, each case is planned for one of these, in turn.
const FAST: [&str; 6] = ["3", "2x2", "4", "6", "2x3", "2"];

/// Models whose spaces are too large for meshes of several axes.
const TOO_LARGE: [&str; 4] = ["dit-", "mamba-", "unet2dcond-", "genai"];

/// The meshes for a case of that number, and the prices.
fn meshes(number: usize, case: &Case) -> Vec<(Priced, &'static str)> {
    let small = !TOO_LARGE.iter().any(|it| case.title.contains(it));
    let mut all: Vec<(Priced, &str)> = if is_whole() {
        let priced = [Priced::Shipped, Priced::FastNet].into_iter();
        priced.flat_map(|prices| EVERY_MESH.map(|mesh| (prices, mesh))).collect()
    } else {
        let large = LARGE.iter().filter(|(_, every)| number.is_multiple_of(*every)).map(|(mesh, _)| *mesh);
        let shipped = MESHES.into_iter().chain(large).map(|mesh| (Priced::Shipped, mesh));
        shipped.chain([(Priced::FastNet, FAST[number % FAST.len()])]).collect()
    };
    all.retain(|(_, mesh)| small || !mesh.contains('x'));
    all
}

/// A case planned for these meshes; what is wrong.
fn check(number: usize, case: &Case) -> Vec<String> {
    let subject = match case.open() {
        Ok(subject) => subject,
        Err(error) => return vec![error],
    };
    let mut failures = Vec::new();
    for (prices, name) in meshes(number, case) {
        let (mesh, machine) = machine_by(prices, name);
        let of_machine = MachinePrices::new(&machine, &mesh).unwrap();
        let plan = subject.chosen(&mesh, &machine, &of_machine);
        if let Err(error) = plan.and_then(|plan| subject.check(&plan)) {
            failures.push(format!("{} on {name}, {prices:?}: {error}", case.title));
        }
    }
    failures
}

#[test]
fn chosen_plans_compute_what_the_oracles_say() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let (mut cases, mut failures) = cases::all();
    cases.retain(|case| case.title.contains(&wanted));
    let checked = |(number, case): (usize, &Case)| faults_of(&case.title, || check(number, case));
    let found: Vec<Vec<String>> = cases.par_iter().enumerate().map(checked).collect();
    println!("{} cases", cases.len());
    failures.extend(found.into_iter().flatten());
    expect_none(&failures);
}

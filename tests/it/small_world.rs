//! The verifier of layouts against arithmetic, in a small world.
//!
//! For every operation, on 2 and 4 devices: values are cut into blocks as the layouts say, every
//! device runs the operation's kernel on its blocks, and what comes out is put together again. The
//! verifier must accept exactly the layouts with which that is what the whole operation computes.

mod cases; // operations with small operands
mod layouts; // every layout of a value
mod simulate; // what devices compute with given layouts
mod steps; // what devices compute step by step
mod rules; // the rules of the partition space
mod doubles; // named partitions in time on real numbers

use planner_ir::{Digit, Layout, Mesh, Op, Partition, verify_layouts};

use cases::{Case, Random};
use layouts::every_layout;
use simulate::World;

/// How many combinations of layouts are tried one by one; of more, a sample.
const EVERY: usize = 20_000;

/// How many combinations a sample has.
const SAMPLE: usize = 3_000;

/// How many wrong verdicts are shown.
const SHOWN: usize = 12;

/// What was found for an operation on a mesh.
#[derive(Default)]
struct Tally {
    tried: usize,
    accepted: usize,
    wrong: Vec<String>,
}

/// Compares the verifier's verdict with what devices compute.
fn compare(
    case: &Case,
    mesh: &Mesh,
    worlds: &mut [World<'_>],
    operands: &[Layout],
    results: &[Layout],
    tally: &mut Tally,
) {
    let right = worlds.iter_mut().all(|world| world.is_right(operands, results));
    let (operand_types, result_types) = (case.operand_types(), case.result_types());
    let verdict = verify_layouts(mesh, &case.op, &operand_types, &result_types, operands, results);
    tally.tried += 1;
    tally.accepted += usize::from(verdict.is_ok());
    let excused = right && verdict.is_err() && is_unsayable(&case.op, operands, results);
    if right != verdict.is_ok() && !excused {
        let shown = |layouts: &[Layout]| {
            layouts.iter().map(|it| it.display(mesh).to_string()).collect::<Vec<_>>().join(" ")
        };
        let why = verdict.err().map_or_else(|| "accepted".to_owned(), |found| found.to_string());
        tally.wrong.push(format!("{} -> {}: {why}", shown(operands), shown(results)));
    }
}

/// Whether this, though it computes the right thing, is no `Partition`, which passes all its axes
/// through one set of operands and to every result: products of sums owed over different axes,
/// and sums that pass to some results only. And parameters never owe sums, though the steps of
/// some optimizers are linear.
fn is_unsayable(op: &Op, operands: &[Layout], results: &[Layout]) -> bool {
    let owed: std::collections::BTreeSet<_> =
        operands.iter().map(|it| &it.owed).filter(|it| !it.is_empty()).collect();
    let some = results.iter().any(|it| it.owed.is_empty()) && results.iter().any(|it| !it.owed.is_empty());
    owed.len() > 1 || (!owed.is_empty() && (some || matches!(op, Op::Update(_))))
}

fn check(case: &Case, mesh: &Mesh) {
    let operands: Vec<Vec<Layout>> = case.operand_types().iter().map(|it| every_layout(mesh, it)).collect();
    let results: Vec<Vec<Layout>> = case.result_types().iter().map(|it| every_layout(mesh, it)).collect();
    let mut worlds: Vec<World<'_>> = case.trials.iter().map(|trial| World::new(case, trial, mesh)).collect();
    let mut compare = |operands: &[Layout], results: &[Layout], tally: &mut Tally| {
        compare(case, mesh, &mut worlds, operands, results, tally);
    };
    let mut tally = Tally::default();
    let choices: Vec<usize> = operands.iter().chain(&results).map(Vec::len).collect();
    let count = choices.iter().try_fold(1usize, |count, &choices| count.checked_mul(choices));
    let pick = |number: usize| {
        let mut rest = number;
        let mut pick = |list: &Vec<Layout>| {
            let picked = list[rest % list.len()].clone();
            rest /= list.len();
            picked
        };
        // Results vary fastest: what devices compute depends on the operands first.
        let results: Vec<Layout> = results.iter().map(&mut pick).collect();
        let operands: Vec<Layout> = operands.iter().map(&mut pick).collect();
        (operands, results)
    };
    let every = if mesh.devices() == 2 { EVERY * 4 } else { EVERY };
    if let Some(count) = count.filter(|&count| count <= every) {
        for number in 0..count {
            let (operands, results) = pick(number);
            compare(&operands, &results, &mut tally);
        }
    } else {
        let mut random = Random::new(1);
        for _ in 0..SAMPLE {
            let number = usize::try_from(random.next() >> 1).unwrap();
            let (operands, results) = pick(number % count.unwrap_or(usize::MAX));
            compare(&operands, &results, &mut tally);
        }
        for (mut right_operands, mut right_results) in from_partitions(case, mesh) {
            compare(&right_operands, &right_results, &mut tally);
            let value = random.below(choices.len());
            let (layouts, place) = match value.checked_sub(operands.len()) {
                None => (&operands[value], &mut right_operands[value]),
                Some(result) => (&results[result], &mut right_results[result]),
            };
            place.clone_from(&layouts[random.below(layouts.len())]);
            compare(&right_operands, &right_results, &mut tally);
        }
    }
    for (operands, results) in from_partitions(case, mesh) {
        let (operand_types, result_types) = (case.operand_types(), case.result_types());
        if let Err(found) = verify_layouts(mesh, &case.op, &operand_types, &result_types, &operands, &results)
        {
            tally.wrong.push(format!("a partition is refused: {found}"));
        }
    }
    let types: Vec<String> = case.operand_types().iter().map(ToString::to_string).collect();
    let shown = tally.wrong.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n  ");
    assert!(
        tally.wrong.is_empty(),
        "{} of {} on {mesh}: {} wrong verdicts of {}\n  {shown}",
        case.op,
        types.join(" "),
        tally.wrong.len(),
        tally.tried
    );
    assert!(tally.accepted > 0, "{} on {mesh}: nothing of {} accepted", case.op, tally.tried);
}

/// The layouts around an operation for every partition with plain digits.
fn from_partitions(case: &Case, mesh: &Mesh) -> Vec<(Vec<Layout>, Vec<Layout>)> {
    let loops = case.op.loops(&case.operand_types(), &case.result_types());
    let mut partitions = vec![Partition::replicated(&loops)];
    for axis in mesh.axis_ids() {
        let digit = Digit::axis(mesh, axis);
        let mut more = Vec::new();
        for partition in &partitions {
            for it in loops.ids() {
                for place in 0..=partition.loops[it.0].len() {
                    let mut split = partition.clone();
                    split.loops[it.0].insert(place, digit.clone());
                    more.push(split);
                }
            }
            for through in 0..loops.linear.len() {
                let mut passed = partition.clone();
                passed.passed.push(axis);
                passed.through = through;
                more.push(passed);
            }
        }
        more.retain(|it| it.check(mesh, &loops).is_ok());
        partitions.append(&mut more);
    }
    let layouts = |partition: &Partition| {
        let operands = (0..loops.operands.len()).map(|it| partition.operand(&loops, it)).collect();
        let results = (0..loops.results.len()).map(|it| partition.result(&loops, it)).collect();
        (operands, results)
    };
    partitions.iter().map(layouts).collect()
}

/// Checks every case of a group, on every mesh; the message has all that is wrong.
fn check_all(group: Vec<Case>) {
    let mut wrong = Vec::new();
    for case in &group {
        for sizes in [&[2][..], &[4], &[2, 2]] {
            let mesh = Mesh::of_sizes(sizes);
            let checked = std::panic::catch_unwind(|| check(case, &mesh));
            if let Err(message) = checked {
                wrong.push(message.downcast_ref::<String>().cloned().unwrap_or_default());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_of_elements() {
    check_all(cases::elementwise());
}

#[test]
fn products() {
    check_all(cases::products());
}

#[test]
fn gradients_of_products() {
    check_all(cases::product_gradients());
}

#[test]
fn recurrences() {
    check_all(cases::recurrences());
}

#[test]
fn reductions_and_norms() {
    check_all(cases::reductions());
}

#[test]
fn movement() {
    check_all(cases::movement());
}

#[test]
fn indexing() {
    check_all(cases::indexing());
}

#[test]
fn numbers_of_8_bits() {
    check_all(cases::narrow());
}

#[test]
fn the_rest() {
    check_all(cases::rest());
}

#[test]
fn every_kind_of_operation_has_a_case() {
    let groups = [cases::elementwise(), cases::products(), cases::product_gradients(), cases::reductions()];
    let others = [cases::movement(), cases::indexing(), cases::rest(), cases::recurrences(), cases::narrow()];
    let cases: Vec<Case> = groups.into_iter().chain(others).flatten().collect();
    let kinds: std::collections::BTreeSet<&str> = cases.iter().map(|case| case.op.name()).collect();
    let missing: Vec<&str> =
        Op::names().filter(|name| !kinds.contains(name) && !name.starts_with("dynamic_")).collect();
    assert!(missing.is_empty(), "no case of {missing:?}");
}

//! What holds of all plans, tried on random programs of repeated layers, meshes, prices and memories.
//!
//! `LAWS=N` tries N programs with each law instead of those that take a few seconds, or those of the long tier.

pub(crate) mod programs; // random programs of repeated layers
mod written; // plans that are written otherwise

use std::collections::BTreeMap;

use driver::pipeline::{self, Prepared, Target};
use kernels::Array;
use plan::{Assignment, Pin, Plan};
use planner_ir::{Layout, Mesh, Move, Partition, Slots, State, Type};
use search::{Fixed, MachinePrices, PlanError, Prices, Work};

use crate::corpus::forced::chance;
use crate::corpus::{check_bytes, expect_none, machine};
use crate::tier::is_long;
use programs::{Dice, Program};

/// How many programs the long tier tries where each takes some tens of milliseconds, and where it takes fewer.
const PROGRAMS: [u64; 2] = [100, 200];

/// Of how many of them the gate tries one.
const OF: u64 = 4;

/// Meshes of one to three axes, of up to 12 ranks.
const MESHES: [&str; 19] = [
    "1", "2", "3", "4", "5", "6", "7", "9", "10", "11", "12", "2x2", "2x3", "3x2", "3x3", "4x2", "5x2",
    "2x2x2", "2x3x2",
];

/// How far outputs may be from those of one rank, relative to the largest.
const ROUNDING: f64 = 1e-5;

/// How far times may differ that are the same sum in another order, relative to them.
const SAME: f64 = 1e-9;

/// Any price for anything.
struct Any(u64);

impl Prices for Any {
    fn work(&self, work: &Work<'_>) -> f64 {
        let Partition { steps, loops, passed, through, streams, ways, slots, routed, routed_by } =
            work.partition;
        let how = |slots: Slots| (steps, loops, passed, through, streams, (ways, slots), (routed, routed_by));
        let price = |slots: Slots| chance(self.0, &format!("{} {:?}", work.op, how(slots)));
        // With one slot nothing moves beside computing: that is never faster.
        price(Slots::Two) + if *slots == Slots::One { price(Slots::One) } else { 0.0 }
    }

    fn step(&self, _: &Type, step: &Move, before: &Layout, _: &Layout) -> f64 {
        0.05 * chance(self.0, &format!("{step:?} {before:?}"))
    }

    fn rest(&self, _: &State, _: &Layout) -> f64 {
        0.0
    }
}

/// For each of so many seeds, what is found to be wrong.
fn each(programs: u64, wrong: impl Fn(&mut Dice) -> Result<(), String>) {
    let programs = if is_long() { programs } else { programs / OF };
    let programs = std::env::var("LAWS").ok().map_or(programs, |it| it.parse().unwrap());
    let tried = (0..programs).filter_map(|seed| {
        let found = wrong(&mut Dice::new(seed));
        found.err().map(|error| format!("program {seed}: {error}"))
    });
    expect_none(&tried.collect::<Vec<_>>());
}

/// The cheapest plan of what is prepared on a mesh, with so much memory.
fn planned(prepared: &Prepared, mesh: &str, capacity: u64, prices: &dyn Prices) -> Result<Plan, PlanError> {
    let (mesh, machine) = machine(mesh);
    let target = Target { steps: rewrite::Steps::Offered, capacity, ..Target::of(&machine, &mesh) };
    let header = plan::ModelFile { path: "laws".to_owned(), sha256: "0".repeat(64), dims: vec![] };
    pipeline::planned(prepared, &header, &target, prices)
}

/// More than any plan holds (bytes).
const AMPLE: u64 = 1 << 40;

fn held(plan: &Plan) -> u64 {
    plan.memory.iter().map(|it| it.bytes).sum()
}

/// Says what is wrong with a plan that the checker has to accept: it runs, gives what one rank gives, and
/// holds and exchanges what it says.
fn runs(plan: &Plan, program: &Program) -> Result<(), String> {
    plan::check(plan).map_err(|error| format!("the plan is rejected: {error}"))?;
    let programs = lower::lower(plan).map_err(|error| format!("accepted, and not lowered: {error}"))?;
    lower::verify(&programs).map_err(|error| format!("accepted, and its programs are rejected: {error}"))?;
    let held = held(plan);
    if let Some(other) = programs.iter().map(|it| it.resident + it.arena).find(|it| *it != held) {
        return Err(format!("holds {other} bytes, the plan says {held}"));
    }
    let sources = || run::Sources { inputs: &program.inputs, weights: &program.weights };
    let whole = run::reference(&plan.graph, sources()).map_err(|error| error.to_string())?;
    let outcome = run::run(programs, sources()).map_err(|error| format!("accepted, and not run: {error}"))?;
    check_bytes(plan, &outcome.received)?;
    same(&outcome.outputs, &whole)
}

fn same(found: &BTreeMap<String, Array>, expected: &BTreeMap<String, Array>) -> Result<(), String> {
    for (name, expected) in expected {
        let (found, expected) = (found[name].to_floats().unwrap(), expected.to_floats().unwrap());
        let largest = expected.iter().fold(1e-30_f64, |most, it| most.max(it.abs()));
        let apart = found.iter().zip(&expected).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
        if found.len() != expected.len() || apart.is_nan() || apart > ROUNDING * largest {
            return Err(format!(
                "`{name}` is {apart} from that of one rank, its largest number is {largest}"
            ));
        }
    }
    Ok(())
}

#[test]
fn a_plan_that_is_accepted_runs() {
    each(PROGRAMS[0], |dice| {
        let program = Program::random(dice);
        let mesh = MESHES[dice.below(MESHES.len())];
        let on = |error: &dyn std::fmt::Display| format!("on {mesh}: {error}\n{}", program.graph);
        let prices = Any(dice.draw());
        let plan = planned(&program.prepared(), mesh, AMPLE, &prices).map_err(|error| on(&error))?;
        runs(&plan, &program).map_err(|error| on(&error))?;
        for _ in 0..8 {
            let Some(other) = written::otherwise(&plan, dice) else { continue };
            if plan::check(&other).is_ok() {
                runs(&other, &program).map_err(|error| on(&format!("written otherwise: {error}")))?;
            }
        }
        Ok(())
    });
}

#[test]
fn more_memory_never_costs_more() {
    each(PROGRAMS[0], |dice| {
        let program = Program::random(dice);
        let mesh = MESHES[dice.below(MESHES.len())];
        let prices = Any(dice.draw());
        let prepared = program.prepared();
        let mut before = planned(&prepared, mesh, AMPLE, &prices).map_err(|error| error.to_string())?;
        for _ in 0..3 {
            let capacity = held(&before) - 1;
            let Ok(less) = planned(&prepared, mesh, capacity, &prices) else { break };
            if held(&less) > capacity {
                return Err(format!("on {mesh}: holds {} bytes, given {capacity}", held(&less)));
            }
            if less.seconds() < before.seconds() * (1.0 - SAME) {
                let (less, more) = (less.seconds(), before.seconds());
                return Err(format!("on {mesh}: takes {less} s with less memory, with more {more}"));
            }
            runs(&less, &program).map_err(|error| format!("on {mesh} with {capacity} bytes: {error}"))?;
            before = less;
        }
        Ok(())
    });
}

#[test]
fn a_pin_never_beats_the_free_search() {
    each(PROGRAMS[0], |dice| {
        let program = Program::random(dice);
        let mesh = MESHES[dice.below(MESHES.len())];
        let prices = Any(dice.draw());
        let free = planned(&program.prepared(), mesh, AMPLE, &prices).map_err(|error| error.to_string())?;
        // How another search does it can be done.
        let other = planned(&program.prepared(), mesh, AMPLE, &Any(dice.draw()));
        let other = other.map_err(|error| error.to_string())?;
        let at = dice.below(other.assignments.len());
        let Assignment::Computed { partition, .. } = &other.assignments[at] else { return Ok(()) };
        let operations = other.graph.nodes[at].origin.clone();
        let pin = Pin { operations, partition: partition.clone() };
        let fixed = vec![Fixed::of(&pin, &Mesh::parse(mesh).unwrap())];
        let on = |error: &dyn std::fmt::Display| format!("on {mesh}, {}: {error}", pin.text(&other.mesh));
        let prepared = program.prepared().fixing(fixed).map_err(|error| on(&error))?;
        let pinned = planned(&prepared, mesh, AMPLE, &prices).map_err(|error| on(&error))?;
        runs(&pinned, &program).map_err(|error| on(&error))?;
        let (pinned, free) = (pinned.seconds(), free.seconds());
        if pinned < free * (1.0 - SAME) {
            return Err(on(&format!("takes {pinned} s, without the pin {free}")));
        }
        Ok(())
    });
}

/// Whether as many examples can be split over parts of a mesh wherever others can.
fn are_split_alike(a: u64, b: u64, mesh: &str) -> bool {
    let devices: u64 = mesh.split('x').map(|it| it.parse::<u64>().unwrap()).product();
    (1..=devices)
        .filter(|it| devices.is_multiple_of(*it))
        .all(|it| a.is_multiple_of(it) == b.is_multiple_of(it))
}

#[test]
fn less_work_never_costs_more_and_has_one_price() {
    each(PROGRAMS[1], |dice| {
        let (program, half) = Program::random_and_half(dice);
        let examples = half.inputs["x"].shape()[0];
        let mesh = MESHES[dice.below(MESHES.len())];
        if !are_split_alike(2 * examples, examples, mesh) {
            return Ok(());
        }
        let (axes, machine) = machine(mesh);
        let prices = MachinePrices::new(&machine, &axes).unwrap();
        let of = |program: &Program| {
            let plan =
                planned(&program.prepared(), mesh, AMPLE, &prices).map_err(|error| error.to_string())?;
            match search::mispriced(&plan, &prices) {
                None => Ok(plan),
                Some(wrong) => Err(format!("on {mesh}: {wrong}")),
            }
        };
        let (whole, half) = (of(&program)?, of(&half)?);
        if whole.seconds() < half.seconds() * (1.0 - SAME) {
            let (whole, half) = (whole.seconds(), half.seconds());
            return Err(format!("on {mesh}: takes {whole} s, half of it {half}\n{}", program.graph));
        }
        Ok(())
    });
}

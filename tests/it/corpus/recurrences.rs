//! States that go from token to token, planned for several meshes, run, and held against plain loops.

use std::collections::BTreeMap;

use driver::pipeline::{self, Target};
use kernels::Array;
use plan::Assignment;
use planner_ir::{Op, Source, parse_graph};
use search::MachinePrices;

use super::{EVERY_MESH, Priced, machine_by};

/// Batches, tokens, key heads, heads, rows and columns of states.
const SIZES: [usize; 6] = [6, 9, 8, 16, 8, 4];

/// A gated delta rule, and a selective scan of what it makes, from its last state.
const PROGRAM: &str = r#"graph "recurrences" {
  %0 = input "q" : f32[6,9,8,8]
  %1 = input "k" : f32[6,9,8,8]
  %2 = input "v" : f32[6,9,16,4]
  %3 = input "g" : f32[6,9,16,1]
  %4 = input "rate" : f32[6,9,16]
  %5 = input "state" : f32[6,16,8,4]
  %6, %7 = gated_delta %0 %1 %2 %3 %4 %5 : f32[6,9,16,4], f32[6,16,8,4]
  %8, %9 = selective_scan %0 %1 %6 %3 %7 : f32[6,9,16,4], f32[6,16,8,4]
  return "y" %8, "last" %9
}
"#;

/// One recurrence, number by number: results, and the state, which is changed.
fn plainly([q, k, v, g]: [&[f64]; 4], rate: Option<&[f64]>, state: &mut [f64]) -> Vec<f64> {
    let [batches, tokens, groups, heads, rows, columns] = SIZES;
    let mut y = vec![0.0; batches * tokens * heads * columns];
    for batch in 0..batches {
        for head in 0..heads {
            let at = |row: usize, column: usize| ((batch * heads + head) * rows + row) * columns + column;
            for token in 0..tokens {
                let own = (batch * tokens + token) * heads + head;
                let key = ((batch * tokens + token) * groups + head * groups / heads) * rows;
                for column in 0..columns {
                    (0..rows).for_each(|row| state[at(row, column)] *= g[own].exp());
                    let found: f64 = (0..rows).map(|row| k[key + row] * state[at(row, column)]).sum();
                    let value = v[own * columns + column];
                    let new = rate.map_or(value, |rate| rate[own] * (value - found));
                    (0..rows).for_each(|row| state[at(row, column)] += k[key + row] * new);
                    y[own * columns + column] =
                        (0..rows).map(|row| q[key + row] * state[at(row, column)]).sum();
                }
            }
        }
    }
    y
}

#[test]
fn recurrences_on_one_to_eight_ranks_are_plain_loops() {
    let graph = parse_graph(PROGRAM).unwrap();
    let mut inputs: BTreeMap<String, Array> = BTreeMap::new();
    for (number, value) in (0_u32..).zip(&graph.values) {
        let Source::Input(name) = &value.source else { continue };
        let count = u32::try_from(value.type_.elements()).unwrap();
        let number = |it: u32| f64::from((it * 37 + number * 11) % 101) / 101.0 - 0.5;
        // States fade.
        let numbers = (0..count).map(|it| if name == "g" { -number(it).abs() } else { number(it) });
        #[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
        let numbers: Vec<f32> = numbers.map(|it| it as f32).collect();
        inputs.insert(name.clone(), Array::of(value.type_.shape.clone(), &numbers).unwrap());
    }
    let floats = |name: &str| inputs[name].to_floats().unwrap();
    let [q, k, v, g, rate, mut state] = ["q", "k", "v", "g", "rate", "state"].map(floats);
    let made = plainly([&q, &k, &v, &g], Some(&rate), &mut state);
    let y = plainly([&q, &k, &made, &g], None, &mut state);
    let expected = BTreeMap::from([("y", y), ("last", state)]);
    let weights: BTreeMap<String, Array> = BTreeMap::new();
    let prepared = pipeline::prepare(&graph, &mut |_, _| {}).unwrap();
    for name in EVERY_MESH {
        let (mesh, machine) = machine_by(Priced::FastNet, name);
        let prices = MachinePrices::new(&machine, &mesh).unwrap();
        let header = plan::ModelFile { path: name.to_owned(), sha256: "0".repeat(64), dims: vec![] };
        let plan = pipeline::planned(&prepared, &header, &Target::of(&machine, &mesh), &prices).unwrap();
        plan::check(&plan).unwrap();
        for (node, assignment) in plan.graph.nodes.iter().zip(&plan.assignments) {
            let (Op::Recurrence(_), Assignment::Computed { partition, .. }) = (&node.op, assignment) else {
                continue;
            };
            assert_eq!(partition.copies(&mesh), 1, "{} on {name} is computed several times", node.op);
        }
        let programs = lower::lower(&plan).unwrap();
        lower::verify(&programs).unwrap();
        let outcome = run::run(programs, run::Sources { inputs: &inputs, weights: &weights }).unwrap();
        for (output, expected) in &expected {
            let found = outcome.outputs[*output].to_floats().unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{output} on {name}: {found}, not {expected}");
            }
        }
    }
}

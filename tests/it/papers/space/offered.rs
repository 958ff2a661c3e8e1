//! The paper's space counted from our rules: what the search is offered for a linear operation, of
//! which what PrimePar could do is exactly its sequences.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{AxisId, Graph, Loops, Mesh, Output, Partition, Slots, Source, Ways};
use rewrite::{Offer, Steps};

use super::{PHASES, Part, Phase, bits_of, coordinates, mesh, paper, partition, sequences, squares};

/// For each device in the order of its bits and each step, the block numbers of B, M, N and K.
type Table = Vec<Vec<[i64; 4]>>;

/// Extents that fall into as many blocks as there may be, and that no two dimensions share.
const EXTENTS: [u64; 4] = [16, 32, 48, 80];

/// The graph of a phase alone.
fn alone(phase: Phase) -> Graph {
    let mut graph = Graph::default();
    let (op, [left, right, result]) = phase.operation(EXTENTS);
    let operands = [("left", left), ("right", right)]
        .map(|(name, type_)| graph.push_value(type_, Source::Input(name.to_owned())));
    let results = graph.push_node(op, operands.to_vec(), vec![result], String::new());
    graph.outputs.push(Output { name: "result".to_owned(), value: results[0] });
    graph
}

/// Every mesh of so many devices whose axes are powers of two.
fn meshes(bits: u32) -> Vec<Vec<u64>> {
    if bits == 0 {
        return vec![vec![]];
    }
    let after =
        |first: u32| meshes(bits - first).into_iter().map(move |rest| [vec![1 << first], rest].concat());
    (1..=bits).flat_map(after).collect()
}

/// The axes of the rows and the columns of a square; none if there is no square.
type Square = Option<(AxisId, AxisId)>;

/// The square of a partition that PrimePar could make: every axis is used; it splits one dimension, or
/// is of a square of M, N and K, of which M has the rows and K the columns. Nothing is said of which
/// dimension time turns, nor how.
fn restricted(partition: &Partition, mesh: &Mesh, phase: Phase) -> Option<Square> {
    let whole = Partition {
        steps: 1,
        loops: vec![],
        ways: Ways::One,
        slots: Slots::Two,
        routed: vec![],
        routed_by: 1,
        streams: vec![],
        passed: vec![],
        through: 0,
    };
    let rest = Partition { steps: 1, loops: vec![], ..partition.clone() };
    if rest != whole || partition.axes() != mesh.axis_ids().collect::<Vec<_>>() {
        return None;
    }
    let digits = |dim: char| &partition.loops[phase.order().find(dim).unwrap()];
    let skewed: Vec<_> = "BMNK".chars().flat_map(digits).filter(|it| it.terms.len() > 1).collect();
    let (square, expected) = match skewed[..] {
        [] => (None, 0),
        [skewed] => {
            let [(rows, 1), (columns, 1)] = skewed.terms[..] else { return None };
            (Some((rows, columns)), 3)
        }
        _ => return None,
    };
    let of_square = |dim: char| -> Vec<&[(AxisId, i64)]> {
        let named = |axis: AxisId| square.is_some_and(|it| axis == it.0 || axis == it.1);
        let all = digits(dim).iter().map(|it| &it.terms[..]);
        all.filter(|terms| terms.is_empty() || terms.iter().any(|it| named(it.0))).collect()
    };
    let found = "BMNK".chars().map(|dim| of_square(dim).len()).sum::<usize>();
    let timed = "BMNK".chars().flat_map(digits).filter(|it| it.step != 0 || it.offset != 0);
    if let Some((rows, columns)) = square {
        let right = of_square('M') == [&[(rows, 1)]]
            && of_square('K') == [&[(columns, 1)]]
            && of_square('N') == [&[(rows, 1), (columns, 1)]];
        let plain = timed.filter(|it| it.terms.iter().all(|it| it.0 != rows && it.0 != columns));
        return (right && found == expected && plain.count() == 0).then_some(square);
    }
    (found == expected && timed.count() == 0).then_some(None)
}

/// The coordinates of a device, from its bits: those of a square's rows and columns alternate.
fn coordinates_on(mesh: &Mesh, square: Square, bits: &[u64]) -> Vec<u64> {
    let mut found = vec![0; mesh.axes.len()];
    let mut rest = bits.iter();
    for axis in mesh.axis_ids() {
        if square.is_some_and(|it| it.1 == axis) {
            continue;
        }
        for _ in 0..mesh.size(axis).ilog2() {
            let columns = square.filter(|it| it.0 == axis).map(|it| it.1);
            for axis in [axis].into_iter().chain(columns) {
                found[axis.0] = 2 * found[axis.0] + rest.next().unwrap();
            }
        }
    }
    found
}

/// Which blocks the devices compute, if they have these coordinates.
fn table(partition: &Partition, mesh: &Mesh, phase: Phase, coordinates: &[Vec<u64>]) -> Table {
    let loops: Loops = phase.loops(EXTENTS);
    let places = ["B", "M", "N", "K"].map(|dim| phase.order().find(dim).unwrap());
    let row = |coordinates: &Vec<u64>| {
        let numbers = |step| {
            let blocks = partition.blocks(mesh, &loops, mesh.device(coordinates), step);
            places.map(|it| i64::try_from(blocks[it].start / blocks[it].length).unwrap())
        };
        (0..partition.steps).map(numbers).collect()
    };
    coordinates.iter().map(row).collect()
}

/// The tables of all sequences over so many bits with at most one square.
fn of_sequences(bits: u32, phase: Phase) -> BTreeMap<Table, Vec<Part>> {
    let all = sequences(bits).into_iter().filter(|it| squares(it) < 2);
    let with_table = all.map(|sequence| {
        let mesh = mesh(&sequence);
        let all: Vec<Vec<u64>> =
            (0..1 << bits).map(|it| coordinates(&sequence, &bits_of(it, bits))).collect();
        let partition = partition(&sequence, &mesh, phase);
        let table = table(&partition, &mesh, phase, &all);
        if phase == Phase::Forward {
            // The paper's own indices: other phases start where the one before has ended.
            let row = |device: u64| {
                let steps = 0..i64::try_from(partition.steps).unwrap();
                steps.map(|step| paper(&sequence, &bits_of(device, bits), phase, step).0).collect()
            };
            assert_eq!(table, (0..1 << bits).map(row).collect::<Table>(), "{sequence:?}");
        }
        (table, sequence)
    });
    with_table.collect()
}

#[test]
fn what_primepar_could_do_of_what_is_offered_is_its_sequences() {
    for (bits, count) in [(1, 4), (2, 17), (3, 72), (4, 305)] {
        for phase in PHASES {
            let expected = of_sequences(bits, phase);
            assert_eq!(expected.len(), count);
            let mut found = BTreeSet::new();
            for sizes in meshes(bits) {
                let mesh = Mesh::of_sizes(&sizes);
                let offer = Offer { steps: Steps::Offered, ..Offer::default() };
                let space = rewrite::space(&alone(phase), &mesh, &[], offer).unwrap();
                let mut here = BTreeSet::new();
                for choice in space.choices[0].iter() {
                    let Some(square) = restricted(&choice.partition, &mesh, phase) else { continue };
                    let all: Vec<Vec<u64>> =
                        (0..1 << bits).map(|it| coordinates_on(&mesh, square, &bits_of(it, bits))).collect();
                    let table = table(&choice.partition, &mesh, phase, &all);
                    let shown = choice.partition.display(&mesh);
                    assert!(expected.contains_key(&table), "{phase:?} on {mesh}: {shown} is no sequence");
                    assert!(here.insert(table), "{phase:?} on {mesh}: {shown} is there twice");
                }
                for (table, sequence) in &expected {
                    let there = here.contains(table) || super::mesh(sequence) != mesh;
                    assert!(there, "{phase:?} on {mesh}: {sequence:?} is not offered");
                }
                found.append(&mut here);
            }
            assert_eq!(found.len(), count, "{phase:?} on {} devices", 1 << bits);
        }
    }
}

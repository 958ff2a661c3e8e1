//! What devices hold, element by element: moves by their meaning against moves by digits.

use std::collections::BTreeSet;

use planner_ir::{AxisId, DType, Digit, Layout, Mesh, Move, Type};

use crate::check::blocks::{canonical, same};
use crate::check::moves::Held;

/// The elements of a value that a device holds, by what their indices are.
pub(super) fn elements(mesh: &Mesh, layout: &Layout, shape: &[u64], device: u64) -> BTreeSet<Vec<u64>> {
    let coordinates = mesh.coordinates(device);
    let mut all = vec![vec![]];
    for (digits, &extent) in layout.dims.iter().zip(shape) {
        let blocks: u64 = digits.iter().map(|digit| digit.size).product();
        let held = |index: u64| {
            let mut block = index / (extent / blocks);
            digits.iter().rev().all(|digit| {
                let number = block % digit.size;
                block /= digit.size;
                digit.is_free() || number == digit.at(&coordinates, 0)
            })
        };
        let held: Vec<u64> = (0..extent).filter(|&index| held(index)).collect();
        let longer = |one: &Vec<u64>| held.iter().map(|&it| [&one[..], &[it]].concat()).collect::<Vec<_>>();
        all = all.iter().flat_map(longer).collect();
    }
    all.into_iter().collect()
}

/// Whether devices hold the same by both.
pub(in crate::check) fn equal(mesh: &Mesh, shape: &[u64], a: &Layout, b: &Layout) -> bool {
    let alike = |device| elements(mesh, a, shape, device) == elements(mesh, b, shape, device);
    a.owed == b.owed && (0..mesh.devices()).all(alike)
}

/// How many elements devices receive in a move between layouts, if it makes the one of the other.
fn exchanged(mesh: &Mesh, shape: &[u64], step: &Move, before: &Layout, after: &Layout) -> Option<u64> {
    let axes = step.axes(before);
    let devices = || 0..mesh.devices();
    let had: Vec<_> = devices().map(|device| elements(mesh, before, shape, device)).collect();
    let has: Vec<_> = devices().map(|device| elements(mesh, after, shape, device)).collect();
    let mut received = 0;
    let paid: Vec<AxisId> = before.owed.iter().filter(|axis| !after.owed.contains(axis)).copied().collect();
    let sums = matches!(step, Move::AllReduce { .. } | Move::ReduceScatter { .. });
    let mut added = if sums { axes.clone() } else { vec![] };
    added.sort_unstable();
    if paid != added {
        return None;
    }
    for device in devices() {
        let here = usize::try_from(device).ok()?;
        let group = mesh.group(device, &axes);
        let members = || group.iter().map(|&it| &had[usize::try_from(it).unwrap_or(0)]);
        let peers = u64::try_from(group.len()).ok()? - 1;
        let size = u64::try_from(has[here].len()).ok()?;
        if sums {
            // Every member has an addend of each element, and their addends are different ones.
            if !members().all(|member| has[here].is_subset(member)) {
                return None;
            }
            received += match step {
                Move::AllReduce { .. } => 2 * peers * size,
                _ => peers * size * (peers + 1),
            };
            continue;
        }
        let all: BTreeSet<Vec<u64>> = members().flatten().cloned().collect();
        let right = match step {
            Move::AllGather { .. } => has[here] == all,
            Move::Slice { .. } => has[here].is_subset(&had[here]),
            _ => has[here].is_subset(&all),
        };
        // Addends are not exchanged: members have the same ones.
        if !right || axes.iter().any(|axis| before.owed.contains(axis)) {
            return None;
        }
        received += u64::try_from(has[here].difference(&had[here]).count()).ok()? * (peers + 1);
    }
    complete(mesh, shape, after).then(|| {
        let peers: u64 = axes.iter().map(|&axis| mesh.size(axis)).product();
        received / peers
    })
}

/// Whether some device holds each addend of each element.
fn complete(mesh: &Mesh, shape: &[u64], layout: &Layout) -> bool {
    let mut there = BTreeSet::new();
    for device in 0..mesh.devices() {
        let coordinates = mesh.coordinates(device);
        let addend: Vec<u64> = layout.owed.iter().map(|axis| coordinates[axis.0]).collect();
        there.extend(elements(mesh, layout, shape, device).into_iter().map(|it| (it, addend.clone())));
    }
    let addends: u64 = layout.owed.iter().map(|&axis| mesh.size(axis)).product();
    u64::try_from(there.len()) == Ok(shape.iter().product::<u64>() * addends)
}

/// Lists of at most `most` digits.
fn digit_lists(mesh: &Mesh, most: usize) -> Vec<Vec<Digit>> {
    let mut digits: Vec<Digit> = mesh.axis_ids().map(|axis| Digit::axis(mesh, axis)).collect();
    digits.push(Digit::free(2));
    if let [first, second] = &mesh.axes[..]
        && first.size == second.size
    {
        let skew = vec![(AxisId(0), 1), (AxisId(1), 1)];
        digits.push(Digit { size: first.size, terms: skew, step: 0, offset: 0 });
        digits.push(Digit { size: first.size, terms: vec![(AxisId(0), 1)], step: 0, offset: 1 });
    }
    let mut lists = vec![vec![]];
    for _ in 0..most {
        let longer = |list: &Vec<Digit>| {
            digits.iter().map(|it| [&list[..], std::slice::from_ref(it)].concat()).collect::<Vec<_>>()
        };
        let more: Vec<_> = lists.iter().flat_map(longer).collect();
        lists.extend(more);
        lists.sort();
        lists.dedup();
    }
    lists
}

fn layouts(mesh: &Mesh, type_: &Type) -> Vec<Layout> {
    let lists = digit_lists(mesh, 2);
    let mut layouts = Vec::new();
    for owed in [vec![], vec![AxisId(0)], vec![AxisId(1)], vec![AxisId(0), AxisId(1)]] {
        for first in &lists {
            for second in &lists {
                let layout = Layout { dims: vec![first.clone(), second.clone()], owed: owed.clone() };
                layouts.push(layout);
            }
        }
    }
    layouts.retain(|layout| layout.check(mesh, type_).is_ok());
    layouts
}

fn moves(mesh: &Mesh) -> Vec<Move> {
    let mut moves: Vec<Move> = vec![
        Move::AllReduce { axes: vec![] },
        Move::AllReduce { axes: vec![AxisId(0)] },
        Move::AllReduce { axes: vec![AxisId(1)] },
        Move::AllReduce { axes: vec![AxisId(0), AxisId(1)] },
        Move::AllReduce { axes: vec![AxisId(1), AxisId(1)] },
    ];
    for digits in digit_lists(mesh, 2) {
        for dim in 0..3 {
            moves.push(Move::Slice { dim, digits: digits.clone() });
            moves.push(Move::ReduceScatter { dim, digits: digits.clone() });
            for from in 0..3 {
                moves.push(Move::AllToAll { from, to: dim, digits: digits.clone() });
            }
        }
    }
    for dim in 0..3 {
        moves.extend((0..4).map(|digits| Move::AllGather { dim, digits }));
    }
    moves
}

#[test]
fn moves_by_digits_are_moves_of_elements() {
    let (mut made, mut refused) = (0, 0);
    for (sizes, shape) in [([2, 2], [4, 8]), ([2, 3], [12, 6]), ([1, 2], [4, 4])] {
        let (mesh, type_) = (Mesh::of_sizes(&sizes), Type::new(DType::F16, shape));
        let moves = moves(&mesh);
        for before in layouts(&mesh, &type_) {
            for step in &moves {
                let mut held = Held { dims: before.dims.clone(), owed: before.owed.clone() };
                let result = held.make(&mesh, &type_, step);
                let after = Layout { dims: held.dims, owed: held.owed };
                let name = || format!("{mesh}: {} {step:?}", before.display(&mesh));
                match result {
                    Ok(bytes) => {
                        let elements = exchanged(&mesh, &shape, step, &before, &after);
                        assert_eq!(Some(bytes), elements.map(|it| it * 2), "{}", name());
                        made += 1;
                    }
                    Err(message) => {
                        refused += 1;
                        let within = matches!(step, Move::AllToAll { from, to, .. } if from == to);
                        if let (Ok(after), false) = (step.apply(&mesh, &type_, &before), within) {
                            panic!("{} to {} is refused: {message}", name(), after.display(&mesh));
                        }
                    }
                }
            }
        }
    }
    assert!(made > 500 && refused > 10_000, "{made} made, {refused} refused");
}

#[test]
fn the_same_blocks_are_the_same_elements() {
    let (mesh, shape) = (Mesh::of_sizes(&[2, 2]), [8]);
    let lists = digit_lists(&mesh, 3);
    let fits = |digits: &&Vec<Digit>| digits.iter().map(|digit| digit.size).product::<u64>() <= shape[0];
    let lists: Vec<&Vec<Digit>> = lists.iter().filter(fits).collect();
    for left in &lists {
        for right in &lists {
            let layout = |digits: &Vec<Digit>| Layout { dims: vec![digits.clone()], owed: vec![] };
            let (left, right) = (layout(left), layout(right));
            let expected = equal(&mesh, &shape, &left, &right);
            assert_eq!(same(&mesh, &left.dims, &right.dims, &shape), expected, "{left:?} {right:?}");
            let short = |layout: &Layout| vec![canonical(layout.dims[0].clone())];
            assert_eq!(same(&mesh, &short(&left), &short(&right), &shape), expected);
        }
    }
}

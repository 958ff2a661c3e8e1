//! Tests of motion: partitions of a product are executed on integers, blocks moving only as
//! derived, and must give the product. Attention, whose keys are merged, is held against it.

mod machine; // executes partitions of a product
mod merged; // partitions of attention

use arbtest::arbtest;
use expect_test::expect;

use super::{Motion, Shift};
use crate::data::{DType, Type};
use crate::layout::Digit;
use crate::loops::{LoopId, Loops};
use crate::mesh::{AxisId, Mesh};
use crate::partition::{Partition, PartitionError, Slots, Ways};
use crate::text::{parse_op, parse_partition};

use machine::Machine;

/// Of the loops m, k and n.
fn product(extent: u64) -> Loops {
    let square = Type::new(DType::F32, [extent, extent]);
    parse_op("contract \"mk,kn->mn\"").unwrap().loops(&[square.clone(), square.clone()], &[square])
}

/// Executes a partition, if it is one: whether it is.
fn executed(mesh: &Mesh, loops: &Loops, extent: u64, partition: &Partition) -> bool {
    if partition.check(mesh, loops).is_err() {
        return false;
    }
    let shown = || partition.display(mesh).to_string();
    let machine = Machine { mesh, loops, partition, extent };
    assert_eq!(machine.run(), Ok(()), "{}", shown());
    true
}

/// Every map whose loops have one digit at most, on a mesh of axes of one size, with these
/// offsets: how many are partitions.
fn all_maps(axes: usize, size: u64, offsets: i64) -> usize {
    let mesh = Mesh::of_sizes(&vec![size; axes]);
    let loops = product(size);
    let executed = |partition: &Partition| executed(&mesh, &loops, size, partition);
    every_map(&mesh, size, offsets).iter().map(executed).filter(|&it| it).count()
}

/// Every map of three loops, of which each has one digit at most, on a mesh of axes of one size.
fn every_map(mesh: &Mesh, size: u64, offsets: i64) -> Vec<Partition> {
    let axes = mesh.axes.len();
    let size_ = i64::try_from(size).unwrap();
    let mut digits: Vec<Vec<Digit>> = vec![vec![]];
    let coefficients = usize::try_from(size).unwrap().pow(u32::try_from(axes).unwrap() + 1);
    for number in 1..coefficients {
        for offset in 0..offsets {
            let mut rest = i64::try_from(number).unwrap();
            let mut next = || {
                let coefficient = rest % size_;
                rest /= size_;
                coefficient
            };
            let step = next();
            let terms = (0..axes).map(|axis| (AxisId(axis), next())).filter(|it| it.1 != 0).collect();
            digits.push(vec![Digit { size, terms, step, offset }]);
        }
    }
    let mut streams: Vec<Vec<AxisId>> = vec![vec![]];
    streams.extend(mesh.axis_ids().map(|a| vec![a]));
    streams.extend(
        mesh.axis_ids().flat_map(|a| mesh.axis_ids().filter(move |&b| a != b).map(move |b| vec![a, b])),
    );
    let mut all = Vec::new();
    for m in &digits {
        for k in &digits {
            for n in &digits {
                let split = vec![m.clone(), k.clone(), n.clone()];
                let timed = split.iter().flatten().any(|digit| digit.step != 0);
                let steps = if timed { size } else { 1 };
                for streams in streams.iter().take(if timed { streams.len() } else { 1 }) {
                    let streams = streams.clone();
                    let loops = split.clone();
                    all.push(Partition {
                        steps,
                        loops,
                        streams,
                        passed: vec![],
                        through: 0,
                        ways: Ways::One,
                        slots: Slots::Two,
                        routed: vec![],
                        routed_by: 1,
                    });
                }
            }
        }
    }
    all
}

#[test]
fn all_maps_on_small_meshes_compute_the_product() {
    let found =
        [all_maps(1, 2, 2), all_maps(1, 4, 2), all_maps(2, 2, 2), all_maps(2, 3, 1), all_maps(3, 2, 1)];
    expect!["[157, 1643, 7075, 50183, 21404]"].assert_eq(&format!("{found:?}"));
}

/// Every map of the above whose blocks go both ways: how many are partitions, and of how many of them
/// the two ways have different neighbours.
fn all_maps_both_ways(axes: usize, size: u64, offsets: i64) -> (usize, usize) {
    let mesh = Mesh::of_sizes(&vec![size; axes]);
    let extent = 2 * size;
    let loops = product(extent);
    let both = |it: Partition| Partition { ways: Ways::Both, ..it };
    let maps = every_map(&mesh, size, offsets).into_iter().filter(|it| it.streams.is_empty());
    let maps: Vec<Partition> = maps.map(both).collect();
    let right: Vec<&Partition> = maps.iter().filter(|it| executed(&mesh, &loops, extent, it)).collect();
    let apart = |it: &&&Partition| match &it.each_way()[..] {
        [forth, back] => {
            let moves = |of: &Partition| {
                let operands = [0, 1].map(|index| of.operand_motion(&loops, index));
                (operands, of.result_motion(&loops, 0))
            };
            moves(forth) != moves(back)
        }
        _ => false,
    };
    (right.len(), right.iter().filter(apart).count())
}

#[test]
fn all_maps_both_ways_compute_the_product() {
    let found = [all_maps_both_ways(1, 2, 2), all_maps_both_ways(1, 4, 2), all_maps_both_ways(2, 3, 1)];
    expect!["[(30, 0), (108, 108), (1552, 1552)]"].assert_eq(&format!("{found:?}"));
}

#[test]
fn maps_that_cannot_go_both_ways_are_refused() {
    let mesh = Mesh::of_sizes(&[3]);
    let loops = product(6);
    let refused = |text: &str| {
        let partition = parse_partition(&mesh, text).unwrap();
        assert_eq!(partition.check(&mesh, &loops), Err(PartitionError::Ways), "{text}");
    };
    // Home after the last step one way, a step further the other.
    refused("3 steps both ways [(a+@t:3),a,-]");
    // Nothing rotates; blocks are streamed.
    refused("3 steps both ways [a,(@t:3),-]");
    refused("3 steps both ways [a,(@t:3),-] streams a");
    // Two loops in time: which of them is halved?
    refused("3 steps both ways [(a+@t:3),(a+2*@t:3),-]");
    let odd = parse_partition(&mesh, "3 steps both ways [a,-,(a+@t:3)]").unwrap();
    assert_eq!(odd.check(&mesh, &product(9)), Err(PartitionError::Uneven(LoopId(2), 9, 6)));
    assert_eq!(odd.check(&mesh, &loops), Ok(()));
}

#[test]
fn maps_of_several_digits_compute_the_product() {
    let mesh = Mesh::of_sizes(&[2, 2, 2]);
    let loops = product(4);
    let mut found = 0;
    arbtest(|u| {
        let mut partition = Partition::replicated(&loops);
        partition.steps = 2;
        for digits in &mut partition.loops {
            for _ in 0..u.int_in_range(0..=2)? {
                let terms = (0..3).map(|axis| Ok((AxisId(axis), u.int_in_range(0..=1)?)));
                let terms = terms.collect::<Result<Vec<(AxisId, i64)>, _>>()?;
                let terms = terms.into_iter().filter(|term| term.1 != 0).collect();
                let digit =
                    Digit { size: 2, terms, step: u.int_in_range(0..=1)?, offset: u.int_in_range(0..=1)? };
                digits.extend(Some(digit).filter(|digit| !digit.is_free()));
            }
        }
        found += usize::from(executed(&mesh, &loops, 4, &partition));
        Ok(())
    });
    assert!(found > 0, "no map was a partition");
}

/// How operands and results move, and where they are at rest.
fn shown(mesh: &Mesh, loops: &Loops, partition: &Partition) -> String {
    let shown = |layout: crate::Layout, motion: Motion| {
        let moves = match motion {
            Motion::Stationary => String::new(),
            Motion::Rotating(Shift(shift)) => {
                let along = |(axis, by): &(AxisId, i64)| format!("{}{by:+}", mesh.axes[axis.0].name);
                format!(" from {}", shift.iter().map(along).collect::<Vec<_>>().join(","))
            }
            Motion::Streaming(axis) => format!(" streams over {}", mesh.axes[axis.0].name),
            Motion::Whole => " block by block".to_owned(),
        };
        format!("{}{moves}", layout.display(mesh))
    };
    let operand = |it| shown(partition.operand(loops, it), partition.operand_motion(loops, it));
    let result = |it| shown(partition.result(loops, it), partition.result_motion(loops, it));
    let operands = (0..loops.operands.len()).map(operand);
    operands.chain((0..loops.results.len()).map(result)).collect::<Vec<_>>().join("; ")
}

/// What moves in the families that have names: X, W and Y of Y[m,n] = X[m,k] W[k,n].
#[test]
fn the_families_move_what_their_papers_say() {
    let shown = |mesh: &Mesh, text: &str| {
        let partition = parse_partition(mesh, text).unwrap();
        let extent = mesh.axes.iter().map(|axis| axis.size).product::<u64>() * partition.ways.count();
        let loops = product(extent);
        assert!(executed(mesh, &loops, extent, &partition), "{text}");
        let ways = partition.each_way();
        ways.iter().map(|way| shown(mesh, &loops, way)).collect::<Vec<_>>().join(" | ")
    };
    let ring = Mesh::of_sizes(&[3]);
    let grid = Mesh::of_sizes(&[3, 3]);
    let cube = Mesh::parse("r=3,c=3,d=2").unwrap();
    // Rotated (RTP): by columns and by rows forward, the gradient of W backward (loops k, m, n).
    expect!["[a,-]; [-,a] from a-1; [a,-] block by block"].assert_eq(&shown(&ring, "3 steps [a,-,(a-@t:3)]"));
    expect!["[a,-] block by block; [a,-] from a-1; [a,-]"].assert_eq(&shown(&ring, "3 steps [a,(a-@t:3),-]"));
    expect!["[-,a]; [a,-] block by block; [-,a] from a+1"]
        .assert_eq(&shown(&ring, "3 steps [-,a,(a+@t+1:3)]"));
    // Half of each block from either neighbour: at rest as those that go one way.
    expect!["[a,-]; [-,a] from a-1; [a,-] block by block | [a,-]; [-,a] from a+1; [a,-] block by block"]
        .assert_eq(&shown(&Mesh::of_sizes(&[4]), "4 steps both ways [a,-,(a-@t:4)]"));
    expect!["[-,a] block by block; [a,-]; [a,-] from a+1 | [-,a] block by block; [a,-]; [a,-] from a-1"]
        .assert_eq(&shown(&Mesh::of_sizes(&[4]), "4 steps both ways [(a+@t+1:4),a,-]"));
    // Ring gather and ring scatter.
    expect!["[a,-] from a+1; [-,a]; [-,a] block by block"].assert_eq(&shown(&ring, "3 steps [(a+@t:3),-,a]"));
    expect!["[-,a] block by block; [a,-]; [a,-] from a+1"]
        .assert_eq(&shown(&ring, "3 steps [(a+@t+1:3),a,-]"));
    // The square primitive: forward, and the same map for both gradients.
    expect!["[a,(a+b:3)] from b+1; [(a+b:3),b] from a+1; [a,b]"]
        .assert_eq(&shown(&grid, "3 steps [a,(a+b+@t:3),b]"));
    expect!["[a,b] from b+1; [b,(a+b:3)] from a-1,b+1; [a,(a+b:3)]"]
        .assert_eq(&shown(&grid, "3 steps [a,(b+@t:3),(a+b:3)]"));
    expect!["[(a+b:3),a] from a+1,b-1; [a,b] from a+1; [(a+b:3),b]"]
        .assert_eq(&shown(&grid, "3 steps [(a+b:3),(a+@t:3),b]"));
    // SUMMA, and its gradients.
    expect!["[a,b] streams over b; [a,b] streams over a; [a,b]"]
        .assert_eq(&shown(&grid, "3 steps [a,(@t:3),b] streams a,b"));
    expect!["[a,b]; [b,a] streams over a; [a,b] streams over b"]
        .assert_eq(&shown(&grid, "3 steps [a,b,(@t:3)] streams a,b"));
    // Tesseract and 2.5-D.
    expect!["[d.r,c] streams over c; [r,c] streams over r; [d.r,c]"]
        .assert_eq(&shown(&cube, "3 steps [d.r,(@t:3),c] streams r,c"));
    expect!["[r,d.(r+c:3)] from c+1; [d.(r+c:3),c] from r+1; [r,c] owes d"]
        .assert_eq(&shown(&cube, "3 steps [r,d.(r+c+@t:3),c]"));
}

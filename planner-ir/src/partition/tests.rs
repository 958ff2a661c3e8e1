//! Tests of partitions.

use std::collections::BTreeMap;

use arbtest::arbtest;

use super::{Partition, PartitionError};
use crate::data::{DType, Type};
use crate::layout::Digit;
use crate::mesh::{AxisId, Mesh};
use crate::text::{parse_op, parse_partition};

fn product() -> crate::loops::Loops {
    let square = Type::new(DType::F32, [4, 4]);
    parse_op("contract \"mk,kn->mn\"").unwrap().loops(&[square.clone(), square.clone()], &[square])
}

#[test]
fn every_block_of_a_good_partition_is_computed_as_often() {
    let loops = product();
    let mesh = Mesh::of_sizes(&[2, 2]);
    arbtest(|u| {
        let mut partition = Partition::replicated(&loops);
        partition.steps = u.int_in_range(1..=2)?;
        for digits in &mut partition.loops {
            for _ in 0..u.int_in_range(0..=2)? {
                let terms = vec![(AxisId(0), u.int_in_range(0..=1)?), (AxisId(1), u.int_in_range(0..=1)?)];
                let terms = terms.into_iter().filter(|term| term.1 != 0).collect();
                digits.push(Digit { size: 2, terms, step: u.int_in_range(0..=1)?, offset: 0 });
            }
            *digits = crate::layout::canonical_digits(std::mem::take(digits));
        }
        if partition.check(&mesh, &loops).is_err() {
            return Ok(());
        }
        let mut times = BTreeMap::new();
        for device in 0..mesh.devices() {
            for step in 0..partition.steps {
                let blocks = partition.blocks(&mesh, &loops, device, step);
                let key: Vec<u64> = blocks.iter().map(|block| block.start).collect();
                *times.entry(key).or_insert(0u64) += 1;
            }
        }
        let strided = partition.loops.iter().flatten().any(Digit::is_free);
        assert!(strided || times.values().all(|&times| times == partition.copies(&mesh)), "{times:?}");
        Ok(())
    });
}

#[test]
fn sums_are_owed_over_the_axes_that_compute_addends_once() {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let loops = product();
    // Of the loops m, k and n.
    for (text, expected) in [
        ("[-,a,-]", &[0][..]),
        ("[a,b,-]", &[1]),
        ("[-,a.b,-]", &[0, 1]),
        ("[a,(a+b:2),-]", &[1]),
        ("2 steps [a,(a+b+@t:2),b]", &[]),
        ("2 steps [a,(@t:2),b]", &[]),
    ] {
        let partition = parse_partition(&mesh, text).unwrap();
        assert_eq!(partition.check(&mesh, &loops), Ok(()), "{text}");
        let expected: Vec<AxisId> = expected.iter().map(|&axis| AxisId(axis)).collect();
        assert_eq!(partition.owed(&loops), expected, "{text}");
    }
}

#[test]
fn results_that_a_summed_loop_indexes_are_pieces_and_owe_nothing() {
    let mesh = Mesh::of_sizes(&[2]);
    let op = crate::parse_op("experts_gradient activation=silu active=2").unwrap();
    let of = |shape: &[u64]| crate::Type::new(crate::DType::F32, shape);
    let operands = [of(&[4, 6]), of(&[4, 2]), of(&[2, 8, 6]), of(&[2, 6, 8]), of(&[4, 6])];
    let loops = op.loops(&operands, &op.infer(&operands).unwrap());
    // Of the loops over tokens, experts, units and the hidden size.
    for (text, expected) in [
        ("[a,-,-,-]", ["[a,-]", "[a,-]", "[-,-,-] owes a", "[-,-,-] owes a"]),
        ("[-,a,-,-]", ["[-,-] owes a", "[-,a]", "[a,-,-]", "[a,-,-]"]),
        ("[-,-,a,-]", ["[-,-] owes a", "[-,-] owes a", "[-,a,-]", "[-,-,a]"]),
    ] {
        let partition = parse_partition(&mesh, text).unwrap();
        let made: Vec<String> =
            (0..4).map(|index| partition.result(&loops, index).display(&mesh).to_string()).collect();
        assert_eq!(made, expected, "{text}");
    }
}

/// What gradients of weights are added to is as the sums are: it owes what is left owed in each of them, which is not
/// what is left in others.
#[test]
fn what_gradients_of_experts_are_added_to_is_as_the_sums_are() {
    let mesh = Mesh::of_sizes(&[2, 3]);
    let op = parse_op("experts_gradient activation=silu active=2 adds=[2,3]").unwrap();
    let of = |shape: &[u64]| Type::new(DType::F32, shape);
    let operands =
        [&[12, 6][..], &[12, 6], &[6, 12, 6], &[6, 6, 12], &[12, 6], &[6, 12, 6], &[6, 6, 12]].map(of);
    let loops = op.loops(&operands, &op.infer(&operands).unwrap());
    assert_eq!(loops.added, [(5, 2), (6, 3)]);
    assert_eq!(loops.linear, [[4, 5, 6]]);
    for (text, expected) in [
        ("[a,-,-,-]", ["[-,-,-] owes a", "[-,-,-] owes a"]),
        ("[-,a,-,-]", ["[a,-,-]", "[a,-,-]"]),
        ("[-,-,b,-]", ["[-,b,-]", "[-,-,b]"]),
        ("[a,b,-,-]", ["[b,-,-] owes a", "[b,-,-] owes a"]),
        ("[b,-,a,-]", ["[-,a,-] owes b", "[-,-,a] owes b"]),
        ("[-,b,-,-] passes a", ["[b,-,-] owes a", "[b,-,-] owes a"]),
        ("[a,b,-,-] routes *2.b", ["[b,-,-] owes a", "[b,-,-] owes a"]),
        ("[-,a.b,-,-] routes a.b", ["[a.b,-,-]", "[a.b,-,-]"]),
    ] {
        let partition = parse_partition(&mesh, text).unwrap();
        assert_eq!(partition.check(&mesh, &loops), Ok(()), "{text}");
        let found = [5, 6].map(|it| partition.operand(&loops, it));
        assert_eq!(found.each_ref().map(|it| it.display(&mesh).to_string()), expected, "{text}");
        assert_eq!(found, [2, 3].map(|it| partition.result(&loops, it)), "{text}");
    }
    // In steps it would be added to each of several addends.
    let partition = parse_partition(&mesh, "3 steps [b,(b+@t:3),-,-]").unwrap();
    let alone = op.alone().loops(&operands[..5], &op.alone().infer(&operands[..5]).unwrap());
    assert_eq!(partition.check(&mesh, &alone), Ok(()));
    assert_eq!(partition.check(&mesh, &loops), Err(PartitionError::Sums));
}

/// Tokens are at rest where their rows are; what they use is where it is split.
#[test]
fn rows_are_routed_over_the_axes_that_split_their_parts() {
    let mesh = Mesh::of_sizes(&[2, 3]);
    let op = parse_op("experts_gradient activation=silu active=2").unwrap();
    let of = |shape: &[u64]| Type::new(DType::F32, shape);
    let operands = [of(&[12, 6]), of(&[12, 6]), of(&[6, 8, 6]), of(&[6, 6, 8]), of(&[12, 6])];
    let loops = op.loops(&operands, &op.infer(&operands).unwrap());
    // Of the loops over tokens, experts, units and the hidden size.
    for (text, taken, made) in [
        ("[-,b,-,-] routes b", ["[b,-]", "[b,-]", "[b,-,-]"], ["[b,-]", "[b,-]", "[b,-,-]"]),
        ("[-,a.b,-,-] routes a.b", ["[a.b,-]", "[a.b,-]", "[a.b,-,-]"], ["[a.b,-]", "[a.b,-]", "[a.b,-,-]"]),
        (
            "[a,b,-,-] routes *2.b",
            ["[a.*2.b,-]", "[a.*2.b,-]", "[b,-,-]"],
            ["[a.*2.b,-]", "[a.*2.b,-]", "[b,-,-] owes a"],
        ),
        ("[-,b,a,-] routes b", ["[b,-]", "[b,-]", "[b,a,-]"], ["[b,-] owes a", "[b,-] owes a", "[b,a,-]"]),
    ] {
        let partition = parse_partition(&mesh, text).unwrap();
        assert_eq!(partition.check(&mesh, &loops), Ok(()), "{text}");
        assert_eq!(partition.display(&mesh).to_string(), text);
        let show = |layout: crate::Layout| layout.display(&mesh).to_string();
        let found: Vec<String> = (0..3).map(|it| show(partition.operand(&loops, it))).collect();
        assert_eq!(found, taken, "{text}");
        let found: Vec<String> = (0..3).map(|it| show(partition.result(&loops, it))).collect();
        assert_eq!(found, made, "{text}");
        assert_eq!(partition.result(&loops, 0).dims, partition.operand(&loops, 4).dims);
    }
    for text in [
        "[-,b,-,-] routes a",
        "[-,-,-,-] routes b",
        "[-,b.a,-,-] routes a.b",
        "[-,a.b,-,-] routes b",
        "[-,b,-,-] routes b.*2",
        "[-,b,-,-] passes a routes b",
        "3 steps [(b+@t:3),b,-,-] routes b",
    ] {
        let found = parse_partition(&mesh, text).unwrap().check(&mesh, &loops);
        assert_eq!(found, Err(PartitionError::Routed), "{text}");
    }
    // Of six devices, one passes rows on for two or three.
    for (by, right) in [(0, false), (1, true), (2, true), (3, true), (4, false), (6, false), (12, false)] {
        let of_sets =
            Partition { routed_by: by, ..parse_partition(&mesh, "[-,a.b,-,-] routes a.b").unwrap() };
        let expected = if right { Ok(()) } else { Err(PartitionError::RoutedBy(by, 6)) };
        assert_eq!(of_sets.check(&mesh, &loops), expected, "{by}");
        assert_eq!(of_sets.exchanged_plainly().display(&mesh).to_string(), "[-,a.b,-,-] routes a.b");
        let text = of_sets.display(&mesh).to_string();
        assert_eq!(parse_partition(&mesh, &text), Ok(of_sets));
    }
    let rows = parse_partition(&mesh, "[a,b,-,-]").unwrap();
    let nothing_routed = Partition { routed_by: 2, ..rows };
    assert_eq!(nothing_routed.check(&mesh, &loops), Err(PartitionError::Routed));
    let uneven = parse_partition(&mesh, "[*4.a,b,-,-] routes b").unwrap();
    assert_eq!(uneven.check(&mesh, &loops), Err(PartitionError::Uneven(crate::LoopId(0), 12, 24)));
    // A product has no rows that use few of many parts.
    let routed = parse_partition(&mesh, "[-,a,-] routes a").unwrap();
    assert_eq!(routed.check(&mesh, &product()), Err(PartitionError::Routed));
}

/// The share of rows that use one of some parts, against counting all choices of parts.
#[test]
fn rows_that_use_a_group_are_counted() {
    let million = 1_000_000;
    for (used, parts, groups) in [(1, 4, 2), (2, 4, 4), (2, 8, 2), (3, 6, 3), (4, 4, 2), (8, 6, 6)] {
        let own = (1u64 << (parts / groups)) - 1;
        let sets: Vec<u64> =
            (0..1u64 << parts).filter(|it| u64::from(it.count_ones()) == used.min(parts)).collect();
        let hits = u64::try_from(sets.iter().filter(|&it| it & own != 0).count()).unwrap();
        let all = u64::try_from(sets.len()).unwrap();
        let rows = super::RoutedRows { count: 1, used, parts, by: 1 };
        let found = rows.of_device(million, groups);
        assert!(found.abs_diff(million * hits / all) <= 1 + used, "{used} of {parts} in {groups}: {found}");
    }
}

/// A bias goes in steps with the channels that it is added to. Where a sum is made of several
/// addends, of devices or of steps, it would be added to each.
#[test]
fn what_is_added_once_is_so_in_steps_that_make_whole_sums() {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let op = parse_op("conv strides=[1] dilations=[1] before=[0] after=[0] groups=1").unwrap();
    let of = |shape: &[u64]| Type::new(DType::F32, shape);
    let operands = [of(&[4, 4, 5]), of(&[4, 4, 2]), of(&[4])];
    let results = op.infer(&operands).unwrap();
    let [biased, bare] = [3, 2].map(|count| op.loops(&operands[..count], &results));
    // Of the loops over samples, channels taken and made, and the window.
    for (text, expected) in [
        ("2 steps [a,-,(a+@t:2),-,-,-]", Ok(())),
        ("2 steps both ways [a,-,(a+@t:2),-,-,-]", Ok(())),
        ("2 steps [a,(a+@t:2),-,-,-,-]", Err(PartitionError::Sums)),
        ("2 steps [a,b,(a+@t:2),-,-,-]", Err(PartitionError::Sums)),
        ("2 steps [(a+@t+1:2),a,-,-,-,-]", Err(PartitionError::Sums)),
    ] {
        let partition = parse_partition(&mesh, text).unwrap();
        assert_eq!(partition.check(&mesh, &bare), Ok(()), "{text}");
        assert_eq!(partition.check(&mesh, &biased), expected, "{text}");
    }
}

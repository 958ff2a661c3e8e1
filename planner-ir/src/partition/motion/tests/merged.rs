//! Partitions of attention: its keys are merged, so that steps of time have all of them.

use expect_test::expect;

use super::super::Motion;
use super::{every_map, product, shown};
use crate::data::{DType, Type};
use crate::loops::Loops;
use crate::mesh::Mesh;
use crate::op::Op;
use crate::text::{parse_op, parse_partition};

const PLAIN: &str = "attention scale=1.0 causal=false softcap=0.0 window=none";

fn loops_of(op: &Op, operands: &[Type]) -> Loops {
    op.loops(operands, &op.infer(operands).unwrap())
}

/// Of the loops over queries, keys and, if there are several, the size of values.
fn attention(op: &str, extent: u64, value_size: u64) -> Loops {
    let of = |size: u64| Type::new(DType::F32, [1, 1, extent, size]);
    loops_of(&parse_op(op).unwrap(), &[of(1), of(1), of(value_size)])
}

/// A merge is not a sum that may be owed: of the maps of a product are left those that owe none,
/// they take time where they split keys, and no result travels: without its statistics it cannot.
#[test]
fn merged_loops_are_split_as_sums_that_owe_nothing() {
    for (axes, size, offsets) in [(1, 2, 2), (1, 3, 1), (2, 2, 1)] {
        let mesh = Mesh::of_sizes(&vec![size; axes]);
        let (product, attention) = (product(size), attention(PLAIN, size, size));
        let mut found = [0; 2];
        for partition in every_map(&mesh, size, offsets) {
            let keys = &partition.loops[1];
            let motion = partition.result_motion(&product, 0);
            let travels = matches!(motion, Motion::Rotating(_) | Motion::Streaming(_));
            let may = partition.check(&mesh, &product).is_ok()
                && (keys.is_empty() || !travels)
                && partition.result(&product, 0).owed.is_empty()
                && (keys.is_empty() || partition.steps > 1);
            let is = partition.check(&mesh, &attention).is_ok();
            assert_eq!(is, may, "{}", partition.display(&mesh));
            if is {
                assert!(partition.result(&attention, 0).owed.is_empty());
                found[usize::from(!keys.is_empty())] += 1;
            }
        }
        assert!(found.iter().all(|&it| it > 0), "{found:?}");
    }
}

/// What moves: queries, keys, values; the result and its statistics.
#[test]
fn context_parallelism_moves_what_its_papers_say() {
    let ring = Mesh::of_sizes(&[3]);
    let shown_of = |op: &str, text: &str| {
        let loops = attention(op, 9, 1);
        let partition = parse_partition(&ring, text).unwrap();
        match partition.check(&ring, &loops) {
            Ok(()) => shown(&ring, &loops, &partition),
            Err(error) => error.to_string(),
        }
    };
    let plain = &format!("{PLAIN} statistics=true");
    // Ring attention: keys and values rotate.
    expect!["[-,-,a,-]; [-,-,a,-] from a+1; [-,-,a,-] from a+1; [-,-,a,-]; [-,-,a,-]"]
        .assert_eq(&shown_of(plain, "3 steps [a,(a+@t:3)]"));
    expect!["[-,-,a,-]; [-,-,a,-] from a-1; [-,-,a,-] from a-1; [-,-,a,-]"]
        .assert_eq(&shown_of(PLAIN, "3 steps [a,(a-@t:3)]"));
    // Queries rotate, and what has been merged for them.
    expect!["[-,-,(a+1:3),-] from a+1; [-,-,a,-]; [-,-,a,-]; [-,-,a,-] from a+1; [-,-,a,-] from a+1"]
        .assert_eq(&shown_of(plain, "3 steps [(a+@t+1:3),a]"));
    expect!["no group of devices has each addend of a sum once"]
        .assert_eq(&shown_of(PLAIN, "3 steps [(a+@t+1:3),a]"));
    // Each device has a block of keys at rest and hands it out; or all of them.
    expect!["[-,-,a,-]; [-,-,a,-] streams over a; [-,-,a,-] streams over a; [-,-,a,-]; [-,-,a,-]"]
        .assert_eq(&shown_of(plain, "3 steps [a,(@t:3)] streams a"));
    expect!["[-,-,a,-]; [-,-,-,-] block by block; [-,-,-,-] block by block; [-,-,a,-]; [-,-,a,-]"]
        .assert_eq(&shown_of(plain, "3 steps [a,(@t:3)]"));
    // A device never has all parts of a row.
    expect!["loop 1 is split, expected whole"].assert_eq(&shown_of(plain, "[-,a]"));
    expect!["no group of devices has each addend of a sum once"]
        .assert_eq(&shown_of(plain, "3 steps [-,a.(@t:3)]"));
    expect!["no group of devices has each addend of a sum once"]
        .assert_eq(&shown_of(plain, "3 steps [(@t:3),a]"));
    // Keys may be stripes, also where positions count.
    let causal = "attention scale=1.0 causal=true softcap=0.0 window=none";
    expect!["[-,-,a,-]; [-,-,*3.a,-] from a+1; [-,-,*3.a,-] from a+1; [-,-,a,-]"]
        .assert_eq(&shown_of(causal, "3 steps [a,*3.(a+@t:3)]"));
    expect!["[-,-,a,-]; [-,-,*3.a,-] from a+1; [-,-,*3.a,-] from a+1; [-,-,a,-]"]
        .assert_eq(&shown_of(PLAIN, "3 steps [a,*3.(a+@t:3)]"));
}

/// The gradient, whose keys are summed: with gradients of keys and values that rotate and end at
/// home, and with those of queries.
#[test]
fn gradients_move_what_their_papers_say() {
    let ring = Mesh::of_sizes(&[3]);
    let op = parse_op("attention_gradient scale=1.0 causal=true softcap=0.0 window=none mask=false").unwrap();
    let of = |shape: &[u64]| Type::new(DType::F32, shape);
    let row = of(&[1, 1, 9, 1]);
    let operands = [vec![row.clone(); 4], vec![of(&[1, 1, 9, 2]), row]].concat();
    let loops = loops_of(&op, &operands);
    let shown_of = |text: &str| {
        let partition = parse_partition(&ring, text).unwrap();
        match partition.check(&ring, &loops) {
            Ok(()) => shown(&ring, &loops, &partition),
            Err(error) => error.to_string(),
        }
    };
    expect!["[-,-,a,-]; [-,-,(a+1:3),-] from a+1; [-,-,(a+1:3),-] from a+1; [-,-,a,-]; [-,-,a,-]; [-,-,a,-]; [-,-,a,-]; [-,-,a,-] from a+1; [-,-,a,-] from a+1"].assert_eq(&shown_of("3 steps [a,(a+@t+1:3)]"));
    expect!["[-,-,(a+1:3),-] from a+1; [-,-,a,-]; [-,-,a,-]; [-,-,(a+1:3),-] from a+1; [-,-,(a+1:3),-] from a+1; [-,-,(a+1:3),-] from a+1; [-,-,a,-] from a+1; [-,-,a,-]; [-,-,a,-]"].assert_eq(&shown_of("3 steps [(a+@t+1:3),a]"));
}

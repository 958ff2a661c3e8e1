//! Whole values put together from blocks of several layouts, as stages that use the same hold them.

use kernels::Array;
use lower::{BufferId, Port};
use planner_ir::{DType, Layout, Mesh, Type, ValueId, parse_layout};

use crate::RunError;
use crate::source::Joined;

const SHAPE: [u64; 2] = [4, 6];

/// The blocks of a value that devices of these layouts hold.
fn blocks(layouts: &[&str], devices: &[u64]) -> Vec<(Port, Vec<u8>)> {
    let mesh = Mesh::parse("2x2").unwrap();
    let type_ = Type::new(DType::F32, SHAPE);
    let port = |text: &&str, device: u64| {
        let layout: Layout = parse_layout(&mesh, text).unwrap();
        let pieces = layout.pieces(&mesh, device, &SHAPE);
        let (name, value, buffer) = ("w".to_owned(), ValueId(0), BufferId(0));
        Port { name, value, type_: type_.clone(), pieces, buffer }
    };
    let ports = layouts.iter().flat_map(|text| devices.iter().map(move |&device| port(text, device)));
    let whole = whole();
    let block = |port: Port| {
        let local = lower::Strided::of_pieces(&port.pieces);
        let count = usize::try_from(local.elements()).unwrap();
        let mut block = vec![0; 4 * count];
        crate::copy::copy(&local, lower::Direction::Take, 4, whole.bytes(), &mut block).unwrap();
        (port, block)
    };
    ports.map(block).collect()
}

fn whole() -> Array {
    let numbers: Vec<f32> = (0..24_u8).map(f32::from).collect();
    Array::of(SHAPE, &numbers).unwrap()
}

fn joined(blocks: &[(Port, Vec<u8>)]) -> Result<Array, RunError> {
    let mut joined = Joined::new("w", whole().type_())?;
    for (rank, (port, bytes)) in (0..).zip(blocks) {
        joined.add(port, rank, bytes)?;
    }
    joined.finish("w")
}

#[test]
fn blocks_of_any_layouts_are_the_whole() {
    let all = ["[-,-]", "[a,-]", "[-,a]", "[b,a]", "[a.b,-]"];
    for first in all {
        for second in all {
            assert_eq!(joined(&blocks(&[first, second], &[0, 1, 2, 3])), Ok(whole()), "{first} {second}");
        }
    }
}

#[test]
fn what_is_missing_is_not_made_up_for_by_what_is_there_twice() {
    // Rows of one half as such, and in columns: as many bytes as the whole has.
    let half = blocks(&["[a,-]", "[a,b]"], &[0, 1]);
    let missing = joined(&half).unwrap_err().to_string();
    assert!(missing.contains("no rank has some of `w`"), "{missing}");
    assert!(joined(&blocks(&["[a,-]"], &[0])).is_err());
}

#[test]
fn blocks_of_different_layouts_that_differ_are_refused() {
    let mut both = blocks(&["[-,-]", "[a,-]"], &[0, 2]);
    // One element of a block of the second layout.
    let last = both.len() - 1;
    both[last].1[5] ^= 1;
    assert_eq!(joined(&both), Err(RunError::Replicas("w".to_owned(), 0, 3)));
}

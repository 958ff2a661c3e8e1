//! Partitions in time of a product: what is counted device by device is what the digits say, and
//! nothing else is accepted.

use planner_ir::{
    AxisId, DType, Digit, Layout, Loops, Mesh, Partition, Type, Ways, parse_op, parse_partition,
};

use crate::bytes_of_steps;
use crate::check::blocks::share;
use crate::check::steps::{Rest, Timetable};

/// The extent of each loop.
const EXTENT: u64 = 12;

fn square() -> Type {
    Type::new(DType::BF16, [EXTENT, EXTENT])
}

/// Of the loops m, k and n.
fn product() -> Loops {
    parse_op("contract \"mk,kn->mn\"").unwrap().loops(&[square(), square()], &[square()])
}

/// Whether devices hold at rest what the layout says.
fn holds(mesh: &Mesh, layout: &Layout, rest: &Rest) -> bool {
    (0..mesh.devices()).zip(&rest.shares).all(|(device, shares)| {
        let held = layout.dims.iter().map(|dim| share(dim, EXTENT, &mesh.coordinates(device)));
        held.eq(shares.iter().cloned())
    })
}

/// The bytes of all that is received.
fn bytes(rest: &Rest) -> u64 {
    let element = if rest.sums { 4 } else { 2 };
    u64::try_from(u128::from(EXTENT * EXTENT * element * rest.received) / rest.blocks).unwrap()
}

/// Compares what is counted with what the digits say.
fn compare(mesh: &Mesh, loops: &Loops, partition: &Partition) {
    let shown = || partition.display(mesh).to_string();
    let timetable = Timetable::new(mesh, loops, partition);
    let expected = bytes_of_steps(mesh, loops, (&[square(), square()], &[square()]), partition);
    for (operand, &expected) in expected.iter().enumerate().take(2) {
        let rest = timetable.operand(operand).unwrap_or_else(|error| panic!("{}: {error}", shown()));
        assert!(holds(mesh, &partition.operand(loops, operand), &rest), "{}, operand {operand}", shown());
        assert_eq!(bytes(&rest), expected, "{}, operand {operand}", shown());
    }
    let made = partition.result(loops, 0);
    let rest = timetable.result(0, &made.owed).unwrap_or_else(|error| panic!("{}: {error}", shown()));
    assert!(holds(mesh, &made, &rest), "{}: {}", shown(), made.display(mesh));
    assert_eq!(bytes(&rest), expected[2], "{}", shown());
}

/// Every list of one digit at most, of the mesh's axes, with these offsets.
fn digits(mesh: &Mesh, offsets: i64) -> Vec<Vec<Digit>> {
    let size = mesh.axes[0].size;
    let values = i64::try_from(size).unwrap();
    let mut lists = vec![vec![]];
    let count = values.pow(u32::try_from(mesh.axes.len()).unwrap() + 1);
    for number in 1..count {
        let coefficient = |place: usize| number / values.pow(u32::try_from(place).unwrap()) % values;
        let terms = mesh.axis_ids().map(|axis| (axis, coefficient(axis.0 + 1))).filter(|it| it.1 != 0);
        let terms: Vec<(AxisId, i64)> = terms.collect();
        for offset in 0..offsets {
            lists.push(vec![Digit { size, terms: terms.clone(), step: coefficient(0), offset }]);
        }
    }
    lists
}

/// How many partitions in time there are of those.
fn all(sizes: &[u64], offsets: i64, ways: Ways) -> usize {
    let (mesh, loops) = (Mesh::of_sizes(sizes), product());
    let lists = digits(&mesh, offsets);
    let mut streams: Vec<Vec<AxisId>> = vec![vec![]];
    streams.extend(mesh.axis_ids().map(|axis| vec![axis]));
    streams.push(mesh.axis_ids().collect());
    let mut found = 0;
    for (m, k) in lists.iter().flat_map(|m| lists.iter().map(move |k| (m, k))) {
        for (n, streams) in lists.iter().flat_map(|n| streams.iter().map(move |it| (n, it))) {
            let loops_digits = vec![m.clone(), k.clone(), n.clone()];
            let streams = streams.clone();
            let loops_digits = Partition { loops: loops_digits, streams, ..Partition::replicated(&loops) };
            let partition = Partition { steps: sizes[0], ways, ..loops_digits };
            if partition.check(&mesh, &loops).is_ok() {
                compare(&mesh, &loops, &partition);
                found += 1;
            }
        }
    }
    found
}

#[test]
fn what_is_counted_is_what_the_digits_say() {
    let one = Ways::One;
    let found =
        [all(&[2], 2, one), all(&[3], 3, one), all(&[4], 2, one), all(&[2, 2], 1, one), all(&[3, 3], 1, one)];
    expect_test::expect!["[224, 3398, 2444, 898, 40070]"].assert_eq(&format!("{found:?}"));
}

#[test]
fn what_goes_both_ways_is_counted_as_the_digits_say() {
    let both = Ways::Both;
    let found = [all(&[2], 2, both), all(&[3], 3, both), all(&[2, 2], 1, both)];
    expect_test::expect!["[90, 468, 444]"].assert_eq(&format!("{found:?}"));
}

#[test]
fn sums_that_are_not_owed_so_are_refused() {
    let loops = product();
    let refused = |mesh: &str, partition: &str, owed: &[usize]| {
        let mesh = Mesh::parse(mesh).unwrap();
        let partition = parse_partition(&mesh, partition).unwrap();
        assert_eq!(partition.check(&mesh, &loops), Ok(()));
        let owed: Vec<AxisId> = owed.iter().copied().map(AxisId).collect();
        Timetable::new(&mesh, &loops, &partition).result(0, &owed).err().unwrap_or_default()
    };
    // The sum of a square over the axis that splits k besides is owed; that over others is made.
    let cube = "3 steps [a,c.(a+b+@t:3),b]";
    assert_eq!(refused("a=3,b=3,c=2", cube, &[2]), "");
    let message = "owes sums of its own over no axis, expected over `c`";
    assert_eq!(refused("a=3,b=3,c=2", cube, &[]), message);
    let message = "owes sums of its own over `a`, `c`, expected over `c`";
    assert_eq!(refused("a=3,b=3,c=2", cube, &[0, 2]), message);
    // A result that is streamed is complete.
    let message = "owes sums of its own over `b`, expected over no axis";
    assert_eq!(refused("a=3,b=3", "3 steps [a,b,(@t:3)] streams a,b", &[1]), message);
}

#[test]
fn addends_that_nobody_makes_are_missed() {
    let (mesh, loops) = (Mesh::of_sizes(&[2]), product());
    for text in ["2 steps [(@t:2),(a+@t:2),-]", "2 steps [a,(a-@t:2),(a+@t:2)]", "2 steps [-,(a+@t:2),-]"] {
        let partition = parse_partition(&mesh, text).unwrap();
        let timetable = Timetable::new(&mesh, &loops, &partition);
        let right: Vec<bool> = [&[][..], &[AxisId(0)]].map(|owed| timetable.result(0, owed).is_ok()).to_vec();
        assert_eq!(right.contains(&true), partition.check(&mesh, &loops).is_ok(), "{text}");
    }
}

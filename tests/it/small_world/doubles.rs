//! Named partitions in time on ranks, on real numbers in f64: all phases of a linear operation equal
//! those of one rank but for rounding.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{Contract, DType, Label, Layout, Mesh, Op, Type, ValueId, parse_partition};
use run::{Outcome, Session};

use super::cases::Random;
use super::simulate::of_floats;
use crate::sketch::Sketch;

/// A family: what it is called, its mesh, and its partitions of Y = X W, dX = dY Wᵀ and dW = Xᵀ dY, of
/// the loops m, k, n, of m, n, k and of m, k, n.
type Family = (&'static str, &'static str, [&'static str; 3]);

const FAMILIES: [Family; 13] = [
    ("none", "a=1", ["[-,-,-]"; 3]),
    ("rotated", "a=2", ["2 steps [a,-,(a-@t:2)]", "2 steps [a,(a+@t:2),-]", "2 steps [a,-,(a+@t+1:2)]"]),
    ("rotated", "a=4", ["4 steps [a,-,(a-@t:4)]", "4 steps [a,(a+@t:4),-]", "4 steps [a,-,(a+@t+1:4)]"]),
    ("rotated rows", "a=3", ["3 steps [a,(a-@t:3),-]", "3 steps [a,-,(a+@t:3)]", "3 steps [a,(a+@t+1:3),-]"]),
    ("ring gather", "a=3", ["3 steps [(a+@t:3),-,a]", "3 steps [(a+@t+1:3),a,-]", "3 steps [(a+@t:3),-,a]"]),
    ("ring scatter", "a=4", ["4 steps [(a+@t+1:4),a,-]", "4 steps [(a+@t:4),-,a]", "4 steps [(a+@t:4),a,-]"]),
    (
        "square",
        "a=2,b=2",
        ["2 steps [a,(a+b+@t:2),b]", "2 steps [a,(b+@t:2),(a+b:2)]", "2 steps [(a+@t:2),(a+b:2),b]"],
    ),
    (
        "square",
        "a=3,b=3",
        ["3 steps [a,(a+b+@t:3),b]", "3 steps [a,(b+@t:3),(a+b:3)]", "3 steps [(a+@t:3),(a+b:3),b]"],
    ),
    (
        "SUMMA",
        "r=2,c=2",
        [
            "2 steps [r,(@t:2),c] streams r,c",
            "2 steps [r,c,(@t:2)] streams r,c",
            "2 steps [r,(@t:2),c] streams r,c",
        ],
    ),
    (
        "SUMMA",
        "r=3,c=3",
        [
            "3 steps [r,(@t:3),c] streams r,c",
            "3 steps [r,c,(@t:3)] streams r,c",
            "3 steps [r,(@t:3),c] streams r,c",
        ],
    ),
    (
        "Tesseract",
        "r=2,c=2,d=3",
        [
            "2 steps [d.r,(@t:2),c] streams r,c",
            "2 steps [d.r,c,(@t:2)] streams r,c",
            "2 steps [d.r,(@t:2),c] streams r,c",
        ],
    ),
    (
        "2.5-D",
        "r=2,c=2,d=2",
        ["2 steps [r,d.(r+c+@t:2),c]", "2 steps [r,(c+@t:2),d.(r+c:2)]", "2 steps [(r+@t:2),d.(r+c:2),c]"],
    ),
    (
        "2.5-D",
        "r=3,c=3,d=2",
        ["3 steps [r,d.(r+c+@t:3),c]", "3 steps [r,(c+@t:3),d.(r+c:3)]", "3 steps [(r+@t:3),d.(r+c:3),c]"],
    ),
];

/// The extents of m, k and n.
const EXTENTS: [u64; 3] = [24, 36, 12];

/// The results, the operands and their labels, phase by phase.
const PHASES: [(&str, [&str; 2], [&str; 3]); 3] = [
    ("Y", ["X", "W"], ["mk", "kn", "mn"]),
    ("dX", ["dY", "W"], ["mn", "kn", "mk"]),
    ("dW", ["X", "dY"], ["mk", "mn", "kn"]),
];

/// How far a result may be off, relative to the largest number of what is right.
const TOLERANCE: f64 = 1e-12;

fn type_of(labels: &str) -> Type {
    let extent = |label: char| EXTENTS["mkn".find(label).unwrap()];
    Type::new(DType::F64, labels.chars().map(extent).collect::<Vec<_>>())
}

/// A number from -1 to 1 that has more digits than an f32.
fn real(random: &mut Random) -> f64 {
    let [high, low] = [(); 2].map(|()| f64::from(u32::try_from(random.next() >> 32).unwrap()));
    let whole = 2_f64.powi(32);
    2.0 * (high + low / whole) / whole - 1.0
}

/// The three phases on ranks.
fn run((name, mesh, partitions): Family, inputs: &BTreeMap<String, Array>) -> Outcome {
    let mesh = Mesh::parse(mesh).unwrap();
    let mut sketch = Sketch::new(&mesh);
    let mut given: BTreeMap<&str, ValueId> = BTreeMap::new();
    let mut made = Vec::new();
    for ((result, operands, labels), text) in PHASES.into_iter().zip(partitions) {
        let [left, right, of_result] =
            labels.map(|text| text.bytes().map(|it| Label(it - b'a')).collect::<Vec<_>>());
        let op = Op::Contract(Contract { left, right, result: of_result });
        let partition = parse_partition(&mesh, text).unwrap();
        let types = [labels[0], labels[1]].map(type_of);
        let loops = op.loops(&types, &[type_of(labels[2])]);
        let values: Vec<ValueId> = (0..2)
            .map(|it| {
                let dims = partition.operand(&loops, it).dims;
                *given
                    .entry(operands[it])
                    .or_insert_with(|| sketch.input(operands[it], types[it].clone(), dims))
            })
            .collect();
        let Layout { dims, .. } = partition.result(&loops, 0);
        made.push((result, sketch.node(op, &values, partition)[0], dims));
    }
    assert!(sketch.plan.transfers.is_empty(), "{name}: all phases start from home");
    for (result, value, dims) in made {
        sketch.output(result, value, dims, &mut |_, _, _, _| None);
    }
    let programs = lower::lower(&sketch.plan).unwrap();
    lower::verify(&programs).unwrap_or_else(|found| panic!("{name}: {found}"));
    let mut session = Session::new(programs, &BTreeMap::<String, Array>::new()).unwrap();
    session.step(inputs).unwrap()
}

#[test]
fn partitions_in_time_of_real_numbers_are_as_one_rank_to_the_twelfth_place() {
    let mut random = Random::new(4);
    let mut inputs = BTreeMap::new();
    for (name, labels) in [("X", "mk"), ("W", "kn"), ("dY", "mn")] {
        let type_ = type_of(labels);
        let numbers: Vec<f64> = (0..type_.elements()).map(|_| real(&mut random)).collect();
        inputs.insert(name.to_owned(), of_floats(type_, &numbers));
    }
    let [one, families @ ..] = FAMILIES;
    let expected = run(one, &inputs).outputs;
    for family in families {
        let found = run(family, &inputs);
        assert!(!found.received.is_empty());
        for (name, expected) in &expected {
            let [found, right] = [&found.outputs[name], expected].map(|it| it.to_floats().unwrap());
            let largest = right.iter().fold(0_f64, |largest, it| largest.max(it.abs()));
            assert_eq!(found.len(), right.len());
            for (found, right) in found.iter().zip(&right) {
                let off = (found - right).abs() / largest;
                assert!(off <= TOLERANCE, "{name} of {} on {}: off by {off:e}", family.0, family.1);
            }
        }
    }
}

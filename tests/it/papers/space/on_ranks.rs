//! Every sequence on ranks that are threads: what all three phases compute, and what is received.
//!
//! Numbers are small whole ones, so that sums have the same bits in whatever order they are made, and
//! no two blocks are alike. What is expected of bytes and groups follows from the paper's tables alone.

use std::collections::{BTreeMap, BTreeSet};

use kernels::Array;
use lower::{Action, CollectiveKind, Moving, Origin, Program};
use planner_ir::{DType, Mesh, NodeId, Type, ValueId};
use run::{Outcome, Session};

use super::{
    PHASES, Part, Phase, bits_of, coordinates, groups_of_paper, mesh, paper, partition, sequences, squares,
};
use crate::sketch::Sketch;

/// The extents of B, M, N and K, all different: so many times the number of devices.
const TIMES: [u64; 4] = [1, 2, 3, 4];

/// The names of the three values that are given, and of the three that are made.
const GIVEN: [&str; 3] = ["X", "W", "dY"];

/// For each phase its operands, by their places among what is given.
const OPERANDS: [[usize; 2]; 3] = [[0, 1], [2, 1], [0, 2]];

/// Numbers from -40 to 40, others for each value.
fn some_numbers(value: usize, elements: u64) -> Vec<f32> {
    let mut state = u32::try_from(value).unwrap() + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(i16::try_from((state >> 16) % 81).unwrap() - 40)
    };
    (0..elements).map(|_| next()).collect()
}

/// The three products by their definition, of what is given.
fn products(extents: [u64; 4], given: &[Vec<f32>; 3]) -> [Vec<f32>; 3] {
    let [b, m, n, k] = extents.map(|it| usize::try_from(it).unwrap());
    let [x, w, dy] = given;
    let (mut y, mut dx, mut dw) = (vec![0.0; b * m * k], vec![0.0; b * m * n], vec![0.0; n * k]);
    for row in 0..b * m {
        for i in 0..n {
            for j in 0..k {
                y[row * k + j] += x[row * n + i] * w[i * k + j];
                dx[row * n + i] += dy[row * k + j] * w[i * k + j];
                dw[i * k + j] += x[row * n + i] * dy[row * k + j];
            }
        }
    }
    [y, dx, dw]
}

/// The three phases in one plan, none of whose values is held in two layouts, and the transfer by
/// which each phase's result is summed, if any.
pub(super) fn sketched(sequence: &[Part], mesh: &Mesh, extents: [u64; 4]) -> (Sketch, [Option<usize>; 3]) {
    let mut sketch = Sketch::new(mesh);
    let mut given: BTreeMap<usize, ValueId> = BTreeMap::new();
    let mut made = Vec::new();
    for (phase, places) in PHASES.into_iter().zip(OPERANDS) {
        let (op, types) = phase.operation(extents);
        let (loops, partition) = (phase.loops(extents), partition(sequence, mesh, phase));
        let mut operands = Vec::new();
        for (index, place) in places.into_iter().enumerate() {
            let dims = partition.operand(&loops, index).dims;
            let value =
                given.entry(place).or_insert_with(|| sketch.input(GIVEN[place], types[index].clone(), dims));
            operands.push(*value);
        }
        made.push((sketch.node(op, &operands, partition.clone())[0], partition.result(&loops, 0).dims));
    }
    assert!(sketch.plan.transfers.is_empty(), "{sequence:?}: all phases start from home");
    // Y is where its gradient is, and each gradient where its value is.
    for ((_, dims), place) in made.iter().zip([2, 0, 1]) {
        assert_eq!(*dims, sketch.plan.layouts[given[&place].0].dims, "{sequence:?}");
    }
    let mut sums = [None; 3];
    for ((value, dims), (phase, sum)) in made.into_iter().zip(PHASES.iter().zip(&mut sums)) {
        let before = sketch.plan.transfers.len();
        sketch.output(&format!("{phase:?}"), value, dims, &mut |_, _, _, _| None);
        *sum = (sketch.plan.transfers.len() > before).then_some(before);
    }
    (sketch, sums)
}

/// The groups in which ranks sum in a transfer, as devices numbered by their bits; nothing else is
/// exchanged in it.
fn groups_on_ranks(sequence: &[Part], mesh: &Mesh, programs: &[Program], sum: usize) -> BTreeSet<Vec<u64>> {
    let bits = mesh.devices().ilog2();
    let numbers: BTreeMap<u64, u64> =
        (0..mesh.devices()).map(|it| (mesh.device(&coordinates(sequence, &bits_of(it, bits))), it)).collect();
    let of_sum = |origin: Origin| matches!(origin, Origin::Move { transfer, .. } if transfer == sum);
    let group = |program: &Program| {
        let mut exchanges = program.instructions.iter().filter(|it| of_sum(it.origin));
        let Some(Action::Collective(sum)) = exchanges.next().map(|it| &it.action) else {
            panic!("{sequence:?}: no sum")
        };
        assert_eq!((sum.kind, exchanges.next()), (CollectiveKind::AllReduce, None), "{sequence:?}");
        let members = &program.communicators[sum.communicator.0];
        let mut group: Vec<u64> = members.iter().map(|it| numbers[it]).collect();
        group.sort_unstable();
        group
    };
    programs.iter().map(group).collect()
}

/// A sequence's phases, run.
struct Run<'a> {
    sequence: &'a [Part],
    extents: [u64; 4],
    programs: Vec<Program>,
    /// For each phase, the transfer by which its result is summed, if any.
    sums: [Option<usize>; 3],
    outcome: Outcome,
}

impl Run<'_> {
    /// What a device has of X, W and Y, where each dimension falls into so many blocks (bytes).
    fn held(&self, counts: [u64; 4]) -> [u64; 3] {
        ["BMN", "NK", "BMK"].map(|dims| {
            let parts = dims.chars().map(|dim| "BMNK".find(dim).unwrap());
            4 * parts.map(|it| self.extents[it] / counts[it]).product::<u64>()
        })
    }

    /// What all devices receive of an operand or result of a phase between steps, each time (bytes).
    fn between_steps(&self, phase: usize, moving: Moving) -> Vec<u64> {
        let of = |origin: &Origin| matches!(*origin, Origin::Motion { node, moving: it, .. } if node == NodeId(phase) && it == moving);
        self.outcome.received.iter().filter(|it| of(&it.0)).map(|it| it.1).collect()
    }

    /// Holds what a square moves to section 4 of the paper, its operands' and result's blocks being so
    /// large (bytes): how many messages each device gets.
    fn check_steps(&self, side: u64, [i, w, o]: [u64; 3]) -> usize {
        let devices = mesh(self.sequence).devices();
        // The operands of each phase all move, the result stays: a message to each device a step.
        let mut ours = [0; 3];
        for (phase, operands) in [[i, w], [o, w], [i, o]].into_iter().enumerate() {
            for (index, operand) in operands.into_iter().enumerate() {
                let found = self.between_steps(phase, Moving::Operand(index));
                let times = usize::try_from(side - 1).unwrap();
                assert_eq!(found, vec![devices * operand; times], "{:?} {phase}", self.sequence);
                ours[phase] += found.iter().sum::<u64>() / devices;
            }
        }
        if side > 1 {
            // Bytes of one device: those of the paper, but for the shift that brings W home after the
            // backward phase and the one that brings its gradient home.
            let papers = [(side - 1) * (i + w), (side - 1) * o + side * w, (side - 1) * (i + o) + w];
            assert_eq!([ours[0], ours[1] + w, ours[2] + w], papers, "{:?}", self.sequence);
            let all = 2 * (side - 1) * (i + o) + 2 * side * w;
            assert_eq!(ours.iter().sum::<u64>() + 2 * w, all, "{:?}", self.sequence);
        }
        usize::try_from(6 * (side - 1)).unwrap()
    }

    /// Holds sums to the devices that end with the same block by the paper: how many there are.
    fn check_sums(&self, [i, w, o]: [u64; 3]) -> usize {
        let (mesh, sequence) = (mesh(self.sequence), self.sequence);
        for ((phase, sum), held) in PHASES.into_iter().zip(self.sums).zip([o, i, w]) {
            let groups = groups_of_paper(sequence, mesh.devices().ilog2(), phase);
            let times = |group: &Vec<u64>| 2 * (u64::try_from(group.len()).unwrap() - 1);
            let expected: u64 = groups.iter().map(|group| times(group) * held).sum();
            let Some(sum) = sum else {
                assert_eq!(expected, 0, "{sequence:?} {phase:?}");
                continue;
            };
            assert_eq!(
                groups_on_ranks(sequence, &mesh, &self.programs, sum),
                groups,
                "{sequence:?} {phase:?}"
            );
            let of = |origin: &Origin| matches!(*origin, Origin::Move { transfer, .. } if transfer == sum);
            let found = self.outcome.received.iter().filter(|it| of(&it.0)).map(|it| it.1);
            assert_eq!(found.collect::<Vec<_>>(), [expected], "{sequence:?} {phase:?}");
        }
        self.sums.iter().flatten().count()
    }
}

/// Runs sequences, and holds what they compute to the products and what they receive to this.
fn check(extents: [u64; 4], sequences: &[Vec<Part>], received: impl Fn(&Run<'_>) -> usize) {
    let types = ["BMN", "NK", "BMK"].map(|dims| {
        let shape = dims.chars().map(|dim| extents["BMNK".find(dim).unwrap()]);
        Type::new(DType::F32, shape.collect::<Vec<_>>())
    });
    let numbers = [0, 1, 2].map(|it| some_numbers(it, types[it].elements()));
    let expected = products(extents, &numbers);
    let arrays =
        types.iter().zip(&numbers).map(|(it, numbers)| Array::of(it.shape.clone(), numbers).unwrap());
    let inputs: BTreeMap<String, Array> = GIVEN.map(str::to_owned).into_iter().zip(arrays).collect();
    for sequence in sequences {
        let (sketch, sums) = sketched(sequence, &mesh(sequence), extents);
        let programs = lower::lower(&sketch.plan).unwrap();
        lower::verify(&programs).unwrap_or_else(|found| panic!("{sequence:?}: {found}"));
        let no_weights: BTreeMap<String, Array> = BTreeMap::new();
        let mut session = Session::new(programs.clone(), &no_weights).unwrap();
        let outcome = session.step(&inputs).unwrap();
        for (phase, expected) in PHASES.into_iter().zip(&expected) {
            let found = outcome.outputs[&format!("{phase:?}")].to_floats().unwrap();
            let right: Vec<f64> = expected.iter().map(|&it| it.into()).collect();
            assert_eq!(found, right, "{sequence:?} {phase:?}");
        }
        let run = Run { sequence, extents, programs, sums, outcome };
        let exchanges = received(&run);
        assert_eq!(run.outcome.received.len(), exchanges, "{sequence:?}: {:?}", run.outcome.received);
    }
}

/// Every sequence over so many bits with at most one square; how many there are.
fn check_all(bits: u32) -> usize {
    let all: Vec<Vec<Part>> = sequences(bits).into_iter().filter(|it| squares(it) < 2).collect();
    check(TIMES.map(|it| it << bits), &all, |run| {
        let (_, counts) = paper(run.sequence, &bits_of(0, bits), Phase::Forward, 0);
        let sides = run.sequence.iter().map(|it| if let Part::Square(side) = it { *side } else { 1 });
        let held = run.held(counts);
        run.check_steps(sides.max().unwrap(), held) + run.check_sums(held)
    });
    all.len()
}

#[test]
fn sequences_over_4_devices_compute_all_phases_and_receive_what_the_paper_says() {
    assert_eq!(check_all(2), 17);
}

#[test]
fn sequences_over_8_devices_compute_all_phases_and_receive_what_the_paper_says() {
    assert_eq!(check_all(3), 72);
}

#[test]
fn sequences_over_16_devices_compute_all_phases_and_receive_what_the_paper_says() {
    assert_eq!(check_all(4), 305);
}

/// Sides need not be powers of two. Only sums are the paper's there, and a square has none.
#[test]
fn squares_of_any_side_receive_what_the_paper_says_but_two_shifts_of_the_weight() {
    for side in 2..=5 {
        check(TIMES.map(|it| 2 * it * side), &[vec![Part::Square(side)]], |run| {
            assert_eq!(run.sums, [None; 3]);
            run.check_steps(side, run.held([1, side, side, side]))
        });
    }
}

//! PrimePar's space: sequences of splits and squares, as partitions of the three phases.
//!
//! A sequence consumes the bits of a device's number, first ones first: a split of B, M, N or K
//! one bit, the square of side 2^k twice k bits, rows and columns alternating (section 4 of Wang
//! et al., "PrimePar", ASPLOS 2024). X: [B, M, N], W: [N, K], Y: [B, M, K].

mod on_ranks; // the sequences on ranks
mod resident; // which blocks ranks hold at each step
mod kept; // what a training step keeps of them
mod redistributed; // what moves between two squares
mod offered; // the sequences among what our rules make

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{
    AxisId, Contract, DType, Digit, Label, Layout, Loops, Mesh, Op, Partition, Slots, Type, Ways,
};

/// One part of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// A dimension split by one bit: B, M, N or K.
    Split(char),
    /// The square of that side.
    Square(u64),
}

/// A phase of a linear operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Forward,
    Backward,
    Gradient,
}

pub(crate) const PHASES: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Gradient];

/// Every sequence that consumes so many bits.
fn sequences(bits: u32) -> Vec<Vec<Part>> {
    if bits == 0 {
        return vec![vec![]];
    }
    let splits = "BMNK".chars().map(|dim| (Part::Split(dim), 1));
    let squares = (1..=bits / 2).map(|it| (Part::Square(1 << it), 2 * it));
    let after = |(part, taken): (Part, u32)| {
        sequences(bits - taken).into_iter().map(move |rest| [vec![part], rest].concat())
    };
    splits.chain(squares).flat_map(after).collect()
}

fn squares(sequence: &[Part]) -> usize {
    sequence.iter().filter(|part| matches!(part, Part::Square(_))).count()
}

impl Phase {
    /// The operands and the result, in index notation.
    fn dims(self) -> [&'static str; 3] {
        match self {
            Self::Forward => ["BMN", "NK", "BMK"],
            Self::Backward => ["BMK", "NK", "BMN"],
            Self::Gradient => ["BMN", "BMK", "NK"],
        }
    }

    /// The loops in order: those of the operands, each once.
    pub(crate) fn order(self) -> &'static str {
        match self {
            Self::Forward => "BMNK",
            Self::Backward => "BMKN",
            Self::Gradient => "BMNK",
        }
    }

    /// The dimension that a square sums over.
    fn summed(self) -> char {
        match self {
            Self::Forward => 'N',
            Self::Backward => 'K',
            Self::Gradient => 'M',
        }
    }

    /// The contraction and its operands' types, for these extents of B, M, N, K.
    pub(crate) fn operation(self, extents: [u64; 4]) -> (Op, [Type; 3]) {
        let place = |dim: char| "BMNK".find(dim).unwrap();
        let labels = |dims: &str| dims.chars().map(|it| Label(u8::try_from(place(it)).unwrap())).collect();
        let type_ =
            |dims: &str| Type::new(DType::F32, dims.chars().map(|it| extents[place(it)]).collect::<Vec<_>>());
        let [left, right, result] = self.dims();
        let contract = Contract { left: labels(left), right: labels(right), result: labels(result) };
        (Op::Contract(contract), self.dims().map(type_))
    }

    pub(crate) fn loops(self, extents: [u64; 4]) -> Loops {
        let (op, [left, right, result]) = self.operation(extents);
        op.loops(&[left, right], &[result])
    }
}

/// The mesh of a sequence: an axis for each split, two for a square.
pub(crate) fn mesh(sequence: &[Part]) -> Mesh {
    let sizes = sequence.iter().flat_map(|part| match *part {
        Part::Split(_) => vec![2],
        Part::Square(side) => vec![side, side],
    });
    Mesh::of_sizes(&sizes.collect::<Vec<u64>>())
}

/// The partition of a phase: each square skewed so that no operand moves between phases.
pub(crate) fn partition(sequence: &[Part], mesh: &Mesh, phase: Phase) -> Partition {
    let mut digits: BTreeMap<char, Vec<Digit>> = BTreeMap::new();
    let mut steps = 1;
    let mut next = mesh.axis_ids();
    for part in sequence {
        let axis = next.next().unwrap();
        match *part {
            Part::Split(dim) => digits.entry(dim).or_default().push(Digit::axis(mesh, axis)),
            Part::Square(side) => {
                let (row, column) = (axis, next.next().unwrap());
                steps = side;
                for (dim, axes) in [('M', vec![row]), ('N', vec![row, column]), ('K', vec![column])] {
                    let terms = axes.iter().map(|&axis| (axis, 1)).collect();
                    let step = i64::from(dim == phase.summed());
                    digits.entry(dim).or_default().push(Digit { size: side, terms, step, offset: 0 });
                }
            }
        }
    }
    let loops = phase.order().chars().map(|dim| digits.get(&dim).cloned().unwrap_or_default()).collect();
    Partition {
        steps,
        loops,
        passed: vec![],
        through: 0,
        streams: vec![],
        ways: Ways::One,
        slots: Slots::Two,
        routed: vec![],
        routed_by: 1,
    }
}

/// The coordinates of a device on the mesh of a sequence, from the bits of its number.
fn coordinates(sequence: &[Part], bits: &[u64]) -> Vec<u64> {
    let mut rest = bits;
    let mut found = Vec::new();
    for part in sequence {
        match *part {
            Part::Split(_) => {
                found.push(rest[0]);
                rest = &rest[1..];
            }
            Part::Square(side) => {
                let (own, after) = rest.split_at(2 * usize::try_from(side.ilog2()).unwrap());
                let number = |first: usize| own[first..].iter().step_by(2).fold(0, |sum, bit| 2 * sum + bit);
                found.extend([number(0), number(1)]);
                rest = after;
            }
        }
    }
    found
}

fn bits_of(device: u64, bits: u32) -> Vec<u64> {
    (0..bits).rev().map(|it| device >> it & 1).collect()
}

/// The paper's algorithm 1 with its equations 4 to 6: the block numbers of B, M, N, K that a device
/// works on at a step, by phase, and how many blocks there are of each. Nothing is shared with the
/// partitions above but the sequence.
fn paper(sequence: &[Part], bits: &[u64], phase: Phase, step: i64) -> ([i64; 4], [u64; 4]) {
    let mut numbers = [0i64; 4];
    let mut counts = [1u64; 4];
    let mut at = 0;
    for part in sequence {
        match *part {
            Part::Split(dim) => {
                let it = "BMNK".find(dim).unwrap();
                numbers[it] = 2 * numbers[it] + i64::try_from(bits[at]).unwrap();
                counts[it] *= 2;
                at += 1;
            }
            Part::Square(side) => {
                let s = i64::try_from(side).unwrap();
                let (mut r, mut c) = (0, 0);
                for _ in 0..side.ilog2() {
                    r = 2 * r + i64::try_from(bits[at]).unwrap();
                    c = 2 * c + i64::try_from(bits[at + 1]).unwrap();
                    at += 2;
                }
                let last = i64::from(step == s - 1);
                let [m, n, k] = match phase {
                    Phase::Forward => [r, r + c + step, c],
                    Phase::Backward => [r, r + c - 1, c + step],
                    Phase::Gradient => [r + step, r + c - 1 + last, c - 1 + last],
                };
                for (it, value) in [(1, m), (2, n), (3, k)] {
                    numbers[it] = s * numbers[it] + value.rem_euclid(s);
                    counts[it] *= side;
                }
            }
        }
    }
    (numbers, counts)
}

/// Devices that end with the same block of the result, by the paper: seeds of all-reduces.
fn groups_of_paper(sequence: &[Part], bits: u32, phase: Phase) -> BTreeSet<Vec<u64>> {
    let last = sequence.iter().map(|part| if let Part::Square(side) = part { *side } else { 1 }).max();
    let last = i64::try_from(last.unwrap() - 1).unwrap();
    let mut holders: BTreeMap<Vec<i64>, Vec<u64>> = BTreeMap::new();
    for device in 0..1 << bits {
        let (numbers, _) = paper(sequence, &bits_of(device, bits), phase, last);
        let block = phase.dims()[2].chars().map(|dim| numbers["BMNK".find(dim).unwrap()]).collect();
        holders.entry(block).or_default().push(device);
    }
    holders.into_values().collect()
}

/// The groups over which a partition leaves sums owed, as devices numbered by their bits.
fn groups_of_ours(sequence: &[Part], mesh: &Mesh, owed: &[AxisId], bits: u32) -> BTreeSet<Vec<u64>> {
    let numbers: BTreeMap<u64, u64> =
        (0..1 << bits).map(|it| (mesh.device(&coordinates(sequence, &bits_of(it, bits))), it)).collect();
    let group = |device: &u64| {
        let mut group: Vec<u64> = mesh.group(*device, owed).iter().map(|it| numbers[it]).collect();
        group.sort_unstable();
        group
    };
    numbers.keys().map(group).collect()
}

/// Whether the devices that have the same block of the result have between them, over all steps,
/// each block of the summed loops once.
fn adds_each_once(partition: &Partition, mesh: &Mesh, loops: &Loops, owed: &[AxisId]) -> bool {
    let summed: Vec<usize> = (0..loops.loops.len())
        .filter(|&it| !loops.results[0].iter().flatten().any(|dim| dim.0 == it))
        .collect();
    let expected: u64 = summed.iter().flat_map(|&it| &partition.loops[it]).map(|digit| digit.size).product();
    let mut results = BTreeSet::new();
    let sound = (0..mesh.devices()).all(|device| {
        let mut added = BTreeSet::new();
        let mut made = BTreeSet::new();
        let mut count = 0;
        for other in mesh.group(device, owed) {
            for step in 0..partition.steps {
                let blocks = partition.blocks(mesh, loops, other, step);
                added.insert(summed.iter().map(|&it| blocks[it].start).collect::<Vec<_>>());
                let rest = (0..blocks.len()).filter(|it| !summed.contains(it));
                made.insert(rest.map(|it| blocks[it].start).collect::<Vec<_>>());
                count += 1;
            }
        }
        results.extend(made.iter().cloned());
        let once = u64::try_from(added.len()).unwrap() == expected && count == expected;
        once && made.len() == 1
    });
    let blocks: u64 = partition.loops.iter().flatten().map(|digit| digit.size).product();
    sound && u64::try_from(results.len()).unwrap() == blocks / expected
}

/// For 2, 4, .. 32 devices: how many sequences there are, those that are one partition, those with
/// two squares, one after the other.
pub(crate) fn counts() -> Vec<[usize; 3]> {
    let of_bits = |bits: u32| {
        let all = sequences(bits);
        let of = |count: usize| all.iter().filter(|it| squares(it) == count).count();
        [all.len(), of(0) + of(1), of(2)]
    };
    (1..=5).map(of_bits).collect()
}

#[test]
fn the_space_of_a_linear_operation_is_as_large_as_the_papers() {
    let found = counts();
    assert_eq!(found, [[4, 4, 0], [17, 17, 0], [72, 72, 0], [306, 305, 1], [1300, 1288, 12]]);
}

#[test]
fn sequences_are_distinct_and_valid_partitions_in_all_phases() {
    for bits in 1..=5 {
        // Every dimension can be halved as often as there are bits.
        let extents = [64; 4];
        let (mut structures, mut tables) = (BTreeSet::new(), BTreeSet::new());
        let all: Vec<Vec<Part>> = sequences(bits).into_iter().filter(|it| squares(it) < 2).collect();
        for sequence in &all {
            let mesh = mesh(sequence);
            let mut table = Vec::new();
            let mut phases = Vec::new();
            for phase in PHASES {
                let loops = phase.loops(extents);
                let partition = partition(sequence, &mesh, phase);
                assert_eq!(partition.check(&mesh, &loops), Ok(()), "{sequence:?} {phase:?}");
                if bits < 5 {
                    for device in 0..mesh.devices() {
                        let device = mesh.device(&coordinates(sequence, &bits_of(device, bits)));
                        for step in 0..partition.steps {
                            let blocks = partition.blocks(&mesh, &loops, device, step);
                            table.extend(blocks.iter().map(|it| (it.start, it.length)));
                        }
                    }
                }
                phases.push(partition);
            }
            structures.insert((mesh, phases));
            tables.insert(table);
        }
        assert_eq!(structures.len(), all.len());
        assert_eq!(tables.len(), if bits < 5 { all.len() } else { 1 });
    }
}

#[test]
fn sequences_sum_over_the_groups_that_the_paper_says() {
    let extents = [64; 4];
    for bits in 1..=4 {
        for sequence in sequences(bits).iter().filter(|it| squares(it) < 2) {
            let mesh = mesh(sequence);
            for phase in PHASES {
                let loops = phase.loops(extents);
                let partition = partition(sequence, &mesh, phase);
                let made = partition.result(&loops, 0);
                let ours = groups_of_ours(sequence, &mesh, &made.owed, bits);
                assert_eq!(ours, groups_of_paper(sequence, bits, phase), "{sequence:?} {phase:?}");
                let (_, [.., result]) = phase.operation(extents);
                let (_, counts) = paper(sequence, &bits_of(0, bits), phase, 0);
                let blocks: u64 =
                    phase.dims()[2].chars().map(|dim| counts["BMNK".find(dim).unwrap()]).product();
                let held = Layout { owed: vec![], ..made.clone() }.local_type(&result).bytes();
                assert_eq!(held, result.bytes() / blocks, "{sequence:?} {phase:?}");
                assert!(adds_each_once(&partition, &mesh, &loops, &made.owed), "{sequence:?} {phase:?}");
            }
        }
    }
}

//! Which blocks a rank of a square holds at each step, and from whom they come.
//!
//! Programs are followed instruction by instruction: where a block is known to lie at rest, it is known
//! where it goes. What is expected is the paper's equations 4 to 6 and its Table 1.

use std::collections::{BTreeMap, BTreeSet};

use lower::{Action, BufferId, Moving, Origin, Program};
use planner_ir::{NodeId, Op, Piece};

use super::on_ranks::sketched;
use super::{PHASES, Part, Phase, mesh};

/// A block: for each dimension of its value but B, which is whole, which one.
type Held = BTreeMap<char, u64>;

/// What is worked on: the phase, the rank and the step.
type Place = (Phase, u64, u64);

/// What is found when programs are followed.
#[derive(Default)]
struct Trail {
    /// The blocks of both operands of each product.
    worked: BTreeMap<Place, [Held; 2]>,
    /// From whom the blocks of a step come: those of the left and of the right operand.
    came: BTreeMap<(Place, usize), u64>,
    /// The blocks that are returned.
    made: BTreeMap<(Phase, u64), Held>,
}

/// The blocks of a port of a value that has these dimensions.
fn at_rest(port: &lower::Port, dims: &str) -> Held {
    let number = |pieces: &Vec<Piece>| pieces.iter().find_map(|it| it.index).unwrap_or(0);
    dims.chars().zip(port.pieces.iter().map(number)).filter(|it| it.0 != 'B').collect()
}

/// Follows the programs of all ranks, which have the same instructions.
fn follow(programs: &[Program]) -> Trail {
    let mut trail = Trail::default();
    let dims = BTreeMap::from([("X", "BMN"), ("W", "NK"), ("dY", "BMK")]);
    let mut held: Vec<BTreeMap<BufferId, Held>> = programs
        .iter()
        .map(|it| it.inputs.iter().map(|port| (port.buffer, at_rest(port, dims[&*port.name]))).collect())
        .collect();
    let mut steps = [0; 3];
    for number in 0..programs[0].instructions.len() {
        let before = held.clone();
        let mut products = None;
        for (rank, program) in (0..).zip(programs) {
            let own = &mut held[usize::try_from(rank).unwrap()];
            let instruction = &program.instructions[number];
            match (&instruction.action, instruction.origin) {
                (Action::Message(message), Origin::Motion { node, moving: Moving::Operand(it), time }) => {
                    let of = &before[usize::try_from(message.from).unwrap()];
                    own.insert(message.output, of[&message.input].clone());
                    trail.came.insert(((PHASES[node.0], rank, time), it), message.from);
                }
                (Action::Compute(compute), Origin::Node(NodeId(node))) => {
                    let phase = PHASES[node];
                    let operands: Vec<Held> =
                        compute.operands.iter().map(|it| own[&it.buffer].clone()).collect();
                    let [left, right] = &operands[..] else { panic!("of two: {program}") };
                    let all: Held = left.iter().chain(right).map(|(&dim, &it)| (dim, it)).collect();
                    let fits = |it: &Held| it.iter().all(|(dim, number)| all[dim] == *number);
                    assert!(fits(left) && fits(right), "{phase:?}: {left:?} does not meet {right:?}");
                    if matches!(*compute.op, Op::Contract(_)) {
                        products = Some(node);
                        let place = (phase, rank, steps[node]);
                        trail.worked.insert(place, [left.clone(), right.clone()]);
                    } else {
                        assert_eq!(left, right, "{phase:?}: addends of two blocks");
                    }
                    let result = phase.dims()[2].chars().filter(|dim| *dim != 'B');
                    own.insert(compute.results[0].buffer, result.map(|dim| (dim, all[&dim])).collect());
                }
                (action, _) => panic!("a square neither packs nor sums: {action:?}"),
            }
        }
        if let Some(node) = products {
            steps[node] += 1;
        }
    }
    for (rank, program) in (0..).zip(programs) {
        for port in &program.outputs {
            let phase = PHASES.into_iter().find(|it| port.name == format!("{it:?}")).unwrap();
            let found = &held[usize::try_from(rank).unwrap()][&port.buffer];
            assert_eq!(*found, at_rest(port, phase.dims()[2]), "{phase:?} is where it is returned from");
            trail.made.insert((phase, rank), found.clone());
        }
    }
    trail
}

/// The paper's indices of M, N and K for the device in row r and column c at step t.
fn of_paper(phase: Phase, s: i64, [r, c, t]: [i64; 3]) -> Held {
    let last = i64::from(t == s - 1);
    let [m, n, k] = match phase {
        Phase::Forward => [r, r + c + t, c],
        Phase::Backward => [r, r + c - 1, c + t],
        Phase::Gradient => [r + t, r + c - 1 + last, c - 1 + last],
    };
    let number = |it: i64| u64::try_from(it.rem_euclid(s)).unwrap();
    BTreeMap::from([('M', number(m)), ('N', number(n)), ('K', number(k))])
}

/// Which column of ours does at which step what column c of the paper does at step t.
///
/// The paper's blocks go on from phase to phase: after the forward phase W is one step ahead of home,
/// and comes home at the end of the backward phase; X and the gradient of Y are so until the last step
/// of the gradient phase. Our phases all start from home. So the column before does the paper's work: in the
/// backward phase a step later, in the gradient phase at the same step, but for the last, when the
/// paper's devices have come home.
fn relabelled(phase: Phase, s: i64, [c, t]: [i64; 2]) -> [i64; 2] {
    match phase {
        Phase::Forward => [c, t],
        Phase::Backward => [(c - 1).rem_euclid(s), (t + 1).rem_euclid(s)],
        Phase::Gradient if t < s - 1 => [(c - 1).rem_euclid(s), t],
        Phase::Gradient => [c, t],
    }
}

/// From which row and column the left and the right operand come, by Table 1 but for what the paper's
/// exceptional steps make of it.
fn sources(phase: Phase, [r, c]: [i64; 2]) -> [[i64; 2]; 2] {
    match phase {
        Phase::Forward => [[r, c + 1], [r + 1, c]],
        Phase::Backward => [[r, c + 1], [r - 1, c + 1]],
        Phase::Gradient => [[r + 1, c - 1], [r + 1, c]],
    }
}

#[test]
fn ranks_of_a_square_hold_the_papers_blocks_at_each_step() {
    for side in [2, 3, 4] {
        let s = i64::try_from(side).unwrap();
        let sequence = [Part::Square(side)];
        let mesh = mesh(&sequence);
        let (sketch, _) = sketched(&sequence, &mesh, [2, 2 * side, 3 * side, 4 * side]);
        let programs = lower::lower(&sketch.plan).unwrap();
        lower::verify(&programs).unwrap();
        let trail = follow(&programs);
        let number = |it: i64| u64::try_from(it.rem_euclid(s)).unwrap();
        let rank = |[r, c]: [i64; 2]| mesh.device(&[number(r), number(c)]);
        let devices = || (0..s).flat_map(|r| (0..s).map(move |c| [r, c]));
        for phase in PHASES {
            let mut seen = BTreeSet::new();
            for ([r, c], t) in devices().flat_map(|it| (0..s).map(move |t| (it, t))) {
                let expected = of_paper(phase, s, [r, c, t]);
                let [column, time] = relabelled(phase, s, [c, t]);
                let place = (phase, rank([r, column]), number(time));
                let operands = [0, 1].map(|it| phase.dims()[it].chars().filter(|dim| *dim != 'B'));
                let expected = operands.map(|it| it.map(|dim| (dim, expected[&dim])).collect::<Held>());
                assert_eq!(trail.worked[&place], expected, "{phase:?} {r} {c} at {t} of {side}");
                seen.insert(place);
            }
            assert_eq!(seen.len(), usize::try_from(side * side * side).unwrap());
            for time in 0..side {
                for operand in 0..2 {
                    let blocks: BTreeSet<&Held> =
                        devices().map(|it| &trail.worked[&(phase, rank(it), time)][operand]).collect();
                    assert_eq!(blocks.len(), programs.len(), "no block is there twice");
                    for it in devices().filter(|_| time > 0) {
                        let from = rank(sources(phase, it)[operand]);
                        assert_eq!(trail.came[&((phase, rank(it), time), operand)], from, "{phase:?} {it:?}");
                    }
                }
            }
        }
        assert_eq!(trail.came.len(), usize::try_from(6 * (side - 1) * side * side).unwrap());
        for [r, c] in devices() {
            let found = |phase| trail.made[&(phase, rank([r, c]))].clone();
            let home = |m, n, k| BTreeMap::from([('M', number(m)), ('N', number(n)), ('K', number(k))]);
            let without = |mut it: Held, dim: char| {
                it.remove(&dim);
                it
            };
            let home = home(r, r + c, c);
            assert_eq!(found(Phase::Forward), without(home.clone(), 'N'), "Y is where its gradient starts");
            assert_eq!(found(Phase::Backward), without(home.clone(), 'K'), "so is that of X where X does");
            assert_eq!(found(Phase::Gradient), without(home, 'M'), "and that of W where W is");
        }
    }
}

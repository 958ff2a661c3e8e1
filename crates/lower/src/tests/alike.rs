//! One program for all ranks says what the programs of all ranks say.

use planner_ir::{Mesh, Op, Unary};

use super::regression::{Parallel, Regression};
use super::temporal::product;
use super::{f32, split, two_layers};
use crate::tests::sketch::Sketch;
use crate::{Action, CommunicatorId, alike, lower};

/// Whether every rank's program exchanges as the one program says.
fn check(sketch: &Sketch) {
    let (one, all) = (alike(&sketch.plan).unwrap(), lower(&sketch.plan).unwrap());
    assert_eq!(one.program, all[0]);
    for program in &all {
        for (number, members) in program.communicators.iter().enumerate() {
            let groups = one.groups(CommunicatorId(number));
            let own: Vec<_> = groups.iter().filter(|it| it.contains(&program.rank)).collect();
            assert_eq!(own, [members]);
        }
        let mut sources = one.sources.iter();
        for (ours, its) in program.instructions.iter().zip(&one.program.instructions) {
            assert_eq!((ours.stream, &ours.waits, ours.signals), (its.stream, &its.waits, its.signals));
            assert_eq!(ours.action.communicator(), its.action.communicator());
            if let Action::Message(message) = &ours.action {
                let sources = sources.next().unwrap();
                let rank = usize::try_from(program.rank).unwrap();
                assert_eq!(message.from, sources[rank]);
                let gets = |rank: &u64| sources[usize::try_from(*rank).unwrap()] == program.rank;
                let to: Vec<u64> = (0..program.ranks).filter(gets).filter(|it| *it != program.rank).collect();
                assert_eq!(message.to, to);
            }
        }
        assert!(sources.next().is_none());
    }
}

#[test]
fn products_split_on_axes_exchange_as_their_mesh_says() {
    check(&two_layers(4));
    let mesh = Mesh::of_sizes(&[2, 3]);
    let mut sketch = Sketch::new(&mesh);
    let x = sketch.input("x", f32(&[6, 6]), vec![vec![sketch.axis(0)], vec![sketch.axis(1)]]);
    let both = split(&sketch, 2, &[(0, 0), (1, 1)]);
    let y = sketch.node(Op::Unary(Unary::Relu), &[x], both)[0];
    sketch.output("y", y, vec![vec![], vec![]], &mut |_, _, _, _| None);
    check(&sketch);
}

#[test]
fn rings_get_from_the_neighbours_that_their_program_names() {
    check(&product(&[3], [3, 2, 6], "3 steps [a,-,(a-@t:3)]"));
    check(&product(&[2, 2], [4, 4, 4], "2 steps [a,(a+b+@t:2),b]"));
}

#[test]
fn training_steps_are_alike() {
    check(&Regression::new(Parallel::Data, 4, 2).sketch());
}

//! One program for each group, against those of all ranks.

use std::mem::discriminant;

use schedule::Kind;

use super::pipelines::staged;
use crate::{Action, Program, grouped, pipeline};

/// What a program gets from whom in messages.
fn sources(program: &Program) -> Vec<u64> {
    let from = program.instructions.iter().filter_map(|it| match &it.action {
        Action::Message(message) => Some(message.from),
        _ => None,
    });
    from.collect()
}

#[test]
fn what_is_known_of_a_group_is_what_the_programs_of_its_ranks_say() {
    let mut crossing = 0;
    for kind in Kind::ALL {
        for groups in [2, 4] {
            let chunks = if kind.interleaves() { 2 } else { 1 };
            let staged = staged(groups, chunks, kind);
            let programs = pipeline(&staged).unwrap();
            let found = grouped(&staged).unwrap();
            let ranks: Vec<u64> = found.iter().flat_map(|it| it.ranks.clone()).collect();
            assert_eq!(ranks, (0..staged.devices()).collect::<Vec<_>>(), "{kind}");
            for group in &found {
                let own = &programs[usize::try_from(group.ranks.start).unwrap()];
                assert_eq!(&group.program, own, "{kind}");
                for (place, rank) in group.ranks.clone().enumerate() {
                    let program = &programs[usize::try_from(rank).unwrap()];
                    assert_eq!(program.storages, own.storages);
                    assert_eq!((program.resident, program.arena), (own.resident, own.arena));
                    for (members, groups) in program.communicators.iter().zip(&group.communicators) {
                        let with: Vec<_> = groups.iter().filter(|it| it.contains(&rank)).collect();
                        assert_eq!(with, [members]);
                    }
                    assert_eq!(program.communicators.len(), group.communicators.len());
                    let from: Vec<u64> = group.sources.iter().map(|it| it[place]).collect();
                    assert_eq!(from, sources(program));
                    for (index, it) in program.instructions.iter().enumerate() {
                        let other = &own.instructions[index];
                        assert_eq!(discriminant(&it.action), discriminant(&other.action));
                        assert_eq!(
                            (it.stream, &it.waits, it.signals),
                            (other.stream, &other.waits, other.signals)
                        );
                        let parts = match &it.action {
                            Action::Send(sent) => Some(&sent.parts),
                            Action::Receive(received) => Some(&received.parts),
                            _ => None,
                        };
                        assert_eq!(group.remotes[place].get(&index), parts, "{kind}, rank {rank}");
                        crossing += parts.map_or(0, Vec::len);
                    }
                }
            }
        }
    }
    assert!(crossing > 100, "{crossing}");
}

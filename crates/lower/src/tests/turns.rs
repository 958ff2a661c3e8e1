//! What is kept between the turns of a micro-batch: it has its place from its first use to its last where no other turns
//! come between, and in all of them where they do.

use std::collections::BTreeSet;

use schedule::Kind as Order;

use super::pipelines::doubling;
use crate::program::Repeated;
use crate::storage::{Region, StorageId};
use crate::{Program, Turn, pipeline, verify};

/// Programs of four stages, of which each keeps something that it has made of what it makes first.
fn programs() -> Vec<Program> {
    pipeline(&doubling(4, 1, Order::OneForwardOneBackward, 3)).unwrap()
}

/// The parts and the instructions that use each storage of a step.
fn uses(program: &Program) -> Vec<(BTreeSet<usize>, Vec<usize>)> {
    let repeated = program.repeated.as_ref().unwrap();
    let mut uses = vec![(BTreeSet::new(), Vec::new()); program.storages.len()];
    for (index, instruction) in program.instructions.iter().enumerate() {
        for buffer in instruction.action.reads().into_iter().chain(instruction.action.writes()) {
            let (parts, all) = &mut uses[program.buffer(buffer).storage.0];
            parts.extend(repeated.part_of(index));
            all.push(index);
        }
    }
    uses
}

#[test]
fn what_other_turns_write_over_is_found() {
    let mut planted = 0;
    for (rank, program) in programs().iter().enumerate() {
        let uses = uses(program);
        let of_step = |it: &usize| program.storages[*it].kind.region() == Region::Step;
        let storages: Vec<usize> = (0..uses.len()).filter(of_step).collect();
        let kept = |it: &&usize| program.storages[**it].places > 1 && uses[**it].0.len() > 1;
        for &first in storages.iter().filter(kept) {
            let [start, end] = [uses[first].1[0], *uses[first].1.last().unwrap()];
            // In the order of instructions it is out of use before or after.
            let apart = |it: &&usize| {
                let (parts, all) = &uses[**it];
                let is_before = all.last().is_some_and(|&it| it < start);
                parts.len() == 1 && (is_before || all.first().is_some_and(|&it| it > end))
            };
            let fits = |it: &&usize| program.extent(StorageId(**it)) <= program.extent(StorageId(first));
            for &second in storages.iter().filter(apart).filter(fits) {
                let mut programs = programs();
                programs[rank].storages[second].offset = programs[rank].storages[first].offset;
                let violations = verify(&programs).unwrap_err();
                let says = format!("storage {second} is written over storage {first}, ");
                let found = violations.0.iter().any(|it| it.rule == "reuse" && it.message.contains(&says));
                assert!(found, "rank {rank}, {second} over {first}: {violations}");
                planted += 1;
            }
        }
    }
    assert!(planted > 4, "{planted} are planted");
}

/// The last of some stages has its micro-batches one after another: what it keeps for gradients is not there before it is
/// made, nor after it was used, and others have its bytes then.
#[test]
fn what_is_kept_for_the_next_turn_shares_its_bytes() {
    let mut shared = 0;
    verify(&programs()).unwrap();
    for program in programs() {
        verify(std::slice::from_ref(&program)).err();
        let uses = uses(&program);
        let of_step = |it: &usize| program.storages[*it].kind.region() == Region::Step;
        let kept = |it: &usize| of_step(it) && program.storages[*it].places == 1 && uses[*it].0.len() > 1;
        let bytes = |it: usize| {
            let start = program.storages[it].offset;
            start..start + program.extent(StorageId(it))
        };
        let is_last = program.rank >= 6;
        for first in (0..uses.len()).filter(kept) {
            let own = bytes(first);
            let lies_there = |it: &usize| {
                let its = bytes(*it);
                *it != first && its.start < own.end && own.start < its.end
            };
            let others =
                (0..uses.len()).filter(of_step).filter(|it| !uses[*it].1.is_empty()).filter(lies_there);
            let others = others.count();
            assert!(is_last || others == 0, "rank {}: storage {first}", program.rank);
            shared += others;
        }
    }
    assert!(shared > 0, "none is shared");
}

/// Against all pairs of turns.
#[test]
fn what_comes_between_is_known() {
    let mut some = 0;
    arbtest::arbtest(|u| {
        // Each micro-batch has its parts in their order, as far as it has come.
        let (parts, count) = (u.int_in_range(2..=4_usize)?, u.int_in_range(1..=4_u64)?);
        let mut next: Vec<(u64, usize)> = (0..count).map(|it| (it, 0)).collect();
        let mut turns: Vec<Turn> = Vec::new();
        while !next.is_empty() {
            let at = u.choose_index(next.len())?;
            let (micro_batch, part) = next[at];
            turns.push(Turn { part, micro_batch });
            next[at].1 += 1;
            next.retain(|it| it.1 < parts);
        }
        let first = u.int_in_range(0..=parts - 2)?;
        let last = u.int_in_range(first + 1..=parts - 1)?;
        let mut expected = BTreeSet::new();
        for micro_batch in 0..count {
            let at = |part| turns.iter().position(|it| *it == Turn { part, micro_batch }).unwrap();
            expected.extend(turns[at(first) + 1..at(last)].iter().map(|it| it.part));
        }
        some += usize::from(!expected.is_empty());
        let repeated = Repeated { turns, ..Repeated::whole(0..0, count) };
        assert_eq!(repeated.between(first, last), expected, "{first} {last} {:?}", repeated.turns);
        Ok(())
    })
    .budget_ms(500);
    assert!(some > 10);
}

//! Last uses against a list of all uses.

use std::sync::Arc;

use super::Users;
use crate::program::{Program, Stream};
use crate::storage::{Kind, Storage, StorageId};

fn program(places: &[(u64, u64)]) -> Program {
    let storage = |&(offset, bytes)| Storage { kind: Kind::Activation, bytes, offset, places: 1, over: None };
    Program {
        rank: 0,
        ranks: 1,
        communicators: Vec::new(),
        storages: places.iter().map(storage).collect(),
        buffers: Vec::new(),
        resident: 0,
        arena: 0,
        preparation: Arc::from([]),
        inputs: Vec::new(),
        weights: Vec::new(),
        prepared: Vec::new(),
        states: Vec::new(),
        outputs: Vec::new(),
        instructions: Vec::new(),
        repeated: None,
        guard: None,
    }
}

#[test]
fn the_last_uses_by_others_are_found() {
    arbtest::arbtest(|u| {
        let mut places = Vec::new();
        for _ in 0..u.int_in_range(1..=8)? {
            places.push((u.int_in_range(0..=12)?, u.int_in_range(0..=6)?));
        }
        let mut users = Users::of(&program(&places));
        let mut uses: Vec<(usize, Stream)> = Vec::new();
        for instruction in 0..u.int_in_range(0..=20)? {
            let storage = u.choose_index(places.len())?;
            let stream = *u.choose(&Stream::ALL)?;
            users.add(StorageId(storage), stream, instruction);
            uses.push((storage, stream));
            let of = u.choose_index(places.len())?;
            let shares = |a: (u64, u64), b: (u64, u64)| a.0.max(b.0) < (a.0 + a.1).min(b.0 + b.1);
            let expected = Stream::ALL.map(|stream| {
                let by_another =
                    |it: &(usize, Stream)| it.1 == stream && it.0 != of && shares(places[it.0], places[of]);
                uses.iter().rposition(by_another).map_or(0, |last| last + 1)
            });
            assert_eq!(users.others(StorageId(of)), expected, "{places:?}: {uses:?}, of {of}");
        }
        Ok(())
    });
}

#[test]
fn two_places_are_two_pieces_however_often_they_are_used() {
    let places: Vec<(u64, u64)> = (0..10_000).map(|it| (it % 2 * 64, 64)).collect();
    assert_eq!(Users::of(&program(&places)).count, 2);
}

//! What is held when.

use lower::{CollectiveKind, Kind, Repeated};

use super::script::{Script, machine, wait};
use crate::{Order, simulate};

const ELEMENTS: u64 = 1 << 16;
const BYTES: u64 = 4 * ELEMENTS;

/// The bytes of all levels, in order of time.
fn bytes(script: &Script, order: Order) -> Vec<u64> {
    let timeline = simulate(&script.alike, &machine("h100-80g-8x"), order).unwrap();
    let levels = timeline.memory(&timeline.classes[0]);
    assert!(levels.windows(2).all(|pair| pair[0].at < pair[1].at));
    levels.iter().map(|it| it.bytes).collect()
}

#[test]
fn what_is_made_is_there_until_it_was_last_used() {
    let mut script = Script::new(&[8], &[&[0]]);
    let [a, b, c] = [0; 3].map(|_| script.buffer(ELEMENTS));
    script.alike.program.resident = 128;
    script.compute(a, b);
    script.compute(b, c);
    script.compute(c, c);
    // The first two, the second and the third, the third, nothing.
    let expected = [128 + 2 * BYTES, 128 + 2 * BYTES, 128 + BYTES, 128];
    assert_eq!(bytes(&script, Order::Streams), expected);
    script.alike.program.storages[2].kind = Kind::Output;
    script.compute(a, b);
    assert_eq!(bytes(&script, Order::Streams).iter().max(), Some(&(128 + 3 * BYTES)));
}

#[test]
fn what_the_slower_stream_uses_last_is_there_until_then() {
    let mut script = Script::new(&[8], &[&[0]]);
    let [a, b, c] = [0; 3].map(|_| script.buffer(ELEMENTS));
    script.collective(CollectiveKind::AllReduce, 0, [a, c], ELEMENTS);
    script.compute(a, b);
    let levels = bytes(&script, Order::Streams);
    // The exchange is slower than the computing: what it reads outlives what that makes.
    assert_eq!(levels, [3 * BYTES, 2 * BYTES, 0]);
    wait(&mut script, 1, 0);
    assert_eq!(bytes(&script, Order::Streams), [2 * BYTES, 2 * BYTES, 0]);
}

#[test]
fn each_repetition_makes_its_own() {
    let mut script = Script::new(&[8], &[]);
    let [a, b, c] = [0; 3].map(|_| script.buffer(ELEMENTS));
    script.compute(a, a);
    script.compute(a, b);
    script.compute(b, c);
    script.compute(c, c);
    script.alike.program.repeated = Some(Repeated::whole(1..3, 2));
    // `a` is used in every repetition; `b` is made in each; `c`, made in each, is used after the last.
    let expected = [BYTES, 2 * BYTES, 3 * BYTES, 2 * BYTES, 2 * BYTES, BYTES, 0];
    let found = bytes(&script, Order::Streams);
    assert_eq!(found, expected);
}

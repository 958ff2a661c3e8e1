//! Numbers that times were made with are found again, and ranks are where they say.

use cost_models::machine::shipped;

use super::*;
use crate::gpu::Draft;

/// Other numbers than those of an H100: of links, and of what is between nodes.
const LINKS: [(&str, f64); 12] = [
    ("node.ring_share", 0.93),
    ("node.pair_share", 0.78),
    ("node.exchange_share", 0.87),
    ("transport.local_rate", 9e11),
    ("transport.in_switch.share", 0.55),
    ("transport.in_switch.start", 3.2e-5),
    ("transport.eager.start", 5e-6),
    ("transport.eager.fill", 6e-7),
    ("transport.eager.hop", 8e-7),
    ("transport.eager.share", 0.04),
    ("transport.packed.fill", 7e-6),
    ("transport.packed.share", 0.75),
];
const NETWORK: [(&str, f64); 4] = [
    ("network.share", 0.8),
    ("network.eager.ring", 3.4e-6),
    ("network.eager.tree", 4.1e-6),
    ("network.packed.ring", 5.2e-6),
];

fn check(ranks: Ranks, numbers: &[(&str, f64)]) {
    let like = shipped::named("h100-80g-1x").unwrap();
    let mut draft = Draft::of(&like, "made").unwrap();
    numbers.iter().for_each(|(field, number)| draft.set(field, *number));
    let made = draft.machine().unwrap();
    let rows = rows::all(&Among::all(ranks), ranks, 1 << 33);
    let rows: Vec<(Timed, f64)> =
        rows.into_iter().filter_map(|it| it.priced(&made).map(|seconds| (it, seconds))).collect();
    assert!(rows.len() > 90, "{}", rows.len());
    let found = fitted(&like, &rows, "made").unwrap();
    for (field, number) in numbers {
        let (_, stated, found) = found.numbers.iter().find(|it| it.0 == *field).unwrap();
        assert!((found / number - 1.0).abs() < 0.02, "{field}: {found:e} for {number:e}, stated {stated:e}");
    }
    for (timed, seconds) in &rows {
        let priced = timed.priced(&found.machine).unwrap();
        assert!((priced / seconds - 1.0).abs() < 0.01, "{}: {priced:e} for {seconds:e}", timed.name);
    }
}

#[test]
fn numbers_that_exchanges_were_made_with_are_found_again() {
    check(Ranks { nodes: 1, each: 8 }, &LINKS);
    check(Ranks { nodes: 2, each: 8 }, &[&LINKS[..], &NETWORK].concat());
}

/// What no time depends on is as it was stated, and nothing says that it was measured.
#[test]
fn what_is_never_the_fastest_is_not_measured() {
    let like = shipped::named("h100-80g-1x").unwrap();
    let ranks = Ranks { nodes: 1, each: 2 };
    let rows: Vec<(Timed, f64)> = rows::all(&Among::all(ranks), ranks, 1 << 12)
        .into_iter()
        .filter_map(|it| it.priced(&like).map(|seconds| (it, 2.0 * seconds)))
        .collect();
    let found = fitted(&like, &rows, "made").unwrap();
    let names: Vec<&str> = found.numbers.iter().map(|it| it.0.as_str()).collect();
    assert!(names.contains(&"transport.eager.start") && !names.contains(&"network.share"), "{names:?}");
    assert!(!names.iter().any(|it| it.contains("in_switch") || it.contains("exchange")), "{names:?}");
    assert_eq!(found.machine.network, like.network);
    assert_eq!(found.machine.transport.in_switch, like.transport.in_switch);
}

#[test]
fn ranks_are_on_nodes_one_after_another() {
    assert_eq!(Ranks::of(&[0, 0, 1, 1, 2, 2]), Ok(Ranks { nodes: 3, each: 2 }));
    let refused = Ranks::of(&[0, 0, 1]).unwrap_err();
    assert_eq!(refused, "nodes one after another have 2, 1 ranks, expected as many on each");
    let like = |name: &str| shipped::named(name).unwrap();
    assert_eq!(lacking(&like("h100-80g-1x"), Ranks { nodes: 4, each: 8 }), None);
    let said = lacking(&like("h100-80g-1x"), Ranks { nodes: 1, each: 9 }).unwrap();
    assert_eq!(said, "9 ranks are on one host, and a node of h100-80g has 8 devices");
    let said = lacking(&like("cpu-1x"), Ranks { nodes: 2, each: 1 }).unwrap();
    assert_eq!(said, "ranks are on 2 hosts, and cpu has no network");
}

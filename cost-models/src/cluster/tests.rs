//! Clusters of several kinds, and files of them.

use super::{Cluster, ClusterError, json};
use crate::machine::{Machine, shipped};
use crate::topology::Topology;

fn named(name: &str) -> Machine {
    shipped::named(name).unwrap()
}

#[test]
fn ranks_of_kinds_follow_each_other() {
    let cluster = Cluster::joined(vec![named("a100-80g-16x"), named("v100-16g-8x")]).unwrap();
    assert_eq!((cluster.devices(), cluster.nodes(), cluster.devices_per_node()), (24, 3, 8));
    let kinds: Vec<usize> = [0, 15, 16, 23, 24].map(|rank| cluster.kind_of(rank)).to_vec();
    assert_eq!(kinds, [0, 0, 1, 1, 1]);
    assert_eq!((cluster.first_rank(0), cluster.first_rank(1)), (0, 16));
    assert_eq!(cluster.full_name(), "a100-80g-16x+v100-16g-8x");
    assert_eq!(cluster.of_rank(20).name, "v100-16g");
    assert_eq!(cluster.single(), None);
}

#[test]
fn kinds_that_do_not_go_together_are_refused() {
    let refused = |kinds: &[&str]| Cluster::joined(kinds.iter().map(|it| named(it)).collect()).unwrap_err();
    assert_eq!(refused(&[]), ClusterError::None);
    let found = refused(&["a100-80g-8x", "v100-16g-10gbe-4x"]);
    assert_eq!(found, ClusterError::Nodes(8, "v100-16g-10gbe-4x".to_owned(), 4));
    assert_eq!(refused(&["cpu-8x", "a100-80g-8x"]), ClusterError::NoNetwork("cpu-8x".to_owned()));
}

/// The topology of one kind is that of the machine; of two, each node is as in its own machine, and
/// between them the slower adapters count.
#[test]
fn nodes_of_two_kinds_are_as_in_their_own_machines() {
    let (fast, slow) = (named("a100-80g-16x"), named("v100-16g-25gbe-16x"));
    let both = Topology::of_cluster(&Cluster::joined(vec![fast.clone(), slow.clone()]).unwrap());
    for (machine, first) in [(&fast, 0), (&slow, 16)] {
        let own = Topology::of(machine);
        for ranks in [vec![0, 1], vec![0, 3, 4], (0..8).collect(), vec![0, 8], (0..16).collect()] {
            let shifted: Vec<u64> = ranks.iter().map(|rank| first + rank).collect();
            assert_eq!(both.group(&shifted), own.group(&ranks), "{shifted:?}");
            assert_eq!(both.alone(&shifted), own.alone(&ranks), "{shifted:?}");
        }
    }
    let across = |topology: &Topology, ranks: &[u64]| topology.alone(ranks).unwrap().across.unwrap();
    assert_eq!(across(&both, &[0, 16]), across(&Topology::of(&slow), &[0, 8]));
    assert!(across(&both, &[0, 8]).0 > across(&both, &[16, 24]).0);
    // A message between kinds leaves by one adapter and comes by another.
    assert_eq!(both.route(0, 16).len(), 4);
}

#[test]
fn files_of_several_kinds_are_read() {
    let inside = shipped::text("v100-16g").unwrap();
    let text = |kinds: &str| format!("{{\"format\": 2, \"kinds\": [{kinds}]}}");
    let a100 = r#"{"devices": 8, "machine": "a100-80g"}"#;
    let good = text(&format!("{a100}, {{\"devices\": 16, \"machine\": {inside}}}"));
    assert!(json::is_cluster(&good) && !json::is_cluster(inside) && !json::is_cluster("{"));
    assert_eq!(json::read("c.json", &good).unwrap().full_name(), "a100-80g-8x+v100-16g-16x");
    for (kinds, words) in [
        ("", "a cluster without nodes"),
        (r#"{"devices": 8}"#, "missing field `machine`"),
        (r#"{"devices": 8, "machine": "x100"}"#, "kind 1 is `x100`, expected a machine file or one of"),
        (r#"{"devices": 9, "machine": "a100-80g"}"#, "kind 1: "),
        (r#"{"devices": 8, "machine": {}}"#, "kind 1: machine file `c.json`"),
        (&format!(r#"{a100}, {{"devices": 4, "machine": "v100-16g"}}"#), "have 4 devices, expected 8"),
    ] {
        let error = json::read("c.json", &text(kinds)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let error = json::read("c.json", r#"{"format": 1, "kinds": []}"#).unwrap_err().to_string();
    assert_eq!(error, "has format 1, this program reads 2");
}

//! Traces of what is simulated, read back by readers of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::{TENSOR, TRAINED, planned};
use crate::cli::{Folder, works};

/// A field of a message of protobuf.
#[derive(Clone, Debug)]
enum Field {
    Whole(u64),
    Real(f64),
    Inside(Vec<u8>),
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            return value;
        }
    }
}

/// The fields of a message, by their numbers.
fn fields(bytes: &[u8]) -> Vec<(u64, Field)> {
    let (mut at, mut all) = (0, Vec::new());
    while at < bytes.len() {
        let key = varint(bytes, &mut at);
        let field = match key & 7 {
            0 => Field::Whole(varint(bytes, &mut at)),
            1 => {
                at += 8;
                Field::Real(f64::from_le_bytes(bytes[at - 8..at].try_into().unwrap()))
            }
            2 => {
                let length = usize::try_from(varint(bytes, &mut at)).unwrap();
                at += length;
                Field::Inside(bytes[at - length..at].to_vec())
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, field));
    }
    all
}

/// A node of an execution trace.
#[derive(Debug, Default)]
struct Node {
    id: u64,
    name: String,
    type_: u64,
    after: Vec<u64>,
    start: u64,
    duration: u64,
    whole: BTreeMap<String, u64>,
    seconds: f64,
    texts: BTreeMap<String, String>,
}

fn text(field: &Field) -> String {
    match field {
        Field::Inside(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn whole(field: &Field) -> u64 {
    match field {
        Field::Whole(value) => *value,
        other => panic!("{other:?}"),
    }
}

fn node(bytes: &[u8]) -> Node {
    let mut node = Node::default();
    for (number, field) in fields(bytes) {
        match (number, &field) {
            (1, field) => node.id = whole(field),
            (2, field) => node.name = text(field),
            (3, field) => node.type_ = whole(field),
            (5, Field::Inside(packed)) => {
                let mut at = 0;
                while at < packed.len() {
                    node.after.push(varint(packed, &mut at));
                }
            }
            (6, field) => node.start = whole(field),
            (7, field) => node.duration = whole(field),
            (10, Field::Inside(attribute)) => {
                let attribute = fields(attribute);
                let name = text(&attribute[0].1);
                match &attribute[1] {
                    (3, Field::Real(value)) => {
                        assert_eq!(name, "seconds");
                        node.seconds = *value;
                    }
                    (7 | 9 | 13 | 27, field) => {
                        node.whole.insert(name, whole(field));
                    }
                    (29, field) => {
                        node.texts.insert(name, text(field));
                    }
                    other => panic!("{name}: {other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
    node
}

/// The nodes of a file, after its metadata.
fn nodes(path: &str) -> Vec<Node> {
    let bytes = fs::read(path).unwrap();
    let (mut at, mut messages) = (0, Vec::new());
    while at < bytes.len() {
        let length = usize::try_from(varint(&bytes, &mut at)).unwrap();
        messages.push(&bytes[at..at + length]);
        at += length;
    }
    assert_eq!(text(&fields(messages[0])[0].1), "1.0.0");
    messages[1..].iter().map(|it| node(it)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a step are exact")]
fn number(count: u64) -> f64 {
    count as f64
}

const SEND: u64 = 5;
const RECEIVE: u64 = 6;
const COLLECTIVE: u64 = 7;

/// Nodes come after those that they wait for, collectives are met by all of their group at the same time with as
/// much, what is sent is received, and the last node ends when the simulation does.
#[test]
fn traces_of_chakra_are_what_was_simulated() {
    let staged = ["--stages", "2", "--mesh", "2", "--schedule", "1f1b"];
    for more in [&TENSOR[..], &staged] {
        let folder = Folder::new("export-chakra");
        let plan = planned(&folder, 2, &[&TRAINED[..], more].concat());
        let to = folder.path("out");
        let said: Value =
            serde_json::from_str(&works(&["export", &plan, "--to", "chakra", "-o", &to, "--json"])).unwrap();
        let simulated: Value = serde_json::from_str(&works(&["simulate", &plan, "--json"])).unwrap();
        assert_eq!(said["simulated_seconds"]["step"], simulated["seconds"]);
        let groups: BTreeMap<String, Vec<u64>> =
            serde_json::from_slice(&fs::read(format!("{to}/step.groups.json")).unwrap()).unwrap();
        let ranks: Vec<Vec<Node>> = (0..4).map(|rank| nodes(&format!("{to}/step.{rank}.et"))).collect();
        let mut last = 0;
        for nodes in &ranks {
            for (place, node) in nodes.iter().enumerate() {
                assert_eq!(usize::try_from(node.id).unwrap(), place);
                assert!((node.seconds * 1e6 - number(node.duration)).abs() <= 1.0, "{node:?}");
                for &before in &node.after {
                    let before = &nodes[usize::try_from(before).unwrap()];
                    assert!(before.id < node.id);
                    // What is passed on goes within the instruction that receives it.
                    let together = before.start == node.start && before.type_ == RECEIVE;
                    assert!(together || before.start + before.duration <= node.start, "{before:?} {node:?}");
                }
                last = last.max(node.start + node.duration);
            }
            // All but the first wait for something.
            let free = nodes.iter().filter(|it| it.after.is_empty()).count();
            assert!(free < nodes.len() / 4, "{free} of {} wait for nothing", nodes.len());
            assert!(nodes.iter().any(|it| it.name.contains("down_proj")));
        }
        let seconds = simulated["seconds"].as_f64().unwrap();
        assert!((seconds * 1e6 - number(last)).abs() <= 0.5, "{seconds} {last}");
        let met = collectives_are_met(&ranks, &groups);
        assert!(more == staged || met > 10, "{met} collectives");
        messages_arrive(&ranks, more == staged);
    }
}

/// The collectives of each group are the same on all of its ranks: how many there are.
fn collectives_are_met(ranks: &[Vec<Node>], groups: &BTreeMap<String, Vec<u64>>) -> usize {
    let of = |rank: usize, group: &str| -> Vec<[u64; 4]> {
        let has = |it: &&Node| it.type_ == COLLECTIVE && it.texts["pg_name"] == group;
        let all = ranks[rank].iter().filter(has);
        all.map(|it| [it.whole["comm_type"], it.whole["comm_size"], it.start, it.duration]).collect()
    };
    let mut count = 0;
    for (name, members) in groups {
        let first = of(usize::try_from(members[0]).unwrap(), name);
        count += first.len();
        for (rank, _) in ranks.iter().enumerate() {
            let expected = if members.contains(&u64::try_from(rank).unwrap()) { &first[..] } else { &[] };
            assert_eq!(of(rank, name), expected, "group {name} of rank {rank}");
        }
    }
    count
}

/// Each message that is sent is received, with the same bytes and no sooner than it is sent.
fn messages_arrive(ranks: &[Vec<Node>], staged: bool) {
    let all = |type_: u64| {
        let nodes = ranks.iter().flatten().filter(move |it| it.type_ == type_);
        nodes.map(|it| {
            let [from, to, tag] = ["comm_src", "comm_dst", "comm_tag"].map(|name| it.whole[name]);
            ((from, to, tag), (it.whole["comm_size"], it.start, it.start + it.duration))
        })
    };
    let sent: BTreeMap<_, _> = all(SEND).collect();
    let received: BTreeMap<_, _> = all(RECEIVE).collect();
    assert_eq!(sent.keys().collect::<BTreeSet<_>>(), received.keys().collect());
    assert_eq!(sent.len(), all(SEND).count());
    assert_eq!(!sent.is_empty(), staged);
    for (key, (bytes, start, _)) in &sent {
        let (other, _, end) = received[key];
        assert_eq!(*bytes, other, "{key:?}");
        assert!(*start <= end, "{key:?}");
    }
}

//! Where a step puts entries of a token behind others.

use std::collections::BTreeMap;

use plan::{Cache, Kept};
use planner_ir::{Graph, NodeId, Op, Source, ValueId};

/// What is put behind what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// The input with the entries of tokens before.
    pub(super) past: ValueId,
    /// The entries of new tokens.
    pub(super) new: ValueId,
    /// How many places there are without the new ones, and with them: the last ones of the model's, as many as queries
    /// see.
    pub(super) found: u64,
    pub(super) places: u64,
}

/// The operations that put the entries of so many tokens behind others, one for each part of the cache that has entries
/// and is wanted; or why the step is not so.
pub(super) fn writes(
    graph: &Graph,
    cache: &Cache,
    wanted: &dyn Fn(&Kept) -> bool,
    width: u64,
) -> Result<BTreeMap<NodeId, Write>, String> {
    let users = graph.users();
    let mut found = BTreeMap::new();
    for part in cache.entries().filter(|it| wanted(it)) {
        let (node, write) = write(graph, cache, (part, width), &users)?;
        found.insert(node, write);
    }
    if found.is_empty() {
        return Err("no part of the cache has a place for each token".to_owned());
    }
    Ok(found)
}

fn write(
    graph: &Graph,
    cache: &Cache,
    (part, width): (&Kept, u64),
    users: &[Vec<NodeId>],
) -> Result<(NodeId, Write), String> {
    let Kept { past: name, present, .. } = part;
    let is_it = |it: &ValueId| matches!(&graph.value(*it).source, Source::Input(input) if input == name);
    let past = graph.value_ids().find(is_it).ok_or_else(|| format!("there is no input `{name}`"))?;
    let is_output = graph.outputs.iter().any(|it| it.value == past);
    let [user] = users[past.0][..] else {
        let count = users[past.0].len();
        return Err(format!(
            "`{name}` is used by {count} operations, expected one that puts an entry behind it"
        ));
    };
    let node = graph.node(user);
    let (op, origin) = (&node.op, &node.origin);
    let new = match (op, &node.operands[..]) {
        (Op::Concat { dim }, &[first, new]) if *dim == cache.dim && first == past && new != past => new,
        _ => {
            return Err(format!(
                "`{name}` is used by `{origin}`, expected a concatenation of it and a new entry"
            ));
        }
    };
    let type_ = graph.type_of(new);
    if type_.shape.get(cache.dim) != Some(&width) {
        return Err(format!("`{origin}` puts {type_} behind `{name}`, expected {width} new places"));
    }
    let places = graph.type_of(node.results[0]).shape.get(cache.dim);
    if places != Some(&cache.capacity) {
        let (found, expected) = (graph.type_of(node.results[0]), cache.capacity);
        return Err(format!("`{origin}` makes {found}, expected {expected} places"));
    }
    let left = graph.outputs.iter().find(|it| it.name == *present).map(|it| it.value);
    if is_output || left != Some(node.results[0]) {
        return Err(format!("`{origin}` puts an entry behind `{name}`, and `{present}` is another value"));
    }
    let found = cache.moved(part, width);
    Ok((user, Write { past, new, found, places: found + width }))
}

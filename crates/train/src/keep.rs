//! What of a block is worth keeping for its gradients, at each price of memory.
//!
//! An operation is *at hand* in the backward part (z = 1) if its results are kept, or if it is done
//! again (y = 1). With bytes b and seconds t, and seconds λ that a byte is worth:
//!
//! ```text
//! minimise    λ Σ b (z - y)  +  Σ t y
//! subject to  y ≤ z                        what is done again is at hand
//!             y ≤ z of each operand        and so is what it reads
//!             z = 1                        for what gradients read
//! ```
//!
//! This is a minimum cut. Its solutions for all λ are the corners of the lower convex hull of bytes
//! and seconds; they are found between two known corners at the λ at which these are equal.
//!
//! What a neighbour reads is kept by that one. What is taken from before cannot be done again here.
//!
//! Source: Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor
//! Rematerialization", 2020 (the problem); Kusumoto et al., "A Graph Theoretic Framework of
//! Recomputation Algorithms for Memory-Efficient Backpropagation", 2019 (cuts of forward graphs).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plan::Recompute;
use planner_ir::{NodeId, Op, Phase, Source, ValueId};
use rewrite::Blocks;

use crate::cut::{NEVER, Network};
use crate::derived::Step;

/// What a step takes in which nothing is done again.
#[derive(Clone, Debug)]
pub struct Costs {
    /// What a device holds of each value (bytes).
    pub bytes: Vec<u64>,
    /// What each operation would take a second time (seconds).
    pub seconds: Vec<f64>,
}

/// The most ways to keep some of a block.
const MOST: usize = 5;

/// A way to keep some of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// What is computed again so.
    pub again: Recompute,
    /// How much less a device keeps than where it keeps all (bytes).
    pub spares: u128,
}

/// For each block, what may be kept of it, from much to little: at most five ways ([`MOST`]), each
/// the best at some price of memory, besides all of it and its input only. Equal blocks have the
/// same, but for those of which nothing is done in a step that is a stage.
///
/// `step` is that of the blocks in which nothing is done again, `costs` are its.
pub fn keepings(blocks: &Blocks, step: &Step, costs: &Costs) -> Vec<Vec<Keeping>> {
    let readers = Readers::of(step);
    let mut known: Vec<(Form<'_>, Vec<Keeping>)> = Vec::new();
    let mut found = Vec::new();
    for place in 0..blocks.segments.len() {
        // Of a block of another stage nothing is done here.
        if blocks.segments[place].nodes.clone().all(|node| step.made[node].is_none()) {
            found.push(Vec::new());
            continue;
        }
        let form = form(blocks, place);
        let same = known.iter().find(|(other, _)| *other == form);
        let ways = match same {
            Some((_, ways)) => ways.clone(),
            None => {
                let ways = hull(&block(blocks, place, step, &readers, costs));
                known.push((form, ways.clone()));
                ways
            }
        };
        found.push(ways);
    }
    found
}

/// What equal blocks have in common: for each operation what it does, and which ones of the block
/// it reads.
type Form<'a> = Vec<(&'a Op, Vec<Option<usize>>)>;

fn form(blocks: &Blocks, place: usize) -> Form<'_> {
    let graph = &blocks.graph;
    let nodes = &blocks.segments[place].nodes;
    let inner = |value: &ValueId| match graph.value(*value).source {
        Source::Result { node, .. } => node.0.checked_sub(nodes.start),
        _ => None,
    };
    let one = |node: usize| {
        let node = graph.node(NodeId(node));
        (&node.op, node.operands.iter().map(inner).collect())
    };
    nodes.clone().map(one).collect()
}

/// Who reads the values of a step.
struct Readers {
    /// For each value, the blocks whose operations read it.
    all: Vec<BTreeSet<usize>>,
    /// Those whose gradients read it.
    backward: Vec<BTreeSet<usize>>,
}

impl Readers {
    fn of(step: &Step) -> Self {
        let none = vec![BTreeSet::new(); step.graph.values.len()];
        let mut readers = Self { all: none.clone(), backward: none };
        for (node, &home) in step.graph.nodes.iter().zip(&step.homes) {
            for operand in &node.operands {
                readers.all[operand.0].insert(home);
                if node.phase != Phase::Forward {
                    readers.backward[operand.0].insert(home);
                }
            }
        }
        readers
    }
}

/// An operation of a block, or a value that it takes from before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Item {
    /// What keeping its results takes (bytes).
    bytes: u128,
    /// What doing it again takes (10⁻¹⁵ s); nothing if it cannot be.
    time: Option<u128>,
    /// Whether gradients read it.
    read: bool,
    /// The items whose results it reads.
    operands: Vec<usize>,
    /// Its number in the block.
    number: Option<usize>,
}

/// A block as items: those from before, and operations, in order.
fn block(blocks: &Blocks, place: usize, step: &Step, readers: &Readers, costs: &Costs) -> Vec<Item> {
    let graph = &blocks.graph;
    let prepared = graph.prepared();
    let nodes = blocks.segments[place].nodes.clone();
    let mut items: Vec<Item> = Vec::new();
    // For each value, its item.
    let mut of: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (number, node) in nodes.map(|node| graph.node(NodeId(node))).enumerate() {
        if node.results.iter().all(|result| prepared[result.0]) {
            continue;
        }
        let index = blocks.segments[place].nodes.start + number;
        let Some(made) = step.made[index] else {
            // A conversion that is none here is its operand.
            if let Some(&item) = node.operands.first().and_then(|operand| of.get(operand)) {
                of.extend(node.results.iter().map(|&result| (result, item)));
            }
            continue;
        };
        let made_node = step.graph.node(made);
        let mut operands = Vec::new();
        for (&operand, &stands) in node.operands.iter().zip(&made_node.operands) {
            if prepared[operand.0] {
                continue;
            }
            let next = items.len();
            let item = *of.entry(operand).or_insert(next);
            if item == next {
                items.push(from_before(stands, place, readers, costs));
            }
            operands.push(item);
        }
        let mut item = Item { time: Some(femtoseconds(costs.seconds[made.0])), ..Item::default() };
        for &result in &made_node.results {
            let handed = readers.all[result.0].iter().any(|&home| home != place);
            item.bytes += if handed { 0 } else { u128::from(costs.bytes[result.0]) };
            item.read |= readers.backward[result.0].contains(&place);
        }
        of.extend(node.results.iter().map(|&result| (result, items.len())));
        items.push(Item { operands, number: Some(number), ..item });
    }
    items
}

/// A value that a block takes from before; what more than two blocks use is there anyway.
fn from_before(value: ValueId, place: usize, readers: &Readers, costs: &Costs) -> Item {
    let others = readers.all[value.0].iter().filter(|&&home| home != place).count();
    let bytes = if others > 1 { 0 } else { u128::from(costs.bytes[value.0]) };
    Item { bytes, read: readers.backward[value.0].contains(&place), ..Item::default() }
}

fn femtoseconds(seconds: f64) -> u128 {
    Duration::try_from_secs_f64(1e6 * seconds).map_or(0, |it| it.as_nanos())
}

/// What is kept of a block, and what that takes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Point {
    /// Which items are kept.
    kept: Vec<bool>,
    bytes: u128,
    time: u128,
}

/// The corners of the hull that are neither all nor nothing of the block, from much to little.
fn hull(items: &[Item]) -> Vec<Keeping> {
    let all: u128 = items.iter().filter(|item| item.read).map(|item| item.bytes).sum();
    let total = |of: &dyn Fn(&Item) -> u128| items.iter().map(of).sum::<u128>() + 1;
    let bytes = total(&|item| item.bytes);
    let time = total(&|item| item.time.unwrap_or(0));
    // Nothing is done again that takes time; as little is kept as can be.
    let mut points = vec![least(items, [1, bytes]), least(items, [time, 1])];
    let mut open = vec![true];
    let is_new = |point: &Point| point.bytes < all && numbers(items, point).next().is_some();
    while points.iter().filter(|point| is_new(point)).count() < MOST {
        let apart = |at: usize| {
            let (much, little) = (&points[at], &points[at + 1]);
            [little.time.saturating_sub(much.time), much.bytes.saturating_sub(little.bytes)]
        };
        let area = |at: usize| apart(at).iter().product::<u128>();
        let widest = (0..open.len()).filter(|&at| open[at] && area(at) > 0);
        let Some(at) = widest.min_by_key(|&at| u128::MAX - area(at)) else { break };
        let prices = apart(at);
        let found = least(items, prices);
        let cost = |point: &Point| prices[0] * point.bytes + prices[1] * point.time;
        // No corner lies below the line through the two.
        if cost(&found) >= cost(&points[at]) {
            open[at] = false;
        } else {
            points.insert(at + 1, found);
            open.insert(at, true);
        }
    }
    points.dedup();
    let new = points.iter().filter(|point| is_new(point)).take(MOST);
    let keeping = |point: &Point| Keeping {
        again: Recompute::AllBut(numbers(items, point).collect()),
        spares: all - point.bytes,
    };
    new.map(keeping).collect()
}

/// The operations that are kept.
fn numbers(items: &[Item], point: &Point) -> impl Iterator<Item = usize> {
    let kept = items.iter().zip(&point.kept).filter(|(_, kept)| **kept);
    kept.filter_map(|(item, _)| item.number)
}

/// What is best kept at a price of a byte and a price of time.
fn least(items: &[Item], [byte, time]: [u128; 2]) -> Point {
    let (at_hand, again) = (|item: usize| 2 + 2 * item, |item: usize| 3 + 2 * item);
    let mut network = Network::new(2 + 2 * items.len());
    for (index, item) in items.iter().enumerate() {
        network.arc(at_hand(index), again(index), byte * item.bytes);
        network.arc(again(index), Network::SINK, item.time.map_or(NEVER, |it| time * it));
        for &operand in &item.operands {
            network.arc(again(index), at_hand(operand), NEVER);
        }
        if item.read {
            network.arc(Network::SOURCE, at_hand(index), NEVER);
        }
    }
    let chosen = network.cut();
    let kept: Vec<bool> =
        (0..items.len()).map(|item| chosen[at_hand(item)] && !chosen[again(item)]).collect();
    let sum = |of: &dyn Fn(usize) -> u128| (0..items.len()).map(of).sum();
    Point {
        bytes: sum(&|item| if kept[item] { items[item].bytes } else { 0 }),
        time: sum(&|item| if chosen[again(item)] { items[item].time.unwrap_or(0) } else { 0 }),
        kept,
    }
}

#[cfg(test)]
mod tests;

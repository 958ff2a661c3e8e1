//! Products that add to sums over micro-batches, where nothing moves in between.
//!
//! A product, what converts it and what adds it are one operation where the layouts of the three say so, and the time
//! of that one is counted: see [`rewrite::Added`]. So a sum takes no time by itself, and the table of its node and of
//! the product's says what both take beyond the product. An operation that makes several products has such a table
//! with each sum: what one of them takes longer does not depend on which others are added.

use planner_ir::{Graph, NodeId, Partition, Type, ValueId};
use rewrite::{Added, Adding, Choice, Space, added};

use super::{Assembly, is_prepared};
use crate::prices::{Prices, Work};
use crate::problem::Table;
use crate::section::Section;

/// What a sum takes, by how what it adds was made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Joint {
    /// The node of the product.
    pub(super) from: usize,
    /// That of the sum.
    pub(super) to: usize,
    /// What converts the product, if anything does.
    widened: Option<NodeId>,
    /// What adds it.
    pub(super) sum: NodeId,
    /// For each choice of the product's node, and of the sum's, what the sum takes (seconds), each time that it runs.
    seconds: Table,
    /// For each choice of the sum's node, whether some product adds to it.
    joins: Vec<bool>,
}

impl Joint {
    /// Whether what is added is made before, whatever the product's choice.
    pub(super) fn is_apart(&self, choice: usize) -> bool {
        !self.joins[choice]
    }

    /// Whether an operation's time is in the table.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.sum == node || self.widened == Some(node)
    }

    /// The times, of which each counts so often.
    pub(super) fn table(&self, times: f64) -> Table {
        let Table { columns, entries } = &self.seconds;
        Table { columns: *columns, entries: entries.iter().map(|it| times * it).collect() }
    }
}

/// The products of a section that may add to sums: those of which every partition of the sum takes what some
/// conversion makes.
pub(super) fn of(section: &Section, space: &Space) -> Vec<Added> {
    let graph = &section.graph;
    let runs = |node: NodeId| !is_prepared(graph, node, &space.prepared);
    let mut found = added(graph);
    found.retain(|it| {
        let used = section.is_delivered(graph.node(it.product).results[it.result]);
        runs(it.product) && !used && !together(space, it).1.is_empty()
    });
    found
}

/// A sum, and what converts what it adds: both, and for each choice of the sum the choice of each, as the sum takes what
/// is converted.
pub(super) fn together(space: &Space, it: &Added) -> (Vec<NodeId>, Vec<Vec<usize>>) {
    let choices = &space.choices[it.sum.0];
    let Some(widened) = it.widened else {
        return (vec![it.sum], (0..choices.len()).map(|sum| vec![sum]).collect());
    };
    let makes = |taken: usize| space.choices[widened.0].iter().position(|it| it.results[0] == taken);
    let both = |sum: usize| Some(vec![makes(choices[sum].operands[1 - it.before])?, sum]);
    (vec![widened, it.sum], (0..choices.len()).filter_map(both).collect())
}

/// What an operation that adds takes, which has that number in its section, as a device does it (seconds).
pub(crate) fn priced(
    (adding, node): (&Adding, NodeId),
    local: [&[Type]; 2],
    partition: &Partition,
    prices: &dyn Prices,
) -> f64 {
    let [operands, results] = local;
    prices.work(&Work {
        op: &adding.node.op,
        whole: adding.types().0,
        operands,
        results,
        node,
        partition,
        loops: adding.loops(),
    })
}

impl Assembly<'_> {
    /// The tables of sums and of the products that they add.
    pub(super) fn add_joints(&mut self, prices: &dyn Prices) {
        for it in std::mem::take(&mut self.added) {
            if let Some(joint) = self.joint(&it, prices) {
                self.assembled.joints.push(joint);
            }
            self.added.push(it);
        }
    }

    fn joint(&self, it: &Added, prices: &dyn Prices) -> Option<Joint> {
        let work = |node: NodeId| self.assembled.work[node.0].as_ref();
        let (product, sum) = (work(it.product)?, work(it.sum)?);
        let choice = |node: NodeId, number: usize| &self.space.choices[node.0][number];
        let mut entries = Vec::with_capacity(product.choices.len() * sum.choices.len());
        let mut joins = vec![false; sum.choices.len()];
        for &made in &product.choices {
            let together = self.together(it, choice(it.product, made), prices);
            let alone = self.assembled.seconds[it.product.0][made];
            for (place, &adds) in sum.choices.iter().enumerate() {
                let mut apart = self.assembled.seconds[it.sum.0][adds];
                let mut taken = choice(it.sum, adds).operands[1 - it.before];
                if let Some(widened) = it.widened {
                    let number = work(widened)?.choices[place];
                    apart += self.assembled.seconds[widened.0][number];
                    taken = choice(widened, number).operands[0];
                }
                let ends = [choice(it.sum, adds).operands[it.before], choice(it.sum, adds).results[0]];
                let stays = |(between, seconds): &([usize; 2], f64)| {
                    *between == ends
                        && choice(it.product, made).results[it.result] == taken
                        && seconds - alone <= apart
                };
                let more = together.filter(stays).map(|(_, seconds)| seconds - alone);
                joins[place] |= more.is_some();
                entries.push(more.unwrap_or(apart));
            }
        }
        let seconds = Table { columns: sum.choices.len(), entries };
        Some(Joint { from: product.node, to: sum.node, widened: it.widened, sum: it.sum, seconds, joins })
    }

    /// The numbers of the layouts of the sum so far and of the sum between which a product adds in that partition, and
    /// what it takes (seconds); nothing if it cannot.
    fn together(&self, it: &Added, product: &Choice, prices: &dyn Prices) -> Option<([usize; 2], f64)> {
        let graph: &Graph = &self.section.graph;
        let (node, loops) = (&it.one.node, it.one.loops());
        let (before, after) = (*node.operands.last()?, node.results[it.result]);
        let partition = &product.partition;
        let layouts = [partition.operand(loops, node.operands.len() - 1), partition.result(loops, it.result)];
        let known = |value: ValueId, layout| self.space.layouts[value.0].binary_search(layout).ok();
        let ends = [known(before, &layouts[0])?, known(after, &layouts[1])?];
        if !it.is_equal(self.mesh, partition, [&layouts[0], &layouts[1]]) {
            return None;
        }
        let mut made = product.results.clone();
        made[it.result] = ends[1];
        let local = |(&value, &layout): (&ValueId, &usize)| {
            self.space.layouts[value.0][layout].local_type(graph.type_of(value))
        };
        let held = node.operands.iter().zip(product.operands.iter().chain([&ends[0]]));
        let operands: Vec<Type> = held.map(local).collect();
        let results: Vec<Type> = node.results.iter().zip(made.iter()).map(local).collect();
        let seconds = priced((&it.one, it.product), [&operands, &results], partition, prices);
        Some((ends, seconds))
    }
}

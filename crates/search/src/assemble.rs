//! A section's space and prices as a problem in plain numbers.
//!
//! | node of the problem | its choices | its time |
//! |---|---|---|
//! | an operation | its partitions | its work |
//! | a value that comes from outside, a weight, an input, a prepared value | its layouts at rest | 0 |
//! | a value that is used more than once | the layout in which one copy is held | 0 |
//! | a value that is handed on or returned | the layout in which it is handed on | 0 |
//!
//! An edge joins what makes a copy to what uses it: its table has the time of the cheapest moves
//! from each layout to each other one. A value that is used more than once is first moved into
//! the layout in which it is held, once, and from there to each use. So the time of an assignment
//! is exactly that of the plan that is written from it.

use std::collections::BTreeMap;

use planner_ir::{Graph, Layout, Mesh, NodeId, Source, Type, ValueId};
use rewrite::{Space, plain_layouts};

use crate::prices::{Prices, Work};
use crate::problem::{Edge, Held, Problem, Table, Window};
use crate::section::{Section, Sharing};
use crate::ways::{Found, Ways};

/// A problem and what its nodes stand for.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) problem: Problem,
    /// For each operation its node; nothing for prepared ones.
    pub(crate) work: Vec<Option<usize>>,
    /// For each value that is at rest or comes from outside, its node.
    pub(crate) rest: Vec<Option<usize>>,
    /// For each value of which a copy is held, its node.
    pub(crate) held: Vec<Option<usize>>,
    /// For each value that is handed on or returned, its node.
    pub(crate) delivered: Vec<Option<usize>>,
    /// For each node of a value, the layouts that its choices are: numbers in the space.
    pub(crate) layouts: Vec<Vec<usize>>,
    /// For each value, the number of its ways.
    pub(crate) ways: Vec<usize>,
    /// The ways.
    pub(crate) found: Vec<Ways>,
}

/// What uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// An operand of an operation.
    Operand(NodeId, usize),
    /// Handing on, or returning.
    Delivery,
}

struct Assembly<'a> {
    section: &'a Section,
    space: &'a Space,
    found: Found<'a>,
    assembled: Assembled,
    /// Tables by what they are made of: the ways, and the layouts on both sides.
    tables: BTreeMap<(usize, Vec<usize>, Vec<usize>), usize>,
    /// For each node of the problem and each value it makes or uses, the layouts.
    uses: Vec<Vec<Use>>,
}

/// The problem of a section.
pub(crate) fn assemble(section: &Section, space: &Space, mesh: &Mesh, prices: &dyn Prices) -> Assembled {
    let graph = &section.graph;
    let none = || vec![None; graph.values.len()];
    let mut assembly = Assembly {
        section,
        space,
        found: Found::default(),
        assembled: Assembled {
            problem: Problem::default(),
            work: vec![None; graph.nodes.len()],
            rest: none(),
            held: none(),
            delivered: none(),
            layouts: Vec::new(),
            ways: Vec::new(),
            found: Vec::new(),
        },
        tables: BTreeMap::new(),
        uses: uses(section, &space.prepared),
    };
    for value in graph.value_ids() {
        let (layouts, moves) = (&space.layouts[value.0], &space.moves[value.0]);
        let ways = assembly.found.ways(graph.type_of(value), layouts, moves, prices);
        assembly.assembled.ways.push(ways);
    }
    assembly.add_nodes(mesh, prices);
    assembly.add_edges();
    assembly.add_memory();
    let Assembly { mut assembled, found, .. } = assembly;
    assembled.found = found.into_ways();
    assembled
}

/// For each value, what uses it while the program runs.
fn uses(section: &Section, prepared: &[bool]) -> Vec<Vec<Use>> {
    let graph = &section.graph;
    let mut uses = vec![Vec::new(); graph.values.len()];
    for node in graph.node_ids() {
        if is_prepared(graph, node, prepared) {
            continue;
        }
        for (index, operand) in graph.node(node).operands.iter().enumerate() {
            uses[operand.0].push(Use::Operand(node, index));
        }
    }
    for value in graph.value_ids() {
        let shared = section.sharing(value).is_some() && !section.is_outside(value);
        if section.exit.contains(&value) || section.returned.contains(&value) || shared {
            uses[value.0].push(Use::Delivery);
        }
    }
    uses
}

pub(crate) fn is_prepared(graph: &Graph, node: NodeId, prepared: &[bool]) -> bool {
    graph.node(node).results.iter().all(|result| prepared[result.0])
}

impl Assembly<'_> {
    fn add_nodes(&mut self, mesh: &Mesh, prices: &dyn Prices) {
        let graph = &self.section.graph;
        for node in graph.node_ids() {
            if !is_prepared(graph, node, &self.space.prepared) {
                let times = self.work_times(node, prices);
                self.assembled.work[node.0] = Some(self.node(times, Vec::new()));
            }
        }
        for value in graph.value_ids() {
            let uses = self.uses[value.0].len();
            let made =
                matches!(graph.value(value).source, Source::Result { .. }) && !self.space.prepared[value.0];
            let outside = self.section.is_outside(value);
            if uses == 0 && !self.section.entry.contains(&value) {
                continue;
            }
            let handed = self.handed_layouts(value, mesh);
            if !made {
                let all =
                    (0..self.space.layouts[value.0].len()).filter(|&it| self.is_whole(value, it)).collect();
                let layouts = if outside { handed.clone() } else { all };
                self.assembled.rest[value.0] = Some(self.value_node(layouts));
            }
            // What is at rest is a copy that is held already.
            if uses > 1 && (made || outside) {
                let all = (0..self.space.layouts[value.0].len()).collect();
                self.assembled.held[value.0] = Some(self.value_node(all));
            }
            if self.uses[value.0].contains(&Use::Delivery) {
                self.assembled.delivered[value.0] = Some(self.value_node(handed));
            }
        }
    }

    fn node(&mut self, times: Vec<f64>, layouts: Vec<usize>) -> usize {
        self.assembled.problem.times.push(times);
        self.assembled.layouts.push(layouts);
        self.assembled.problem.times.len() - 1
    }

    fn value_node(&mut self, layouts: Vec<usize>) -> usize {
        self.node(vec![0.0; layouts.len()], layouts)
    }

    /// The layouts in which a value is handed on, shared or returned.
    fn handed_layouts(&self, value: ValueId, mesh: &Mesh) -> Vec<usize> {
        let type_ = self.section.graph.type_of(value);
        match self.section.sharing(value) {
            Some(Sharing::Whole) => self.numbers(value, &[Layout::replicated(type_.rank())]),
            _ => self.numbers(value, &plain_layouts(mesh, type_, rewrite::Splits::All)),
        }
    }

    /// The numbers of those layouts that the space has.
    fn numbers(&self, value: ValueId, layouts: &[Layout]) -> Vec<usize> {
        let known = &self.space.layouts[value.0];
        layouts.iter().filter_map(|layout| known.binary_search(layout).ok()).collect()
    }

    fn is_whole(&self, value: ValueId, layout: usize) -> bool {
        self.space.layouts[value.0][layout].owed.is_empty()
    }

    fn work_times(&self, node: NodeId, prices: &dyn Prices) -> Vec<f64> {
        let graph = &self.section.graph;
        let node_ = graph.node(node);
        let whole = graph.types_of(&node_.operands);
        let local = |values: &[ValueId], layouts: &[usize]| -> Vec<Type> {
            let local = |(&value, &layout): (&ValueId, &usize)| {
                self.space.layouts[value.0][layout].local_type(graph.type_of(value))
            };
            values.iter().zip(layouts).map(local).collect()
        };
        let time = |choice: &rewrite::Choice| {
            let operands = local(&node_.operands, &choice.operands);
            let results = local(&node_.results, &choice.results);
            prices.work(&Work {
                op: &node_.op,
                whole: &whole,
                operands: &operands,
                results: &results,
                node,
                partition: &choice.partition,
            })
        };
        self.space.choices[node.0].iter().map(time).collect()
    }

    /// For each choice of the problem's node that makes a value, the layout it is made in.
    fn made(&self, value: ValueId) -> (usize, Vec<usize>) {
        if let Some(rest) = self.assembled.rest[value.0] {
            return (rest, self.assembled.layouts[rest].clone());
        }
        let Source::Result { node, index } = self.section.graph.value(value).source else {
            unreachable!("what is not computed is at rest")
        };
        let layouts = self.space.choices[node.0].iter().map(|choice| choice.results[index]).collect();
        (self.work(node), layouts)
    }

    fn work(&self, node: NodeId) -> usize {
        let Some(work) = self.assembled.work[node.0] else {
            unreachable!("prepared operations are not used at run time")
        };
        work
    }

    fn add_edges(&mut self) {
        for value in self.section.graph.value_ids() {
            if self.uses[value.0].is_empty() {
                continue;
            }
            let mut from = self.made(value);
            if let Some(held) = self.assembled.held[value.0] {
                let layouts = self.assembled.layouts[held].clone();
                self.edge(value, &from, &(held, layouts.clone()));
                from = (held, layouts);
            }
            for it in self.uses[value.0].clone() {
                let to = match it {
                    Use::Operand(node, index) => {
                        let layouts = self.space.choices[node.0].iter().map(|choice| choice.operands[index]);
                        (self.work(node), layouts.collect())
                    }
                    Use::Delivery => {
                        let Some(delivered) = self.assembled.delivered[value.0] else { continue };
                        (delivered, self.assembled.layouts[delivered].clone())
                    }
                };
                self.edge(value, &from, &to);
            }
        }
    }

    /// Moves of a value from the layouts of one node's choices to those of another's.
    fn edge(&mut self, value: ValueId, from: &(usize, Vec<usize>), to: &(usize, Vec<usize>)) {
        let ways = self.assembled.ways[value.0];
        let key = (ways, from.1.clone(), to.1.clone());
        let problem = &mut self.assembled.problem;
        let found = &self.found;
        let table = *self.tables.entry(key).or_insert_with(|| {
            let ways = found.get(ways);
            let row = |&before: &usize| to.1.iter().map(move |&after| ways.time(before, after));
            problem
                .tables
                .push(Table { columns: to.1.len(), entries: from.1.iter().flat_map(row).collect() });
            problem.tables.len() - 1
        });
        problem.edges.push(Edge { from: from.0, to: to.0, table });
    }

    /// What certainly is there, so that no plan that fits is missed: weights, inputs and prepared
    /// values are resident; at each operation, what has been made and is used later is live in the
    /// layout that is held, and the operation's results and the operands that it uses last are
    /// there in the layouts it works on. What else a plan holds (copies, values on their way) is
    /// counted when it is written (`compose::memory`).
    fn add_memory(&mut self) {
        let graph = &self.section.graph;
        let mut windows: Vec<Window> = vec![Window::default(); graph.nodes.len()];
        for value in graph.value_ids() {
            if self.uses[value.0].is_empty() {
                continue;
            }
            if self.is_resident(value) {
                if let Some(node) = self.assembled.rest[value.0] {
                    let bytes = self.bytes(value, &self.assembled.layouts[node].clone());
                    self.assembled.problem.resident.push(Held { node, bytes });
                }
                continue;
            }
            let Live { made, used, last } = self.live(value);
            let (node, layouts) = self.made(value);
            let bytes = self.bytes(value, &layouts);
            let held = self.assembled.held[value.0];
            for window in &mut windows[made..if held.is_some() { used } else { last }] {
                window.held.push(Held { node, bytes });
            }
            if let Some(node) = held {
                let bytes = self.bytes(value, &self.assembled.layouts[node].clone());
                for window in &mut windows[used..last] {
                    window.held.push(Held { node, bytes });
                }
            }
        }
        for node in graph.node_ids() {
            let Some(work) = self.assembled.work[node.0] else { continue };
            let node_ = graph.node(node);
            let local = |value: ValueId, layout: usize| {
                self.space.layouts[value.0][layout].local_type(graph.type_of(value)).bytes()
            };
            let is_last = |value: ValueId| !self.is_resident(value) && self.live(value).last == node.0;
            let touched = |choice: &rewrite::Choice| -> u64 {
                let operands = node_.operands.iter().zip(&choice.operands).enumerate();
                // A value that is used twice is there once.
                let first = |index: usize, value: &ValueId| !node_.operands[..index].contains(value);
                let operands = operands.filter(|&(index, (value, _))| is_last(*value) && first(index, value));
                let results = node_.results.iter().zip(&choice.results);
                operands.map(|(_, it)| it).chain(results).map(|(&value, &layout)| local(value, layout)).sum()
            };
            let bytes = self.space.choices[node.0].iter().map(touched).collect();
            let problem = &mut self.assembled.problem;
            problem.bytes.push(bytes);
            windows[node.0].held.push(Held { node: work, bytes: problem.bytes.len() - 1 });
        }
        let computed = |node: &NodeId| self.assembled.work[node.0].is_some();
        let windows = graph.node_ids().filter(computed).map(|node| windows[node.0].clone()).collect();
        self.assembled.problem.windows = windows;
    }

    /// Whether a value stays where it is through everything.
    fn is_resident(&self, value: ValueId) -> bool {
        self.assembled.rest[value.0].is_some() && !self.section.is_outside(value)
    }

    /// When a value is there.
    fn live(&self, value: ValueId) -> Live {
        let nodes = self.section.graph.nodes.len();
        let made = match self.section.graph.value(value).source {
            Source::Result { node, .. } => node.0 + 1,
            _ => 0,
        };
        let position = |it: &Use| match it {
            Use::Operand(node, _) => node.0,
            Use::Delivery => nodes,
        };
        let positions = self.uses[value.0].iter().map(position);
        let used = positions.clone().min().unwrap_or(made).max(made);
        Live { made, used, last: positions.max().unwrap_or(made).max(used) }
    }

    fn bytes(&mut self, value: ValueId, layouts: &[usize]) -> usize {
        let type_ = self.section.graph.type_of(value);
        let local = |&layout: &usize| self.space.layouts[value.0][layout].local_type(type_).bytes();
        self.assembled.problem.bytes.push(layouts.iter().map(local).collect());
        self.assembled.problem.bytes.len() - 1
    }
}

/// Positions of operations: after which a value is made, at which it is used first, and last.
struct Live {
    made: usize,
    used: usize,
    last: usize,
}

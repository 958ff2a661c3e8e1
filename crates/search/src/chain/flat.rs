//! A chain as one problem, in which a node that blocks share is one node.

use super::{Chain, ChainChoices, Segment};
use crate::problem::{Edge, Held, Live, Problem};

/// A chain as one problem, and which node is which.
#[derive(Clone, Debug, PartialEq)]
pub struct Flat {
    /// The problem: the same time, and the same peak of memory.
    pub problem: Problem,
    /// For each global, its node.
    pub globals: Vec<usize>,
    /// For each segment, block and node of it, the node of `problem`.
    pub nodes: Vec<Vec<Vec<usize>>>,
}

impl Chain {
    /// This chain as one problem.
    pub fn flat(&self) -> Flat {
        let mut flat = Flat {
            problem: Problem::default(),
            globals: (0..self.globals.len()).collect(),
            nodes: Vec::new(),
        };
        for (node, global) in self.globals.iter().enumerate() {
            flat.problem.times.push(global.times.clone());
            flat.problem.resident.push(Held { node, bytes: flat.problem.bytes.len() });
            flat.problem.bytes.push(global.resident.clone());
        }
        let mut exit: Vec<usize> = Vec::new();
        for segment in &self.segments {
            let tables = flat.problem.tables.len();
            let bytes = flat.problem.bytes.len();
            flat.problem.tables.extend_from_slice(&segment.problem.tables);
            flat.problem.bytes.extend_from_slice(&segment.problem.bytes);
            let mut blocks = Vec::with_capacity(segment.count);
            for _ in 0..segment.count {
                let nodes = flat.problem.number(segment, &exit);
                flat.problem.append(&segment.problem, &nodes, tables, bytes);
                exit = segment.exit.iter().map(|&node| nodes[node]).collect();
                blocks.push(nodes);
            }
            flat.nodes.push(blocks);
        }
        flat
    }
}

impl Flat {
    /// An assignment of the problem as choices of the chain.
    pub fn unfold(&self, choices: &[usize]) -> ChainChoices {
        let all = |nodes: &Vec<usize>| nodes.iter().map(|&node| choices[node]).collect();
        ChainChoices {
            globals: all(&self.globals),
            blocks: self.nodes.iter().map(|blocks| blocks.iter().map(all).collect()).collect(),
        }
    }

    /// Choices of the chain, which agree, as an assignment of the problem.
    pub fn fold(&self, chain: &ChainChoices) -> Vec<usize> {
        let mut choices = vec![0; self.problem.times.len()];
        let nodes = self.nodes.iter().flatten().flatten().chain(&self.globals);
        let chosen = chain.blocks.iter().flatten().flatten().chain(&chain.globals);
        for (&node, &choice) in nodes.zip(chosen) {
            choices[node] = choice;
        }
        choices
    }
}

impl Problem {
    /// Adds the nodes of a block that are not there yet; returns the numbers of all.
    fn number(&mut self, segment: &Segment, before: &[usize]) -> Vec<usize> {
        let count = segment.problem.times.len();
        let mut numbers: Vec<Option<usize>> = vec![None; count];
        for shared in &segment.shared {
            numbers[shared.node] = Some(shared.global);
        }
        for (&node, &exit) in segment.entry.iter().zip(before) {
            numbers[node] = Some(exit);
        }
        let mut add = |node: usize| {
            self.times.push(vec![0.0; segment.problem.times[node].len()]);
            self.times.len() - 1
        };
        numbers.into_iter().enumerate().map(|(node, number)| number.unwrap_or_else(|| add(node))).collect()
    }

    /// Adds what a block costs, its tables and bytes being there from the given indices on.
    fn append(&mut self, block: &Self, nodes: &[usize], tables: usize, bytes: usize) {
        for (times, &node) in block.times.iter().zip(nodes) {
            for (sum, time) in self.times[node].iter_mut().zip(times) {
                *sum += time;
            }
        }
        for edge in &block.edges {
            let (from, to) = (nodes[edge.from], nodes[edge.to]);
            if from != to {
                self.edges.push(Edge { from, to, table: tables + edge.table });
                continue;
            }
            for (choice, sum) in self.times[from].iter_mut().enumerate() {
                *sum += block.tables[edge.table].at(choice, choice);
            }
        }
        let held = |held: &Held| Held { node: nodes[held.node], bytes: bytes + held.bytes };
        self.resident.extend(block.resident.iter().map(held));
        let first = self.windows.len();
        let live =
            |live: &Live| Live { held: held(&live.held), from: first + live.from, until: first + live.until };
        self.live.extend(block.live.iter().map(live));
        self.windows.extend_from_slice(&block.windows);
    }
}

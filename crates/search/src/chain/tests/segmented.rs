//! PrimePar's dynamic programming over segments, beside our search.
//!
//! ```text
//! extend   C_i,j+1(p_i, p_j+1) = min_pj  C_ij + node_j+1 + edge_j,j+1   (+ edge_i,j+1)
//! merge    C_ik(p_i, p_k)      = min_pj  C_ij + C_jk − node_j           (+ edge_ik)
//! ```
//!
//! Source: Wang et al., "PrimePar", ASPLOS 2024, section 5: equations 11 to 14 and the graph of a
//! transformer's layer.

use super::*;
use crate::eliminate::{Objective, order, reduce};
use crate::ilp;

/// The nodes of a layer: 0 is the last of the layer before, 12 the last of this.
const NODES: usize = 13;

/// Its edges besides those from each node to the next.
const LONG: [(usize, usize); 3] = [(2, 5), (0, 7), (7, 12)];

/// Where its segments begin and end.
const CUTS: [usize; 4] = [0, 2, 7, 12];

/// Random costs of a graph of nodes in a row and some longer edges; those of the first node are those
/// of the last, where both have as many choices.
fn layer(dice: &mut Dice, domains: &[usize], long: &[(usize, usize)]) -> Problem {
    let times = domains.iter().map(|&domain| (0..domain).map(|_| real(dice.below(1000)) / 64.0).collect());
    let mut problem = Problem { times: times.collect(), ..Problem::default() };
    let last = domains.len() - 1;
    if domains[0] == domains[last] {
        problem.times[0] = problem.times[last].clone();
    }
    for (from, to) in (0..last).map(|it| (it, it + 1)).chain(long.iter().copied()) {
        let entries = (0..domains[from] * domains[to]).map(|_| dice.time(12)).collect();
        problem.edges.push(Edge { from, to, table: problem.tables.len() });
        problem.tables.push(Table { columns: domains[to], entries }.into());
    }
    problem
}

/// The recurrences over one problem.
struct Segmented<'a> {
    problem: &'a Problem,
    /// Which edges were counted.
    counted: Vec<bool>,
}

impl Segmented<'_> {
    fn choices(&self, node: usize) -> usize {
        self.problem.times[node].len()
    }

    /// What two choices cost together; nothing if the nodes are not joined.
    fn edge(&mut self, from: usize, to: usize) -> impl Fn(usize, usize) -> f64 + use<> {
        let at = self.problem.edges.iter().position(|it| (it.from, it.to) == (from, to));
        let table = at.map(|at| self.problem.tables[self.problem.edges[at].table].clone());
        if let Some(at) = at {
            assert!(!std::mem::replace(&mut self.counted[at], true), "counted twice");
        }
        move |row, column| table.as_ref().map_or(0.0, |it| it.at(row, column))
    }

    /// A table with a row for each choice of one node and a column for each of another.
    fn table(&self, from: usize, to: usize, entry: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
        let columns = self.choices(to);
        (0..self.choices(from)).map(|row| (0..columns).map(|column| entry(row, column)).collect()).collect()
    }

    /// The least cost of a segment for each choice of its ends: equations 11 and 12.
    fn segment(&mut self, first: usize, last: usize) -> Vec<Vec<f64>> {
        let problem = self.problem;
        let time = |node: usize, choice: usize| problem.times[node][choice];
        let edge = self.edge(first, first + 1);
        let mut costs = self.table(first, first + 1, |p, q| time(first, p) + time(first + 1, q) + edge(p, q));
        for next in first + 2..=last {
            let (edge, skip) = (self.edge(next - 1, next), self.edge(first, next));
            costs = self.table(first, next, |p, q| {
                let through = (0..self.choices(next - 1)).map(|middle| costs[p][middle] + edge(middle, q));
                through.fold(f64::INFINITY, f64::min) + time(next, q) + skip(p, q)
            });
        }
        costs
    }
}

/// The least cost of two stretches that share a node of these times: equation 13.
fn merged(left: &[Vec<f64>], right: &[Vec<f64>], times: &[f64]) -> Vec<Vec<f64>> {
    let entry = |row: &Vec<f64>, column: usize| {
        let through = (0..times.len()).map(|at| row[at] + right[at][column] - times[at]);
        through.fold(f64::INFINITY, f64::min)
    };
    left.iter().map(|row| (0..right[0].len()).map(|column| entry(row, column)).collect()).collect()
}

/// The least cost for each choice of the first and the last node, one segment after the other; and the
/// edges that the recurrences leave out, as no segment begins with them.
fn segmented(problem: &Problem, cuts: &[usize]) -> (Vec<Vec<f64>>, Vec<(usize, usize)>) {
    let mut it = Segmented { problem, counted: vec![false; problem.edges.len()] };
    let mut costs = it.segment(cuts[0], cuts[1]);
    for pair in cuts[1..].windows(2) {
        costs = merged(&costs, &it.segment(pair[0], pair[1]), &problem.times[pair[0]]);
        // Equation 14.
        let (skip, without) = (it.edge(cuts[0], pair[1]), costs);
        costs = it.table(cuts[0], pair[1], |p, q| without[p][q] + skip(p, q));
    }
    let left_out = problem.edges.iter().zip(&it.counted).filter(|(_, counted)| !**counted);
    (costs, left_out.map(|(edge, _)| (edge.from, edge.to)).collect())
}

fn least(costs: &[Vec<f64>]) -> f64 {
    costs.iter().flatten().copied().fold(f64::INFINITY, f64::min)
}

/// Numbers of choices of the layer's nodes, of which so many assignments can be tried.
fn few(dice: &mut Dice, most: usize) -> Vec<usize> {
    loop {
        let mut domains: Vec<usize> = (0..NODES).map(|_| dice.between(1, 3)).collect();
        domains[NODES - 1] = domains[0];
        if domains.iter().product::<usize>() <= most {
            return domains;
        }
    }
}

#[test]
fn the_segmented_program_elimination_the_integer_program_and_trying_everything_agree() {
    let mut forbidden = 0;
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let domains = if seed == 0 { vec![3; NODES] } else { few(&mut dice, 30_000) };
        let problem = layer(&mut dice, &domains, &LONG);
        let (costs, left_out) = segmented(&problem, &CUTS);
        assert_eq!(left_out, []);
        match exhaustive::solve(&problem, u64::MAX) {
            Ok(truth) => {
                assert!(close(least(&costs), truth.time), "seed {seed}: {} {truth:?}", least(&costs));
                let ours = eliminate::solve(&problem).unwrap();
                assert!(close(ours.time, truth.time) && close(problem.time(&ours.choices), truth.time));
                let second = ilp::solve(&problem, u64::MAX >> 20).unwrap();
                assert!(close(second.time, truth.time), "seed {seed}: {second:?} {truth:?}");
            }
            Err(refusal) => {
                forbidden += 1;
                assert!(least(&costs).is_infinite(), "seed {seed}");
                assert_eq!(eliminate::solve(&problem), Err(refusal));
            }
        }
    }
    assert!(forbidden < 30, "{forbidden}");
}

/// With more choices than can be tried: not the least of all only, but for every choice of both ends.
#[test]
fn every_pair_of_ends_costs_as_much_by_segments_as_by_elimination() {
    for seed in 0..8 {
        let mut dice = Dice(seed);
        let domains: Vec<usize> = (0..NODES).map(|_| dice.between(4, 24)).collect();
        let problem = layer(&mut dice, &domains, &LONG);
        let (costs, left_out) = segmented(&problem, &CUTS);
        assert_eq!(left_out, []);
        let reduced = reduce(&Objective::time(&problem), &order(&problem, &[0, NODES - 1])).unwrap();
        for (at, &cost) in costs.iter().flatten().enumerate() {
            assert!(close(cost, reduced.table[at]), "seed {seed}: {cost} {}", reduced.table[at]);
        }
        assert!(close(eliminate::solve(&problem).unwrap().time, least(&costs)));
    }
}

/// Layers, each but the first without the cost of the node that it shares with the one before.
fn layers(layer: &Problem, count: usize) -> Chain {
    let first = Problem { times: vec![layer.times[0].clone()], ..Problem::default() };
    let mut rest = layer.clone();
    rest.times[0].fill(0.0);
    let segment = |problem, entry, exit, count| Segment {
        problem,
        entry,
        exit,
        shared: Vec::new(),
        count,
        variants: Vec::new(),
    };
    let segments = vec![segment(first, vec![], vec![0], 1), segment(rest, vec![0], vec![NODES - 1], count)];
    Chain { globals: Vec::new(), segments }
}

#[test]
fn layers_that_are_merged_with_themselves_cost_as_much_as_our_chain_of_them() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let mut domains: Vec<usize> = (0..NODES).map(|_| dice.between(1, 5)).collect();
        domains[NODES - 1] = domains[0];
        let problem = layer(&mut dice, &domains, &LONG);
        let (mut costs, left_out) = segmented(&problem, &CUTS);
        assert_eq!(left_out, []);
        // 1, 2, 4, … layers: each time what there is, twice.
        for merges in 0..5 {
            let chain = layers(&problem, 1 << merges);
            match bound::solve_chain(&chain, 1 << 40) {
                Ok(ours) => {
                    assert_eq!(ours.proof, Proof::Optimal);
                    assert!(close(ours.time, least(&costs)), "seed {seed}, {merges}: {}", least(&costs));
                    assert!(close(chain.time(&ours.choices), ours.time));
                }
                Err(refusal) => assert!(least(&costs).is_infinite(), "seed {seed}: {refusal}"),
            }
            let unrolled = eliminate::solve(&chain.flat().problem).map_or(f64::INFINITY, |it| it.time);
            assert!(close(unrolled, least(&costs)), "seed {seed}, {merges}: {unrolled}");
            costs = merged(&costs, &costs, &problem.times[0]);
        }
    }
}

/// Where a node within a segment has a long edge, or an edge goes over two segments and begins with
/// the second, no equation counts it: the least is said to be less than it is, and what costs that
/// little without the edge is not always the best with it. Elimination needs no segments.
#[test]
fn a_long_edge_from_within_a_segment_is_left_out_by_segments_and_not_by_elimination() {
    for extra in [(3, 6), (1, 9), (2, 12), (8, 11)] {
        let long = [&LONG[..], &[extra]].concat();
        let (mut wrong, mut tried) = (0, 0);
        for seed in 0..20 {
            let mut dice = Dice(seed);
            let domains = few(&mut dice, 10_000);
            let problem = layer(&mut dice, &domains, &long);
            let (costs, left_out) = segmented(&problem, &CUTS);
            assert_eq!(left_out, [extra]);
            let Ok(truth) = exhaustive::solve(&problem, u64::MAX) else { continue };
            let ours = eliminate::solve(&problem).unwrap();
            assert!(close(ours.time, truth.time), "{extra:?}, seed {seed}");
            assert!(least(&costs) <= truth.time + 1e-9);
            let without =
                Problem { edges: problem.edges[..problem.edges.len() - 1].to_vec(), ..problem.clone() };
            let taken = eliminate::solve(&without).unwrap();
            assert!(close(taken.time, least(&costs)), "{extra:?}, seed {seed}");
            wrong += usize::from(problem.time(&taken.choices) > truth.time + 1e-9);
            tried += 1;
        }
        assert!(tried > 10 && wrong > 1, "{extra:?}: {wrong} of {tried}");
    }
}

//! A problem as a network of nodes and links, and the messages along them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pulp::Arch;

use super::ROUNDING;
use super::shifts::Shifts;
use crate::eliminate::LeastByRows;
use crate::problem::{Edge, Problem, Table, real_size};

/// The links of a problem: one for each pair of nodes that have costs together.
#[derive(Clone, Debug)]
pub(crate) struct Wiring {
    pub(super) links: Vec<Link>,
    /// For each node, its links.
    pub(super) around: Vec<Vec<usize>>,
    /// For each node, `γ`, and how many links it has to earlier nodes.
    shares: Vec<(f64, f64)>,
}

/// Nodes with costs, and how they are linked.
#[derive(Clone, Debug)]
pub(super) struct Network<'a> {
    /// What choices cost, with what is moved from one end to the other.
    pub(super) costs: Vec<Vec<f64>>,
    /// What they cost without.
    own: Vec<Vec<f64>>,
    wiring: &'a Wiring,
}

/// The costs of two nodes together.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// The earlier and the later node.
    pub(super) ends: [usize; 2],
    /// A row for each choice of the earlier one.
    pub(super) table: Vec<f64>,
    /// The same with a row for each choice of the later one.
    turned: Vec<f64>,
}

/// What nodes say to each other, and which choices they have left.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    pub(super) alive: Vec<Vec<bool>>,
    /// For each link, what is said to its earlier and to its later end.
    pub(super) said: Vec<[Vec<f64>; 2]>,
}

/// The nodes of a problem of what is left.
#[derive(Debug)]
pub(super) struct Left {
    /// For each node, the choices it has left.
    choices: Vec<Vec<usize>>,
    /// The nodes that have several.
    free: Vec<usize>,
}

impl Left {
    /// The number of a node among those that have several choices left.
    pub(super) fn place(&self, node: usize) -> Option<usize> {
        self.free.binary_search(&node).ok()
    }

    /// The number of a choice among those that a node has left.
    pub(super) fn among(&self, node: usize, choice: usize) -> Option<usize> {
        self.choices[node].binary_search(&choice).ok()
    }

    /// Choices of the free nodes as an assignment of all.
    pub(super) fn restore(&self, free: &[usize], domains: &[usize]) -> Vec<usize> {
        let mut choices = vec![0; domains.len()];
        for (choice, left) in choices.iter_mut().zip(&self.choices) {
            *choice = left[0];
        }
        for (&node, &place) in self.free.iter().zip(free) {
            choices[node] = self.choices[node][place];
        }
        choices
    }
}

impl Wiring {
    /// Links nodes that have so many choices.
    pub(crate) fn new(domains: &[usize], edges: &[Edge], tables: &[Arc<Table>]) -> Self {
        let mut pairs: BTreeMap<[usize; 2], Vec<f64>> = BTreeMap::new();
        for edge in edges {
            let entries = &tables[edge.table].entries;
            let sizes = [domains[edge.from], domains[edge.to]];
            let (ends, entries) = if edge.from < edge.to {
                ([edge.from, edge.to], entries.clone())
            } else {
                ([edge.to, edge.from], turned(entries, sizes))
            };
            match pairs.get_mut(&ends) {
                Some(sums) => sums.iter_mut().zip(entries).for_each(|(sum, it)| *sum += it),
                None => {
                    pairs.insert(ends, entries);
                }
            }
        }
        let mut around = vec![Vec::new(); domains.len()];
        let mut counts = vec![[0_usize; 2]; domains.len()];
        let mut links = Vec::with_capacity(pairs.len());
        for (ends, table) in pairs {
            let [a, b] = ends;
            [a, b].into_iter().for_each(|end| around[end].push(links.len()));
            counts[a][1] += 1;
            counts[b][0] += 1;
            let turned = turned(&table, [domains[a], domains[b]]);
            links.push(Link { ends, table, turned });
        }
        let share = |[earlier, later]: &[usize; 2]| {
            (1.0 / real_size((*earlier).max(*later).max(1)), real_size(*earlier))
        };
        Self { links, around, shares: counts.iter().map(share).collect() }
    }
}

impl<'a> Network<'a> {
    pub(super) fn new(costs: Vec<Vec<f64>>, wiring: &'a Wiring) -> Self {
        Self { own: costs.clone(), costs, wiring }
    }

    pub(super) fn links(&self) -> &'a [Link] {
        &self.wiring.links
    }

    pub(super) fn around(&self, node: usize) -> &'a [usize] {
        &self.wiring.around[node]
    }

    /// Moves costs so, and no others.
    pub(super) fn shift(&mut self, shifts: &Shifts) {
        self.costs.clone_from(&self.own);
        shifts.apply(&mut self.costs);
    }

    /// What an assignment costs, where nothing is moved.
    pub(super) fn cost(&self, choices: &[usize]) -> f64 {
        let nodes: f64 = self.own.iter().zip(choices).map(|(costs, &it)| costs[it]).sum();
        nodes + self.links().iter().map(|link| self.at(link, choices)).sum::<f64>()
    }

    /// What a link costs.
    pub(super) fn at(&self, link: &Link, choices: &[usize]) -> f64 {
        let [a, b] = link.ends;
        link.table[choices[a] * self.costs[b].len() + choices[b]]
    }

    /// The problem of the nodes that have several choices left, and what the others cost beside it.
    pub(super) fn left(&self, messages: &Messages) -> (Left, Problem, f64) {
        let alive = |node: &Vec<bool>| -> Vec<usize> { (0..node.len()).filter(|&it| node[it]).collect() };
        let choices: Vec<Vec<usize>> = messages.alive.iter().map(alive).collect();
        let free: Vec<usize> = (0..choices.len()).filter(|&node| choices[node].len() > 1).collect();
        let mut number = vec![None; choices.len()];
        free.iter().enumerate().for_each(|(place, &node)| number[node] = Some(place));
        let times = free.iter().map(|&node| choices[node].iter().map(|&it| self.costs[node][it]).collect());
        let mut problem = Problem { times: times.collect(), ..Problem::default() };
        let single = choices.iter().zip(&self.costs).filter(|(left, _)| left.len() == 1);
        let mut constant: f64 = single.map(|(left, costs)| costs[left[0]]).sum();
        for link in self.links() {
            let [a, b] = link.ends;
            let columns = self.costs[b].len();
            let at = |row: usize, column: usize| link.table[row * columns + column];
            match (number[a], number[b]) {
                (None, None) => constant += at(choices[a][0], choices[b][0]),
                (Some(place), None) => {
                    let own = problem.times[place].iter_mut().zip(&choices[a]);
                    own.for_each(|(time, &row)| *time += at(row, choices[b][0]));
                }
                (None, Some(place)) => {
                    let own = problem.times[place].iter_mut().zip(&choices[b]);
                    own.for_each(|(time, &column)| *time += at(choices[a][0], column));
                }
                (Some(from), Some(to)) => {
                    let entries =
                        choices[a].iter().flat_map(|&row| choices[b].iter().map(move |&it| at(row, it)));
                    let table = Table { columns: choices[b].len(), entries: entries.collect() };
                    problem.edges.push(Edge { from, to, table: problem.tables.len() });
                    problem.tables.push(table.into());
                }
            }
        }
        (Left { choices, free }, problem, constant)
    }
}

/// `least[j] = min_i addends[i] + matrix[i][j]`, where infinite addends are skipped.
fn least_by_rows(least: &mut [f64], addends: &[f64], matrix: &[f64]) {
    Arch::new().dispatch(LeastByRows { least, addends, matrix });
}

fn turned(entries: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| entries[row * columns + column])).collect()
}

impl Messages {
    /// Nothing said, and all choices left that are not forbidden.
    pub(super) fn new(network: &Network<'_>) -> Self {
        let silent = |link: &Link| link.ends.map(|end| vec![0.0; network.costs[end].len()]);
        let alive = |costs: &Vec<f64>| costs.iter().map(|it| *it < f64::INFINITY).collect();
        Self {
            alive: network.costs.iter().map(alive).collect(),
            said: network.links().iter().map(silent).collect(),
        }
    }

    /// For each node and choice, that it cannot be.
    pub(super) fn forbidden(&self) -> Vec<Vec<f64>> {
        self.alive.iter().map(|it| vec![f64::INFINITY; it.len()]).collect()
    }

    /// Leaves a node one choice.
    pub(super) fn only(&mut self, node: usize, choice: usize) {
        let alive = &mut self.alive[node];
        (0..alive.len()).filter(|&it| it != choice).for_each(|it| alive[it] = false);
    }

    /// Drops the choices that are in no assignment that costs less than this, as far as it is known of each by how
    /// much it exceeds the bound; whether there may be such an assignment.
    pub(super) fn spare(
        &mut self,
        network: &Network<'_>,
        (bound, excess): (f64, &[Vec<f64>]),
        least: f64,
    ) -> bool {
        let most = least - bound + ROUNDING * self.size(network, bound);
        for (alive, excess) in self.alive.iter_mut().zip(excess) {
            alive.iter_mut().zip(excess).for_each(|(alive, over)| *alive &= *over <= most);
        }
        self.alive.iter().all(|alive| alive.contains(&true)) && self.settle(network)
    }

    /// Drops choices that no choice of a neighbour is allowed with; whether every node has some left.
    pub(super) fn settle(&mut self, network: &Network<'_>) -> bool {
        let mut waiting: Vec<bool> = vec![true; network.costs.len()];
        let mut queue: VecDeque<usize> = (0..waiting.len()).collect();
        while let Some(node) = queue.pop_front() {
            waiting[node] = false;
            for &number in network.around(node) {
                let link = &network.links()[number];
                let earlier = link.ends[0] == node;
                let other = link.ends[usize::from(earlier)];
                let rows = if earlier { &link.turned } else { &link.table };
                let width = self.alive[node].len();
                let mut fewer = false;
                for choice in 0..self.alive[other].len() {
                    if !self.alive[other][choice] {
                        continue;
                    }
                    let row = rows[choice * width..][..width].iter().zip(&self.alive[node]);
                    if !row.into_iter().any(|(cost, alive)| *alive && *cost < f64::INFINITY) {
                        self.alive[other][choice] = false;
                        fewer = true;
                    }
                }
                if fewer && !std::mem::replace(&mut waiting[other], true) {
                    queue.push_back(other);
                }
            }
            if !self.alive[node].contains(&true) {
                return false;
            }
        }
        self.alive.iter().all(|alive| alive.contains(&true))
    }

    /// What a node's choices cost with all that is said to it; infinite for those that are gone.
    fn heard(&self, network: &Network<'_>, node: usize) -> Vec<f64> {
        let mut heard = network.costs[node].clone();
        for &link in network.around(node) {
            let said = &self.said[link][usize::from(network.links()[link].ends[1] == node)];
            heard.iter_mut().zip(said).for_each(|(sum, it)| *sum += it);
        }
        let gone = heard.iter_mut().zip(&self.alive[node]).filter(|(_, alive)| !**alive);
        gone.for_each(|(sum, _)| *sum = f64::INFINITY);
        heard
    }

    /// Messages to all later nodes, then to all earlier ones.
    pub(super) fn sweep(&mut self, network: &Network<'_>) {
        let nodes = network.costs.len();
        (0..nodes).for_each(|node| self.send(network, node, 1));
        (0..nodes).rev().for_each(|node| self.send(network, node, 0));
    }

    /// What a node says to its neighbours at one end: the later ones (1) or the earlier ones (0).
    fn send(&mut self, network: &Network<'_>, node: usize, end: usize) {
        let heard = self.heard(network, node);
        let (gamma, _) = network.wiring.shares[node];
        for &number in network.around(node) {
            let link = &network.links()[number];
            if link.ends[1 - end] != node {
                continue;
            }
            let back = &self.said[number][1 - end];
            let addends: Vec<f64> = heard.iter().zip(back).map(|(sum, back)| gamma * sum - back).collect();
            let rows = if end == 1 { &link.table } else { &link.turned };
            let mut message = vec![0.0; self.said[number][end].len()];
            least_by_rows(&mut message, &addends, rows);
            let alive = &self.alive[link.ends[end]];
            let least = message.iter().zip(alive).filter(|(_, alive)| **alive);
            let least = least.fold(f64::INFINITY, |least, (it, _)| least.min(*it));
            let said = message.iter().zip(alive);
            let said = said.map(|(it, alive)| if *alive && *it < f64::INFINITY { it - least } else { 0.0 });
            self.said[number][end] = said.collect();
        }
    }

    /// The bound, and by how much each choice exceeds it at least.
    pub(super) fn bound(&self, network: &Network<'_>) -> (f64, Vec<Vec<f64>>) {
        let heard: Vec<Vec<f64>> = (0..network.costs.len()).map(|node| self.heard(network, node)).collect();
        let mut bound = 0.0;
        let mut excess: Vec<Vec<f64>> = Vec::with_capacity(heard.len());
        for (sums, (gamma, earlier)) in heard.iter().zip(&network.wiring.shares) {
            let share = 1.0 - gamma * earlier;
            let least = sums.iter().copied().fold(f64::INFINITY, f64::min);
            bound += share * least;
            let over = |it: &f64| if *it < f64::INFINITY { share * (it - least) } else { f64::INFINITY };
            excess.push(sums.iter().map(over).collect());
        }
        for (link, [to_earlier, to_later]) in network.links().iter().zip(&self.said) {
            let [a, b] = link.ends;
            let (gamma, _) = network.wiring.shares[b];
            let rest = |(alive, said): (&bool, &f64)| if *alive { -said } else { f64::INFINITY };
            let addends: Vec<f64> = self.alive[a].iter().zip(to_earlier).map(rest).collect();
            let mut least_of = vec![0.0; heard[b].len()];
            least_by_rows(&mut least_of, &addends, &link.table);
            let own = heard[b].iter().zip(to_later);
            least_of.iter_mut().zip(own).for_each(|(sum, (heard, said))| *sum += gamma * heard - said);
            let least = least_of.iter().copied().fold(f64::INFINITY, f64::min);
            bound += least;
            let over = excess[b].iter_mut().zip(&least_of).filter(|(over, _)| **over < f64::INFINITY);
            over.for_each(|(over, it)| *over += it - least);
        }
        (bound - ROUNDING * self.size(network, bound), excess)
    }

    /// How large the numbers are that a bound is the sum of.
    pub(super) fn size(&self, network: &Network<'_>, bound: f64) -> f64 {
        let least = |costs: &Vec<f64>| costs.iter().copied().fold(f64::INFINITY, f64::min).abs();
        bound.abs() + network.costs.iter().map(least).filter(|it| *it < f64::INFINITY).sum::<f64>()
    }
}

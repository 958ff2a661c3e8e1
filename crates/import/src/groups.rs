//! Which operations become one region: those that values of unknown shape connect, and those on
//! the way between operations of one region, so that the graph of regions has no cycle.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use planner_ir::{Op, ValueId};

use crate::builder::{Builder, Step};

/// Whether a step belongs into a region.
pub(crate) fn is_dynamic(builder: &Builder, step: &Step) -> bool {
    let mut values = step.operands.iter().chain(&step.results);
    matches!(step.op, Op::Dynamic(_)) || values.any(|&value| builder.is_open(value))
}

/// The steps in groups, each ascending: a group comes after those whose values it uses. A group of
/// several steps, or of a dynamic one, is a region.
pub(crate) fn grouped(builder: &Builder, steps: &[&Step]) -> Vec<Vec<usize>> {
    let makers = makers(steps);
    let connected = connected(builder, steps, &makers);
    let uses = uses(steps, &makers);
    let merged = merged(&connected, &uses);
    ordered(&merged, &uses)
}

fn makers(steps: &[&Step]) -> BTreeMap<ValueId, usize> {
    let made = |(index, step): (usize, &&Step)| {
        step.results.iter().map(move |&value| (value, index)).collect::<Vec<_>>()
    };
    steps.iter().enumerate().flat_map(made).collect()
}

/// For each step, the steps whose values it uses.
fn uses(steps: &[&Step], makers: &BTreeMap<ValueId, usize>) -> Vec<Vec<usize>> {
    steps
        .iter()
        .map(|step| step.operands.iter().filter_map(|value| makers.get(value).copied()).collect())
        .collect()
}

/// For each step, the first step that it is connected to by values of unknown shape.
fn connected(builder: &Builder, steps: &[&Step], makers: &BTreeMap<ValueId, usize>) -> Vec<usize> {
    let mut sets = Sets((0..steps.len()).collect());
    for (index, step) in steps.iter().enumerate() {
        for operand in step.operands.iter().filter(|&&operand| builder.is_open(operand)) {
            if let Some(&maker) = makers.get(operand) {
                sets.join(index, maker);
            }
        }
    }
    (0..steps.len()).map(|index| sets.first(index)).collect()
}

/// Sets of steps, each known by its first member.
struct Sets(Vec<usize>);

impl Sets {
    fn first(&mut self, mut member: usize) -> usize {
        while self.0[member] != member {
            self.0[member] = self.0[self.0[member]];
            member = self.0[member];
        }
        member
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// Groups joined with everything on cycles between them; for each step, the first of its group.
fn merged(group_of: &[usize], uses: &[Vec<usize>]) -> Vec<usize> {
    let mut edges: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (index, makers) in uses.iter().enumerate() {
        let targets = edges.entry(group_of[index]).or_default();
        targets.extend(makers.iter().map(|&maker| group_of[maker]).filter(|&group| group != group_of[index]));
    }
    let edges: BTreeMap<usize, Vec<usize>> =
        edges.into_iter().map(|(group, targets)| (group, targets.into_iter().collect())).collect();
    let mut joined = BTreeMap::new();
    for component in components(&edges) {
        let first = component.iter().copied().min().unwrap_or(0);
        joined.extend(component.into_iter().map(|group| (group, first)));
    }
    group_of.iter().map(|group| joined[group]).collect()
}

/// The strongly connected components of a graph (Tarjan's algorithm, without recursion).
fn components(edges: &BTreeMap<usize, Vec<usize>>) -> Vec<Vec<usize>> {
    let mut search = Search { edges, visits: BTreeMap::new(), open: Vec::new(), components: Vec::new() };
    for &start in edges.keys() {
        if !search.visits.contains_key(&start) {
            search.from(start);
        }
    }
    search.components
}

struct Search<'e> {
    edges: &'e BTreeMap<usize, Vec<usize>>,
    visits: BTreeMap<usize, Visit>,
    /// Nodes visited whose component is not complete.
    open: Vec<usize>,
    components: Vec<Vec<usize>>,
}

struct Visit {
    order: usize,
    /// The first node, by order, that it is known to reach and that is open.
    lowest: usize,
    is_open: bool,
}

impl Search<'_> {
    fn from(&mut self, start: usize) {
        let mut path = vec![(start, 0)];
        self.enter(start);
        while let Some((node, next)) = path.pop() {
            if let Some(&target) = self.edges[&node].get(next) {
                path.push((node, next + 1));
                match self.visits.get(&target) {
                    None => {
                        self.enter(target);
                        path.push((target, 0));
                    }
                    Some(visit) if visit.is_open => self.lower(node, visit.order),
                    Some(_) => {}
                }
                continue;
            }
            let (order, lowest) = (self.visits[&node].order, self.visits[&node].lowest);
            if let Some(&(parent, _)) = path.last() {
                self.lower(parent, lowest);
            }
            if order == lowest {
                self.close(node);
            }
        }
    }

    fn enter(&mut self, node: usize) {
        let order = self.visits.len();
        self.visits.insert(node, Visit { order, lowest: order, is_open: true });
        self.open.push(node);
    }

    fn lower(&mut self, node: usize, order: usize) {
        if let Some(visit) = self.visits.get_mut(&node) {
            visit.lowest = visit.lowest.min(order);
        }
    }

    fn close(&mut self, root: usize) {
        let mut component = Vec::new();
        while let Some(node) = self.open.pop() {
            if let Some(visit) = self.visits.get_mut(&node) {
                visit.is_open = false;
            }
            component.push(node);
            if node == root {
                break;
            }
        }
        self.components.push(component);
    }
}

/// Groups after those they use; else by their first step.
fn ordered(group_of: &[usize], uses: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut before: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut after: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (index, &group) in group_of.iter().enumerate() {
        members.entry(group).or_default().push(index);
        for &maker in uses[index].iter().filter(|&&maker| group_of[maker] != group) {
            before.entry(group).or_default().insert(group_of[maker]);
            after.entry(group_of[maker]).or_default().insert(group);
        }
    }
    let ready = members.keys().filter(|group| !before.contains_key(group));
    let mut ready: BinaryHeap<Reverse<usize>> = ready.copied().map(Reverse).collect();
    let mut ordered = Vec::with_capacity(members.len());
    while let Some(Reverse(group)) = ready.pop() {
        ordered.push(members.remove(&group).unwrap_or_default());
        for user in after.remove(&group).unwrap_or_default() {
            if let Some(waiting) = before.get_mut(&user) {
                waiting.remove(&group);
                if waiting.is_empty() {
                    ready.push(Reverse(user));
                }
            }
        }
    }
    ordered
}

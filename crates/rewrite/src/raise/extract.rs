//! The cheapest program in an e-graph.
//!
//! A program is a choice of one term for each class that it needs; each class is computed once,
//! however many use it, so the cost is that of a graph, not of a tree. A greedy choice, which
//! keeps for each class the set of classes that it needs, is compared with the program that came
//! in, and the better one is improved by exchanging single terms until no exchange helps: the
//! result costs at most what came in.

use std::collections::{BTreeMap, BTreeSet};

use egg::Id;
use planner_ir::Op;

use super::term::{Head, Term, Terms};

/// What an operation costs besides the bytes it reads and writes (bytes).
const OPERATION: u64 = 16 << 10;
/// What an operation costs that is done once, before the first run (bytes).
const PREPARED: u64 = 1;
/// Exchanges are tried for programs of up to this many classes.
const EXCHANGED: usize = 2000;

/// Of each class that a program needs, the term chosen.
pub(super) struct Program {
    pub(super) terms: BTreeMap<Id, Term>,
}

/// The cheapest program that was found for these classes, given the one that came in.
pub(super) fn extract(terms: &Terms, roots: &[Id], original: &BTreeMap<Id, Term>) -> Program {
    let space = Space::of(terms);
    let roots: Vec<usize> = roots.iter().map(|&root| space.number(terms, root)).collect();
    let greedy = space.greedy();
    let mut came_in = greedy.clone();
    for (&id, term) in original {
        let class = space.number(terms, id);
        let children: Vec<usize> = term.children.iter().map(|&it| space.number(terms, it)).collect();
        let same = |it: &Choice| it.term.head == term.head && it.children == children;
        came_in[class] = space.classes[class].iter().position(same).or(came_in[class]);
    }
    let starts = [greedy, came_in];
    let best = starts.into_iter().filter_map(|it| space.cost(&roots, &it).map(|cost| (cost, it)));
    let (cost, choice) = best.reduce(|a, b| if b.0 < a.0 { b } else { a }).unwrap_or_default();
    let choice = space.improved(&roots, cost, choice);
    let mut program = Program { terms: BTreeMap::new() };
    for class in space.needed(&roots, &choice).unwrap_or_default() {
        if let Some(index) = choice[class] {
            program.terms.insert(space.ids[class], space.classes[class][index].term.clone());
        }
    }
    program
}

/// A term that a class may be computed by.
struct Choice {
    term: Term,
    children: Vec<usize>,
    cost: u64,
}

/// Every class with its terms; classes are numbered.
struct Space {
    ids: Vec<Id>,
    numbers: BTreeMap<Id, usize>,
    classes: Vec<Vec<Choice>>,
}

impl Space {
    fn of(terms: &Terms) -> Self {
        let mut ids: Vec<Id> = terms.classes().map(|class| class.id).collect();
        ids.sort_unstable();
        let numbers: BTreeMap<Id, usize> = ids.iter().enumerate().map(|(number, &id)| (id, number)).collect();
        let mut space = Self { classes: Vec::new(), ids, numbers };
        for id in space.ids.clone() {
            let choice = |term: &Term| {
                let children = term.children.iter().map(|&it| space.number(terms, it)).collect();
                Some(Choice { term: term.clone(), children, cost: cost(terms, id, term)? })
            };
            let mut choices: Vec<Choice> = terms[id].nodes.iter().filter_map(choice).collect();
            choices.sort_by(|a, b| (a.cost, &a.term).cmp(&(b.cost, &b.term)));
            space.classes.push(choices);
        }
        space
    }

    fn number(&self, terms: &Terms, id: Id) -> usize {
        self.numbers[&terms.find(id)]
    }

    /// For each class the term whose set of needed classes is cheapest, given the others' sets.
    fn greedy(&self) -> Vec<Option<usize>> {
        let count = self.classes.len();
        let mut parents: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (class, choices) in self.classes.iter().enumerate() {
            for &child in choices.iter().flat_map(|choice| &choice.children) {
                parents[child].push(class);
            }
        }
        let mut best: Vec<Option<(u64, Set)>> = (0..count).map(|_| None).collect();
        let mut chosen: Vec<Option<usize>> = vec![None; count];
        let mut price = vec![0; count];
        let mut pending: BTreeSet<usize> = (0..count).collect();
        // Costs only fall, so this ends; the bound is for the time that could take.
        let mut steps = 64 * count;
        while let Some(class) = pending.pop_first() {
            steps -= 1;
            if steps == 0 {
                break;
            }
            let mut improved = false;
            for (index, choice) in self.classes[class].iter().enumerate() {
                let Some(mut set) = self.needs(choice, &best) else {
                    continue;
                };
                if set.contains(class) {
                    continue;
                }
                let total = choice.cost + set.iter().map(|it| price[it]).sum::<u64>();
                if best[class].as_ref().is_none_or(|(known, _)| total < *known) {
                    set.insert(class);
                    best[class] = Some((total, set));
                    chosen[class] = Some(index);
                    price[class] = choice.cost;
                    improved = true;
                }
            }
            if improved {
                pending.extend(&parents[class]);
            }
        }
        chosen
    }

    /// What the children of a choice need, together.
    fn needs(&self, choice: &Choice, best: &[Option<(u64, Set)>]) -> Option<Set> {
        let mut set = Set::new(self.classes.len());
        for &child in &choice.children {
            set.join(&best[child].as_ref()?.1);
        }
        Some(set)
    }

    /// The classes that the roots need, each after those it needs; `None` if a class needs itself
    /// or has no term.
    fn needed(&self, roots: &[usize], choice: &[Option<usize>]) -> Option<Vec<usize>> {
        let mut order = Vec::new();
        // 0: not seen, 1: being visited, 2: done.
        let mut state = vec![0u8; self.classes.len()];
        for &root in roots {
            let mut path = vec![(root, 0)];
            if state[root] == 2 {
                continue;
            }
            state[root] = 1;
            while let Some((class, next)) = path.last_mut() {
                let children = &self.classes[*class][choice[*class]?].children;
                let Some(&child) = children.get(*next) else {
                    state[*class] = 2;
                    order.push(*class);
                    path.pop();
                    continue;
                };
                *next += 1;
                match state[child] {
                    0 => {
                        state[child] = 1;
                        path.push((child, 0));
                    }
                    1 => return None,
                    _ => {}
                }
            }
        }
        Some(order)
    }

    fn cost(&self, roots: &[usize], choice: &[Option<usize>]) -> Option<u64> {
        let needed = self.needed(roots, choice)?;
        needed.iter().map(|&class| choice[class].map(|index| self.classes[class][index].cost)).sum()
    }

    /// The choice with single terms exchanged as long as that makes it cheaper.
    fn improved(&self, roots: &[usize], mut cost: u64, mut choice: Vec<Option<usize>>) -> Vec<Option<usize>> {
        loop {
            let before = cost;
            let needed = self.needed(roots, &choice).unwrap_or_default();
            if needed.len() > EXCHANGED {
                return choice;
            }
            for class in needed {
                for index in 0..self.classes[class].len() {
                    let known = choice[class].replace(index);
                    match self.cost(roots, &choice) {
                        Some(other) if other < cost => cost = other,
                        _ => choice[class] = known,
                    }
                }
            }
            if cost == before {
                return choice;
            }
        }
    }
}

/// What a term costs by itself; `None` if it is no part of programs.
fn cost(terms: &Terms, class: Id, term: &Term) -> Option<u64> {
    let op = match &terms.analysis.heads[term.head] {
        Head::Outside(_) | Head::Project(_) => return Some(0),
        Head::Scores(_) => return None,
        Head::Op(op) => op,
    };
    if term.children.iter().all(|&it| terms[it].data.prepared) {
        return Some(PREPARED);
    }
    let bytes = |id: Id| terms[id].data.types.iter().map(planner_ir::Type::bytes).sum::<u64>();
    let moved = match op {
        Op::Experts { active, .. } => experts(terms, class, term, *active),
        Op::Reshape { .. } => 0,
        Op::Slice { .. } | Op::Gather { .. } => 2 * bytes(class),
        _ => bytes(class) + term.children.iter().map(|&it| bytes(it)).sum::<u64>(),
    };
    Some(OPERATION + moved)
}

/// What a mixture of experts reads and writes: only experts that are used.
fn experts(terms: &Terms, class: Id, term: &Term, active: u64) -> u64 {
    let type_of = |id: Id| &terms[id].data.types[0];
    let gates = type_of(term.children[1]);
    let (tokens, experts) = (gates.shape[0], gates.shape[1].max(1));
    let used = experts.min(tokens.saturating_mul(active));
    let weights: u64 = term.children[2..].iter().map(|&it| type_of(it).bytes() / experts * used).sum();
    2 * type_of(class).bytes() + gates.bytes() + weights
}

/// A set of classes.
struct Set {
    words: Vec<u64>,
}

impl Set {
    fn new(count: usize) -> Self {
        Self { words: vec![0; count.div_ceil(64)] }
    }

    fn insert(&mut self, class: usize) {
        self.words[class / 64] |= 1 << (class % 64);
    }

    fn contains(&self, class: usize) -> bool {
        self.words[class / 64] >> (class % 64) & 1 == 1
    }

    fn join(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index + bit)
        })
    }
}

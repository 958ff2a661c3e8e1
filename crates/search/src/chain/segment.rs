//! One segment of a chain, reduced to a table from its entry to its exit.

mod between; // blocks whose ends are given
pub(super) mod block; // one block, minimised

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use planner_ir::advance;
use rayon::prelude::*;

use block::{Block, By, Costs, Minimised, Of, Side};

use super::{Chain, Goal, Interface, Segment, Shared, Variant};
use crate::eliminate::{Objective, Order, Pruned, prune, reduce, with_classes};
use crate::messages::{Start, Wide, Wiring};
use crate::problem::{Problem, SearchError, Table, real, real_size};

/// How globals are dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Globals {
    /// All their choices are tried.
    Enumerated,
    /// Each is improved in turn.
    Descended,
}

/// Which globals have a slot: their choices are all tried, and those of others are given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slots {
    All,
    None,
    One(usize),
}

impl Slots {
    fn is_for(self, global: usize) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::One(one) => one == global,
        }
    }
}

/// A segment without needless choices, with the order to eliminate it in.
///
/// Its table runs over the choices of some *slots*: the globals that it uses, then the entry
/// nodes, then the exit nodes. Each entry of the table is the least of its variants.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// The number of states at the entry, and at the exit.
    pub(crate) entries: usize,
    pub(crate) exits: usize,
    /// How many blocks there are.
    pub(super) count: usize,
    /// How many slots the entry has.
    first: usize,
    /// The globals that have a slot, ascending, and their domains.
    globals: Vec<usize>,
    global_domains: Vec<usize>,
    /// For each slot, its domain.
    domains: Vec<usize>,
    /// What a block may be: one of the variants, or the segment's problem if there are none.
    bodies: Vec<Body>,
}

/// One problem that a block may be. A node may have several slots, which then must agree.
#[derive(Clone, Debug)]
struct Body {
    /// The nodes that have slots.
    kept: Vec<usize>,
    by: Method,
    /// Its needful choices; where it is eliminated, with nodes of classes after its own.
    pruned: Pruned,
    /// The tables of the pruned problem with zeros for all that is allowed, once they are asked for.
    zeros: OnceLock<Vec<Arc<Table>>>,
    /// Entry and exit nodes that stand for the same in blocks that follow each other.
    ends: Vec<[usize; 2]>,
    /// The nodes of globals that have no slots.
    shared: Vec<Shared>,
    /// Which slot says the choice of which node, the latter as an index of `kept`.
    ties: Vec<(usize, usize)>,
}

/// How a body is minimised.
#[derive(Clone, Debug)]
enum Method {
    /// By elimination, in this order.
    Elimination(Order),
    /// By messages along these links: those of its tables, and those of zeros.
    Messages(Wiring, OnceLock<Wiring>),
}

impl Ready {
    /// Prepares a segment, of whose bodies these are the needful choices, with slots for those globals that it uses.
    pub(crate) fn new(chain: &Chain, segment: &Segment, slots: Slots, pruned: &[Pruned]) -> Self {
        let used = segment.shared.iter().map(|shared| shared.global);
        let mut globals: Vec<usize> = used.filter(|it| slots.is_for(*it)).collect();
        globals.sort_unstable();
        globals.dedup();

        let domain = |node: usize| segment.problem.times[node].len();
        let size = |nodes: &[usize]| nodes.iter().map(|&node| domain(node)).product();
        let boundary = segment.entry.iter().chain(&segment.exit);
        let global_domains: Vec<usize> =
            globals.iter().map(|&global| chain.globals[global].times.len()).collect();
        let bodies = interfaces(segment).into_par_iter().zip(pruned);
        Self {
            entries: size(&segment.entry),
            exits: size(&segment.exit),
            count: segment.count,
            first: segment.entry.len(),
            domains: global_domains.iter().copied().chain(boundary.map(|&node| domain(node))).collect(),
            global_domains,
            bodies: bodies
                .map(|(it, pruned)| Body::new(it, &globals, pruned.clone(), segment.count > 1))
                .collect(),
            globals,
        }
    }

    /// The same, where bodies whose elimination makes a table of more entries than `most` are solved by
    /// messages; `pruned` are their needful choices.
    pub(crate) fn widened(self, pruned: &[Pruned], most: f64) -> Self {
        let bodies = self.bodies.into_iter().zip(pruned);
        let widened = |(body, pruned): (Body, &Pruned)| match &body.by {
            Method::Elimination(order) if order.entries > most => body.by_messages(pruned.clone()),
            _ => body,
        };
        Self { bodies: bodies.map(widened).collect(), ..self }
    }

    /// The entries of the largest table that the elimination makes.
    pub(crate) fn largest(&self) -> f64 {
        let entries = |body: &Body| match &body.by {
            Method::Elimination(order) => order.entries,
            Method::Messages(..) => 0.0,
        };
        self.bodies.iter().map(entries).fold(0.0, f64::max)
    }

    /// The same for each choice of the globals.
    pub(crate) fn largest_beside_globals(&self) -> f64 {
        self.largest() / self.global_domains.iter().map(|&domain| real_size(domain)).product::<f64>()
    }

    /// The entries of the table over globals, entry and exit.
    pub(crate) fn pairs(&self) -> f64 {
        self.domains.iter().map(|&domain| real_size(domain)).product()
    }

    /// The index of a choice of all globals of the chain among the rows of a table.
    pub(crate) fn row(&self, globals: &[usize]) -> usize {
        let own = self.globals.iter().zip(&self.global_domains);
        own.fold(0, |row, (&global, domain)| row * domain + globals[global])
    }

    /// Minimises one block, where `live` is the price of a byte in each window; `fixed` are the choices of the
    /// globals if they have no slots, and `starts` for each body what its messages begin with.
    pub(crate) fn block(
        &self,
        goal: Goal,
        (resident, live): (f64, &[f64]),
        fixed: Option<&[usize]>,
        starts: &[Option<Start>],
    ) -> Result<Block<'_>, SearchError> {
        let start = |body: usize| starts.get(body).and_then(Option::as_ref);
        let bodies = self.bodies.par_iter().enumerate();
        let priced = bodies
            .map(|(number, body)| body.priced(goal, (resident, live), fixed, (&self.domains, start(number))));
        let priced: Vec<_> = priced.collect();
        Ok(Block::new(priced.into_iter().collect::<Result<_, _>>()?))
    }

    /// Whether a table has bounds instead of least costs.
    pub(crate) fn is_wide(&self) -> bool {
        self.bodies.iter().any(|body| matches!(body.by, Method::Messages(..)))
    }

    /// A row of a table, from each state at the entry to each at the exit.
    pub(super) fn row_of<'a>(&self, costs: &'a Costs, row: usize) -> &'a [f64] {
        let size = self.entries * self.exits;
        &costs.table[row * size..][..size]
    }

    /// Where a table has the cost of a block from one state to another.
    pub(super) fn place(&self, row: usize, [entry, exit]: [usize; 2]) -> usize {
        (row * self.entries + entry) * self.exits + exit
    }

    /// The pairs of states that have this one at one end.
    pub(super) fn pairs_of(&self, side: Side, state: usize) -> impl Iterator<Item = [usize; 2]> + use<> {
        let others = match side {
            Side::Entry => self.exits,
            Side::Exit => self.entries,
        };
        (0..others).map(move |other| match side {
            Side::Entry => [state, other],
            Side::Exit => [other, state],
        })
    }

    /// The place of a body's kept nodes' choices in a row.
    pub(super) fn place_of(&self, body: usize, row: usize, kept: &[usize]) -> usize {
        let globals = self.globals.len();
        let mut slots = vec![0; self.domains.len()];
        self.bodies[body].ties.iter().for_each(|&(slot, at)| slots[slot] = kept[at]);
        slots.iter().zip(&self.domains).skip(globals).fold(row, |place, (it, domain)| place * domain + it)
    }

    /// Which kept nodes of a body have which choice in a row with a state at one end, by their place among them.
    pub(super) fn fixed(&self, body: usize, row: usize, side: Side, state: usize) -> Vec<(usize, usize)> {
        let (globals, entry) = (self.globals.len(), self.globals.len() + self.first);
        let (pair, range) = match side {
            Side::Entry => ([state, 0], globals..entry),
            Side::Exit => ([0, state], entry..self.domains.len()),
        };
        let slots = self.slots(self.place(row, pair));
        let ties = self.bodies[body].ties.iter();
        let fixed = ties.filter(|(slot, _)| *slot < globals || range.contains(slot));
        fixed.map(|&(slot, at)| (at, slots[slot])).collect()
    }

    /// The choices of all slots that a place of the table stands for.
    fn slots(&self, place: usize) -> Vec<usize> {
        let mut index = place;
        let mut digits = vec![0; self.domains.len()];
        for (digit, domain) in digits.iter_mut().zip(&self.domains).rev() {
            *digit = index % domain;
            index /= domain;
        }
        digits
    }

    /// What a body costs by messages, bounds and what was found, as tables over slots, with what every block pays.
    pub(super) fn tables(&self, body: usize, wide: &Wide<'_>, constant: f64) -> [Vec<f64>; 2] {
        wide.tables().map(|table| self.bodies[body].by_slots(&table, &self.domains, constant))
    }

    /// The choices of a body's kept nodes there.
    pub(super) fn kept(&self, which: usize, place: usize) -> Vec<usize> {
        let (body, slots) = (&self.bodies[which], self.slots(place));
        let mut kept = vec![0; body.kept.len()];
        for &(slot, at) in &body.ties {
            kept[at] = slots[slot];
        }
        kept
    }

    /// The choices of every block of the segment that this is of, given the states at the boundaries.
    pub(crate) fn recover(
        &self,
        segment: &Segment,
        priced: &Block<'_>,
        row: usize,
        states: &[usize],
    ) -> Vec<Vec<usize>> {
        let mut blocks: BTreeMap<&[usize], Vec<usize>> = BTreeMap::new();
        let block = |pair: &'_ [usize]| {
            let place = self.place(row, [pair[0], pair[1]]);
            let which = priced.costs(Of::Found).body[place];
            let found = priced.bodies[which].by.recover(&self.kept(which, place));
            let choices = self.bodies[which].pruned.restore(&found);
            segment.restore(which, choices, &self.slots(place)[self.globals.len()..])
        };
        let pairs = states.windows(2);
        pairs.map(|pair| blocks.entry(pair).or_insert_with(|| block(pair)).clone()).collect()
    }
}

/// What a block of a segment may be.
fn interfaces(segment: &Segment) -> Vec<Interface<'_>> {
    match &segment.variants[..] {
        [] => vec![segment.interface()],
        variants => variants.iter().map(Variant::interface).collect(),
    }
}

/// For each body of a segment the needful choices, however globals are dealt with.
pub(crate) fn pruned(segment: &Segment) -> Vec<Pruned> {
    let needful = |it: Interface<'_>| {
        let shared = it.shared.iter().map(|shared| shared.node);
        let agreed: Vec<usize> = shared.chain(it.entry.iter().chain(it.exit).copied()).collect();
        prune(it.problem, &agreed)
    };
    interfaces(segment).into_par_iter().map(needful).collect()
}

impl Body {
    /// A problem of these needful choices, ready to be reduced to a table over these globals and its
    /// boundary; whether one like it follows.
    fn new(it: Interface<'_>, globals: &[usize], pruned: Pruned, repeats: bool) -> Self {
        let global_slot = |global: usize| globals.iter().position(|&at| at == global);
        let shared = it.shared.iter();
        let shared = shared.filter_map(|shared| Some((global_slot(shared.global)?, shared.node)));
        let boundary = || it.entry.iter().chain(it.exit).copied();
        let slots: Vec<(usize, usize)> = shared.chain((globals.len()..).zip(boundary())).collect();
        let mut kept: Vec<usize> = slots.iter().map(|&(_, node)| node).collect();
        kept.sort_unstable();
        kept.dedup();

        let Pruned { problem, choices } = pruned;
        let (problem, order) = with_classes(problem, &kept);
        let place = |node: usize| kept.iter().take_while(|&&at| at < node).count();
        Self {
            zeros: OnceLock::new(),
            pruned: Pruned { problem, choices },
            shared: it.shared.iter().copied().filter(|it| global_slot(it.global).is_none()).collect(),
            ties: slots.into_iter().map(|(slot, node)| (slot, place(node))).collect(),
            ends: if repeats {
                it.entry.iter().zip(it.exit).map(|(&a, &b)| [a, b]).collect()
            } else {
                vec![]
            },
            kept,
            by: Method::Elimination(order),
        }
    }

    /// The same, solved by messages: between its needful choices, which need no classes.
    fn by_messages(self, pruned: Pruned) -> Self {
        let problem = &pruned.problem;
        let wiring = Wiring::new(&problem.domains(), &problem.edges, &problem.tables);
        Self { by: Method::Messages(wiring, OnceLock::new()), zeros: OnceLock::new(), pruned, ..self }
    }

    /// Minimises: what it is reduced to, and the table over slots of these domains.
    fn priced(
        &self,
        goal: Goal,
        (resident, live): (f64, &[f64]),
        fixed: Option<&[usize]>,
        (domains, start): (&[usize], Option<&Start>),
    ) -> Result<Minimised<'_>, SearchError> {
        let problem = &self.pruned.problem;
        let (costs, constant) = self.costs(goal, (resident, live), fixed);
        let (by, least, found) = match &self.by {
            Method::Messages(timed, zeros) => {
                let wiring = match goal {
                    Goal::Time => timed,
                    Goal::Memory => {
                        zeros.get_or_init(|| Wiring::new(&problem.domains(), &problem.edges, self.zeros()))
                    }
                };
                // Where messages ended before, they are sent when it is asked.
                let wide = match start {
                    Some(_) => Wide::resting((wiring, costs), &self.kept, &self.ends, start),
                    None => Wide::new((wiring, costs), &self.kept, &self.ends, None),
                };
                let [bounds, found] = wide.tables();
                (By::Messages(Box::new(wide)), bounds, Some(found))
            }
            Method::Elimination(order) => {
                let tables = match goal {
                    Goal::Time => &problem.tables[..],
                    Goal::Memory => self.zeros(),
                };
                let objective = Objective { costs: Cow::Owned(costs), edges: &problem.edges, tables };
                let mut reduced = reduce(&objective, order)?;
                let table = std::mem::take(&mut reduced.table);
                (By::Elimination(reduced), table, None)
            }
        };
        let by_slots = |least: &[f64]| self.by_slots(least, domains, constant);
        Ok(Minimised { by, table: by_slots(&least), found: found.as_deref().map(by_slots), constant })
    }

    /// The reduced table by slots, with what every block pays.
    fn by_slots(&self, least: &[f64], domains: &[usize], constant: f64) -> Vec<f64> {
        self.table(least, domains).into_iter().map(|cost| cost + constant).collect()
    }

    /// The tables of its problem with zeros for all that is allowed.
    fn zeros(&self) -> &[Arc<Table>] {
        self.zeros.get_or_init(|| zeros(&self.pruned.problem))
    }

    /// For each node, what each choice costs, those of globals being given if they have no slots; and what is paid
    /// by every block for what is live whatever is chosen.
    fn costs(
        &self,
        goal: Goal,
        (resident, live): (f64, &[f64]),
        fixed: Option<&[usize]>,
    ) -> (Vec<Vec<f64>>, f64) {
        let problem = &self.pruned.problem;
        let mut costs = priced_costs(problem, goal, resident, live);
        for shared in &self.shared {
            let Some(fixed) = fixed else { continue };
            for (choice, cost) in costs[shared.node].iter_mut().enumerate() {
                if choice != fixed[shared.global] {
                    *cost = f64::INFINITY;
                }
            }
        }
        let windows = problem.windows.iter().zip(live);
        (costs, windows.map(|(&constant, price)| price * real(constant)).sum())
    }

    /// The reduced table by slots, infinite where the slots of one node disagree.
    fn table(&self, least: &[f64], domains: &[usize]) -> Vec<f64> {
        let kept = &self.kept;
        let domain = |node: usize| self.pruned.problem.times[node].len();
        let mut table = Vec::with_capacity(domains.iter().product());
        let mut slots = vec![0; domains.len()];
        let mut choices: Vec<Option<usize>> = Vec::new();
        loop {
            choices.clear();
            choices.resize(kept.len(), None);
            let mut agree = true;
            for &(slot, place) in &self.ties {
                agree &= choices[place].is_none_or(|choice| choice == slots[slot]);
                choices[place] = Some(slots[slot]);
            }
            let index = choices
                .iter()
                .zip(kept)
                .fold(0, |index, (choice, &node)| index * domain(node) + choice.unwrap_or(0));
            table.push(if agree { least[index] } else { f64::INFINITY });
            if !advance(&mut slots, domains) {
                break;
            }
        }
        table
    }
}

/// The tables of a problem with zeros for all that is allowed.
fn zeros(problem: &Problem) -> Vec<Arc<Table>> {
    let allowed = |table: &Arc<Table>| {
        let entries = table.entries.iter().map(|&time| Goal::Memory.of(time)).collect();
        Table { columns: table.columns, entries }.into()
    };
    problem.tables.iter().map(allowed).collect()
}

/// For each node, what each choice costs, where `live` is the price of a byte in each window.
pub(crate) fn priced_costs(problem: &Problem, goal: Goal, resident: f64, live: &[f64]) -> Vec<Vec<f64>> {
    let own = |times: &Vec<f64>| times.iter().map(|&time| goal.of(time)).collect();
    let mut costs: Vec<Vec<f64>> = problem.times.iter().map(own).collect();
    // What a byte costs from the first window up to each.
    let mut up_to = Vec::with_capacity(live.len() + 1);
    up_to.push(0.0);
    live.iter().for_each(|price| up_to.push(up_to[up_to.len() - 1] + price));
    let live = problem.live.iter().map(|live| (&live.held, up_to[live.until] - up_to[live.from]));
    for (held, price) in problem.resident.iter().map(|held| (held, resident)).chain(live) {
        if price > 0.0 {
            for (cost, &bytes) in costs[held.node].iter_mut().zip(&problem.bytes[held.bytes]) {
                *cost += price * real(bytes);
            }
        }
    }
    costs
}

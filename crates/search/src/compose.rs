//! A solution written out as a plan: for every operation its partition, for every use of a value
//! the copy that is read, and the moves that make the copies.

mod early; // what exchanges beside computing hold besides
mod memory; // what a device holds
mod saved; // less memory where that is too much
mod sums; // products that add to sums over micro-batches

use std::collections::BTreeMap;

use plan::{Assignment, Copy, Plan, Term, Transfer, bytes_of_steps, class_names};
use planner_ir::{Graph, Layout, Mesh, Move, Node, NodeId, Partition, Slots, ValueId};
use rewrite::Space;

use crate::assemble::{Assembled, Held, is_prepared};
use crate::manner::{InPlace, Whole};
use crate::prices::Prices;
use crate::problem::real;
use crate::section::{Repetition, Section};

pub(crate) use early::wait;
pub use early::{early, kept};
pub use memory::memory;
pub(crate) use saved::save;
pub(crate) use sums::join;

/// The parts of a plan that the choices decide.
#[derive(Debug)]
pub(crate) struct Composed {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) assignments: Vec<Assignment>,
    /// For each operation, how it would be done with one slot for what rotates, if it can be.
    pub(crate) in_place: Vec<Option<InPlace>>,
    pub(crate) transfers: Vec<Transfer>,
    /// For each value that is returned, the copy.
    pub(crate) returned: Vec<Option<Copy>>,
    /// For each state of a training step, the copy of what it becomes.
    pub(crate) carried: Vec<Copy>,
    /// For each operation that is not prepared, its number in its section: prices may know it by that.
    pub(crate) places: Vec<Option<NodeId>>,
    /// For each value handed on, the copies that are, in different layouts.
    handed: Vec<Vec<(Layout, Copy)>>,
}

/// One block in one place.
pub(crate) struct Part<'a> {
    /// The program that it is of, and the section there: parts of one kind differ in place and choices.
    pub(crate) kind: (usize, usize),
    pub(crate) section: &'a Section,
    pub(crate) repetition: &'a Repetition,
    pub(crate) space: &'a Space,
    pub(crate) assembled: &'a Assembled,
    pub(crate) choices: &'a [usize],
}

/// A copy that uses start from, and its layout's number.
type Start = (Copy, usize);

/// How a value is brought from one layout into another.
#[derive(Clone)]
struct Moved {
    moves: Vec<Move>,
    bytes: Vec<u64>,
    seconds: Vec<f64>,
}

struct Writer<'a> {
    parts: &'a [Part<'a>],
    mesh: &'a Mesh,
    prices: &'a dyn Prices,
    composed: Composed,
    /// For kinds of parts, values of theirs, and the numbers of two layouts, how they are moved.
    moved: BTreeMap<((usize, usize), ValueId, usize, usize), Moved>,
    /// For each part and value, the copy that uses start from.
    start: Vec<Vec<Option<Start>>>,
    /// For each part and sum over micro-batches, the copy that several read, once it is made.
    settled: Vec<Vec<Option<Start>>>,
    /// For each value of the program, the part that makes it or has it at rest and hands it on, and
    /// the value there.
    hands: Vec<Option<(usize, ValueId)>>,
}

/// The plan of a program whose parts are given, each operation after the copies it reads.
pub(crate) fn compose(graph: &Graph, parts: &[Part<'_>], mesh: &Mesh, prices: &dyn Prices) -> Composed {
    let mut writer = Writer {
        parts,
        mesh,
        prices,
        composed: Composed {
            layouts: graph.values.iter().map(|value| Layout::replicated(value.type_.rank())).collect(),
            assignments: vec![Assignment::Prepared; graph.nodes.len()],
            in_place: vec![None; graph.nodes.len()],
            transfers: Vec::new(),
            returned: vec![None; graph.values.len()],
            carried: Vec::new(),
            places: vec![None; graph.nodes.len()],
            handed: vec![Vec::new(); graph.values.len()],
        },
        moved: BTreeMap::new(),
        start: parts.iter().map(|part| vec![None; part.section.graph.values.len()]).collect(),
        settled: parts.iter().map(|part| vec![None; part.section.graph.values.len()]).collect(),
        hands: vec![None; graph.values.len()],
    };
    let mut places: Vec<Option<(usize, NodeId)>> = vec![None; graph.nodes.len()];
    for index in 0..parts.len() {
        writer.announce(index);
    }
    for (index, part) in parts.iter().enumerate() {
        writer.settle(index);
        for (node, whole) in part.section.graph.node_ids().zip(&part.repetition.nodes) {
            places[whole.0] = Some((index, node));
        }
    }
    writer.composed.places = places.iter().map(|it| it.map(|(_, node)| node)).collect();
    let mut left: Vec<usize> = parts.iter().map(|part| part.repetition.nodes.len()).collect();
    writer.finish_empty(&left, 0);
    for (index, node) in places.into_iter().flatten() {
        writer.write(index, node);
        left[index] -= 1;
        if left[index] == 0 {
            writer.finish(index);
            writer.finish_empty(&left, index + 1);
        }
    }
    writer.carry(graph);
    writer.composed
}

impl Writer<'_> {
    /// What the part hands on.
    fn announce(&mut self, index: usize) {
        let Part { section, repetition, assembled, .. } = self.parts[index];
        for value in section.graph.value_ids() {
            if !section.is_outside(value) && assembled.delivered[value.0].is_some() {
                self.hands[repetition.values[value.0].0] = Some((index, value));
            }
        }
    }

    /// What is at rest has the layout chosen where it is, or for all that share it: what another part hands
    /// on is at rest there.
    fn settle(&mut self, index: usize) {
        let Part { section, repetition, space, assembled, choices, .. } = self.parts[index];
        for value in section.graph.value_ids() {
            let whole = repetition.values[value.0];
            let Some(rest) = &assembled.rest[value.0] else { continue };
            let layout = chosen(rest, choices);
            let outside = section.is_outside(value);
            if !outside {
                self.start[index][value.0] = Some((Copy::Made, layout));
            }
            if !outside || !section.enters(value) && self.hands[whole.0].is_none() {
                self.composed.layouts[whole.0] = space.layouts[value.0][layout].clone();
            }
        }
    }

    /// Writes an operation.
    fn write(&mut self, index: usize, node: NodeId) {
        let Part { section, repetition, space, assembled, choices, .. } = self.parts[index];
        let graph = &section.graph;
        if is_prepared(graph, node, &space.prepared) {
            return;
        }
        let Node { op, operands, results, .. } = graph.node(node);
        let Some(work) = &assembled.work[node.0] else { return };
        let number = work.choices[choices[work.node]];
        let choice = &space.choices[node.0][number];
        let mut copies = Vec::new();
        for (&operand, &needed) in operands.iter().zip(&choice.operands) {
            let from = self.read(index, operand);
            copies.push(self.transfer(index, operand, from, needed));
        }
        let seconds = assembled.seconds[node.0][number];
        let exchanged = assembled.exchanged[node.0][number];
        let whole = repetition.nodes[node.0];
        let partition = choice.partition.clone();
        let mut bytes = Vec::new();
        if partition.moves() {
            let (takes, makes) = (graph.types_of(operands), graph.types_of(results));
            let loops = op.loops(&takes, &makes);
            bytes = bytes_of_steps(self.mesh, &loops, (&takes, &makes), &partition);
            let one = Partition { slots: Slots::One, ..partition.clone() };
            if one.check(self.mesh, &loops).is_ok() {
                let work = Whole::of(graph, node);
                let seconds = work.time(&space.layouts, choice, &one, self.prices);
                let exchanged = work.exchanged(&space.layouts, choice, &one, self.prices);
                self.composed.in_place[whole.0] = Some(InPlace { partition: one, seconds, exchanged });
            }
        }
        self.composed.assignments[whole.0] =
            Assignment::Computed { partition, operands: copies, bytes, seconds, exchanged };
        for (&result, &layout) in results.iter().zip(&choice.results) {
            let whole = repetition.values[result.0];
            self.composed.layouts[whole.0] = space.layouts[result.0][layout].clone();
            self.start[index][result.0] = Some((Copy::Made, layout));
        }
    }

    /// Hands on what has not been.
    fn finish(&mut self, index: usize) {
        for value in self.parts[index].section.graph.value_ids() {
            self.deliver(index, value);
        }
    }

    /// Finishes the parts from one on that have no operations, up to one that has.
    fn finish_empty(&mut self, left: &[usize], from: usize) {
        let empty = left
            .iter()
            .enumerate()
            .skip(from)
            .take_while(|(index, left)| **left == 0 && self.parts[*index].repetition.nodes.is_empty());
        for (index, _) in empty.collect::<Vec<_>>() {
            self.finish(index);
        }
    }

    /// Hands a value on, once in each layout.
    fn deliver(&mut self, index: usize, value: ValueId) {
        let Part { section, repetition, space, assembled, choices, .. } = self.parts[index];
        let whole = repetition.values[value.0];
        let delivered =
            assembled.delivered[value.0].iter().map(|held| (held, section.returned.contains(&value)));
        for (held, returned) in delivered.chain(assembled.given[value.0].iter().map(|held| (held, false))) {
            let number = chosen(held, choices);
            let layout = &space.layouts[value.0][number];
            let copy = match self.handed(whole, layout) {
                Some(copy) => copy,
                None => {
                    let from = self.read(index, value);
                    let copy = self.transfer(index, value, from, number);
                    self.composed.handed[whole.0].push((layout.clone(), copy));
                    copy
                }
            };
            if returned {
                self.composed.returned[whole.0] = Some(copy);
            }
        }
    }

    /// The copy of a value that is handed on in a layout.
    fn handed(&self, whole: ValueId, layout: &Layout) -> Option<Copy> {
        let handed = self.composed.handed[whole.0].iter();
        handed.clone().find(|(it, _)| it == layout).map(|&(_, copy)| copy)
    }

    /// For each state the copy of what it becomes, in the layout of the state at rest.
    fn carry(&mut self, graph: &Graph) {
        let mut carried: Vec<Option<Copy>> = vec![None; graph.values.len()];
        for index in 0..self.parts.len() {
            let Part { section, repetition, space, assembled, choices, .. } = self.parts[index];
            for it in section.graph.training.iter().flat_map(|training| &training.carried) {
                let Some(rest) = &assembled.rest[it.state.0] else { continue };
                let layout = &space.layouts[it.state.0][chosen(rest, choices)];
                let Ok(needed) = space.layouts[it.next.0].binary_search(layout) else { continue };
                let from = self.hold(index, it.next);
                let copy = self.transfer(index, it.next, from, needed);
                carried[repetition.values[it.state.0].0].get_or_insert(copy);
            }
        }
        let states = graph.training.iter().flat_map(|training| &training.carried);
        self.composed.carried = states.filter_map(|it| carried[it.state.0]).collect();
    }

    /// What comes from outside is the copy handed on.
    fn taken(&mut self, index: usize, value: ValueId) -> Start {
        let Part { repetition, space, assembled, choices, .. } = self.parts[index];
        let Some(rest) = &assembled.rest[value.0] else { unreachable!("a value is made before it is used") };
        let (whole, number) = (repetition.values[value.0], chosen(rest, choices));
        let layout = &space.layouts[value.0][number];
        if self.handed(whole, layout).is_none()
            && let Some((maker, value)) = self.hands[whole.0]
        {
            self.deliver(maker, value);
        }
        // What nothing hands on is at rest in the layout that all sections have chosen.
        (self.handed(whole, layout).unwrap_or(Copy::Made), number)
    }

    /// The copy that what reads a value starts from: of a sum over micro-batches what it comes to, made when
    /// first needed.
    fn read(&mut self, index: usize, value: ValueId) -> Start {
        if let Some(settled) = self.settled[index][value.0] {
            return settled;
        }
        let held = self.hold(index, value);
        let Part { assembled, choices, .. } = self.parts[index];
        let Some(settled) = &assembled.settled[value.0] else { return held };
        let layout = chosen(settled, choices);
        let settled = (self.transfer(index, value, held, layout), layout);
        self.settled[index][value.0] = Some(settled);
        settled
    }

    /// The copy that uses of a value start from: the one that is held, made when first needed.
    fn hold(&mut self, index: usize, value: ValueId) -> Start {
        let Part { assembled, choices, .. } = self.parts[index];
        let made = match self.start[index][value.0] {
            Some(made) => made,
            None => self.taken(index, value),
        };
        let held = match &assembled.held[value.0] {
            Some(held) => {
                let layout = chosen(held, choices);
                (self.transfer(index, value, made, layout), layout)
            }
            None => made,
        };
        self.start[index][value.0] = Some(held);
        held
    }

    /// The copy in the layout that is needed; a new one unless it is the same layout.
    fn transfer(&mut self, index: usize, value: ValueId, (from, before): Start, needed: usize) -> Copy {
        if before == needed {
            return from;
        }
        let part = &self.parts[index];
        let key = (part.kind, value, before, needed);
        let moved = self
            .moved
            .entry(key)
            .or_insert_with(|| Moved::of(part, value, [before, needed], (self.mesh, self.prices)));
        let Moved { moves, bytes, seconds } = moved.clone();
        self.composed.transfers.push(Transfer {
            value: part.repetition.values[value.0],
            from,
            bytes,
            seconds,
            waits: false,
            moves,
            layout: part.space.layouts[value.0][needed].clone(),
        });
        Copy::Transferred(self.composed.transfers.len() - 1)
    }
}

impl Moved {
    fn of(
        part: &Part<'_>,
        value: ValueId,
        [before, needed]: [usize; 2],
        (mesh, prices): (&Mesh, &dyn Prices),
    ) -> Self {
        let Part { section, space, assembled, .. } = part;
        let (type_, layouts) = (section.graph.type_of(value), &space.layouts[value.0]);
        let ways = &assembled.found[assembled.ways[value.0]];
        let edges = &space.moves[value.0];
        let steps: Vec<&rewrite::Edge> =
            ways.moves(edges, before, needed).into_iter().map(|it| &edges[it]).collect();
        let bytes =
            |edge: &&rewrite::Edge| edge.step.bytes(mesh, type_, &layouts[edge.from], &layouts[edge.to]);
        let time =
            |edge: &&rewrite::Edge| prices.step(type_, &edge.step, &layouts[edge.from], &layouts[edge.to]);
        Self {
            moves: steps.iter().map(|edge| edge.step.clone()).collect(),
            bytes: steps.iter().map(bytes).collect(),
            seconds: steps.iter().map(time).collect(),
        }
    }
}

/// The layout that the choices give a copy: its number.
fn chosen(held: &Held, choices: &[usize]) -> usize {
    held.layouts[choices[held.node]]
}

/// What a step takes, by the kind of operation and of move, in order of appearance.
pub(crate) fn estimate(plan: &Plan, prices: &dyn Prices) -> Vec<Term> {
    let graph = &plan.graph;
    let mut terms: Vec<Term> = Vec::new();
    let mut add = |name: &str, seconds: f64| match terms.iter_mut().find(|term| term.name == name) {
        Some(term) => term.seconds += seconds,
        None => terms.push(Term { name: name.to_owned(), seconds }),
    };
    for (node, assignment) in graph.node_ids().zip(&plan.assignments) {
        if let Assignment::Computed { seconds, exchanged, .. } = assignment {
            let runs = real(graph.runs(node));
            add(class_names(&graph.node(node).op).term, runs * (*seconds - exchanged.rows));
            if exchanged.rows > 0.0 {
                add("dispatch and combine", runs * exchanged.rows);
            }
        }
    }
    for (transfer, runs) in plan.transfers.iter().zip(plan.runs()) {
        let type_ = graph.type_of(transfer.value);
        let mut layout = plan.layout(transfer.value, transfer.from).clone();
        for step in &transfer.moves {
            let Ok(after) = step.apply(&plan.mesh, type_, &layout) else { break };
            add(step.name(), real(runs) * prices.step(type_, step, &layout, &after));
            layout = after;
        }
    }
    terms
}

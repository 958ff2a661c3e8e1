//! What a device holds of a plan, by kind.
//!
//! Values and copies are followed in the order in which programs make them. At each moment there is
//! one that is made: a step of a move, or an operation's results. What it is made from is there at
//! that moment too, and gone afterwards if nothing else reads it. What an operation leaves as it is
//! ([`Op::keeps_order`](planner_ir::Op::keeps_order)) is the same memory as its operand.

use std::ops::Range;

use plan::{Assignment, Copy, Holding, Plan};
use planner_ir::{CROSSING, Graph, Layout, Move, NodeId, Phase, Source, StateKind, ValueId};

use crate::cluster::Kept;
use crate::live::Live;
use crate::prices::packs;
use crate::slots::slots;

/// What a device holds by kind (bytes): weights and prepared values, of a training step its other
/// states, inputs, and the most that is live at once of values and of copies, with what is packed
/// for exchanges. What a state becomes is in its place.
///
/// Of a stage of a pipeline, what is kept for gradients is there for each micro-batch under way.
pub fn memory(plan: &Plan, live: Live) -> Vec<Holding> {
    let graph = &plan.graph;
    let prepared = graph.prepared();
    let walk = Walk::over(plan);
    let (mut weights, mut masters, mut optimizer, mut gradients, mut inputs) = (0, 0, 0, 0, 0);
    for value in graph.value_ids() {
        let bytes = plan.layouts[value.0].local_bytes(graph.type_of(value));
        match graph.value(value).source {
            Source::Input(ref name) if walk.made[value.0].is_some() => {
                let crosses = name.starts_with(CROSSING);
                let is_used_in = |phase| is_used_in(graph, value, phase);
                inputs += if crosses { live.received(is_used_in) * bytes } else { bytes };
            }
            Source::State(ref state) => match state.kind {
                StateKind::Parameter => weights += bytes,
                StateKind::Master => masters += bytes,
                StateKind::FirstMoment | StateKind::SecondMoment | StateKind::History => optimizer += bytes,
                StateKind::Gradient | StateKind::Total | StateKind::Largest => gradients += bytes,
            },
            _ if prepared[value.0] && walk.made[value.0].is_some() => weights += bytes,
            _ => {}
        }
    }
    let holding = |kind: &str, bytes: u64| Holding { kind: kind.to_owned(), bytes };
    let mut holdings = vec![holding("weights", weights)];
    if graph.training.is_some() {
        let states = [("masters", masters), ("optimizer", optimizer), ("gradients", gradients)];
        holdings.extend(states.map(|(kind, bytes)| holding(kind, bytes)));
    }
    let [made, moved] = walk.most(live);
    holdings.push(holding("inputs", inputs));
    holdings.push(holding("activations", made));
    holdings.push(holding("communication", moved));
    holdings
}

/// For each operation in time steps, how much less than at the fullest moment is there while it is done
/// (bytes).
pub(super) fn below_the_most(plan: &Plan) -> Vec<(NodeId, u64)> {
    let walk = Walk::over(plan);
    let timeline: Vec<i128> = walk.timeline().into_iter().map(|[made, moved]| made + moved).collect();
    let most = timeline.iter().copied().max().unwrap_or(0);
    let below =
        |&(node, moment): &(NodeId, usize)| (node, u64::try_from(most - timeline[moment]).unwrap_or(0));
    let is_timed = |node: NodeId| matches!(&plan.assignments[node.0], Assignment::Computed { partition, .. } if partition.steps > 1);
    walk.done.iter().filter(|it| is_timed(it.0)).map(below).collect()
}

/// For each of so many blocks, where each operation belongs to one of them, what it keeps of a micro-batch
/// while others are under way, and the most that is there at once while it is at work, but for what other blocks
/// keep and for the update (bytes). What moves counts where it is made first.
pub(super) fn kept(walk: &Walk<'_>, homes: &[usize], blocks: usize) -> Vec<(Kept, u64)> {
    // The operation by which something was made, or before which it was moved.
    let of = |moment: usize| walk.done.get(walk.done.partition_point(|it| it.1 < moment)).map(|it| it.0);
    let mut kept = vec![(Kept::default(), 0); blocks];
    // What comes and goes: of a block, or of whoever is at work.
    let mut changes: Vec<(usize, Option<usize>, i128)> = Vec::new();
    for span in &walk.lives {
        let own = span.kept();
        let home = of(span.first).map(|it| homes[it.0]).filter(|&it| it < blocks);
        if let Some(home) = home {
            kept[home].0 = kept[home].0.and(own);
        }
        let home = home.filter(|_| own.bytes(Live::ONE) > 0);
        changes.push((span.first, home, i128::from(span.bytes)));
        changes.push((span.last + 1, home, -i128::from(span.bytes)));
    }
    changes.sort_by_key(|it| it.0);
    let (mut besides, mut own) = (0, vec![0; blocks]);
    let mut changes = changes.into_iter().peekable();
    for moment in 0..=walk.moment + 1 {
        while let Some((_, home, change)) = changes.next_if(|it| it.0 == moment) {
            *home.map_or(&mut besides, |it| &mut own[it]) += change;
        }
        let node = of(moment).filter(|it| walk.plan.graph.node(*it).phase != Phase::Update);
        if let Some(home) = node.map(|it| homes[it.0]).filter(|&it| it < blocks) {
            kept[home].1 = kept[home].1.max(u64::try_from(besides + own[home]).unwrap_or(0));
        }
    }
    kept
}

/// Where a copy of a value is.
#[derive(Clone, Copy)]
enum Place {
    /// With what is at rest.
    Rest,
    /// In memory that comes and goes: its number.
    Live(usize),
}

/// What memory that comes and goes is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Value,
    Copy,
}

/// Memory that comes and goes: how much (bytes), its first and last moment, and in which phases it is
/// made and used.
struct Span {
    use_: For,
    bytes: u64,
    first: usize,
    last: usize,
    made: Phase,
    /// For each phase, whether it is used there.
    used: [bool; Phase::ALL.len()],
}

impl Span {
    /// What is there of it for each micro-batch under way.
    fn kept(&self) -> Kept {
        let is_used_in = |phase: Phase| self.used[phase as usize];
        let (nothing, bytes) = (Kept::default(), self.bytes);
        match self.made {
            Phase::Forward if is_used_in(Phase::Gradient) => Kept { gradients: bytes, ..nothing },
            Phase::Forward if is_used_in(Phase::Backward) => Kept { backward: bytes, ..nothing },
            Phase::Backward if is_used_in(Phase::Gradient) => Kept { apart: bytes, ..nothing },
            _ => nothing,
        }
    }
}

/// The programs' order, up to some moment.
pub(super) struct Walk<'a> {
    plan: &'a Plan,
    /// For each value, where it is as it was made, and for each transfer its copy; nothing before.
    made: Vec<Option<Place>>,
    moved: Vec<Option<Place>>,
    /// For each value, the copies that take the places of states.
    carried: Vec<Vec<Copy>>,
    lives: Vec<Span>,
    /// The operations, and when each is done.
    done: Vec<(NodeId, usize)>,
    moment: usize,
    phase: Phase,
}

/// Whether a value is used in a phase.
fn is_used_in(graph: &Graph, value: ValueId, phase: Phase) -> bool {
    graph.nodes.iter().any(|it| it.phase == phase && it.operands.contains(&value))
}

impl<'a> Walk<'a> {
    /// All of a plan.
    pub(super) fn over(plan: &'a Plan) -> Self {
        let graph = &plan.graph;
        let mut carried: Vec<Vec<Copy>> = vec![Vec::new(); graph.values.len()];
        let becomes = graph.training.iter().flat_map(|training| &training.carried);
        for (it, &copy) in becomes.zip(&plan.carried) {
            carried[it.next.0].push(copy);
        }
        let (made, moved) = (vec![None; graph.values.len()], vec![None; plan.transfers.len()]);
        let (lives, done) = (Vec::new(), Vec::new());
        let mut walk = Self { plan, made, moved, carried, lives, done, moment: 0, phase: Phase::Forward };
        for (id, assignment) in graph.node_ids().zip(&plan.assignments) {
            let node = graph.node(id);
            if let Assignment::Computed { operands, partition, .. } = assignment {
                walk.phase = node.phase;
                walk.compute(id, operands);
                if partition.moves() {
                    let bytes = slots(graph, node, partition);
                    walk.live(For::Copy, bytes);
                }
                walk.done.push((id, walk.moment));
            }
        }
        let outputs = graph.outputs.iter().zip(&plan.outputs);
        let outputs: Vec<Place> = outputs.map(|(output, &copy)| walk.copy(output.value, copy)).collect();
        walk.moment += 1;
        outputs.into_iter().for_each(|it| walk.read(it));
        walk
    }

    /// The most that is live at once, of values and of copies (bytes), with what the other
    /// micro-batches under way keep.
    pub(super) fn most(&self, live: Live) -> [u64; 2] {
        let [mut most, others] = [[0; 2], self.others(live)];
        for there in self.timeline() {
            if there[0] + there[1] > most[0] + most[1] {
                most = there;
            }
        }
        // Where gradients of weights are a part of their own, all that they use is there when it begins.
        if live.splits() {
            let mut begins = [0; 2];
            for it in &self.lives {
                let Kept { gradients, apart, .. } = it.kept();
                begins[usize::from(it.use_ == For::Copy)] += i128::from(gradients.saturating_add(apart));
            }
            if begins[0] + begins[1] > most[0] + most[1] {
                most = begins;
            }
        }
        [most[0] + others[0], most[1] + others[1]].map(|bytes| u64::try_from(bytes).unwrap_or(0))
    }

    /// A copy is there while an operation is done, and from then on: at which moments it was not, and what it takes
    /// (bytes).
    pub(super) fn there_from(
        &mut self,
        copy: (ValueId, Copy),
        operation: Option<NodeId>,
    ) -> Option<(Range<usize>, u64)> {
        let (Place::Live(it), moment) = (self.place_of(copy)?, self.moment_of(operation)?) else {
            return None;
        };
        let Span { first, bytes, .. } = &mut self.lives[it];
        let before = std::mem::replace(first, moment.min(*first));
        Some((*first..before, *bytes))
    }

    /// A copy is there until an operation is done: at which moments it was not, and what it takes (bytes).
    pub(super) fn there_until(
        &mut self,
        copy: (ValueId, Copy),
        operation: Option<NodeId>,
    ) -> Option<(Range<usize>, u64)> {
        let (Place::Live(it), moment) = (self.place_of(copy)?, self.moment_of(operation)?) else {
            return None;
        };
        let Span { last, bytes, .. } = &mut self.lives[it];
        let before = std::mem::replace(last, moment.max(*last));
        Some((before + 1..*last + 1, *bytes))
    }

    /// All that is live at each moment, with what the other micro-batches under way keep (bytes).
    pub(super) fn held(&self, live: Live) -> Vec<i128> {
        let others: i128 = self.others(live).iter().sum();
        self.timeline().into_iter().map(|[made, moved]| made + moved + others).collect()
    }

    /// When an operation is done.
    fn moment_of(&self, operation: Option<NodeId>) -> Option<usize> {
        let found = self.done.binary_search_by_key(&operation?, |it| it.0).ok()?;
        Some(self.done[found].1)
    }

    /// What is live at each moment, of values and of copies (bytes).
    fn timeline(&self) -> Vec<[i128; 2]> {
        let mut changes = vec![[0i128; 2]; self.moment + 2];
        for it in &self.lives {
            let kind = usize::from(it.use_ == For::Copy);
            changes[it.first][kind] += i128::from(it.bytes);
            changes[it.last + 1][kind] -= i128::from(it.bytes);
        }
        for moment in 1..changes.len() {
            let before = changes[moment - 1];
            changes[moment] = [before[0] + changes[moment][0], before[1] + changes[moment][1]];
        }
        changes
    }

    /// What other micro-batches under way keep, of values and of copies (bytes).
    fn others(&self, live: Live) -> [i128; 2] {
        let other = live.others();
        let mut others = [0; 2];
        for it in &self.lives {
            others[usize::from(it.use_ == For::Copy)] += i128::from(it.kept().bytes(other));
        }
        others
    }

    /// An operation, and the copies of its operands that are not there yet.
    fn compute(&mut self, id: NodeId, copies: &[Copy]) {
        let (plan, graph) = (self.plan, &self.plan.graph);
        let node = graph.node(id);
        let operands = node.operands.iter().zip(copies);
        let places: Vec<Place> = operands.map(|(&value, &copy)| self.copy(value, copy)).collect();
        let same = match (&node.operands[..], copies, &places[..]) {
            (&[operand], &[copy], &[place]) => {
                let local = plan.layout(operand, copy).local_type(graph.type_of(operand));
                node.op.keeps_order(&local).then_some(place)
            }
            _ => None,
        };
        if same.is_none() {
            self.moment += 1;
            places.into_iter().for_each(|it| self.read(it));
        }
        // What is written over an input that is where it is at rest stays there.
        let over = graph.written(id).and(node.op.written()).filter(|&it| copies[it] == Copy::Made);
        let same = same.or(over.map(|_| Place::Rest));
        for &result in &node.results {
            let key = (result, Copy::Made);
            let bytes = self.bytes(result, &plan.layouts[result.0]);
            let place = match same {
                Some(place) if !self.takes_a_place(key) => place,
                _ => self.place(key, For::Value, bytes),
            };
            self.made[result.0] = Some(place);
            // What a state becomes is there as early as it can be.
            for number in 0..self.carried[result.0].len() {
                self.copy(result, self.carried[result.0][number]);
            }
        }
    }

    /// Where a copy of a value is, made now if it is not there yet.
    fn copy(&mut self, value: ValueId, copy: Copy) -> Place {
        if let Some(place) = self.place_of((value, copy)) {
            return place;
        }
        let place = match copy {
            Copy::Made => Place::Rest,
            Copy::Transferred(transfer) => self.transfer(transfer),
        };
        match copy {
            Copy::Made => self.made[value.0] = Some(place),
            Copy::Transferred(transfer) => self.moved[transfer] = Some(place),
        }
        place
    }

    /// Where a copy of a value is, if it has been made.
    fn place_of(&self, (value, copy): (ValueId, Copy)) -> Option<Place> {
        match copy {
            Copy::Made => self.made[value.0],
            Copy::Transferred(transfer) => self.moved[transfer],
        }
    }

    /// Makes a copy, move by move.
    fn transfer(&mut self, index: usize) -> Place {
        let plan = self.plan;
        let transfer = &plan.transfers[index];
        let value = transfer.value;
        let type_ = plan.graph.type_of(value);
        let mut layout = plan.layout(value, transfer.from).clone();
        let mut place = self.copy(value, transfer.from);
        for (number, step) in transfer.moves.iter().enumerate() {
            let Ok(after) = step.apply(&plan.mesh, type_, &layout) else { break };
            let in_place = self.is_settled_by(value, step, place);
            let [packed, unpacked] = packs(step, &layout, &after, type_);
            for held in [packed.then_some(&layout), unpacked.then_some(&after)].into_iter().flatten() {
                let bytes = self.bytes(value, held);
                place = self.pass(place, |it| it.live(For::Copy, bytes));
            }
            let (is_last, bytes) = (number + 1 == transfer.moves.len(), self.bytes(value, &after));
            place = self.pass(place, |it| match () {
                () if in_place => Place::Rest,
                () if is_last => it.place((value, Copy::Transferred(index)), For::Copy, bytes),
                () => it.live(For::Copy, bytes),
            });
            layout = after;
        }
        place
    }

    /// Whether a move sums over devices what micro-batches have summed, where that is at rest: it is made in its
    /// place, for nothing else reads that.
    fn is_settled_by(&self, value: ValueId, step: &Move, place: Place) -> bool {
        let sums = matches!(step, Move::AllReduce { .. } | Move::ReduceScatter { .. });
        let total = self.phase == Phase::Update && !self.carried[value.0].is_empty();
        sums && total && matches!(place, Place::Rest)
    }

    /// Makes one thing from another.
    fn pass(&mut self, from: Place, to: impl FnOnce(&mut Self) -> Place) -> Place {
        self.moment += 1;
        self.read(from);
        to(self)
    }

    /// A place for a copy: with what is at rest, if it takes the place of a state.
    fn place(&mut self, key: (ValueId, Copy), use_: For, bytes: u64) -> Place {
        if self.takes_a_place(key) { Place::Rest } else { self.live(use_, bytes) }
    }

    /// Whether a copy takes the place of a state.
    fn takes_a_place(&self, (value, copy): (ValueId, Copy)) -> bool {
        self.carried[value.0].contains(&copy)
    }

    fn live(&mut self, use_: For, bytes: u64) -> Place {
        let (moment, made) = (self.moment, self.phase);
        self.lives.push(Span {
            use_,
            bytes,
            first: moment,
            last: moment,
            made,
            used: [false; Phase::ALL.len()],
        });
        Place::Live(self.lives.len() - 1)
    }

    fn read(&mut self, place: Place) {
        if let Place::Live(it) = place {
            self.lives[it].last = self.moment;
            // A copy is made in the first part that uses it, wherever that stands in the program.
            self.lives[it].made = self.lives[it].made.min(self.phase);
            self.lives[it].used[self.phase as usize] = true;
        }
    }

    fn bytes(&self, value: ValueId, layout: &Layout) -> u64 {
        layout.local_bytes(self.plan.graph.type_of(value))
    }
}

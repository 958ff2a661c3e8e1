//! What the update of a pipeline takes: each group's work, and what it waits for of others.
//!
//! A group starts when its tasks are over. What its stages do is in the order of its program: sums that
//! others wait for are sent; what others or the step's outputs need is computed and sent; everything
//! that is still to come is received; states are changed. Messages travel beside work, each from when it
//! is made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plan::{Assignment, Copy, Pipeline, Plan};
use planner_ir::{Graph, NodeId, Phase, Source, ValueId};

use super::phase::phase;

/// A piece of a group's work.
#[derive(Default)]
struct Piece {
    /// The stage that it is of.
    stage: usize,
    /// The crossings that have to be there before.
    after: Vec<usize>,
    /// What it takes (seconds).
    seconds: f64,
    /// The crossings that it makes.
    makes: Vec<usize>,
}

/// When each group of a pipeline is done with a step, if its tasks end at these times (seconds): with
/// the time of messages, or as if they took none. Nothing if groups wait for each other.
pub(super) fn ends(pipeline: &Pipeline, tasks: &[f64], messages: Messages) -> Option<Vec<f64>> {
    let mut work: Vec<VecDeque<Piece>> = tasks.iter().map(|_| [].into()).collect();
    let of_stages: Vec<[Vec<Piece>; STRETCHES]> =
        (0..pipeline.stages.len()).map(|stage| pieces(pipeline, stage)).collect();
    let mut of_stages: Vec<_> = of_stages.into_iter().map(|it| it.into_iter()).collect();
    for _ in 0..STRETCHES {
        // Of a group's stages the last comes first.
        for (stage, stretches) in of_stages.iter_mut().enumerate().rev() {
            work[pipeline.group(stage)].extend(stretches.next().into_iter().flatten());
        }
    }
    let mut clocks = tasks.to_vec();
    let mut arrived: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    // From one group to another, one message follows another.
    let mut free: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    loop {
        let mut worked = false;
        for (clock, work) in clocks.iter_mut().zip(&mut work) {
            while let Some(piece) = work.front() {
                let ready: Option<Vec<f64>> =
                    piece.after.iter().map(|&it| arrived.get(&(it, piece.stage)).copied()).collect();
                let Some(ready) = ready else { break };
                *clock = ready.into_iter().fold(*clock, f64::max) + piece.seconds;
                for &made in &piece.makes {
                    for arrival in &pipeline.crossings[made].to {
                        let way = (pipeline.group(piece.stage), pipeline.group(arrival.stage));
                        let mut there = *clock;
                        if messages == Messages::Timed && way.0 != way.1 {
                            let free = free.entry(way).or_default();
                            there = free.max(there) + arrival.seconds;
                            *free = there;
                        }
                        arrived.insert((made, arrival.stage), there);
                    }
                }
                work.pop_front();
                worked = true;
            }
        }
        if !worked {
            return work.iter().all(VecDeque::is_empty).then_some(clocks);
        }
    }
}

/// Whether messages take time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Messages {
    /// They do.
    Timed,
    /// They are there at once.
    Untimed,
}

/// In how many stretches the stages of a group do an update in turn.
const STRETCHES: usize = 4;

/// The update of a stage: what is sent at once, what is needed for what is returned, what is received,
/// and the rest.
fn pieces(pipeline: &Pipeline, stage: usize) -> [Vec<Piece>; STRETCHES] {
    let plan = &pipeline.stages[stage].plan;
    let graph = &plan.graph;
    let once = |(number, it): (usize, &plan::Crossing)| phase(pipeline, it).is_none().then_some(number);
    let once: BTreeSet<usize> = pipeline.crossings.iter().enumerate().filter_map(once).collect();
    let number = |name: &str| pipeline.crossings.iter().position(|it| it.name == name);
    let crossing = |name: &str| number(name).filter(|it| once.contains(it));
    let mut moves = Moves { plan, phases: plan.transfer_phases(), made: vec![false; plan.transfers.len()] };
    let mut made: BTreeMap<NodeId, Vec<(usize, Copy)>> = BTreeMap::new();
    let mut sums = Vec::new();
    for (output, &copy) in graph.outputs.iter().zip(&plan.outputs) {
        let Some(number) = crossing(&output.name) else { continue };
        match graph.value(output.value).source {
            Source::Result { node, .. } if graph.node(node).phase == Phase::Update => {
                made.entry(node).or_default().push((number, copy));
            }
            _ => sums.push(Piece { stage, seconds: moves.first(copy), makes: vec![number], after: vec![] }),
        }
    }
    let needed = needed(graph);
    let of_update = |it: &NodeId| graph.node(*it).phase == Phase::Update;
    let (returned, rest): (Vec<NodeId>, Vec<NodeId>) =
        graph.node_ids().filter(of_update).partition(|it| needed.contains(it));
    let piece = |node: NodeId, moves: &mut Moves<'_>| {
        let names = graph.node(node).operands.iter().filter_map(|&operand| input(graph, operand));
        let mut piece = Piece { stage, after: names.filter_map(crossing).collect(), ..Piece::default() };
        if let Assignment::Computed { operands, seconds, .. } = &plan.assignments[node.0] {
            piece.seconds = seconds + operands.iter().map(|&copy| moves.first(copy)).sum::<f64>();
        }
        for &(number, copy) in made.get(&node).into_iter().flatten() {
            piece.seconds += moves.first(copy);
            piece.makes.push(number);
        }
        piece
    };
    let returned = returned.into_iter().map(|node| piece(node, &mut moves)).collect();
    let all = graph.value_ids().filter_map(|it| crossing(input(graph, it)?)).collect();
    let received = vec![Piece { stage, after: all, ..Piece::default() }];
    let mut rest: Vec<Piece> = rest.into_iter().map(|node| piece(node, &mut moves)).collect();
    // What is returned, or becomes of states, in other layouts.
    rest.push(Piece { stage, seconds: moves.rest(), ..Piece::default() });
    [sums, returned, received, rest]
}

/// The transfers of a plan that are made in the update, each where it is first needed.
struct Moves<'a> {
    plan: &'a Plan,
    phases: Vec<Phase>,
    made: Vec<bool>,
}

impl Moves<'_> {
    /// What a copy takes that is not there yet, with what it is made from (seconds).
    fn first(&mut self, copy: Copy) -> f64 {
        let mut seconds = 0.0;
        let mut next = copy;
        while let Copy::Transferred(it) = next {
            if self.phases[it] != Phase::Update || std::mem::replace(&mut self.made[it], true) {
                break;
            }
            seconds += self.plan.transfers[it].takes();
            next = self.plan.transfers[it].from;
        }
        seconds
    }

    /// What all others take (seconds).
    fn rest(&mut self) -> f64 {
        (0..self.made.len()).map(|it| self.first(Copy::Transferred(it))).sum()
    }
}

/// The name of an input.
fn input(graph: &Graph, value: ValueId) -> Option<&str> {
    match &graph.value(value).source {
        Source::Input(name) => Some(name),
        _ => None,
    }
}

/// The operations that what is returned depends on.
fn needed(graph: &Graph) -> BTreeSet<NodeId> {
    let mut needed = BTreeSet::new();
    let mut values: Vec<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
    while let Some(value) = values.pop() {
        if let Source::Result { node, .. } = graph.value(value).source
            && needed.insert(node)
        {
            values.extend(&graph.node(node).operands);
        }
    }
    needed
}

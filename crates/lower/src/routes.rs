//! How what crosses between stages comes from rank to rank.
//!
//! The plan says by which strategy and in how many chunks; which messages that makes follows from both
//! layouts.

use std::collections::BTreeMap;
use std::sync::Arc;

use cost_models::units::{BytesPerSecond, Seconds};
use plan::{Arrival, Copy, Crossing, Pipeline, Plan, Stage};
use planner_ir::{Layout, Source, Type, ValueId};
use reshard::{Choice, Message, Network, Order, Policy, Side, Strategy, reshard};

use crate::action::{Remote, Way};
use crate::error::{LowerError, each};
use crate::strided::Strided;

/// The names of strategies.
pub(crate) const POLICY_NAMES: [&str; 4] =
    ["send/receive", "local all-gather", "global all-gather", "broadcast"];

/// Links of which only the order counts: no latency, so that chunks are as many as may be.
const EVEN: Network =
    Network { between: BytesPerSecond(1.0), inside: BytesPerSecond(1.0), latency: Seconds(0.0) };

/// What ranks give and take in a crossing: for each rank, in order; on the sending and on the
/// receiving side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Route {
    pub(crate) sent: BTreeMap<u64, Vec<Remote>>,
    pub(crate) received: BTreeMap<u64, Vec<Remote>>,
}

/// How an arrival travels.
pub(crate) fn policy(arrival: &Arrival) -> Result<Policy, String> {
    let known = Strategy::ALL.into_iter().find(|it| it.name() == arrival.strategy);
    let strategy = known.ok_or_else(|| {
        format!("there is no strategy `{}`, expected one of {}", arrival.strategy, POLICY_NAMES.join(", "))
    })?;
    Ok(by(strategy, arrival.chunks))
}

/// The policy by which a strategy is carried out, with so many chunks at most.
pub fn by(strategy: Strategy, chunks: u64) -> Policy {
    Policy { strategy: Choice::Only(strategy), order: Order::Scheduled, most_chunks: chunks }
}

/// The layout of a value that a stage gives, and its type.
fn given<'a>(plan: &'a Plan, name: &str) -> Option<(&'a Layout, &'a Type)> {
    let place = plan.graph.outputs.iter().position(|output| output.name == name)?;
    let value = plan.graph.outputs[place].value;
    let copy = *plan.outputs.get(place)?;
    let known = !matches!(copy, Copy::Transferred(it) if it >= plan.transfers.len());
    known.then(|| (plan.layout(value, copy), plan.graph.type_of(value)))
}

/// The layout of a value that a stage takes.
fn taken<'a>(plan: &'a Plan, name: &str) -> Option<&'a Layout> {
    let is_it =
        |value: &ValueId| matches!(&plan.graph.value(*value).source, Source::Input(input) if input == name);
    plan.layouts.get(plan.graph.value_ids().find(is_it)?.0)
}

/// The two ends of the way of a value to a stage, and its type.
///
/// Stages on the same devices have ranks of their own here, behind all others.
pub fn sides<'a>(
    pipeline: &'a Pipeline,
    (name, from): (&str, usize),
    to: usize,
) -> Result<([Side; 2], &'a Type), LowerError> {
    let refused = |error: String| LowerError::Crossing(name.to_owned(), error);
    let stage = |number: usize| {
        pipeline.stages.get(number).ok_or_else(|| refused(format!("there is no stage {number}")))
    };
    let (sender, receiver) = (stage(from)?, stage(to)?);
    let (held, type_) =
        given(&sender.plan, name).ok_or_else(|| refused(format!("stage {from} gives no such output")))?;
    let needed =
        taken(&receiver.plan, name).ok_or_else(|| refused(format!("stage {to} takes no such input")))?;
    let side = |stage: &Stage, layout: &Layout| {
        let nodes = [pipeline.devices_per_node, stage.adapters];
        Side::successive(stage.plan.mesh.clone(), layout.clone(), stage.first_device, nodes)
    };
    let mut sides = [side(sender, held), side(receiver, needed)];
    if sender.first_device == receiver.first_device {
        sides[1].places.iter_mut().for_each(|place| place.rank += pipeline.devices());
    }
    Ok((sides, type_))
}

/// For each crossing its ways, each to a stage.
pub(crate) type Routes = Vec<Vec<(usize, Arc<Route>)>>;

/// What travels from where to where, and how.
#[derive(PartialEq)]
struct Trip<'a> {
    type_: &'a Type,
    sides: [Side; 2],
    policy: Policy,
}

/// The ways of all crossings, of each to all stages that it goes to. Crossings between chunks of the same
/// groups mostly travel alike: what does is found out once.
pub(crate) fn routes(pipeline: &Pipeline) -> Result<Routes, LowerError> {
    let mut trips: Vec<(&str, Trip<'_>)> = Vec::new();
    let mut numbers = Vec::new();
    for crossing in &pipeline.crossings {
        let mut to = Vec::new();
        for arrival in &crossing.to {
            let trip = Trip::of(pipeline, crossing, arrival)?;
            let known = trips.iter().position(|(_, it)| *it == trip);
            to.push((arrival.stage, known.unwrap_or(trips.len())));
            if known.is_none() {
                trips.push((&crossing.name, trip));
            }
        }
        numbers.push(to);
    }
    let made = each(&trips, |(name, trip)| {
        let route = trip.route(pipeline.devices());
        route.map(Arc::new).map_err(|error| LowerError::Crossing((*name).to_owned(), error))
    })?;
    let all = numbers.into_iter();
    Ok(all.map(|to| to.into_iter().map(|(stage, it)| (stage, Arc::clone(&made[it]))).collect()).collect())
}

impl<'a> Trip<'a> {
    fn of(pipeline: &'a Pipeline, crossing: &Crossing, arrival: &Arrival) -> Result<Self, LowerError> {
        let policy = policy(arrival).map_err(|error| LowerError::Crossing(crossing.name.clone(), error))?;
        let (sides, type_) = sides(pipeline, (&crossing.name, crossing.from), arrival.stage)?;
        Ok(Self { type_, sides, policy })
    }

    fn route(&self, devices: u64) -> Result<Route, String> {
        let Self { type_, sides: [from, to], policy } = self;
        let made = reshard(type_, from, to, &EVEN, policy).map_err(|error| error.to_string())?;
        let mut route = Route::default();
        for message in &made.messages {
            route.add(message, [from, to], type_, devices)?;
        }
        Ok(route)
    }
}

impl Route {
    fn add(
        &mut self,
        message: &Message,
        sides: [&Side; 2],
        type_: &Type,
        devices: u64,
    ) -> Result<(), String> {
        let rank = |rank: u64| if rank >= devices { rank - devices } else { rank };
        let sender = usize::from(message.from >= devices || sides[0].device(message.from).is_none());
        let (from, to) = (rank(message.from), rank(message.to));
        for portion in &message.portions {
            let strided = |side: &Side, rank: u64| {
                let missing = || format!("rank {rank} has no place for a part of it");
                let device = side.device(rank).ok_or_else(missing)?;
                let shape = side.layout.local_shape(&type_.shape);
                let local = side.local(type_, device, portion).ok_or_else(missing)?;
                let starts: Vec<u64> = local.spans.iter().map(|span| span.start).collect();
                let lengths: Vec<u64> = local.spans.iter().map(|span| span.length).collect();
                Ok::<_, String>(Strided::of_box(&shape, &starts, &lengths))
            };
            let goes = Remote { way: Way::To, rank: to, strided: strided(sides[sender], message.from)? };
            let comes = Remote { way: Way::From, rank: from, strided: strided(sides[1], message.to)? };
            let sent = if sender == 0 { &mut self.sent } else { &mut self.received };
            sent.entry(from).or_default().push(goes);
            self.received.entry(to).or_default().push(comes);
        }
        Ok(())
    }
}

//! From end to end: unit tasks, a strategy for each, a schedule, and the messages.

use std::collections::BTreeMap;

use cost_models::units::Seconds;
use planner_ir::Type;

use crate::error::ReshardError;
use crate::job::{Job, Lane, Source, Way, jobs};
use crate::message::{Message, Messages};
use crate::network::Network;
use crate::policy::{Choice, Order, Policy};
use crate::schedule::{Problem, Schedule, Work, in_order, scheduled};
use crate::side::{Adapter, Place, Side, adapters};
use crate::simulate::Clock;
use crate::strategy::Strategy;
use crate::unit::{UnitTask, unit_tasks};

/// How a value is brought over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resharding {
    /// What has to be brought.
    pub tasks: Vec<UnitTask>,
    /// How each unit task travels to other nodes; none if no other node needs it.
    pub strategies: Vec<Option<Strategy>>,
    /// What adapters send after each other (bytes), and the bound for it.
    pub schedule: Schedule,
    /// What goes from rank to rank.
    pub messages: Vec<Message>,
    /// The most chunks in which a chain is broadcast; 1 if none is.
    pub chunks: u64,
}

/// Up to how many unit tasks several ways are tried by the clock.
const CLOCKED: usize = 1 << 10;

/// How a value gets from one side to the other.
pub fn reshard(
    type_: &Type,
    from: &Side,
    to: &Side,
    network: &Network,
    policy: &Policy,
) -> Result<Resharding, ReshardError> {
    check(network, policy)?;
    let tasks = unit_tasks(type_, from, to)?;
    let element = type_.dtype.bytes();
    if policy.strategy == Choice::Cheapest && tasks.len() <= CLOCKED {
        let all = [Choice::Estimated].into_iter().chain(Strategy::ALL.map(Choice::Only));
        let all: Vec<Policy> = all.map(|strategy| Policy { strategy, ..*policy }).collect();
        if let Some((_, found, _)) = least(&tasks, element, (from, to, network), &all) {
            return Ok(found);
        }
    }
    Ok(bring(&tasks, element, network, policy, &mut |_| true))
}

/// How a value gets from one side to the other by the one of some policies that takes least by the clock of
/// [`simulate`](crate::simulate()): which one that is, and what it takes. Of equal ones it has fewest
/// messages. Nothing if there are no policies.
pub fn quickest(
    type_: &Type,
    (from, to): (&Side, &Side),
    network: &Network,
    policies: &[Policy],
) -> Result<Option<(usize, Resharding, Seconds)>, ReshardError> {
    policies.iter().try_for_each(|policy| check(network, policy))?;
    let tasks = unit_tasks(type_, from, to)?;
    Ok(least(&tasks, type_.dtype.bytes(), (from, to, network), policies))
}

fn check(network: &Network, policy: &Policy) -> Result<(), ReshardError> {
    network.check()?;
    if policy.most_chunks == 0 { Err(ReshardError::Chunks) } else { Ok(()) }
}

/// What [`quickest`] finds, of unit tasks.
fn least(
    tasks: &[UnitTask],
    element: u64,
    between: (&Side, &Side, &Network),
    policies: &[Policy],
) -> Option<(usize, Resharding, Seconds)> {
    let mut best: Option<(usize, Resharding, Seconds)> = None;
    for (number, policy) in policies.iter().enumerate() {
        let most = best.as_ref().map_or(Seconds(f64::INFINITY), |best| best.2);
        let Some((found, taken)) = timed(tasks, element, between, policy, most) else { continue };
        let is_less = |(_, had, end): &(usize, Resharding, Seconds)| {
            (taken, found.messages.len()) < (*end, had.messages.len())
        };
        if best.as_ref().is_none_or(is_less) {
            best = Some((number, found, taken));
        }
    }
    best
}

/// How unit tasks are brought over, and what that takes by the clock: nothing where that is more than `most`,
/// which is often known long before all messages are listed.
pub(crate) fn timed(
    tasks: &[UnitTask],
    element: u64,
    (from, to, network): (&Side, &Side, &Network),
    policy: &Policy,
    most: Seconds,
) -> Option<(Resharding, Seconds)> {
    let mut clock = Clock::new(from, to, network);
    let found = bring(tasks, element, network, policy, &mut |listed| {
        listed[clock.timeline.times.len()..].iter().for_each(|message| clock.tell(message));
        clock.timeline.end <= most
    });
    Some((found, clock.timeline.end)).filter(|(_, taken)| *taken <= most)
}

/// How unit tasks are brought over by a policy that says how: as long as what is listed so far of their
/// messages is not too much.
fn bring(
    tasks: &[UnitTask],
    element: u64,
    network: &Network,
    policy: &Policy,
    go_on: &mut dyn FnMut(&[Message]) -> bool,
) -> Resharding {
    let (inside, across): (Vec<Job>, Vec<Job>) =
        jobs(tasks, network, policy).into_iter().partition(Job::is_inside);
    let chunks = inside.iter().chain(&across).map(|job| job.chunks).max().unwrap_or(1);
    let mut strategies = vec![None; tasks.len()];
    for job in &across {
        strategies[job.task] = Some(job.strategy);
    }

    let (problem, adapters) = problem(&across);
    let schedule = match policy.order {
        Order::Listed => in_order(&problem),
        Order::Scheduled => scheduled(&problem),
    };
    // What stays in nodes waits for nothing and goes first.
    let inside = inside.iter().map(|job| {
        let way = Way { from: Source::Node(job.senders[0].node), entries: Vec::new() };
        (job, vec![way])
    });
    let all: Vec<(&Job, Vec<Way>)> = inside.chain(ways(&across, &schedule, &adapters)).collect();
    let from = |ways: &[Way]| ways.iter().map(|way| way.from.node()).collect::<Vec<u64>>();
    let together = |one: &(&Job, Vec<Way>), other: &(&Job, Vec<Way>)| {
        one.0.goes_with(other.0) && from(&one.1) == from(&other.1)
    };
    let mut messages = Messages::new(tasks, element);
    for run in all.chunk_by(together) {
        let jobs: Vec<(&Job, &[Way])> = run.iter().map(|(job, ways)| (*job, &ways[..])).collect();
        messages.add(&jobs);
        if !go_on(&messages.list) {
            break;
        }
    }
    let messages = messages.list;
    Resharding { tasks: tasks.to_vec(), strategies, schedule, messages, chunks }
}

/// The lanes of jobs as adapters see them, and the adapters by their numbers there.
fn problem(jobs: &[Job]) -> (Problem, Vec<Adapter>) {
    let places: Vec<Place> = jobs
        .iter()
        .flat_map(|job| job.senders.iter().chain(job.receivers.iter().flatten()))
        .copied()
        .collect();
    let numbers: BTreeMap<Adapter, usize> =
        adapters(&places).into_iter().enumerate().map(|(number, adapter)| (adapter, number)).collect();
    let numbered = |adapters: &[Adapter]| adapters.iter().map(|it| numbers[it]).collect::<Vec<usize>>();
    let works = jobs.iter().flat_map(|job| {
        let senders = numbered(&adapters(&job.senders));
        let work = move |lane: &Lane| {
            let receivers = lane.entries.iter().map(|it| numbered(it)).collect();
            Work { senders: senders.clone(), receivers, bytes: lane.bytes }
        };
        job.lanes.iter().map(work)
    });
    (Problem { adapters: numbers.len(), works: works.collect() }, numbers.into_keys().collect())
}

/// Jobs in the order in which their first lanes are taken up, with the ways of their lanes.
fn ways<'a>(jobs: &'a [Job], schedule: &Schedule, adapters: &[Adapter]) -> Vec<(&'a Job, Vec<Way>)> {
    let lanes = jobs.iter().enumerate().flat_map(|(job, it)| it.lanes.iter().map(move |_| job));
    let job_of: Vec<usize> = lanes.collect();
    let mut ways: Vec<Vec<Way>> = vec![Vec::new(); jobs.len()];
    for ((&job, &sender), entries) in job_of.iter().zip(&schedule.senders).zip(&schedule.entries) {
        let entries = entries.iter().map(|&it| adapters[it]).collect();
        ways[job].push(Way { from: Source::Adapter(adapters[sender]), entries });
    }
    let taken_up = schedule.order.iter().filter_map(|&lane| {
        let job = job_of[lane];
        let ways = std::mem::take(&mut ways[job]);
        (!ways.is_empty()).then_some((&jobs[job], ways))
    });
    taken_up.collect()
}

//! From end to end: unit tasks, a strategy for each, a schedule, and the messages.

use std::collections::BTreeMap;

use cost_models::units::Seconds;
use planner_ir::Type;

use crate::error::ReshardError;
use crate::job::{Job, jobs};
use crate::message::{Message, Messages};
use crate::network::Network;
use crate::schedule::{Problem, Schedule, Work, in_order, scheduled};
use crate::side::Side;
use crate::simulate::Clock;
use crate::strategy::Strategy;
use crate::unit::{UnitTask, unit_tasks};

/// Which strategy is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// What takes least by the clock of [`simulate`](crate::simulate()): one for all, or for each unit task the one
    /// with the least estimate. Of very many unit tasks, each has the one with the least estimate.
    Cheapest,
    /// For each unit task the one with the least estimate, as if it were alone.
    Estimated,
    /// This one for all.
    Only(Strategy),
}

/// Who sends, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first node that can, in the order of the unit tasks.
    Listed,
    /// As few bytes after each other as can be found.
    Scheduled,
}

/// How a value is to be brought over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which strategy is used.
    pub strategy: Choice,
    /// Who sends, and in which order.
    pub order: Order,
    /// The most chunks of a broadcast.
    pub most_chunks: u64,
}

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
}

impl Default for Policy {
    fn default() -> Self {
        Self { strategy: Choice::Cheapest, order: Order::Scheduled, most_chunks: 64 }
    }
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
    let only = |strategy| Policy { strategy, ..*policy };
    if policy.strategy != Choice::Cheapest || tasks.len() > CLOCKED {
        return Ok(bring(&tasks, element, network, policy, &mut |_| true));
    }
    let timed = |policy: &Policy, most| timed(&tasks, element, (from, to, network), policy, most);
    let endless = Seconds(f64::INFINITY);
    let (mut best, mut end) = timed(&only(Choice::Estimated), endless);
    for strategy in Strategy::ALL {
        let (other, taken) = timed(&only(Choice::Only(strategy)), end);
        if (taken, other.messages.len()) < (end, best.messages.len()) {
            (best, end) = (other, taken);
        }
    }
    Ok(best)
}

/// How a value gets from one side to the other by a strategy, and what that takes by the clock of
/// [`simulate`](crate::simulate()): nothing where that is more than `most`, which is often known long before
/// all messages are listed.
pub fn reshard_within(
    type_: &Type,
    (from, to): (&Side, &Side),
    network: &Network,
    policy: &Policy,
    most: Seconds,
) -> Result<Option<(Resharding, Seconds)>, ReshardError> {
    check(network, policy)?;
    let tasks = unit_tasks(type_, from, to)?;
    let found = timed(&tasks, type_.dtype.bytes(), (from, to, network), policy, most);
    Ok(Some(found).filter(|(_, taken)| *taken <= most))
}

fn check(network: &Network, policy: &Policy) -> Result<(), ReshardError> {
    network.check()?;
    if policy.most_chunks == 0 { Err(ReshardError::Chunks) } else { Ok(()) }
}

/// How unit tasks are brought over, and what that takes by the clock. Where that is more than `most`
/// messages are missing.
fn timed(
    tasks: &[UnitTask],
    element: u64,
    (from, to, network): (&Side, &Side, &Network),
    policy: &Policy,
    most: Seconds,
) -> (Resharding, Seconds) {
    let mut clock = Clock::new(from, to, network);
    let found = bring(tasks, element, network, policy, &mut |listed| {
        listed[clock.timeline.times.len()..].iter().for_each(|message| clock.tell(message));
        clock.timeline.end <= most
    });
    (found, clock.timeline.end)
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
    let mut strategies = vec![None; tasks.len()];
    for job in &across {
        strategies[job.task] = Some(job.strategy);
    }

    let (problem, nodes) = problem(tasks, &across);
    let schedule = match policy.order {
        Order::Listed => in_order(&problem),
        Order::Scheduled => scheduled(&problem),
    };
    // What stays in nodes waits for nothing and goes first.
    let inside = inside.iter().map(|job| (job, job.senders[0].node));
    let across = schedule.order.iter().map(|&it| (&across[it], nodes[schedule.senders[it]]));
    let mut messages = Messages::new(tasks, element);
    for (job, node) in inside.chain(across) {
        messages.add(job, node);
        if !go_on(&messages.list) {
            break;
        }
    }
    let messages = messages.list;
    Resharding { tasks: tasks.to_vec(), strategies, schedule, messages }
}

/// The jobs as adapters see them, and the nodes by their numbers there.
fn problem(tasks: &[UnitTask], jobs: &[Job]) -> (Problem, Vec<u64>) {
    let places = jobs.iter().flat_map(|job| job.senders.iter().chain(job.receivers.iter().flatten()));
    let numbers: BTreeMap<u64, usize> = {
        let nodes: BTreeMap<u64, ()> = places.map(|place| (place.node, ())).collect();
        nodes.into_keys().enumerate().map(|(number, node)| (node, number)).collect()
    };
    let work = |job: &Job| {
        let mut senders: Vec<usize> = job.senders.iter().map(|place| numbers[&place.node]).collect();
        senders.sort_unstable();
        senders.dedup();
        let receivers = job.receivers.iter().map(|places| numbers[&places[0].node]).collect();
        Work { senders, receivers, bytes: tasks[job.task].bytes }
    };
    let works = jobs.iter().map(work).collect();
    (Problem { nodes: numbers.len(), works }, numbers.into_keys().collect())
}

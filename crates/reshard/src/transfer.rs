//! From end to end: unit tasks, a strategy for each, a schedule, and the messages.

use std::collections::BTreeMap;

use planner_ir::Type;

use crate::error::ReshardError;
use crate::job::{Job, jobs};
use crate::message::{Message, Messages};
use crate::network::Network;
use crate::schedule::{Problem, Schedule, Work, in_order, scheduled};
use crate::side::Side;
use crate::simulate::simulate;
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
    network.check()?;
    if policy.most_chunks == 0 {
        return Err(ReshardError::Chunks);
    }
    let tasks = unit_tasks(type_, from, to)?;
    let element = type_.dtype.bytes();
    let bring = |strategy| bring(&tasks, element, network, &Policy { strategy, ..*policy });
    if policy.strategy != Choice::Cheapest || tasks.len() > CLOCKED {
        return Ok(bring(policy.strategy));
    }
    let mut best = bring(Choice::Estimated);
    let taken = |found: &Resharding| (simulate(&found.messages, from, to, network).end, found.messages.len());
    for strategy in Strategy::ALL {
        let other = bring(Choice::Only(strategy));
        if taken(&other) < taken(&best) {
            best = other;
        }
    }
    Ok(best)
}

/// How unit tasks are brought over by a policy that says how.
fn bring(tasks: &[UnitTask], element: u64, network: &Network, policy: &Policy) -> Resharding {
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
    let mut messages = Messages::new(tasks, element);
    for job in &inside {
        messages.add(job, job.senders[0].node);
    }
    for &index in &schedule.order {
        messages.add(&across[index], nodes[schedule.senders[index]]);
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

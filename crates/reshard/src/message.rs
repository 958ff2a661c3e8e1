//! What goes from rank to rank.

use std::collections::BTreeMap;

use crate::job::Job;
use crate::portion::{Portion, divide};
use crate::side::Place;
use crate::strategy::Strategy;
use crate::unit::UnitTask;

/// Portions of the value from one rank to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number: its place in the list. Each rank, and each link, sends and receives its
    /// messages in this order.
    pub order: usize,
    /// The unit task that it is of.
    pub task: usize,
    /// The rank that sends it.
    pub from: u64,
    /// The rank that receives it.
    pub to: u64,
    /// What it carries, of the whole value. Each portion lies in one block of the layout of
    /// either rank, so that it is one box in what that rank holds.
    pub portions: Vec<Portion>,
    /// How large that is (bytes).
    pub bytes: u64,
    /// Earlier messages that brought the sender what it passes on; none if it is on the side
    /// where the value was.
    pub after: Vec<usize>,
}

/// Messages as they are collected.
pub(crate) struct Messages<'a> {
    tasks: &'a [UnitTask],
    /// The size of an element (bytes).
    element: u64,
    /// What each adapter, by its node, and each rank has been told to send of what was there from the start
    /// (bytes).
    sent: Sends,
    /// What has been collected.
    pub(crate) list: Vec<Message>,
}

/// The devices of a node: first one of each adapter, then another of each.
fn in_turns(devices: &[Place]) -> Vec<usize> {
    let turn =
        |it: usize| devices[..it].iter().filter(|earlier| earlier.adapter == devices[it].adapter).count();
    let mut order: Vec<usize> = (0..devices.len()).collect();
    order.sort_by_key(|&it| turn(it));
    order
}

/// Bytes that are sent.
#[derive(Default)]
struct Sends {
    by_adapter: BTreeMap<(u64, u64), u64>,
    by_rank: BTreeMap<u64, u64>,
    /// By unit task and rank.
    by_task: BTreeMap<(usize, u64), u64>,
}

/// Something that is sent.
struct Sent<'a> {
    task: usize,
    portions: &'a [Portion],
    after: Option<usize>,
}

impl<'a> Messages<'a> {
    /// No messages.
    pub(crate) fn new(tasks: &'a [UnitTask], element: u64) -> Self {
        Self { tasks, element, sent: Sends::default(), list: Vec::new() }
    }

    /// Adds those of jobs of one strategy that a node sends the same receivers.
    pub(crate) fn add(&mut self, jobs: &[&Job], node: u64) {
        match jobs.first().map(|job| job.strategy) {
            Some(Strategy::SendReceive) => jobs.iter().for_each(|job| self.direct(job, node)),
            Some(Strategy::Broadcast) => jobs.iter().for_each(|job| self.broadcast(job, node)),
            Some(Strategy::LocalGather | Strategy::GlobalGather) => {
                let count = jobs[0].receivers.iter().map(Vec::len).sum();
                let parts = |job: &&Job| divide(&self.tasks[job.task].portions, self::count(count));
                let parts: Vec<Vec<Vec<Portion>>> = jobs.iter().map(parts).collect();
                for turn in 0..jobs.len() {
                    // Each receiver begins with another job.
                    let of = |receiver: usize| {
                        let job = (receiver * jobs.len() / count.min(jobs.len()) + turn) % jobs.len();
                        (jobs[job], &parts[job][receiver][..])
                    };
                    self.gathered(&jobs[0].receivers, &(0..count).map(of).collect::<Vec<_>>(), node);
                }
            }
            None => {}
        }
    }

    /// The device of a node that will send these to a receiver: the one whose place among the senders is
    /// that of the receiver among all, if that is its share; else one whose adapter has sent least, and of
    /// these the one that has.
    fn sender(&mut self, job: &Job, node: u64, receiver: u64, portions: &[Portion]) -> Option<u64> {
        let bytes = self.bytes(portions);
        let UnitTask { senders, receivers, .. } = &self.tasks[job.task];
        let Sends { by_adapter, by_rank, by_task } = &mut self.sent;
        let of = |it: &Place| {
            let adapter = by_adapter.get(&(node, it.adapter)).copied().unwrap_or(0);
            (adapter, by_rank.get(&it.rank).copied().unwrap_or(0))
        };
        let places = job.senders.iter().filter(|it| it.node == node);
        let least = places.min_by_key(|it| of(it))?;
        let place = receivers.iter().position(|it| it.rank == receiver).unwrap_or(0);
        let like = senders.get(place * senders.len() / receivers.len().max(1)).filter(|like| {
            let sent = by_task.get(&(job.task, like.rank)).copied().unwrap_or(0);
            let (all, share) = (count(senders.len()), count(receivers.len()));
            let within = (sent + bytes).saturating_mul(all) <= share.saturating_mul(bytes);
            like.node == node && (within || of(like) == of(least))
        });
        let chosen = like.unwrap_or(least);
        *by_adapter.entry((node, chosen.adapter)).or_default() += bytes;
        *by_rank.entry(chosen.rank).or_default() += bytes;
        *by_task.entry((job.task, chosen.rank)).or_default() += bytes;
        Some(chosen.rank)
    }

    fn bytes(&self, portions: &[Portion]) -> u64 {
        portions.iter().map(Portion::elements).sum::<u64>() * self.element
    }

    fn direct(&mut self, job: &Job, node: u64) {
        let portions = &self.tasks[job.task].portions;
        let Some(sender) = self.sender(job, node, job.first(), portions) else { return };
        for receiver in job.receivers.iter().flatten() {
            self.push(sender, receiver.rank, &Sent { task: job.task, portions, after: None });
        }
    }

    /// One part to each receiver, then parts between nodes, then inside each node. A part enters
    /// each node once: in the first round of exchanges nodes give to the next one, and so on.
    ///
    /// Where there are several jobs, receivers take turns: each has the part of another one, so that who
    /// sends them sends to different receivers at a time, and nobody is always the first or the last.
    ///
    /// Where several devices of the node have the portions, they send parts in turns, and to adapters in
    /// turns: each may have an adapter of its own.
    fn gathered(&mut self, nodes: &[Vec<Place>], parts: &[(&Job, &[Portion])], node: u64) {
        let sent = |part: usize, after: Option<usize>| {
            let (job, portions) = parts[part];
            Sent { task: job.task, portions, after }
        };
        let mut brought = vec![None; parts.len()];
        let mut first = 0;
        for devices in nodes {
            for at in in_turns(devices) {
                let (job, portions) = parts[first + at];
                let receiver = devices[at].rank;
                let Some(sender) = self.sender(job, node, receiver, portions) else { continue };
                brought[first + at] = self.push(sender, receiver, &sent(first + at, None));
            }
            first += devices.len();
        }

        // For each node its own parts, then those of others as they come: the device that has
        // one, the part, and the message that brought it.
        let mut own: Vec<Vec<(usize, usize, Option<usize>)>> = Vec::new();
        let mut first = 0;
        for devices in nodes {
            own.push((0..devices.len()).map(|it| (it, first + it, brought[first + it])).collect());
            first += devices.len();
        }
        let mut there = own.clone();
        for round in 1..nodes.len() {
            for (node, parts_of_node) in own.iter().enumerate() {
                let to = (node + round) % nodes.len();
                for &(device, part, after) in parts_of_node {
                    let target = device % nodes[to].len();
                    let (from, rank) = (nodes[node][device].rank, nodes[to][target].rank);
                    let came = self.push(from, rank, &sent(part, after));
                    there[to].push((target, part, came));
                }
            }
        }
        for (devices, there) in nodes.iter().zip(&there) {
            for round in 1..devices.len() {
                for &(device, part, after) in there {
                    let to = devices[(device + round) % devices.len()].rank;
                    self.push(devices[device].rank, to, &sent(part, after));
                }
            }
        }
    }

    /// Chunk after chunk along the chain.
    fn broadcast(&mut self, job: &Job, node: u64) {
        let portions = &self.tasks[job.task].portions;
        let Some(sender) = self.sender(job, node, job.first(), portions) else { return };
        for portions in divide(portions, job.chunks) {
            let (mut from, mut after) = (sender, None);
            for devices in &job.receivers {
                // The first device of the node passes on to the next node and to its neighbour.
                let (mut last, mut came) = (from, after);
                for (place, device) in devices.iter().enumerate() {
                    let sent = Sent { task: job.task, portions: &portions, after: came };
                    came = self.push(last, device.rank, &sent);
                    last = device.rank;
                    if place == 0 {
                        (from, after) = (last, came);
                    }
                }
            }
        }
    }

    /// Adds a message; its number. There is none for nothing.
    fn push(&mut self, from: u64, to: u64, sent: &Sent<'_>) -> Option<usize> {
        let bytes = self.bytes(sent.portions);
        if bytes == 0 {
            return None;
        }
        let order = self.list.len();
        self.list.push(Message {
            order,
            task: sent.task,
            from,
            to,
            portions: sent.portions.to_vec(),
            bytes,
            after: sent.after.into_iter().collect(),
        });
        Some(order)
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

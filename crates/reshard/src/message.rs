//! What goes from rank to rank.

use std::collections::BTreeMap;

use crate::job::{Job, Source, Way, lane_of};
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
    /// What each rank has been told to send of what was there from the start.
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
    by_rank: BTreeMap<u64, u64>,
    /// By unit task and rank.
    by_task: BTreeMap<(usize, u64), u64>,
}

/// What of a job one receiver of a gather gets first.
#[derive(Clone, Copy)]
struct Part<'a> {
    job: &'a Job,
    ways: &'a [Way],
    portions: &'a [Portion],
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

    /// Adds those of jobs of one strategy that the same nodes send the same receivers, each with the ways of
    /// its lanes.
    pub(crate) fn add(&mut self, jobs: &[(&Job, &[Way])]) {
        match jobs.first().map(|(job, _)| job.strategy) {
            Some(Strategy::SendReceive) => jobs.iter().for_each(|(job, ways)| self.direct(job, ways)),
            Some(Strategy::Broadcast) => jobs.iter().for_each(|(job, ways)| self.broadcast(job, ways)),
            Some(Strategy::LocalGather | Strategy::GlobalGather) => {
                let receivers = &jobs[0].0.receivers;
                let count = receivers.iter().map(Vec::len).sum();
                let parts =
                    |(job, _): &(&Job, &[Way])| divide(&self.tasks[job.task].portions, self::count(count));
                let parts: Vec<Vec<Vec<Portion>>> = jobs.iter().map(parts).collect();
                for turn in 0..jobs.len() {
                    // Each receiver begins with another job.
                    let of = |receiver: usize| {
                        let job = (receiver * jobs.len() / count.min(jobs.len()) + turn) % jobs.len();
                        Part { job: jobs[job].0, ways: jobs[job].1, portions: &parts[job][receiver] }
                    };
                    self.gathered(receivers, &(0..count).map(of).collect::<Vec<_>>());
                }
            }
            None => {}
        }
    }

    /// The device that will send these to a receiver: of those that a lane leaves by, the one whose place among
    /// all senders is that of the receiver among all, if that is its share; else one that has sent least.
    fn sender(&mut self, job: &Job, from: Source, receiver: u64, portions: &[Portion]) -> Option<u64> {
        let bytes = self.bytes(portions);
        let UnitTask { senders, receivers, .. } = &self.tasks[job.task];
        let Sends { by_rank, by_task } = &mut self.sent;
        let of = |it: &Place| by_rank.get(&it.rank).copied().unwrap_or(0);
        let least = job.senders.iter().filter(|it| from.has(it)).min_by_key(|it| of(it))?;
        let place = receivers.iter().position(|it| it.rank == receiver).unwrap_or(0);
        let like = senders.get(place * senders.len() / receivers.len().max(1)).filter(|like| {
            let sent = by_task.get(&(job.task, like.rank)).copied().unwrap_or(0);
            let (all, share) = (count(senders.len()), count(receivers.len()));
            let within = (sent + bytes).saturating_mul(all) <= share.saturating_mul(bytes);
            from.has(like) && (within || of(like) == of(least))
        });
        let chosen = like.unwrap_or(least);
        *by_rank.entry(chosen.rank).or_default() += bytes;
        *by_task.entry((job.task, chosen.rank)).or_default() += bytes;
        Some(chosen.rank)
    }

    fn bytes(&self, portions: &[Portion]) -> u64 {
        portions.iter().map(Portion::elements).sum::<u64>() * self.element
    }

    fn direct(&mut self, job: &Job, ways: &[Way]) {
        let portions = &self.tasks[job.task].portions;
        let from = ways.first().and_then(|way| self.sender(job, way.from, job.first(), portions));
        for (sender, receiver) in
            from.into_iter().flat_map(|it| job.receivers.iter().flatten().map(move |to| (it, to)))
        {
            self.push(sender, receiver.rank, &Sent { task: job.task, portions, after: None });
        }
    }

    /// One part to each receiver, then parts between nodes, then inside each node. A part enters
    /// each node once: in the first round of exchanges nodes give to the next one, and so on.
    ///
    /// Where there are several jobs, receivers take turns: each has the part of another one, so that who
    /// sends them sends to different receivers at a time, and nobody is always the first or the last.
    fn gathered(&mut self, nodes: &[Vec<Place>], parts: &[Part<'_>]) {
        let sent = |part: usize, after: Option<usize>| {
            let Part { job, portions, .. } = parts[part];
            Sent { task: job.task, portions, after }
        };
        let mut brought = vec![None; parts.len()];
        let mut first = 0;
        for devices in nodes {
            for at in in_turns(devices) {
                let Part { job, ways, portions } = parts[first + at];
                let lane = lane_of(&devices[at], devices, ways.len());
                let sender =
                    ways.get(lane).and_then(|way| self.sender(job, way.from, devices[at].rank, portions));
                brought[first + at] =
                    sender.and_then(|it| self.push(it, devices[at].rank, &sent(first + at, None)));
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

    /// Chunk after chunk along each chain, of all chains one after another.
    fn broadcast(&mut self, job: &Job, ways: &[Way]) {
        let portions = &self.tasks[job.task].portions;
        let chunks = divide(portions, job.chunks * count(ways.len()));
        let mut chains = Vec::new();
        for way in ways {
            let Some(sender) = self.sender(job, way.from, job.first(), portions) else { continue };
            // In each node from the first device of the adapter that the chain enters by.
            let in_order = |(node, devices): (usize, &Vec<Place>)| {
                let enters = |it: &Place| way.entries.get(node) == Some(&it.way_out());
                let first = devices.iter().position(enters).unwrap_or(0);
                devices[first..].iter().chain(&devices[..first]).map(|it| it.rank).collect()
            };
            let nodes: Vec<Vec<u64>> = job.receivers.iter().enumerate().map(in_order).collect();
            chains.push((sender, nodes));
        }
        let several = chains.len();
        let longest = job.receivers.iter().map(Vec::len).max().unwrap_or(0);
        // Where a device passes on what goes by several chains, as many chunks later a chain begins the next
        // one: before others that have come far are passed on, which would keep it waiting.
        let later = several.min(longest.saturating_sub(1)).max(2);
        let when = |round: usize, place: usize| if several > 1 { round * later + place } else { round };
        let mut hops = Vec::new();
        for round in 0..chunks.len() / several.max(1) {
            for (node, devices) in job.receivers.iter().enumerate() {
                for place in 0..devices.len() {
                    hops.extend((0..several).map(|chain| (when(round, place), node, place, chain, round)));
                }
            }
        }
        hops.sort_unstable();
        // For each chain and chunk what is passed on to the next node, and on in each node: the rank that has
        // it, and what brought it.
        let mut ends = BTreeMap::new();
        let mut last = BTreeMap::new();
        for (_, node, place, chain, round) in hops {
            let (sender, nodes) = &chains[chain];
            let begun = if place == 0 { ends.get(&(chain, round)) } else { last.get(&(chain, round, node)) };
            let &(from, after) = begun.unwrap_or(&(*sender, None));
            let sent = Sent { task: job.task, portions: &chunks[round * several + chain], after };
            let rank = nodes[node][place];
            let passed = (rank, self.push(from, rank, &sent));
            if place == 0 {
                ends.insert((chain, round), passed);
            }
            last.insert((chain, round, node), passed);
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

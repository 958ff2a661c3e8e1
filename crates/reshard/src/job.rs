//! What one node sends as a whole.
//!
//! A unit task is one job, or one for each receiver or node where a strategy serves them one after
//! another. Where a node has a device that holds the portions, they stay in the node: that is a
//! job of its own, without the adapter.

use std::collections::BTreeMap;

use crate::network::Network;
use crate::side::Place;
use crate::strategy::{Reach, Strategy, chunks, estimate};
use crate::transfer::{Choice, Policy};
use crate::unit::UnitTask;

/// What one node sends as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The unit task that it is of.
    pub(crate) task: usize,
    /// How it is sent.
    pub(crate) strategy: Strategy,
    /// In how many chunks, if it is a broadcast.
    pub(crate) chunks: u64,
    /// Who may send it.
    pub(crate) senders: Vec<Place>,
    /// Who receives it, node by node.
    pub(crate) receivers: Vec<Vec<Place>>,
}

impl Job {
    /// Whether it stays in its node.
    pub(crate) fn is_inside(&self) -> bool {
        let mut receivers = self.receivers.iter().flatten();
        receivers.all(|receiver| self.senders.iter().all(|sender| sender.node == receiver.node))
    }

    /// The first rank that gets it.
    pub(crate) fn first(&self) -> u64 {
        self.receivers.iter().flatten().next().map_or(0, |it| it.rank)
    }

    /// Whether the same receivers get it in the same way.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.strategy == other.strategy && self.receivers == other.receivers
    }
}

/// The jobs of all unit tasks, in their order.
pub(crate) fn jobs(tasks: &[UnitTask], network: &Network, policy: &Policy) -> Vec<Job> {
    tasks.iter().enumerate().flat_map(|(index, task)| of_task(index, task, network, policy)).collect()
}

fn of_task(index: usize, task: &UnitTask, network: &Network, policy: &Policy) -> Vec<Job> {
    let senders = by_node(&task.senders);
    let (inside, remote): (Vec<_>, Vec<_>) =
        by_node(&task.receivers).into_iter().partition(|(node, _)| senders.contains_key(node));
    let remote: Vec<Vec<Place>> = remote.into_iter().map(|(_, places)| places).collect();
    let strategy = match policy.strategy {
        Choice::Only(strategy) => strategy,
        Choice::Cheapest | Choice::Estimated => {
            cheapest(task.bytes, reach(&remote), network, policy.most_chunks)
        }
    };
    let job = |strategy: Strategy, senders: &[Place], receivers: Vec<Vec<Place>>| Job {
        task: index,
        strategy,
        chunks: match strategy {
            Strategy::Broadcast => along_chain(task.bytes, senders, &receivers, network, policy.most_chunks),
            _ => 1,
        },
        senders: senders.to_vec(),
        receivers,
    };

    let mut found = Vec::new();
    for (node, receivers) in inside {
        let senders = &senders[&node];
        match policy.strategy {
            Choice::Only(Strategy::SendReceive) => {
                found.extend(receivers.iter().map(|&it| job(Strategy::SendReceive, senders, vec![vec![it]])))
            }
            _ => found.push(job(Strategy::Broadcast, senders, vec![receivers])),
        }
    }
    let all = &task.senders;
    match strategy {
        Strategy::SendReceive => {
            found.extend(remote.iter().flatten().map(|&it| job(strategy, all, vec![vec![it]])));
        }
        Strategy::LocalGather => found.extend(remote.into_iter().map(|it| job(strategy, all, vec![it]))),
        Strategy::GlobalGather | Strategy::Broadcast if remote.is_empty() => {}
        Strategy::GlobalGather | Strategy::Broadcast => found.push(job(strategy, all, remote)),
    }
    found
}

/// Places by their nodes.
fn by_node(places: &[Place]) -> BTreeMap<u64, Vec<Place>> {
    let mut nodes: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    for place in places {
        nodes.entry(place.node).or_default().push(*place);
    }
    nodes
}

fn reach(receivers: &[Vec<Place>]) -> Reach {
    let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    let devices = receivers.iter().map(|places| count(places.len())).max().unwrap_or(1);
    Reach { nodes: count(receivers.len()).max(1), devices }
}

/// The strategy with the least estimate, of equal ones the first.
fn cheapest(bytes: u64, reach: Reach, network: &Network, most_chunks: u64) -> Strategy {
    let time = |strategy: &Strategy| estimate(*strategy, bytes, reach, network, most_chunks);
    let least = Strategy::ALL.into_iter().min_by(|a, b| time(a).total_cmp(&time(b)));
    least.unwrap_or(Strategy::SendReceive)
}

/// In how many chunks a chain is broadcast. A chain that stays in a node has hops inside only, and
/// the first of them takes the place of that between nodes.
fn along_chain(bytes: u64, senders: &[Place], receivers: &[Vec<Place>], network: &Network, most: u64) -> u64 {
    let reach = reach(receivers);
    let inside = senders.iter().any(|sender| receivers.iter().flatten().any(|it| it.node == sender.node));
    if inside {
        let network = Network { between: network.inside, ..*network };
        return chunks(bytes, Reach { nodes: reach.devices, devices: 1 }, &network, most);
    }
    chunks(bytes, reach, network, most)
}

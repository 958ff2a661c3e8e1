//! A setup on a cluster of several kinds of nodes.
//!
//! Ranks follow each other kind by kind. A stage of a pipeline is as slow as the slowest kind that has ranks
//! of it, as its replicas wait for each other at every step; a network between kinds is as slow as the slowest
//! of theirs; and a setup fits if it fits on every kind.

use std::ops::Range;

use cost_models::estimate::Estimate;
use cost_models::machine::{Machine, Network};
use cost_models::units::{BytesPerSecond, exact};

use crate::cluster::{Cluster, ClusterError, Links};
use crate::framework::Framework;
use crate::memory::{self, Held};
use crate::pieces::Job;
use crate::setup::Setup;
use crate::step::together;

/// The nodes of one kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Nodes like these.
    pub cluster: Cluster,
    /// The framework as it is on them.
    pub framework: Framework,
    /// The ranks that are on them.
    pub ranks: Range<u64>,
}

/// What a setup takes on nodes of several kinds.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The time of a step.
    pub time: Estimate,
    /// What a rank holds, of the kind whose memory is fullest.
    pub held: Held,
    /// Memory of such a device that a program can use (bytes).
    pub room: f64,
    /// Whether every kind has room.
    pub fits: bool,
}

/// The kinds of a cluster: machines with how many ranks are on each.
pub fn kinds(
    machines: Vec<(Machine, u64)>,
    framework: &Framework,
    links: &Links,
    source: &str,
) -> Result<Vec<Kind>, ClusterError> {
    let networks = machines.iter().map(|(machine, _)| machine.network.clone());
    let slowest = networks.reduce(slower).flatten();
    let several = machines.len() > 1;
    let mut first = 0;
    let kind = |(mut machine, ranks): (Machine, u64)| {
        if several {
            machine.network.clone_from(&slowest);
        }
        let framework = framework.clone().on(&machine.name);
        let cluster = Cluster::new(machine, links, source)?;
        let ranks = first..first + ranks;
        first = ranks.end;
        Ok(Kind { cluster, framework, ranks })
    };
    machines.into_iter().map(kind).collect()
}

/// The slower of two networks; none, if one is none.
fn slower(one: Option<Network>, other: Option<Network>) -> Option<Network> {
    let rate = |network: &Network| {
        let BytesPerSecond(each) = network.adapter_bandwidth.value;
        exact(network.adapters.value.0) * each
    };
    let (one, other) = one.zip(other)?;
    Some(if rate(&other) < rate(&one) { other } else { one })
}

/// A setup on each kind of nodes, with the ranks there.
fn jobs<'a>(setup: &'a Setup, kinds: &'a [Kind]) -> Result<Vec<(Job<'a>, Range<u64>)>, ClusterError> {
    let job = |it: &'a Kind| Ok((Job::new(setup, &it.framework, &it.cluster)?, it.ranks.clone()));
    kinds.iter().map(job).collect()
}

/// What the fullest device holds of a setup, how much of that it may hold (bytes), and whether all fits.
pub fn fullest(setup: &Setup, kinds: &[Kind]) -> Result<(Held, f64, bool), ClusterError> {
    let held = jobs(setup, kinds)?.into_iter().map(|(job, _)| {
        let (held, room) = (memory::peak(&job), exact(memory::room(&job).0));
        (held, room, memory::fits(&job, &held))
    });
    let held: Vec<(Held, f64, bool)> = held.collect();
    let fits = held.iter().all(|(_, _, fits)| *fits);
    let fullest = held.into_iter().max_by(|a, b| (a.0.total() / a.1).total_cmp(&(b.0.total() / b.1)));
    let (held, room, _) = fullest.unwrap_or_default();
    Ok((held, room, fits))
}

/// The time of a step of a setup.
pub fn time(setup: &Setup, kinds: &[Kind]) -> Result<Estimate, ClusterError> {
    Ok(together(&jobs(setup, kinds)?))
}

/// What a setup takes.
pub fn answer(setup: &Setup, kinds: &[Kind]) -> Result<Answer, ClusterError> {
    let (held, room, fits) = fullest(setup, kinds)?;
    Ok(Answer { time: time(setup, kinds)?, held, room, fits })
}

#[cfg(test)]
mod tests;

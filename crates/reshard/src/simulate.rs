//! What messages take, by a clock.
//!
//! Links serve their messages one at a time and in the order of the list, as communication
//! libraries do what a rank has asked for: a message that waits keeps those behind it waiting.
//! A message starts when those that it needs have come and its links are free. As all of these
//! stand before it, one pass over the list is the whole simulation.

use std::collections::BTreeMap;

use cost_models::units::Seconds;

use crate::message::Message;
use crate::network::Network;
use crate::side::{Place, Side};

/// When messages travel.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// For each message when it starts and when it has come.
    pub times: Vec<(Seconds, Seconds)>,
    /// When the last one has come.
    pub end: Seconds,
    /// What enters each node from others (bytes).
    pub entered: BTreeMap<u64, u64>,
    /// What leaves each node for others (bytes).
    pub left: BTreeMap<u64, u64>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Port {
    /// Out of an adapter of a node.
    OutOfNode(u64, u64),
    /// Into an adapter of a node.
    IntoNode(u64, u64),
    /// Out of a device, to another one of its node.
    OutOfDevice(u64),
    /// Into a device.
    IntoDevice(u64),
}

/// A clock that messages are told to one after another.
pub(crate) struct Clock<'a> {
    network: &'a Network,
    places: BTreeMap<u64, Place>,
    /// When each link is free.
    free: BTreeMap<Port, Seconds>,
    /// When the messages told so far travel.
    pub(crate) timeline: Timeline,
}

impl<'a> Clock<'a> {
    /// A clock for messages between two sides.
    pub(crate) fn new(from: &Side, to: &Side, network: &'a Network) -> Self {
        let places = from.places.iter().chain(&to.places);
        let places = places.map(|place| (place.rank, *place)).collect();
        let timeline = Timeline {
            times: Vec::new(),
            end: Seconds::ZERO,
            entered: BTreeMap::new(),
            left: BTreeMap::new(),
        };
        Self { network, places, free: BTreeMap::new(), timeline }
    }

    /// The next message.
    ///
    /// # Panics
    /// If it is of or to a rank of neither side, or after one that was not told before it.
    pub(crate) fn tell(&mut self, message: &Message) {
        let Self { network, places, free, timeline } = self;
        let (sender, receiver) = (places[&message.from], places[&message.to]);
        let ports = if sender.node == receiver.node {
            [Port::OutOfDevice(message.from), Port::IntoDevice(message.to)]
        } else {
            *timeline.left.entry(sender.node).or_default() += message.bytes;
            *timeline.entered.entry(receiver.node).or_default() += message.bytes;
            [Port::OutOfNode(sender.node, sender.adapter), Port::IntoNode(receiver.node, receiver.adapter)]
        };
        let came = message.after.iter().map(|&before| timeline.times[before].1);
        let idle = ports.iter().filter_map(|port| free.get(port).copied());
        let start = came.chain(idle).fold(Seconds::ZERO, Seconds::max);
        let end = start + network.time(sender.node, receiver.node, message.bytes);
        free.extend(ports.map(|port| (port, end)));
        timeline.times.push((start, end));
        timeline.end = timeline.end.max(end);
    }
}

/// When the messages between two sides travel.
///
/// # Panics
/// If a message is of or to a rank of neither side, or after one that does not stand before it.
pub fn simulate(messages: &[Message], from: &Side, to: &Side, network: &Network) -> Timeline {
    let mut clock = Clock::new(from, to, network);
    messages.iter().for_each(|message| clock.tell(message));
    clock.timeline
}

//! Which ranks, groups and links do the same at the same time.
//!
//! Ranks, the groups of communicators, the messages of each pattern and the links are nodes of one
//! graph: a rank is joined to its groups and to the messages that it gives and gets, and groups
//! and messages to the links that they use, by how much. Nodes that this graph does not tell apart
//! are simulated as one: all ranks have the same instructions, and see the same.

use std::collections::BTreeMap;

use cost_models::topology::{Channel, Group, GroupError, Load, Topology};
use lower::{Action, Alike, CollectiveKind, CommunicatorId};

use crate::classes::{Edge, numbered, refined};

/// How data goes between the ranks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// Around a ring.
    Ring,
    /// From each to each other one.
    Exchange,
}

impl Pattern {
    /// How data goes in a collective.
    pub(crate) fn of(kind: CollectiveKind) -> Self {
        if kind == CollectiveKind::AllToAll { Self::Exchange } else { Self::Ring }
    }
}

/// Ranks that do the same.
#[derive(Clone, Debug)]
pub(crate) struct RankClass {
    /// Who, ascending.
    pub(crate) ranks: Vec<u64>,
    /// For each communicator, which class of its groups theirs is.
    pub(crate) groups: Vec<usize>,
    /// For each list of sources, the class of the message that is gotten; none if nothing is.
    pub(crate) gotten: Vec<Option<usize>>,
    /// For each list of sources, the classes of the messages that are given.
    pub(crate) given: Vec<Vec<usize>>,
}

/// Groups, or messages of one pair of ranks, that communicate at the same time.
#[derive(Clone, Debug)]
pub(crate) struct GroupClass {
    /// What the ranks of one of them have between them.
    pub(crate) group: Group,
    /// What all of them together put on one link of each class of links, by pattern.
    pub(crate) loads: BTreeMap<Pattern, Vec<(usize, f64)>>,
    /// What one of them alone takes of its busiest link, by pattern (seconds for each byte).
    pub(crate) busiest: BTreeMap<Pattern, f64>,
}

/// Classes of what there is.
#[derive(Clone, Debug)]
pub(crate) struct Symmetry {
    pub(crate) ranks: Vec<RankClass>,
    /// Groups and messages.
    pub(crate) groups: Vec<GroupClass>,
    /// For each class of links, the rate of one (bytes per second).
    pub(crate) links: Vec<f64>,
}

/// Which nodes may be alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Those that the graph does not tell apart.
    Alike,
    /// None: what is found of all ranks together is compared with this in tests.
    #[cfg(test)]
    Apart,
}

/// A group or a message, and what it puts on links.
struct Meeting {
    group: Group,
    loads: Vec<(Pattern, Load)>,
    /// What it is of: communicators come first, then lists of sources.
    of: usize,
}

/// The nodes of the graph: ranks, then meetings, then channels.
struct Graph<'a> {
    topology: &'a Topology,
    alike: &'a Alike,
    ranks: u64,
    meetings: Vec<Meeting>,
    /// Between meetings and ranks: which meeting, which rank, as what of it.
    members: Vec<(usize, u64, Role)>,
}

/// A meeting and a channel, by which pattern it uses that, and how much of its size goes over it.
type Use = (usize, Channel, Pattern, f64);

/// What a rank is to a meeting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Member,
    Gives,
    Gets,
}

/// The classes of all ranks of a machine of that topology.
pub(crate) fn symmetry(
    alike: &Alike,
    sources: &[Vec<u64>],
    topology: &Topology,
    telling: Telling,
) -> Result<Symmetry, GroupError> {
    let mut graph =
        Graph { topology, alike, ranks: alike.mesh.devices(), meetings: Vec::new(), members: Vec::new() };
    graph.add_groups()?;
    graph.add_messages(sources)?;
    Ok(graph.classes(sources.len(), telling))
}

impl Graph<'_> {
    fn add_groups(&mut self) -> Result<(), GroupError> {
        for communicator in 0..self.alike.axes.len() {
            let patterns = self.patterns(CommunicatorId(communicator));
            for rank in 0..self.ranks {
                let members = self.alike.members(rank, CommunicatorId(communicator));
                if members.first() != Some(&rank) {
                    continue;
                }
                let load = |&pattern: &Pattern| match pattern {
                    Pattern::Ring => (pattern, self.topology.ring_load(&members)),
                    Pattern::Exchange => (pattern, self.topology.exchange_load(&members)),
                };
                let loads = patterns.iter().map(load).collect();
                let group = self.topology.alone(&members)?;
                let number = self.meetings.len();
                self.members.extend(members.iter().map(|&it| (number, it, Role::Member)));
                self.meetings.push(Meeting { group, loads, of: communicator });
            }
        }
        Ok(())
    }

    /// How data goes in the collectives of a communicator.
    fn patterns(&self, communicator: CommunicatorId) -> Vec<Pattern> {
        let pattern = |action: &Action| match action {
            Action::Collective(it) if it.communicator == communicator => Some(Pattern::of(it.kind)),
            _ => None,
        };
        let all = self.alike.program.instructions.iter();
        let mut patterns: Vec<Pattern> = all.filter_map(|it| pattern(&it.action)).collect();
        patterns.sort_unstable();
        patterns.dedup();
        patterns
    }

    fn add_messages(&mut self, sources: &[Vec<u64>]) -> Result<(), GroupError> {
        for (number, sources) in sources.iter().enumerate() {
            for (to, &from) in (0..).zip(sources) {
                if from != to {
                    let group = self.topology.alone(&[from, to])?;
                    let loads = vec![(Pattern::Ring, self.topology.route(from, to))];
                    let meeting = self.meetings.len();
                    self.members.extend([(meeting, from, Role::Gives), (meeting, to, Role::Gets)]);
                    self.meetings.push(Meeting { group, loads, of: self.alike.axes.len() + number });
                }
            }
        }
        Ok(())
    }

    fn classes(self, lists: usize, telling: Telling) -> Symmetry {
        let ranks = length(self.ranks);
        let (meeting, channel) = (ranks, ranks + self.meetings.len());
        let rates = self.topology.rates();
        let forms = self.meetings.iter().map(|it| (it.of, format!("{:?}", it.group), 0));
        let links = rates.iter().map(|rate| (0, String::new(), rate.0.to_bits()));
        let nodes = (0..ranks).map(|_| (0, String::new(), 0)).chain(forms).chain(links);
        let kinds =
            (0..ranks).map(|_| 0).chain(self.meetings.iter().map(|_| 1)).chain(rates.iter().map(|_| 2));
        let first = match telling {
            Telling::Alike => numbered(kinds.zip(nodes)),
            #[cfg(test)]
            Telling::Apart => (0..channel + rates.len()).collect(),
        };
        let uses = self.uses();
        let roles = self.members.iter().map(|it| (Some(it.2), None, 0));
        let parts = uses.iter().map(|it| (None, Some(it.2), it.3.to_bits()));
        let labels = numbered(roles.chain(parts));
        let joined = self.members.iter().map(|it| (length(it.1), meeting + it.0));
        let joined = joined.chain(uses.iter().map(|it| (meeting + it.0, channel + it.1.0)));
        let edges: Vec<Edge> = joined.zip(labels).map(|((a, b), label)| (a, b, label)).collect();
        let classes = refined(&first, &edges);
        self.gathered(lists, &classes, &uses)
    }

    /// Which meeting puts which part on which channel, by which pattern.
    fn uses(&self) -> Vec<Use> {
        let mut uses = Vec::new();
        for (meeting, it) in self.meetings.iter().enumerate() {
            for (pattern, load) in &it.loads {
                uses.extend(load.iter().map(|&(channel, part)| (meeting, channel, *pattern, part)));
            }
        }
        uses
    }

    fn gathered(&self, lists: usize, classes: &[usize], uses: &[Use]) -> Symmetry {
        let (ranks, rest) = classes.split_at(length(self.ranks));
        let (meetings, links) = rest.split_at(self.meetings.len());
        let (ranks, meetings, links) =
            (numbered(ranks.iter()), numbered(meetings.iter()), numbered(links.iter()));
        let rates = self.topology.rates();
        Symmetry {
            ranks: firsts(&ranks).map(|rank| self.rank_class(rank, lists, &ranks, &meetings)).collect(),
            groups: firsts(&meetings).map(|first| self.group_class(first, &meetings, &links, uses)).collect(),
            links: firsts(&links).map(|first| rates[first].0).collect(),
        }
    }

    /// The class of which a meeting is the first: it stands for all.
    fn group_class(&self, first: usize, meetings: &[usize], links: &[usize], uses: &[Use]) -> GroupClass {
        let mut loads: BTreeMap<Pattern, Vec<(usize, f64)>> = BTreeMap::new();
        let mut busiest: BTreeMap<Pattern, f64> = BTreeMap::new();
        for (pattern, load) in &self.meetings[first].loads {
            let mut seen: Vec<usize> = Vec::new();
            for &(channel, part) in load {
                let busy = busiest.entry(*pattern).or_insert(0.0);
                *busy = busy.max(part / self.topology.rate(channel).0);
                if !seen.contains(&links[channel.0]) {
                    seen.push(links[channel.0]);
                    let alike =
                        |it: &&Use| meetings[it.0] == meetings[first] && it.1 == channel && it.2 == *pattern;
                    let all = uses.iter().filter(alike).map(|it| it.3).sum();
                    loads.entry(*pattern).or_default().push((links[channel.0], all));
                }
            }
        }
        GroupClass { group: self.meetings[first].group.clone(), loads, busiest }
    }

    /// The class of which a rank is the first.
    fn rank_class(&self, first: usize, lists: usize, ranks: &[usize], meetings: &[usize]) -> RankClass {
        let communicators = self.alike.axes.len();
        let mut class = RankClass {
            ranks: (0..).zip(ranks).filter(|it| *it.1 == ranks[first]).map(|it| it.0).collect(),
            groups: vec![0; communicators],
            gotten: vec![None; lists],
            given: vec![Vec::new(); lists],
        };
        for &(meeting, _, role) in self.members.iter().filter(|it| length(it.1) == first) {
            let of = self.meetings[meeting].of;
            match role {
                Role::Member => class.groups[of] = meetings[meeting],
                Role::Gives => class.given[of - communicators].push(meetings[meeting]),
                Role::Gets => class.gotten[of - communicators] = Some(meetings[meeting]),
            }
        }
        class
    }
}

/// The first place of each class, in the order of the classes.
fn firsts(classes: &[usize]) -> impl Iterator<Item = usize> + '_ {
    let mut next = 0;
    classes.iter().enumerate().filter_map(move |(place, &class)| {
        let first = class == next;
        next += usize::from(first);
        first.then_some(place)
    })
}

fn length(number: u64) -> usize {
    usize::try_from(number).expect("a machine has no more ranks than an address can number")
}

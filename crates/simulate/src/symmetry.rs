//! Which ranks, groups and links do the same at the same time.
//!
//! Ranks, the groups of communicators, the messages of each pattern and the links are nodes of one
//! graph: a rank is joined to its groups and to the messages that it gives and gets, groups and
//! messages to the links that they use, by how much, and what comes to a rank between stages to what
//! passes it on. Nodes that this graph does not tell apart
//! are simulated as one: they have the same instructions, and see the same.

use std::collections::{BTreeMap, BTreeSet};

use cost_models::topology::{Channel, Group, GroupError, Load, Topology};
use lower::{Action, CollectiveKind, CommunicatorId, Program};

use crate::classes::{Edge, numbered, refined};
use crate::crossings::{Crossings, End};
use crate::ranks::Ranks;

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
        match kind {
            CollectiveKind::AllToAll | CollectiveKind::Dispatch | CollectiveKind::Combine => Self::Exchange,
            CollectiveKind::AllGather
            | CollectiveKind::AllReduce
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Broadcast(_)
            | CollectiveKind::Reduce(_) => Self::Ring,
        }
    }
}

/// Ranks that do the same.
#[derive(Clone, Debug)]
pub(crate) struct RankClass {
    /// Who, ascending.
    pub(crate) ranks: Vec<u64>,
    /// Which kind of program they have.
    pub(crate) kind: usize,
    /// For each communicator, which class of its groups theirs is.
    pub(crate) groups: Vec<usize>,
    /// For each list of sources, the class of the message that is gotten; none if nothing is.
    pub(crate) gotten: Vec<Option<usize>>,
    /// For each list of sources, the classes of the messages that are given.
    pub(crate) given: Vec<Vec<usize>>,
    /// What the first of them sends and receives between stages, with the classes of the pairs.
    pub(crate) crossings: Crossings,
}

/// Groups, or pairs of ranks that give each other messages, that communicate at the same time.
#[derive(Clone, Debug)]
pub(crate) struct GroupClass {
    /// What the ranks of one of them have between them.
    pub(crate) group: Group,
    /// The first and the last of these ranks.
    pub(crate) ends: [u64; 2],
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
    /// Its first and its last rank.
    ends: [u64; 2],
    loads: Vec<(Pattern, Load)>,
    of: Of,
}

/// What a meeting is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Communicator(usize),
    /// A list of sources, by its number.
    Sources(usize),
    /// Ranks of different stages, by their place in the list.
    Pair(usize),
}

impl Of {
    /// What it is but for its place.
    fn form(self) -> Self {
        if let Self::Pair(_) = self { Self::Pair(0) } else { self }
    }
}

/// The nodes of the graph: ranks, then meetings, then channels.
struct Graph<'a> {
    topology: &'a Topology,
    ranks: &'a Ranks<'a>,
    meetings: Vec<Meeting>,
    /// Where those of pairs start.
    first_pair: usize,
    /// Between meetings and ranks: which meeting, which rank, as what of it.
    members: Vec<(usize, u64, Role)>,
}

/// A meeting and a channel, by which pattern it uses that, and how much of its size goes over it.
type Use = (usize, Channel, Pattern, f64);

/// What a node is by itself.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// Of a kind of programs.
    Rank(usize),
    /// What it is of, and the number of what its ranks have between them.
    Meeting(Of, usize),
    /// Its rate.
    Link(u64),
}

/// What a rank is to a meeting.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Member,
    Gives,
    Gets,
    /// In these parts of its instructions, in order.
    Sends(Vec<End>),
    Receives(Vec<End>),
}

/// In an instruction of a rank, which of the parts from one rank is passed on in which of those to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pass {
    instruction: usize,
    from: usize,
    to: usize,
}

/// What joins nodes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Joint<'a> {
    /// A rank and a meeting.
    Member(&'a Role),
    /// A meeting and a channel.
    Use(Pattern, u64),
    /// A pair of ranks and one of the receiver and others.
    Pass(Pass),
}

/// The classes of all ranks of a machine of that topology.
pub(crate) fn symmetry(
    ranks: &Ranks<'_>,
    topology: &Topology,
    telling: Telling,
) -> Result<Symmetry, GroupError> {
    let mut graph = Graph { topology, ranks, meetings: Vec::new(), first_pair: 0, members: Vec::new() };
    graph.add_groups()?;
    graph.add_messages()?;
    graph.add_pairs()?;
    Ok(graph.classes(telling))
}

impl Graph<'_> {
    fn add_groups(&mut self) -> Result<(), GroupError> {
        let kinds: Vec<_> = self.ranks.kinds.iter().map(|kind| patterns(kind.program)).collect();
        for (communicator, members) in &self.ranks.groups {
            let load = |&pattern: &Pattern| match pattern {
                Pattern::Ring => (pattern, self.topology.ring_load(members)),
                Pattern::Exchange => (pattern, self.topology.exchange_load(members)),
            };
            let kind = members.first().map_or(0, |&rank| self.ranks.of[length(rank)]);
            let loads = kinds[kind].get(communicator).into_iter().flatten().map(load).collect();
            let group = self.topology.alone(members)?;
            let number = self.meetings.len();
            self.members.extend(members.iter().map(|&it| (number, it, Role::Member)));
            let least = members.iter().copied().min().unwrap_or(0);
            let ends = [least, members.iter().copied().max().unwrap_or(least)];
            self.meetings.push(Meeting { group, ends, loads, of: Of::Communicator(communicator.0) });
        }
        Ok(())
    }

    fn add_messages(&mut self) -> Result<(), GroupError> {
        for (number, sources) in self.ranks.sources.iter().enumerate() {
            for (to, &from) in (0..).zip(sources) {
                if from != to {
                    let of = Of::Sources(number);
                    self.add_message([from, to], [Role::Gives, Role::Gets], of)?;
                }
            }
        }
        Ok(())
    }

    fn add_pairs(&mut self) -> Result<(), GroupError> {
        self.first_pair = self.meetings.len();
        for (number, pair) in self.ranks.pairs.iter().enumerate() {
            let roles = [Role::Sends(pair.sent.clone()), Role::Receives(pair.received.clone())];
            self.add_message([pair.from, pair.to], roles, Of::Pair(number))?;
        }
        Ok(())
    }

    /// What ranks pass on: from which pair to which.
    fn passes(&self) -> Vec<(usize, usize, Pass)> {
        let mut passes = Vec::new();
        for (&instruction, parts) in self.ranks.crossings.iter().flatten() {
            for part in parts {
                let brought = part.after.iter().map(|&it| &parts[it]);
                passes.extend(brought.filter_map(|came| {
                    let pass = Pass { instruction, from: came.number, to: part.number };
                    Some((self.first_pair + came.pair?, self.first_pair + part.pair?, pass))
                }));
            }
        }
        passes
    }

    fn add_message(&mut self, ranks: [u64; 2], roles: [Role; 2], of: Of) -> Result<(), GroupError> {
        let group = self.topology.alone(&ranks)?;
        let loads = vec![(Pattern::Ring, self.topology.route(ranks[0], ranks[1]))];
        let meeting = self.meetings.len();
        self.members.extend(ranks.into_iter().zip(roles).map(|(rank, role)| (meeting, rank, role)));
        self.meetings.push(Meeting { group, ends: ranks, loads, of });
        Ok(())
    }

    fn classes(self, telling: Telling) -> Symmetry {
        let ranks = self.ranks.of.len();
        let (meeting, channel) = (ranks, ranks + self.meetings.len());
        let rates = self.topology.rates();
        let kinds = self.ranks.of.iter().map(|&kind| Form::Rank(kind));
        let mut groups: Vec<&Group> = Vec::new();
        let forms = self.meetings.iter().map(|it| {
            let known = groups.iter().position(|known| **known == it.group);
            let number = known.unwrap_or_else(|| {
                groups.push(&it.group);
                groups.len() - 1
            });
            Form::Meeting(it.of.form(), number)
        });
        let links = rates.iter().map(|rate| Form::Link(rate.0.to_bits()));
        let first = match telling {
            Telling::Alike => numbered(kinds.chain(forms).chain(links)),
            #[cfg(test)]
            Telling::Apart => (0..channel + rates.len()).collect(),
        };
        let (uses, passes) = (self.uses(), self.passes());
        let roles = self.members.iter().map(|it| Joint::Member(&it.2));
        let parts = uses.iter().map(|it| Joint::Use(it.2, it.3.to_bits()));
        let labels = numbered(roles.chain(parts).chain(passes.iter().map(|it| Joint::Pass(it.2))));
        let joined = self.members.iter().map(|it| (length(it.1), meeting + it.0));
        let joined = joined.chain(uses.iter().map(|it| (meeting + it.0, channel + it.1.0)));
        let joined = joined.chain(passes.iter().map(|it| (meeting + it.0, meeting + it.1)));
        let edges: Vec<Edge> = joined.zip(labels).map(|((a, b), label)| (a, b, label)).collect();
        let classes = refined(&first, &edges);
        self.gathered(&classes, &uses)
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

    fn gathered(&self, classes: &[usize], uses: &[Use]) -> Symmetry {
        let (ranks, rest) = classes.split_at(self.ranks.of.len());
        let (meetings, links) = rest.split_at(self.meetings.len());
        let (ranks, meetings, links) =
            (numbered(ranks.iter()), numbered(meetings.iter()), numbered(links.iter()));
        let rates = self.topology.rates();
        Symmetry {
            ranks: firsts(&ranks).map(|rank| self.rank_class(rank, &ranks, &meetings)).collect(),
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
        let Meeting { group, ends, .. } = &self.meetings[first];
        GroupClass { group: *group, ends: *ends, loads, busiest }
    }

    /// The class of which a rank is the first.
    fn rank_class(&self, first: usize, ranks: &[usize], meetings: &[usize]) -> RankClass {
        let kind = self.ranks.of[first];
        let lists = self.ranks.sources.len();
        let mut class = RankClass {
            ranks: (0..).zip(ranks).filter(|it| *it.1 == ranks[first]).map(|it| it.0).collect(),
            kind,
            groups: vec![0; self.ranks.kinds[kind].program.communicators.len()],
            gotten: vec![None; lists],
            given: vec![Vec::new(); lists],
            crossings: self.ranks.crossings.get(first).cloned().unwrap_or_default(),
        };
        let parts = class.crossings.values_mut().flatten();
        parts.filter_map(|it| it.pair.as_mut()).for_each(|pair| *pair = meetings[self.first_pair + *pair]);
        for (meeting, _, role) in self.members.iter().filter(|it| length(it.1) == first) {
            let of = self.meetings[*meeting].of;
            let meeting = meetings[*meeting];
            match (of, role) {
                (Of::Communicator(of), _) => class.groups[of] = meeting,
                (Of::Sources(of), Role::Gives) => class.given[of].push(meeting),
                (Of::Sources(of), _) => class.gotten[of] = Some(meeting),
                (Of::Pair(_), _) => {}
            }
        }
        class
    }
}

/// How data goes in the collectives of each communicator.
fn patterns(program: &Program) -> BTreeMap<CommunicatorId, BTreeSet<Pattern>> {
    let mut patterns: BTreeMap<CommunicatorId, BTreeSet<Pattern>> = BTreeMap::new();
    for instruction in &program.instructions {
        if let Action::Collective(it) = &instruction.action {
            patterns.entry(it.communicator).or_default().insert(Pattern::of(it.kind));
        }
    }
    patterns
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

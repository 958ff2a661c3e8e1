//! The programs of all ranks: those that are alike as one, and whom each rank meets.
//!
//! Two programs are alike if they have the same instructions over buffers of the same sizes, and send
//! and receive as much at the same places. They differ in which blocks of values they hold and in whom
//! they exchange with: the first decides no time, and the second is kept here.

use std::collections::BTreeMap;

use cost_models::cluster::Cluster;
use lower::{
    Action, Alike, CommunicatorId, Event, Grouped, Program, RepeatedPart, Storage, Stream, Turn, Way,
};

use crate::classes::numbered;
use crate::crossings::{Crossings, Pair, Parts, Told, crossings};
use crate::prices::{Priced, priced};

/// The programs of all ranks.
#[derive(Clone, Debug)]
pub(crate) struct Ranks<'a> {
    /// One program of each kind.
    pub(crate) kinds: Vec<Kind<'a>>,
    /// For each rank the kind of its program.
    pub(crate) of: Vec<usize>,
    /// The groups of all communicators, each once: of which communicator, and who.
    pub(crate) groups: Vec<(CommunicatorId, Vec<u64>)>,
    /// Lists of sources: for each rank whom it gets from, itself if from nobody else.
    pub(crate) sources: Vec<Vec<u64>>,
    /// Ranks of which one sends the other something between stages.
    pub(crate) pairs: Vec<Pair>,
    /// For each rank what it sends and receives between stages; nothing if there are no stages.
    pub(crate) crossings: Vec<Crossings>,
}

/// What programs of a kind have in common.
#[derive(Clone, Debug)]
pub(crate) struct Kind<'a> {
    /// One of them.
    pub(crate) program: &'a Program,
    /// What its instructions take.
    pub(crate) prices: Vec<Priced>,
    /// For each message of the program, which list of sources says who gets from whom.
    pub(crate) lists: Vec<usize>,
}

impl<'a> Ranks<'a> {
    /// Ranks whose programs are known to be alike.
    pub(crate) fn alike(alike: &'a Alike, cluster: &Cluster) -> Self {
        let ranks = alike.mesh.devices();
        let communicators = (0..alike.axes.len()).map(CommunicatorId);
        let of = |it: CommunicatorId| alike.groups(it).into_iter().map(move |members| (it, members));
        let groups = communicators.flat_map(of).collect();
        let lists = numbered(alike.sources.iter());
        let mut sources: Vec<Vec<u64>> = Vec::new();
        for (list, of) in lists.iter().zip(&alike.sources) {
            if *list == sources.len() {
                sources.push(of.clone());
            }
        }
        let prices = priced(&alike.program, cluster.of_rank(0));
        let kinds = vec![Kind { program: &alike.program, prices, lists }];
        let of = (0..ranks).map(|_| 0).collect();
        Self { kinds, of, groups, sources, pairs: Vec::new(), crossings: Vec::new() }
    }

    /// Ranks whose programs are given, by rank. Those of nodes of different kinds are not alike.
    pub(crate) fn each(programs: &'a [Program], cluster: &Cluster) -> Self {
        let all = programs.iter().map(|program| Member {
            program,
            told: Told::of(program),
            sources: froms(program).collect(),
        });
        let groups = programs.iter().flat_map(|program| {
            let communicators = program.communicators.iter().enumerate();
            let first = communicators.filter(|(_, members)| members.first() == Some(&program.rank));
            first.map(|(number, members)| (CommunicatorId(number), members.clone()))
        });
        Self::of(all.collect(), groups.collect(), cluster)
    }

    /// The ranks of groups whose programs are known to be alike.
    pub(crate) fn grouped(groups: &'a [Grouped], cluster: &Cluster) -> Self {
        let mut all: Vec<Member<'a>> = Vec::new();
        let mut meetings: Vec<(CommunicatorId, Vec<u64>)> = Vec::new();
        for group in groups {
            for (place, (rank, remotes)) in group.ranks.clone().zip(&group.remotes).enumerate() {
                let remotes = remotes.iter().map(|(&instruction, parts)| (instruction, &parts[..]));
                all.push(Member {
                    program: &group.program,
                    told: Told::with(&group.program, rank, remotes),
                    sources: group.sources.iter().map(|from| from[place]).collect(),
                });
            }
            for (number, groups) in group.communicators.iter().enumerate() {
                meetings.extend(groups.iter().map(|members| (CommunicatorId(number), members.clone())));
            }
        }
        all.sort_by_key(|member| member.told.rank);
        Self::of(all, meetings, cluster)
    }

    /// All ranks, in order.
    fn of(all: Vec<Member<'a>>, groups: Vec<(CommunicatorId, Vec<u64>)>, cluster: &Cluster) -> Self {
        let mut kinds: Vec<Kind<'a>> = Vec::new();
        let mut forms: Vec<Form<'a>> = Vec::new();
        // Of each program, on nodes of each kind, the number of its form and its prices.
        let mut known: BTreeMap<(*const Program, usize), (usize, Vec<Priced>)> = BTreeMap::new();
        // For each kind of programs the form and the kind of nodes, and what the rank sends itself.
        let mut found: Vec<(usize, usize, Vec<Own>)> = Vec::new();
        let mut of = Vec::new();
        for Member { program, told, .. } in &all {
            let nodes = cluster.kind_of(told.rank);
            let (form, prices) = known.entry((std::ptr::from_ref(*program), nodes)).or_insert_with(|| {
                let prices = priced(program, cluster.of_rank(told.rank));
                let form = Form::of(program, &prices);
                let number = forms.iter().position(|it| *it == form).unwrap_or_else(|| {
                    forms.push(form);
                    forms.len() - 1
                });
                (number, prices)
            });
            let form = (*form, nodes, own(told));
            let kind = found.iter().position(|it| *it == form).unwrap_or_else(|| {
                found.push(form);
                kinds.push(Kind { program, prices: prices.clone(), lists: Vec::new() });
                kinds.len() - 1
            });
            of.push(kind);
        }
        let mut sources = Vec::new();
        for (number, kind) in kinds.iter_mut().enumerate() {
            for message in 0..froms(kind.program).count() {
                let from = |(member, &kind): (&Member<'_>, &usize)| {
                    let from = member.sources.get(message).filter(|_| kind == number);
                    from.copied().unwrap_or(member.told.rank)
                };
                kind.lists.push(sources.len());
                sources.push(all.iter().zip(&of).map(from).collect());
            }
        }
        let told: Vec<Told<'_>> = all.into_iter().map(|member| member.told).collect();
        let (pairs, crossings) = crossings(&told);
        Self { groups, of, sources, pairs, crossings, kinds }
    }
}

impl Ranks<'_> {
    /// The groups in which a rank meets others, by communicator.
    pub(crate) fn groups_of(&self, rank: u64) -> BTreeMap<CommunicatorId, &[u64]> {
        let has = self.groups.iter().filter(|it| it.1.contains(&rank));
        has.map(|(communicator, members)| (*communicator, &members[..])).collect()
    }

    /// Whom a rank gives to by a list of sources, ascending, and whom it gets from: itself if from nobody else.
    pub(crate) fn exchanges_of(&self, list: usize, rank: u64) -> (Vec<u64>, u64) {
        let from = &self.sources[list];
        let to = (0..).zip(from).filter(|&(to, &from)| from == rank && to != rank).map(|it| it.0);
        let place = usize::try_from(rank).unwrap_or(usize::MAX);
        (to.collect(), from.get(place).copied().unwrap_or(rank))
    }
}

/// A rank: a program that is its own but for whom it meets, and whom that is.
struct Member<'a> {
    program: &'a Program,
    told: Told<'a>,
    /// For each message whom it comes from.
    sources: Vec<u64>,
}

/// What a rank sends itself and receives of that in an instruction, sorted: whether it goes or comes, and
/// how many elements.
type Own = (usize, Vec<(Way, u64)>);

fn own(told: &Told<'_>) -> Vec<Own> {
    let of = |parts: &Parts<'_>| {
        let own = parts.remotes.iter().filter(|it| it.rank == told.rank);
        let mut own: Vec<(Way, u64)> = own.map(|it| (it.way, it.strided.elements())).collect();
        own.sort_unstable();
        (parts.instruction, own)
    };
    told.parts.iter().map(of).filter(|(_, own)| !own.is_empty()).collect()
}

/// For each message of a program whom it comes from.
fn froms(program: &Program) -> impl Iterator<Item = u64> + '_ {
    program.instructions.iter().filter_map(|it| match &it.action {
        Action::Message(message) => Some(message.from),
        _ => None,
    })
}

/// What programs that are alike have in common.
#[derive(PartialEq)]
struct Form<'a> {
    resident: u64,
    arena: u64,
    storages: &'a [Storage],
    repeated: Option<(&'a [RepeatedPart], &'a [Turn])>,
    communicators: Vec<usize>,
    steps: Vec<Step<'a>>,
}

/// The same of an instruction.
#[derive(PartialEq)]
struct Step<'a> {
    stream: Stream,
    waits: &'a [Event],
    signals: Option<Event>,
    price: Priced,
    storages: Vec<usize>,
}

impl<'a> Form<'a> {
    fn of(program: &'a Program, prices: &[Priced]) -> Self {
        let step = |(instruction, price): (&'a lower::Instruction, &Priced)| {
            let buffers = instruction.action.reads().into_iter().chain(instruction.action.writes());
            Step {
                stream: instruction.stream,
                waits: &instruction.waits,
                signals: instruction.signals,
                price: price.clone(),
                storages: buffers.map(|buffer| program.buffer(buffer).storage.0).collect(),
            }
        };
        Self {
            resident: program.resident,
            arena: program.arena,
            storages: &program.storages,
            repeated: program.repeated.as_ref().map(|it| (&it.parts[..], &it.turns[..])),
            communicators: program.communicators.iter().map(Vec::len).collect(),
            steps: program.instructions.iter().zip(prices).map(step).collect(),
        }
    }
}

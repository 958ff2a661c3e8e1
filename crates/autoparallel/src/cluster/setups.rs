//! What is to be chosen among: groups, meshes, micro-batches, what is computed again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cost_models::quantity::counted;
use files::Failure;
use plan::{Parallelism, Recompute};
use planner_ir::Mesh;
use schedule::Kind;
use search::{Fixed, Rules};

use super::Question;
use crate::limits::{self, Limits};
use crate::mesh;

/// The most examples in a micro-batch for each place of the first axis of a mesh.
const EXAMPLES: [u64; 4] = [1, 2, 4, 8];

/// The most groups of devices.
const MOST_GROUPS: u64 = 256;

/// A setup, but for its schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// How many groups of devices there are.
    pub groups: usize,
    /// The mesh of each.
    pub mesh: Mesh,
    /// How many micro-batches a step has.
    pub micro_batches: u64,
    /// What is computed again of each block.
    pub recompute: Recompute,
    /// What the axes of the mesh are for, where only plans of a kind are looked at.
    pub rules: Option<Rules>,
}

impl Setup {
    /// How many micro-batches are under way in a group half way along the pipeline, and in the first one.
    pub(super) fn under_way(&self) -> [u64; 2] {
        let groups = u64::try_from(self.groups).unwrap_or(u64::MAX);
        [groups.div_ceil(2), groups].map(|it| it.min(self.micro_batches))
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, mesh, micro_batches, recompute, rules: _ } = self;
        let mesh = crate::mesh::sizes(mesh);
        let groups = counted(*groups, "group");
        let micro_batches = counted(*micro_batches, "micro-batch");
        write!(f, "{groups} of mesh {mesh}, {micro_batches}, recompute {recompute}")
    }
}

/// Groups and what they share, but for the schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The mesh of each group, in the order of their ranks.
    pub meshes: Vec<Mesh>,
    /// How many micro-batches a step has.
    pub micro_batches: u64,
    /// What is computed again of each block.
    pub recompute: Recompute,
    /// What the axes of all meshes are for, where only plans of a kind are looked at.
    pub rules: Option<Rules>,
}

impl Chosen {
    /// Whether all groups have the same mesh.
    pub(super) fn is_alike(&self) -> bool {
        self.meshes.windows(2).all(|two| two[0] == two[1])
    }

    /// The same in words, where this is computed again.
    pub(super) fn in_words(&self, recomputed: &str) -> String {
        let Self { meshes, micro_batches, rules, .. } = self;
        let of_run =
            |run: &[Mesh]| format!("{} of mesh {}", counted(run.len(), "group"), crate::mesh::sizes(&run[0]));
        let groups: Vec<String> = meshes.chunk_by(|a, b| a == b).map(of_run).collect();
        let rules = rules.as_ref().map_or(String::new(), |it| format!(", {} parallel", limits::in_words(it)));
        let micro_batches = counted(*micro_batches, "micro-batch");
        format!("{}, {micro_batches}, recompute {recomputed}{rules}", groups.join(", "))
    }

    /// That of a setup.
    pub(super) fn of(setup: &Setup) -> Self {
        let Setup { groups, mesh, micro_batches, recompute, rules } = setup.clone();
        Self { meshes: vec![mesh; groups], micro_batches, recompute, rules }
    }

    /// The mesh of all groups, or those of each, such as `2 2 2x2`.
    #[must_use]
    pub fn sizes(&self) -> String {
        let mut sizes: Vec<String> = self.meshes.iter().map(crate::mesh::sizes).collect();
        if sizes.iter().all(|it| *it == sizes[0]) {
            sizes.truncate(1);
        }
        sizes.join(" ")
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(&self.recompute.to_string()))
    }
}

/// What a user has chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins {
    /// The mesh of each group: `stages`.
    pub meshes: Option<Vec<Mesh>>,
    /// The first block of each of these: `cut`.
    pub cut: Option<Vec<usize>>,
    /// How many groups: `pp`.
    pub groups: Option<usize>,
    /// How many devices of a group split products, those that are nearest: `tp`.
    pub tensor: Option<u64>,
    /// How many split sequences: `cp`.
    pub context: Option<u64>,
    /// How many split examples, those that are farthest apart: `dp`.
    pub data: Option<u64>,
    /// Over how many devices of a group, the nearest, whole experts are split: `ep`.
    pub experts: Option<u64>,
    /// The highest stage of ZeRO.
    pub zero: Option<u8>,
    /// How many micro-batches.
    pub micro_batches: Option<u64>,
    /// What is computed again.
    pub recompute: Option<Recompute>,
    /// The schedule.
    pub schedule: Option<Kind>,
    /// How many stages a group has.
    pub chunks: Option<usize>,
    /// How operations are computed.
    pub operations: Vec<Fixed>,
    /// What runs the plan, if that is another runtime.
    pub limits: Option<Limits>,
}

impl Pins {
    /// The pins of arguments such as `tp=8`.
    pub fn parse(all: &[String]) -> Result<Self, Failure> {
        let mut pins = Self::default();
        let mut known: BTreeMap<&str, &String> = BTreeMap::new();
        for pin in all {
            let wrong =
                |expected: &str| Failure::Usage(format!("`--pin {pin}` is no decision, expected {expected}"));
            let forms = "stages=MESHES, cut=BLOCKS, pp=N, tp=N, cp=N, dp=N, ep=N, zero=N, microbatches=N, \
                         chunks=N, recompute=none|selective|full, schedule=NAME or OPERATION=PARTITION such as \
                         /mlp/*=[a,-,-]";
            // Names of operations may have any letters, partitions have no `=`.
            let (name, value) = pin.rsplit_once('=').ok_or_else(|| wrong(forms))?;
            let number = || value.parse::<u64>().ok().filter(|&it| it > 0).ok_or_else(|| wrong("a number"));
            let place = || number().and_then(|it| usize::try_from(it).map_err(|_| wrong("a smaller number")));
            if let (false, Some(before)) = (value.contains('['), known.insert(name, pin)) {
                let message = format!("`--pin {before}` and `--pin {pin}` say {name} twice: leave one out");
                return Err(Failure::Usage(message));
            }
            match name {
                "" => return Err(wrong(forms)),
                _ if value.contains('[') => {
                    pins.operations.push(Fixed { operations: name.to_owned(), partition: value.to_owned() });
                }
                "stages" => {
                    pins.meshes = Some(mesh::several(value).map_err(|_| wrong("meshes such as 2,2x2"))?)
                }
                "cut" => {
                    let blocks: Result<Vec<usize>, _> = value.split(',').map(str::parse).collect();
                    pins.cut = Some(blocks.map_err(|_| wrong("the first block of each stage, such as 0,4"))?);
                }
                "pp" => pins.groups = Some(place()?),
                "tp" => pins.tensor = Some(number()?),
                "cp" => pins.context = Some(number()?),
                "dp" => pins.data = Some(number()?),
                "ep" => pins.experts = Some(number()?),
                "zero" => {
                    let stage = value.parse::<u8>().ok().filter(|it| *it <= 3);
                    pins.zero = Some(stage.ok_or_else(|| wrong("a stage of ZeRO, 0 to 3"))?);
                }
                "microbatches" => pins.micro_batches = Some(number()?),
                "chunks" => pins.chunks = Some(place()?),
                "schedule" => {
                    let kind = value.parse::<Kind>();
                    pins.schedule = Some(kind.map_err(|error| Failure::Usage(error.to_string()))?);
                }
                "recompute" => {
                    let all = [Recompute::Nothing, Recompute::Selective, Recompute::Full];
                    let found = all.into_iter().find(|it| it.to_string() == value);
                    pins.recompute = Some(found.ok_or_else(|| wrong("none, selective or full"))?);
                }
                _ => return Err(wrong(forms)),
            }
        }
        pins.check()?;
        Ok(pins)
    }

    /// How operations are computed, where nothing else is to be chosen that pins could be of.
    pub fn of_operations(self) -> Result<Vec<Fixed>, Failure> {
        let operations = self.operations.clone();
        if self == (Self { operations: operations.clone(), ..Self::default() }) {
            return Ok(operations);
        }
        let message =
            "without `--stages auto` no setup is searched: expected `--pin OPERATION=PARTITION` only";
        Err(Failure::Usage(message.to_owned()))
    }

    /// Refuses decisions that say the same twice, or are of what is not decided.
    fn check(&self) -> Result<(), Failure> {
        let wrong = |words: String| Err(Failure::Usage(words));
        match (&self.meshes, &self.cut) {
            (Some(_), _) if self.groups.is_some() || self.are_for_something() => wrong(
                "`--pin stages=..` says the mesh of each group: leave the pins of pp, tp, cp, dp, ep and zero out"
                    .to_owned(),
            ),
            (None, Some(_)) => wrong(
                "`--pin cut=..` is of groups that are pinned too: give `--pin stages=..` as well".to_owned(),
            ),
            (Some(meshes), Some(cut)) if cut.len() != meshes.len() => wrong(format!(
                "`--pin cut=..` names {} stages, expected {}, as many as `--pin stages=..`",
                cut.len(),
                meshes.len()
            )),
            (_, Some(cut)) if cut[0] != 0 || !cut.is_sorted_by(|a, b| a < b) => {
                wrong(format!("`--pin cut=..` says {cut:?}, expected blocks that ascend from 0"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses devices that share experts where the model has none.
    ///
    /// # Errors
    /// If that is pinned.
    pub fn has_experts(&self, there: bool) -> Result<(), Failure> {
        match self.experts.filter(|it| *it > 1 && !there) {
            Some(experts) => {
                let message =
                    format!("`--pin ep={experts}`: the model has no experts to share: leave it out");
                Err(Failure::Usage(message))
            }
            None => Ok(()),
        }
    }

    /// Whether it is pinned what axes are for.
    pub(super) fn are_for_something(&self) -> bool {
        [self.tensor, self.context, self.data, self.experts].iter().any(Option::is_some)
            || self.zero.is_some()
    }

    /// Whether only plans are looked at in which each axis of a mesh is for one thing.
    pub(super) fn are_ruled(&self) -> bool {
        self.limits.is_some() || self.are_for_something()
    }

    /// Whether a stage that so many follow, itself included, may be on a mesh and start at a block.
    pub(super) fn allow_stage(&self, after: usize, mesh: &Mesh, start: usize) -> bool {
        let groups = self.meshes.as_ref().map(Vec::len).or(self.groups);
        let Some(groups) = groups else { return true };
        let Some(number) = groups.checked_sub(after) else { return false };
        (number == 0) == (start == 0)
            && self.meshes.as_ref().is_none_or(|it| it[number] == *mesh)
            && self.cut.as_ref().is_none_or(|it| it[number] == start)
    }

    /// How many devices groups as they are pinned take at least.
    pub fn devices(&self) -> u64 {
        let groups = u64::try_from(self.groups.unwrap_or(1)).unwrap_or(u64::MAX);
        [self.tensor, self.context, self.data].into_iter().flatten().fold(groups, u64::saturating_mul)
    }

    /// Whether a schedule may be had.
    pub(super) fn allows(&self, kind: Kind, chunks: usize) -> bool {
        // What has no pipelines has one group, whose order of work is its own.
        let runs = |limits: &Limits| limits.schedules.is_empty() || limits.schedules.contains(&kind);
        let runs = self.limits.as_ref().is_none_or(runs);
        runs && self.schedule.is_none_or(|it| it == kind) && self.chunks.is_none_or(|it| it == chunks)
    }
}

/// All setups of a question.
pub(super) fn all(question: &Question<'_>) -> Result<Vec<Setup>, Failure> {
    let Question { pins, examples, .. } = question;
    let devices = question.machine().devices();
    let mut setups: Vec<Setup> = Vec::new();
    let staged = pins.limits.as_ref().is_none_or(|it| !it.schedules.is_empty());
    let pinned = |it: &u64| pins.groups.is_none_or(|pin| u64::try_from(pin) == Ok(*it));
    let known = |it: &u64| pinned(it) && (staged || *it == 1);
    for groups in divisors(devices).filter(known) {
        let each = devices / groups;
        let groups = usize::try_from(groups).unwrap_or(usize::MAX);
        for (data, mesh) in of_size(question, each) {
            for micro_batches in counts_of(*examples, [data, each], pins) {
                for rules in rules_of(question, (groups, &mesh), micro_batches) {
                    for recompute in again(pins) {
                        let (mesh, rules) = (mesh.clone(), rules.clone());
                        let setup = Setup { groups, mesh, micro_batches, recompute, rules };
                        // The one axis of a mesh may be one of data or not.
                        if !setups.contains(&setup) {
                            setups.push(setup);
                        }
                    }
                }
            }
        }
    }
    if setups.is_empty() { Err(none(question)) } else { Ok(setups) }
}

/// What the axes of a mesh may be for: what is left to each operation, or each thing that a runtime has, if the
/// examples of a micro-batch fall into as many parts as there are data parallel devices.
fn rules_of(
    question: &Question<'_>,
    (groups, mesh): (usize, &Mesh),
    micro_batches: u64,
) -> Vec<Option<Rules>> {
    let pins = question.pins;
    let at_once = question.examples / micro_batches.max(1);
    let falls = |rules: &Rules| at_once.is_multiple_of(limits::data(mesh, rules));
    let any = Limits::none();
    let limits = match &pins.limits {
        Some(limits) => limits,
        None if pins.are_for_something() => &any,
        None => return vec![None],
    };
    let highest = |rules: Rules| Rules { zero: pins.zero.unwrap_or(rules.zero).min(rules.zero), ..rules };
    let is_pinned = |rules: &Rules| {
        let pinned = [
            (Parallelism::Data, pins.data),
            (Parallelism::Context, pins.context),
            (Parallelism::Tensor, pins.tensor),
        ];
        pinned.into_iter().all(|(role, pin)| pin.is_none_or(|pin| limits::size(mesh, rules, role) == pin))
    };
    let all = limits.rules(mesh, groups, pins.experts).into_iter();
    all.filter(|rules| falls(rules) && is_pinned(rules)).map(highest).map(Some).collect()
}

/// The meshes of groups of so many devices, in part of a node or in whole ones, with the places along data: of two axes,
/// of which the inner one is within a node, of three where those of the one between are pinned, and one more for those
/// of data that do not share experts with the nearest.
fn of_size(question: &Question<'_>, each: u64) -> Vec<(u64, Mesh)> {
    let (pins, node) = (question.pins, question.machine().devices_per_node());
    if each > node && !each.is_multiple_of(node) {
        return Vec::new();
    }
    let mut meshes: Vec<(u64, Mesh)> = Vec::new();
    let between = [1].into_iter().chain(pins.context);
    // What is pinned may lie on several nodes.
    let inner: Vec<u64> = divisors(each.min(node)).chain(pins.tensor).collect();
    for (context, tensor) in between.flat_map(|it| inner.iter().map(move |&inner| (it, inner))) {
        let Some(data) = each.checked_div(context.saturating_mul(tensor)) else { continue };
        if data * context * tensor != each {
            continue;
        }
        // Of those that share experts, how many are data parallel.
        let sharing = pins.experts.map_or(data, |it| (it / (context * tensor)).max(1));
        if !data.is_multiple_of(sharing) {
            continue;
        }
        let sizes = [data / sharing, sharing, context, tensor];
        let sizes: Vec<u64> = sizes.into_iter().filter(|&it| it > 1).collect();
        let mesh = (data, Mesh::of_sizes(if sizes.is_empty() { &[1] } else { &sizes }));
        if !meshes.contains(&mesh) {
            meshes.push(mesh);
        }
    }
    meshes
}

/// The meshes that a group may have, whatever others have, each once.
pub(super) fn meshes_of(question: &Question<'_>) -> Vec<Mesh> {
    let devices = question.machine().devices();
    let mut meshes: Vec<Mesh> = Vec::new();
    for (_, mesh) in divisors(devices).flat_map(|groups| of_size(question, devices / groups)) {
        if !meshes.contains(&mesh) {
            meshes.push(mesh);
        }
    }
    meshes
}

/// The numbers of micro-batches for some of these meshes, ascending.
pub(super) fn counts<'a>(question: &Question<'_>, meshes: impl Iterator<Item = &'a Mesh>) -> Vec<u64> {
    // The one axis of a mesh may be one of data or not.
    let data = |mesh: &Mesh| match &mesh.axes[..] {
        [axis] => vec![1, axis.size],
        axes => axes.first().map(|it| it.size).into_iter().collect(),
    };
    let of = |data| micro_batches(question.examples, data, question.pins);
    let all: BTreeSet<u64> = meshes.flat_map(data).flat_map(of).collect();
    all.into_iter().collect()
}

/// What may be computed again.
pub(super) fn again(pins: &Pins) -> Vec<Recompute> {
    let mut all = vec![Recompute::Nothing, Recompute::Selective, Recompute::Full];
    all.retain(|it| pins.recompute.as_ref().is_none_or(|pin| pin == it));
    all
}

/// Refuses more groups than the model has blocks, and cuts at blocks that it does not have.
pub(super) fn few_enough(question: &Question<'_>, blocks: usize) -> Result<(), Failure> {
    let Pins { meshes, cut, groups, .. } = question.pins;
    if meshes.as_ref().map(Vec::len).or(*groups).is_some_and(|it| it > blocks) {
        let message = format!("more groups are pinned than the model has blocks, {blocks}");
        return Err(Failure::Usage(message));
    }
    match cut.as_ref().and_then(|it| it.last()) {
        Some(last) if *last >= blocks => {
            Err(Failure::Usage(format!("`--pin cut=..` names block {last} of a model of {blocks} blocks")))
        }
        _ => Ok(()),
    }
}

/// Why there are no setups.
pub(super) fn none(question: &Question<'_>) -> Failure {
    let node = question.cluster.devices_per_node();
    Failure::Usage(format!(
        "no setup of {} has what is pinned, with {} examples in a step: {} devices in nodes of {node} fall into \
         pp groups of dp x cp x tp, in part of a node or whole ones, and experts over the nearest ep of a group: tp, \
         cp x tp, or that times a part of dp; examples into micro-batches of dp parts",
        question.cluster.full_name(),
        question.examples,
        question.cluster.devices(),
    ))
}

/// The numbers of micro-batches where examples fall into parts for the devices along data, or for all, descending.
fn counts_of(examples: u64, parts: [u64; 2], pins: &Pins) -> Vec<u64> {
    let all: BTreeSet<u64> = parts.iter().flat_map(|&it| micro_batches(examples, it, pins)).collect();
    all.into_iter().rev().collect()
}

/// The numbers of micro-batches of so many examples, where the first axis of meshes has so many places.
fn micro_batches(examples: u64, data: u64, pins: &Pins) -> Vec<u64> {
    let mut all: Vec<u64> = match pins.micro_batches {
        Some(pin) => vec![pin],
        None => EXAMPLES.iter().filter_map(|each| Some(examples / data.checked_mul(*each)?)).collect(),
    };
    all.retain(|&count| count > 0 && examples.is_multiple_of(count));
    all.dedup();
    all
}

/// The divisors of a number up to so many.
fn divisors(number: u64) -> impl Iterator<Item = u64> {
    mesh::divisors(number, MOST_GROUPS)
}

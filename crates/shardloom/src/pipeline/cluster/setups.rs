//! What is to be chosen among: groups, meshes, micro-batches, what is computed again.

use std::fmt;

use plan::Recompute;
use planner_ir::Mesh;
use planner_ir::schedule::Kind;

use super::Question;
use crate::failure::Failure;

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
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, mesh, micro_batches, recompute } = self;
        let mesh = crate::mesh::sizes(mesh);
        write!(f, "{groups} groups of mesh {mesh}, {micro_batches} micro-batches, recompute {recompute}")
    }
}

/// What a user has chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins {
    /// How many groups: `pp`.
    pub groups: Option<usize>,
    /// How many devices along the last axis of a mesh, whose devices are nearest: `tp`.
    pub tensor: Option<u64>,
    /// How many along the first: `dp`.
    pub data: Option<u64>,
    /// How many micro-batches.
    pub micro_batches: Option<u64>,
    /// What is computed again.
    pub recompute: Option<Recompute>,
    /// The schedule.
    pub schedule: Option<Kind>,
    /// How many stages a group has.
    pub chunks: Option<usize>,
}

impl Pins {
    /// The pins of arguments such as `tp=8`.
    pub fn parse(all: &[String]) -> Result<Self, Failure> {
        let mut pins = Self::default();
        for pin in all {
            let wrong =
                |expected: &str| Failure::Usage(format!("`--pin {pin}` is no decision, expected {expected}"));
            let forms = "pp=N, tp=N, dp=N, microbatches=N, chunks=N, recompute=none|selective|full or \
                         schedule=NAME";
            let (name, value) = pin.split_once('=').ok_or_else(|| wrong(forms))?;
            let number = || value.parse::<u64>().ok().filter(|&it| it > 0).ok_or_else(|| wrong("a number"));
            let place = || number().and_then(|it| usize::try_from(it).map_err(|_| wrong("a smaller number")));
            match name {
                "pp" => pins.groups = Some(place()?),
                "tp" => pins.tensor = Some(number()?),
                "dp" => pins.data = Some(number()?),
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
        Ok(pins)
    }

    /// Whether a schedule may be had.
    pub(super) fn allows(&self, kind: Kind, chunks: usize) -> bool {
        self.schedule.is_none_or(|it| it == kind) && self.chunks.is_none_or(|it| it == chunks)
    }
}

/// All setups of a question.
pub(super) fn all(question: &Question<'_>) -> Result<Vec<Setup>, Failure> {
    let Question { machine, pins, examples, .. } = question;
    let (devices, node) = (machine.devices(), machine.devices_per_node());
    let mut setups = Vec::new();
    let known = |it: &u64| pins.groups.is_none_or(|pin| u64::try_from(pin) == Ok(*it));
    for groups in divisors(devices).filter(known) {
        let each = devices / groups;
        // Part of a node, or whole nodes.
        if each > node && !each.is_multiple_of(node) {
            continue;
        }
        for tensor in divisors(each.min(node)).filter(|&it| pins.tensor.is_none_or(|pin| pin == it)) {
            let data = each / tensor;
            if data * tensor != each || pins.data.is_some_and(|pin| pin != data) {
                continue;
            }
            let sizes: Vec<u64> = [data, tensor].into_iter().filter(|&it| it > 1).collect();
            let mesh = Mesh::of_sizes(if sizes.is_empty() { &[1] } else { &sizes });
            for micro_batches in micro_batches(*examples, data, pins) {
                for recompute in [Recompute::Nothing, Recompute::Selective, Recompute::Full] {
                    if pins.recompute.as_ref().is_none_or(|pin| *pin == recompute) {
                        let groups = usize::try_from(groups).unwrap_or(usize::MAX);
                        setups.push(Setup { groups, mesh: mesh.clone(), micro_batches, recompute });
                    }
                }
            }
        }
    }
    if setups.is_empty() {
        return Err(Failure::Usage(format!(
            "no setup of {} has what is pinned, with {examples} examples in a step: {devices} devices in nodes of \
             {node} fall into pp groups of dp x tp, tp at most {node}; examples into micro-batches",
            machine.full_name()
        )));
    }
    Ok(setups)
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
    (1..=number.min(MOST_GROUPS)).filter(move |&it| number.is_multiple_of(it))
}

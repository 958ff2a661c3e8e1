//! What a file says, field by field, in the order in which it is written.

mod generation; // plans over one cache
mod pipeline; // a pipeline
mod recipe; // how a training step was derived

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::plan::MachineName;

pub(super) use generation::{Cache, Form, GenerationBody, GenerationFile, Growth, Kept, Positions};
pub(super) use pipeline::{Arrival, Crossing, PipelineBody, PipelineFile, Schedule, Stage};
pub(super) use recipe::Recipe;

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(rename = "format")]
    pub(super) _format: String,
    #[serde(rename = "version")]
    pub(super) _version: u64,
    pub(super) checksum: String,
    pub(super) plan: Body,
}

/// A plan.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    pub(super) model: Model,
    pub(super) machine: Machine,
    pub(super) mesh: Vec<Sized>,
    /// The program's text form, line by line.
    pub(super) graph: Vec<String>,
    /// The text forms of layouts.
    pub(super) layouts: Vec<String>,
    /// The text forms of partitions.
    pub(super) partitions: Vec<String>,
    /// For each value its layout.
    pub(super) values: Vec<usize>,
    pub(super) operations: Vec<Operation>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) outputs: Vec<Copy>,
    /// For each state of a training step, what takes its place.
    pub(super) carried: Vec<Copy>,
    /// `null` unless the program is a training step; never missing.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) recipe: Option<Recipe>,
    /// Missing where nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) pins: Vec<Pin>,
    /// Missing where nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) controls: Vec<Control>,
    pub(super) estimate: Vec<Term>,
    /// Missing where nothing is.
    #[serde(default, skip_serializing_if = "Hidden::is_nothing")]
    pub(super) hidden: Hidden,
    pub(super) memory: Vec<Holding>,
    pub(super) capacity: u64,
    pub(super) proof: Proof,
    pub(super) space: Space,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub(super) path: String,
    pub(super) sha256: String,
    pub(super) dims: Vec<Sized>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Control {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    pub(super) value: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) devices: u64,
    /// Missing in files of programs that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

impl From<&MachineName> for Machine {
    fn from(machine: &MachineName) -> Self {
        let MachineName { name, devices, sha256 } = machine.clone();
        Self { name, devices, sha256 }
    }
}

impl Machine {
    pub(super) fn named(&self) -> MachineName {
        let Self { name, devices, sha256 } = self;
        MachineName { name: name.clone(), devices: *devices, sha256: sha256.clone() }
    }
}

/// An axis of the mesh, or a symbolic dimension of the model.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sized {
    pub(super) name: String,
    pub(super) size: u64,
}

/// What a user has fixed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pin {
    pub(super) operations: String,
    pub(super) partition: usize,
}

/// `"prepared"` or how it is computed.
pub(super) enum Operation {
    Prepared,
    Computed(Computed),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Computed {
    pub(super) partition: usize,
    pub(super) operands: Vec<Copy>,
    /// Missing where nothing is: of partitions of one step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) bytes: Vec<u64>,
    pub(super) seconds: f64,
    /// Missing where no rows are routed.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub(super) exchanged: f64,
    /// Missing where nothing is exchanged, or not over links that all exchanges use.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub(super) links: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_nothing(seconds: &f64) -> bool {
    seconds.to_bits() == 0
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Transfer {
    pub(super) value: usize,
    pub(super) from: Copy,
    pub(super) moves: Vec<Move>,
    pub(super) layout: usize,
    pub(super) bytes: Vec<u64>,
    pub(super) seconds: f64,
    /// What each of several moves takes of that; where a plan does not say it, they are taken to go at one rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) each: Option<Vec<f64>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) waits: bool,
}

/// `"made"` or the number of a transfer.
#[derive(Clone, Copy)]
pub(super) enum Copy {
    Made,
    Transferred(usize),
}

/// The digits that a dimension gains stand as in the text form of a layout: `a.*3.b`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Move {
    Slice { dim: usize, digits: String },
    AllGather { dim: usize, digits: usize },
    AllReduce { axes: Vec<String> },
    ReduceScatter { dim: usize, digits: String },
    AllToAll { from: usize, to: usize, digits: String },
    Permute { dims: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Term {
    pub(super) name: String,
    pub(super) seconds: f64,
}

#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Hidden {
    pub(super) forward: f64,
    pub(super) backward: f64,
}

impl Hidden {
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Holding {
    pub(super) kind: String,
    pub(super) bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Proof {
    Optimal,
    Gap { lower_bound: f64 },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Space {
    pub(super) unique_blocks: u64,
    pub(super) blocks: u64,
    pub(super) nodes: u64,
    pub(super) classes: u64,
    pub(super) saturated: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left_out: Vec<LeftOut>,
    pub(super) choices: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LeftOut {
    Stripes,
    Skews,
    Steps,
    Splits,
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Prepared => serializer.serialize_str("prepared"),
            Self::Computed(computed) => computed.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OperationVisitor)
    }
}

struct OperationVisitor;

impl<'de> Visitor<'de> for OperationVisitor {
    type Value = Operation;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`\"prepared\"` or an object")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Operation, E> {
        let error = || E::invalid_value(de::Unexpected::Str(text), &self);
        if text == "prepared" { Ok(Operation::Prepared) } else { Err(error()) }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Operation, A::Error> {
        Computed::deserialize(MapAccessDeserializer::new(map)).map(Operation::Computed)
    }
}

impl Serialize for Copy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Made => serializer.serialize_str("made"),
            Self::Transferred(transfer) => transfer.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Copy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CopyVisitor)
    }
}

struct CopyVisitor;

impl Visitor<'_> for CopyVisitor {
    type Value = Copy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`\"made\"` or the number of a transfer")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Copy, E> {
        if text == "made" { Ok(Copy::Made) } else { Err(E::invalid_value(de::Unexpected::Str(text), &self)) }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Copy, E> {
        let transfer = usize::try_from(number);
        transfer.map(Copy::Transferred).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }
}

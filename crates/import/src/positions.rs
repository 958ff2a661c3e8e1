//! Positions that a model takes from the length of its past, as an input.
//!
//! Exporters that are given no positions let tokens stand behind the past: `past`, `past + 1`, ..
//! With its dimensions bound these are constants. Where the past is a cache with room to spare they
//! are wrong ones; so the two uses that say where a token stands take an input instead: rows looked
//! up in a table, and integers made numbers to be turned by. Masks compare integers, and mean places
//! in the cache: they stay.

use std::collections::BTreeSet;

use planner_ir::{DType, Type, ValueId};

use crate::builder::Builder;
use crate::error::ImportError;
use crate::node::OnnxNode;
use crate::tensor;

/// Positions to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The name of the input: `i64[batch, width]`.
    pub name: String,
    /// The position that the model gives the first new token: how long the past is.
    pub start: u64,
    /// How many sequences there are.
    pub batch: u64,
    /// How many new tokens each has.
    pub width: u64,
    /// The nodes that take them, as [`Model::positions`](crate::Model::positions) found.
    pub nodes: BTreeSet<String>,
}

/// What becomes of positions while a model is imported.
#[derive(Clone, Debug, Default)]
pub(crate) enum Seen {
    /// They stay as they are.
    #[default]
    Ignored,
    /// The nodes that use them are collected.
    Collected(Positions),
    /// Their nodes take the input, once there is one.
    Taken(Positions, Option<ValueId>),
}

/// Which operand of a node may be positions: what rows of a table are looked up by, what becomes
/// numbers that are not whole.
fn operand(builder: &Builder, node: &OnnxNode) -> Option<usize> {
    let is_float = |number: i64| {
        let dtype = i32::try_from(number).ok().and_then(|number| tensor::dtype(number).ok());
        dtype.is_some_and(DType::is_float)
    };
    match (node.domain, node.op_type) {
        ("", "Gather") => {
            let table = node.inputs.first().copied().flatten()?;
            (builder.known(table).is_none() && builder.type_of(table).dtype.is_float()).then_some(1)
        }
        ("", "Cast") => node.int("to").is_some_and(is_float).then_some(0),
        _ => None,
    }
}

impl Seen {
    /// Collects a node that uses positions, or gives it the input.
    pub(crate) fn meet(&mut self, builder: &mut Builder, node: &mut OnnxNode) -> Result<(), ImportError> {
        let wanted = match self {
            Self::Ignored => return Ok(()),
            Self::Collected(wanted) | Self::Taken(wanted, _) => wanted,
        };
        let Some(place) = operand(builder, node) else { return Ok(()) };
        let Some(value) = node.inputs.get(place).copied().flatten() else { return Ok(()) };
        if !is_range(builder, value, wanted) {
            return Ok(());
        }
        match self {
            Self::Collected(wanted) => {
                wanted.nodes.insert(node.name.to_owned());
            }
            Self::Taken(wanted, input) if wanted.nodes.contains(node.name) => {
                let all = [wanted.batch, wanted.width];
                let type_ = builder.type_of(value).clone();
                let given =
                    *input.get_or_insert_with(|| builder.input(&wanted.name, Type::new(DType::I64, all)));
                let given = builder.cast(given, type_.dtype)?;
                // Each sequence has positions of its own where the model has those of all in one row.
                let shape = match &type_.shape[..] {
                    [1, rest @ ..] if !rest.is_empty() => [&[wanted.batch], rest].concat(),
                    _ => all.to_vec(),
                };
                node.inputs[place] = Some(builder.reshape(given, &shape)?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether a value is the integers from `start`, one for each new token, along one dimension.
fn is_range(builder: &Builder, value: ValueId, wanted: &Positions) -> bool {
    let Type { dtype, shape } = builder.type_of(value);
    let is_long = shape.iter().all(|&size| size == 1 || size == wanted.width);
    let integers = builder.known(value).filter(|_| matches!(dtype, DType::I64 | DType::I32) && is_long);
    let integers = integers.and_then(|known| known.to_integers().ok()).unwrap_or_default();
    let Ok(start) = i64::try_from(wanted.start) else { return false };
    u64::try_from(integers.len()) == Ok(wanted.width)
        && integers.iter().zip(start..).all(|(&found, expected)| found == expected)
}

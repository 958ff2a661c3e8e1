//! What a decoded model becomes: a graph for given sizes, or a file with other weights.

use std::collections::BTreeSet;

use planner_ir::Graph;

use crate::bind::{self, Bindings, Dimensions};
use crate::error::ImportError;
use crate::model::Model;
use crate::positions::{Positions, Seen};
use crate::replace::{self, NewData, Replaced};
use crate::translate;

impl Model {
    /// The model as a file in which weights have other data; everything else stays as it is.
    ///
    /// `data` is asked for the weights that the ONNX file itself has. All weights that are in other
    /// files come into one file beside the model, `file` (a name, relative to the model's folder);
    /// what it has to hold is listed, and whoever writes it finds out which data are new.
    pub fn replace(&self, file: &str, data: NewData<'_>) -> Result<Replaced, ImportError> {
        replace::replace(&self.bytes, file, data)
    }

    /// The sizes of its dimensions by name, as far as bindings say them.
    pub fn dimensions(&self, bindings: &Bindings) -> Result<Dimensions, ImportError> {
        bind::dimensions(self, bindings)
    }

    /// The graph of the model with its dimensions bound.
    pub fn import(&self, bindings: &Bindings) -> Result<Graph, ImportError> {
        let shapes = bind::shapes(self, bindings)?;
        let seen = match &bindings.positions {
            Some(positions) => Seen::Taken(positions.clone(), None),
            None => Seen::Ignored,
        };
        translate::graph(self, &shapes, bindings, seen).map(|(graph, _)| graph)
    }

    /// The nodes that use positions which follow from the length of the past: `start`, `start + 1`, ..
    pub fn positions(
        &self,
        bindings: &Bindings,
        wanted: &Positions,
    ) -> Result<BTreeSet<String>, ImportError> {
        let shapes = bind::shapes(self, bindings)?;
        let seen = Seen::Collected(Positions { nodes: BTreeSet::new(), ..wanted.clone() });
        match translate::graph(self, &shapes, bindings, seen)? {
            (_, Seen::Collected(found)) => Ok(found.nodes),
            _ => Ok(BTreeSet::new()),
        }
    }
}

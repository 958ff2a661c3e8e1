//! Weights that are made for configurations.

use std::collections::BTreeMap;
use std::path::Path;

use files::model_file::ModelFile;
use kernels::Array;
use lower::Strided;
use planner_ir::{DType, Type};
use run::Stored;

use crate::models::weights;

/// Weights that are made.
pub(super) struct Made(BTreeMap<String, Array>);

/// The same, and what a model has itself.
pub(super) struct Beside<'a>(&'a Made, &'a ModelFile);

impl Made {
    /// All that a configuration's model has.
    pub(super) fn of(config: &Path) -> Self {
        let weight = |(name, shape, bytes): (String, Vec<u64>, Vec<u8>)| {
            (name, Array::from_bytes(Type::new(DType::F32, shape), &bytes).unwrap())
        };
        Self(weights(config).into_iter().map(weight).collect())
    }

    pub(super) fn beside<'a>(&'a self, file: &'a ModelFile) -> Beside<'a> {
        Beside(self, file)
    }
}

impl Stored for Beside<'_> {
    fn type_of(&self, name: &str) -> Result<Type, String> {
        self.0.0.type_of(name).or_else(|_| self.1.type_of(name))
    }

    fn read(&self, name: &str, elements: &Strided, to: &mut [u8]) -> Result<(), String> {
        if self.0.0.contains_key(name) {
            self.0.0.read(name, elements, to)
        } else {
            self.1.read(name, elements, to)
        }
    }
}

//! The steps of a decoder as it holds its cache.

use std::collections::BTreeMap;

use files::Failure;
use plan::{Cache, Growth};
use planner_ir::Graph;

use super::Decoder;
use crate::generation::ring::{self, Single};
use crate::generation::windows::windows;

/// The steps whose cache is not as the model has it, by how many tokens they take.
#[derive(Debug, Default)]
pub(super) struct Steps(BTreeMap<u64, Step>);

/// A step as the model says it, and as it is planned.
#[derive(Debug)]
struct Step {
    of_model: Graph,
    planned: Graph,
}

impl Steps {
    /// The step of so many tokens as the model says it, if it is there.
    pub(super) fn of_model(&self, width: u64) -> Option<&Graph> {
        self.0.get(&width).map(|it| &it.of_model)
    }

    /// The same as it is planned.
    pub(super) fn planned(&self, width: u64) -> Option<&Graph> {
        self.0.get(&width).map(|it| &it.planned)
    }
}

impl Decoder<'_> {
    /// Finds which parts have windows, and makes the steps: that of one token writes its entry in place, if it can. What
    /// asks for all places has them.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        if self.growth != Growth::Behind {
            self.single = Err("entries do not come behind all others".to_owned());
            return Ok(());
        }
        let one = self.step_of_model(1)?;
        let several = match self.prompt() {
            Some(width) => Some((self.step_of_model(width)?, width)),
            None => None,
        };
        let found = windows(&self.cache(), &one, several.as_ref().map(|(graph, width)| (graph, *width)));
        (self.roles.kept, self.sees_fewer) = (found.kept, found.why);
        let cache = self.cache();
        let single = Single::of(&one, &cache, self.file.model.inputs());
        if let Some((of_model, width)) = several {
            self.steps.0.insert(width, self.moved(of_model, &cache, width));
        }
        let step = match &single {
            Ok(single) => Step { of_model: one, planned: single.written.clone() },
            Err(_) => self.moved(one, &cache, 1),
        };
        self.steps.0.insert(1, step);
        self.single = single.map(|it| it.slot);
        Ok(())
    }

    /// A step whose cache moves up.
    fn moved(&self, of_model: Graph, cache: &Cache, width: u64) -> Step {
        // Windows are of parts of which this can be made.
        let planned = ring::recent(&of_model, cache, width).unwrap_or_else(|_| of_model.clone());
        Step { of_model, planned }
    }
}

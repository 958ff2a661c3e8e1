//! The steps of a decoder as it holds its cache.

use std::collections::BTreeMap;

use files::Failure;
use plan::{Cache, Growth, Kept};
use planner_ir::Graph;

use super::{Decoder, SEVERAL};
use crate::generation::ring::{self, Single};
use crate::generation::windows::windows;
use crate::pipeline;

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
        let has_entries = self.cache().entries().next().is_some();
        let several = match self.prompt() {
            Some(width) => Some(self.step_of_model(width)?),
            None if has_entries && self.takes_several()? => Some(self.step_of_model(SEVERAL)?),
            None => None,
        };
        if let Some(several) = several.as_ref().filter(|_| has_entries) {
            let raised = pipeline::prepare(several, &mut |_, _| {})?;
            let windows = windows(&raised.graph, &self.cache());
            let prompts = self.prompt().map(|width| (several, width));
            self.see(&windows, &one, prompts);
        }
        let cache = self.cache();
        let single = Single::of(&one, &cache, self.file.model.inputs());
        if let Some((width, of_model)) = self.prompt().zip(several) {
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

    /// Gives parts their windows, of which both steps can be made: all, or those of which they can be made alone.
    fn see(&mut self, windows: &BTreeMap<String, u64>, one: &Graph, prompts: Option<(&Graph, u64)>) {
        let cache = self.cache();
        let is_written = ring::ring(one, &cache, SLOT).is_ok();
        let seen = |of: &dyn Fn(&Kept) -> bool| {
            let mut cache = cache.clone();
            for part in cache.kept.iter_mut().filter(|it| of(it)) {
                part.window = windows.get(&part.past).copied();
            }
            cache
        };
        let can = |cache: &Cache| {
            let single = if is_written { ring::ring(one, cache, SLOT) } else { ring::recent(one, cache, 1) };
            single.is_ok() && prompts.is_none_or(|(graph, width)| ring::recent(graph, cache, width).is_ok())
        };
        let all = seen(&|_| true);
        let found = if can(&all) {
            all
        } else {
            let apart = seen(&|part| can(&seen(&|it| it == part)));
            if can(&apart) { apart } else { cache.clone() }
        };
        self.roles.kept = found.kept;
    }
}

/// The name of a slot while it is not known whether there is one.
const SLOT: &str = "cache_slot";

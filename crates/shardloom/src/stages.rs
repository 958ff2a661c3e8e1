//! Dumps of stages: numbered files in a folder, or text.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

use driver::pipeline::Stage;
use files::Failure;
use files::written;

use crate::arguments::{Dumped, Global};

/// What stages made, as far as it is wanted.
#[derive(Debug)]
pub(crate) struct Stages<'a> {
    global: &'a Global,
    texts: BTreeMap<Stage, String>,
}

impl<'a> Stages<'a> {
    /// Nothing yet.
    pub(crate) fn new(global: &'a Global) -> Self {
        Self { global, texts: BTreeMap::new() }
    }

    /// Keeps what a stage made, if it is wanted. Several things of one stage follow each other.
    pub(crate) fn observe(&mut self, stage: Stage, made: &dyn fmt::Display) {
        if self.global.dump_after.is_some_and(|dumped| wanted(dumped, stage)) {
            let text = self.texts.entry(stage).or_default();
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", made.to_string().trim_end());
        }
    }

    /// The stage after which nothing is to be done, if there is one.
    pub(crate) fn last(&self) -> Option<Stage> {
        self.global.stop_after.map(|last| last.stage())
    }

    /// Whether nothing is to be done after a stage.
    pub(crate) fn stops_after(&self, stage: Stage) -> bool {
        self.last() == Some(stage)
    }

    /// Writes the files, if there is a folder for them; what is to be printed else.
    pub(crate) fn finish(self) -> Result<String, Failure> {
        let Some(folder) = &self.global.dump_dir else {
            return Ok(self.texts.into_values().collect());
        };
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::file(folder, format!("cannot be made: {error}")))?;
        for (stage, text) in &self.texts {
            let number = Stage::ALL.iter().take_while(|it| *it != stage).count() + 1;
            let name = format!("{number:02}-{}.txt", stage.name());
            written::write(&folder.join(name), text.as_bytes())?;
        }
        Ok(String::new())
    }
}

fn wanted(dumped: Dumped, stage: Stage) -> bool {
    dumped.one().is_none_or(|it| it.stage() == stage)
}

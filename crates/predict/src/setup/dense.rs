//! Layers without experts among layers with some: how many a stage has, and what stages have of each kind.

use cost_models::units::exact;

use super::Setup;
use crate::model::Model;

impl Setup {
    /// The same setup with all layers as those are that have no experts, where others have some.
    #[must_use]
    pub fn as_dense(&self) -> Option<Self> {
        let model = self.model.as_dense()?;
        // Nobody shares experts, or exchanges tokens.
        Some(Self { model, ep: 1, etp: self.tp, ..self.clone() })
    }

    /// How many of a stage's layers are dense, where others have experts. Where it has several parts they lie as far
    /// apart as the parts of all stages make them, each with an equal share of the stage's layers.
    #[must_use]
    pub fn dense(&self, stage: usize) -> u64 {
        let Some((dense, last)) = self.model.dense.as_ref().and_then(|it| Some((it, it.layers.last()?)))
        else {
            return 0;
        };
        let part = |layers: u64, part: u64| {
            let until = |parts: u64| (layers * parts).div_ceil(self.vpp);
            until(part + 1) - until(part)
        };
        let (mut first, mut count) = (0, 0);
        for turn in 0..self.vpp {
            for (number, layers) in self.stages.iter().enumerate() {
                let next = first + part(*layers, turn);
                if number == stage {
                    let until = |end: u64| dense.layers.partition_point(|it| *it < end);
                    count += until(next) - until(first);
                }
                first = next;
                if first > *last {
                    return u64::try_from(count).unwrap_or(u64::MAX);
                }
            }
        }
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// A setup, and that in which all layers are as those that have no experts, where others have some.
#[derive(Clone, Debug)]
pub struct Kinds<'a> {
    setup: &'a Setup,
    dense: Option<Setup>,
}

impl<'a> Kinds<'a> {
    /// The kinds of layers of a setup.
    #[must_use]
    pub fn of(setup: &'a Setup) -> Self {
        Self { setup, dense: setup.as_dense() }
    }

    /// How many layers of each kind a stage has, each with the setup in which all are of this kind.
    pub fn at(&self, stage: usize) -> impl Iterator<Item = (f64, &Setup)> + Clone {
        let (all, dense) = (self.setup.stages[stage], self.setup.dense(stage));
        let without = self.dense.as_ref().map(|it| (dense, it));
        let there = [Some((all - dense.min(all), self.setup)), without].into_iter().flatten();
        there.filter(|it| it.0 > 0).map(|(count, setup)| (exact(count), setup))
    }

    /// Parameters of a rank of a stage where data parallelism splits nothing: outside experts, and of experts.
    #[must_use]
    pub fn parameters_of_rank(&self, stage: usize) -> [f64; 2] {
        let Setup { model, tp, ep, etp, .. } = self.setup;
        let tables = exact(self.setup.tables(stage)) * model.embedding_parameters();
        let joining = exact(self.setup.further(stage)) * model.joining_parameters();
        let layers = self.at(stage);
        let sum = |of: fn(&Model) -> f64| layers.clone().map(|it| it.0 * of(&it.1.model)).sum::<f64>();
        let others = sum(Model::layer_parameters) + joining + tables;
        [others / exact(*tp), sum(Model::experts_parameters) / exact(ep * etp)]
    }
}

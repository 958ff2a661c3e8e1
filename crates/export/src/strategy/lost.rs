//! What of a plan a strategy has no words for: each said with its place and its share.

use plan::{Parallelism, Precision, Recipe, Recompute, examples};

use super::{Again, Degrees, Strategy, has_experts, number};
use crate::job::Job;
use crate::layers::Layers;
use crate::roles::{AxisRole, split};

/// A plan and what it was read as.
pub(super) struct Lost<'a> {
    pub(super) job: &'a Job<'a>,
    /// For each stage its axes.
    pub(super) axes: &'a [Vec<AxisRole>],
    /// And its degrees.
    pub(super) degrees: &'a [Degrees],
    pub(super) common: &'a Degrees,
    pub(super) strategy: &'a Strategy,
    pub(super) layers: &'a Layers,
}

impl Lost<'_> {
    /// In words.
    pub(super) fn words(&self, recipe: &Recipe) -> Vec<String> {
        let mut words = Vec::new();
        let of_stage = |axes: &Vec<AxisRole>| of_axes(axes, self.strategy.zero);
        for (stages, said) in alike(self.axes.iter().map(of_stage).collect()) {
            let place = self.place(&stages);
            words.extend(said.into_iter().map(|it| format!("{place}{it}")));
        }
        words.extend(self.unequal());
        words.extend(self.cut());
        words.extend(self.batch(recipe));
        words.extend(self.recompute(&recipe.recompute));
        if !recipe.spelled.is_empty() {
            words.push(format!(
                "norms and cross-entropies of {} blocks are of split rows: the target brings rows together",
                recipe.spelled.len()
            ));
        }
        if recipe.precision == Precision::Bf16Stochastic {
            words.push(
                "parameters in bf16 alone are rounded by chance: the target rounds to the nearest".to_owned(),
            );
        }
        words
    }

    fn place(&self, stages: &[usize]) -> String {
        match stages {
            _ if self.axes.len() == 1 => String::new(),
            _ if stages.len() == self.axes.len() => "all stages: ".to_owned(),
            [one] => format!("stage {one}: "),
            several => {
                let follow = several.chunk_by(|a, b| a + 1 == *b);
                let run = |run: &[usize]| match run {
                    [first, .., last] => format!("{first} to {last}"),
                    _ => run[0].to_string(),
                };
                format!("stages {}: ", follow.map(run).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Stages that are split in another way than most.
    fn unequal(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (number, it) in self.degrees.iter().enumerate() {
            let shown = |it: &Degrees| {
                format!("tensor {}, context {}, experts {}", it.tensor, it.context, it.experts)
            };
            // A stage without experts has them in any number of parts.
            let alike = !has_experts(self.job.stages()[number]) || it.experts == self.common.experts;
            if !alike || (it.tensor, it.context) != (self.common.tensor, self.common.context) {
                words.push(format!(
                    "stage {number} is {}: the target has {} in all stages",
                    shown(it),
                    shown(self.common)
                ));
            }
        }
        let devices: Vec<u64> = self.job.stages().iter().map(|plan| plan.mesh.devices()).collect();
        if devices.iter().any(|&it| it != devices[0]) {
            let shown: Vec<String> = devices.iter().map(ToString::to_string).collect();
            words.push(format!(
                "stages are on {} devices: the target has {} for each",
                shown.join(", "),
                self.strategy.devices / self.strategy.pipeline
            ));
        }
        words
    }

    /// Layers that stages share.
    fn cut(&self) -> Option<String> {
        let cut: Vec<String> = self.layers.cut.iter().map(ToString::to_string).collect();
        let layers = match cut.len() {
            0 => return None,
            1 => "layer",
            _ => "layers",
        };
        Some(format!(
            "the model is cut inside of {layers} {}: the target cuts it between layers, each of these goes to the stage that \
             has most of it",
            cut.join(", ")
        ))
    }

    fn batch(&self, recipe: &Recipe) -> Option<String> {
        let Strategy { micro_batches, micro_batch, data, .. } = self.strategy;
        let before = recipe.micro_batches;
        (before != *micro_batches).then(|| {
            let at_once = self.job.stages().first().map_or(0, |plan| examples(&plan.graph));
            format!(
                "{before} micro-batches of {at_once} examples do not fall into {data} parts: the target has \
                 {micro_batches} of {} examples, {micro_batch} on each data parallel device",
                data * micro_batch
            )
        })
    }

    fn recompute(&self, blocks: &[Recompute]) -> Option<String> {
        let target = self.strategy.recompute;
        let is = |it: &Recompute| match it {
            Recompute::Nothing => target == Again::Nothing,
            Recompute::Selective => target == Again::Selective,
            Recompute::Full => target == Again::Full,
            Recompute::AllBut(_) => false,
        };
        let others = blocks.iter().filter(|it| !is(it)).count();
        (others > 0).then(|| {
            format!(
                "{others} of {} blocks compute something else again than the most: the target has `{}` for all",
                blocks.len(),
                target.name()
            )
        })
    }
}

/// Of a stage: parameters of which an axis is for something else than for most, and axes whose devices lie
/// apart.
pub(crate) fn of_axes(axes: &[AxisRole], level: u8) -> Vec<String> {
    let mut words = Vec::new();
    for it in axes {
        let AxisRole { along, name, role, .. } = it;
        let other = [
            (Parallelism::Data, along.data, "used whole for split examples"),
            (Parallelism::Context, along.context, "used whole for split sequences"),
            (Parallelism::Tensor, split(along), "used split"),
        ];
        for (_, bytes, how) in other.into_iter().filter(|other| other.0 != *role) {
            if let Some(share) = share(bytes, along.total) {
                words.push(format!(
                    "{share} of the parameters, over {name}, are {how}: the target has them {} parallel as all \
                     others",
                    role.name()
                ));
            }
        }
        if along.rotated + along.square > 0 {
            words.push(format!("over {name}, products rotate blocks of parameters in time steps: the target sums or gathers them"));
        }
        if *role == Parallelism::Tensor && along.sequence.is_some_and(|it| !it.is_empty()) {
            words.push(format!(
                "over {name}, examples are split between products, the target splits sequences"
            ));
        }
        if along.data + along.context + split(along) + along.experts == 0 {
            words.push(format!(
                "over {name}, the same is computed on all devices: the target is {} parallel there",
                role.name()
            ));
        }
        words.extend(zero(it, level));
    }
    let order: Vec<Parallelism> = axes.iter().map(|it| it.role).collect();
    if !order.is_sorted() {
        let names: Vec<String> =
            axes.iter().map(|it| format!("{} parallel over {}", it.role.name(), it.name)).collect();
        words.push(format!(
            "axes are, from the one whose devices lie farthest apart, {}: the target has tensor parallel devices \
             next to each other, then those of context, then of data",
            names.join(", ")
        ));
    }
    words
}

/// Parameters with another stage of ZeRO than the strategy.
fn zero(it: &AxisRole, strategy: u8) -> Option<String> {
    let whole = it.along.data + it.along.context;
    if it.role == Parallelism::Tensor || whole == 0 {
        return None;
    }
    let [first, second, third] = it.along.stages;
    let none = whole.saturating_sub(first + second + third);
    let levels = [none, first, second, third];
    let kind = |level: usize| if level == 0 { "not sharded".to_owned() } else { format!("ZeRO-{level}") };
    let others = (0..levels.len()).filter(|&level| number(level) != u64::from(strategy));
    let shares = others.filter_map(|level| Some((share(levels[level], whole)?, kind(level))));
    let parameters = format!(" of the {}-parallel parameters", it.role.name());
    let said = shares.enumerate().map(|(place, (share, kind))| {
        format!("{share}{} are {kind}", if place == 0 { parameters.as_str() } else { "" })
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() {
        return None;
    }
    let target = kind(usize::from(strategy));
    Some(format!("over {}, {}: the target has {target} for all", it.name, said.join(" and ")))
}

/// How much of a whole something is, if it is something.
pub(crate) fn share(bytes: u64, total: u64) -> Option<String> {
    let (bytes, total) = (u128::from(bytes), u128::from(total.max(1)));
    match (bytes * 100 + total / 2) / total {
        _ if bytes == 0 => None,
        0 => Some("less than 1 %".to_owned()),
        percent => Some(format!("{percent} %")),
    }
}

/// Stages of which the same is said, in the order of the first.
fn alike(all: Vec<Vec<String>>) -> Vec<(Vec<usize>, Vec<String>)> {
    let mut groups: Vec<(Vec<usize>, Vec<String>)> = Vec::new();
    for (stage, said) in all.into_iter().enumerate().filter(|(_, said)| !said.is_empty()) {
        match groups.iter_mut().find(|(_, known)| *known == said) {
            Some((stages, _)) => stages.push(stage),
            None => groups.push((vec![stage], said)),
        }
    }
    groups
}

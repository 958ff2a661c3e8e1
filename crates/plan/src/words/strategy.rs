//! What a plan does, in the words of those who split models by hand; read off layouts and
//! partitions alone, of training and of inference alike.
//!
//! For each axis it is asked how the forward operations use parameters (in inference, weights):
//! - they use them split: tensor parallel, by columns or rows of products; vocabulary parallel if
//!   those are the rows of a table that is looked up in, expert parallel if they are experts.
//! - they use them whole, and split the batch: data parallel; the sequence: context parallel.
//!   Where products use parameters split and norms and sums split the sequence between them, they
//!   are sequence parallel.
//! - they rotate them: rotated tensor parallel (RTP); they move two things over two axes: 2-D tensor
//!   parallel.
//!
//! And where they are used whole along an axis, what is split along it at rest:
//! - ZeRO-1: what the optimizer keeps.
//! - ZeRO-2: gradients too.
//! - ZeRO-3 (FSDP): parameters too; operations use them gathered.
//!
//! Parameters that differ are counted by their bytes.
//!
//! Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
//! Models", 2020, section 5; Shoeybi et al., "Megatron-LM", 2019, section 3; Korthikanti et al.,
//! "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.2.2.

mod uses; // how operations use parameters

#[cfg(test)]
mod tests;

use planner_ir::AxisId;

use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::recipe::Recompute;
pub use uses::{Parameter, Split, Use, parameters};

/// What a plan does, a phrase for each thing, such as `data parallel over a`.
///
/// # Panics
/// If the plan is not a right one.
pub fn strategy(plan: &Plan) -> Vec<String> {
    of_blocks(plan, plan.recipe.as_ref().map_or(&[], |recipe| &recipe.recompute))
}

/// The same of a stage of a pipeline: its recipe says of the blocks of all stages what they compute again.
pub fn strategy_of_stage(pipeline: &Pipeline, number: usize) -> Vec<String> {
    let of = |number: usize| pipeline.stages.get(number).map(|stage| stage.first_block);
    let all = &pipeline.recipe.recompute;
    let end = of(number + 1).unwrap_or(all.len()).min(all.len());
    let start = of(number).unwrap_or(end).min(end);
    of_blocks(&pipeline.stages[number].plan, &all[start..end])
}

/// The same of a plan whose blocks compute this again.
fn of_blocks(plan: &Plan, blocks: &[Recompute]) -> Vec<String> {
    let parameters = parameters(plan);
    let mut phrases: Vec<Phrase> = Vec::new();
    for axis in plan.mesh.axis_ids().filter(|&axis| plan.mesh.size(axis) > 1) {
        let along = Along::of(plan, &parameters, axis);
        for (before, after) in along.phrases() {
            match phrases.iter_mut().find(|it| (&it.before, &it.after) == (&before, &after)) {
                Some(known) => known.axes.push(axis),
                None => phrases.push(Phrase { before, axes: vec![axis], after }),
            }
        }
    }
    let mut words: Vec<String> = phrases.iter().map(|phrase| phrase.text(plan)).collect();
    words.extend(accumulation(plan));
    words.extend(recomputation(blocks));
    words.extend(spelling(plan));
    words
}

/// Words about axes of which the same is to be said.
struct Phrase {
    before: String,
    axes: Vec<AxisId>,
    after: String,
}

impl Phrase {
    fn text(&self, plan: &Plan) -> String {
        let names: Vec<&str> = self.axes.iter().map(|axis| plan.mesh.axes[axis.0].name.as_str()).collect();
        format!("{} over {}{}", self.before, names.join(", "), self.after)
    }
}

fn accumulation(plan: &Plan) -> Option<String> {
    let count = plan.graph.training.as_ref()?.micro_batches;
    (count > 1).then(|| format!("{count} micro-batches"))
}

fn recomputation(blocks: &[Recompute]) -> Vec<String> {
    let some = again(blocks).into_iter();
    some.map(|(name, count)| format!("{name} recompute in {count} of {} blocks", blocks.len())).collect()
}

/// Of how many blocks something is computed again, by what that is called.
fn again(blocks: &[Recompute]) -> Vec<(&'static str, usize)> {
    let kind = |it: &Recompute| match it {
        Recompute::Nothing => None,
        Recompute::Selective => Some("selective"),
        Recompute::Full => Some("full"),
        Recompute::AllBut(_) => Some("partial"),
    };
    let count = |name: &str| blocks.iter().filter(|&it| kind(it) == Some(name)).count();
    let kinds = ["selective", "partial", "full"];
    kinds.into_iter().map(|name| (name, count(name))).filter(|it| it.1 > 0).collect()
}

/// What is computed again of these blocks, in words: `none`, `full` of all of them, `selective in 3 and full in 5 of 34
/// blocks`.
pub fn recomputed(blocks: &[Recompute]) -> String {
    match again(blocks)[..] {
        [] => "none".to_owned(),
        [(name, count)] if count == blocks.len() => name.to_owned(),
        ref some => {
            let some: Vec<String> = some.iter().map(|(name, count)| format!("{name} in {count}")).collect();
            format!("{} of {} blocks", some.join(" and "), blocks.len())
        }
    }
}

fn spelling(plan: &Plan) -> Option<String> {
    let recipe = plan.recipe.as_ref().filter(|it| !it.spelled.is_empty())?;
    Some(format!("norms spelled out in {} of {} blocks", recipe.spelled.len(), recipe.recompute.len()))
}

/// How parameters are used and kept along an axis: of how many bytes it is so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Along {
    /// What parameters are called.
    name: &'static str,
    /// All of them (bytes).
    pub total: u64,
    /// Used whole, the batch split (bytes).
    pub data: u64,
    /// Used whole, the sequence split (bytes).
    pub context: u64,
    /// Split at rest, and rotated where products use them (bytes).
    pub rotated: u64,
    /// Split over two axes, with one of which products move blocks (bytes).
    pub square: u64,
    /// Split as products use them (bytes).
    pub tensor: u64,
    /// By columns and so on, in order of the program.
    pub tensor_splits: Vec<Split>,
    /// The rows of a table split (bytes).
    pub vocabulary: u64,
    /// Split between experts (bytes).
    pub experts: u64,
    /// Whether something is split between products that use parameters split: nothing to add if that
    /// is the sequence, else what it is instead.
    pub sequence: Option<&'static str>,
    /// Split at rest and used whole: what the optimizer keeps of them, also gradients, also they
    /// themselves (bytes).
    pub stages: [u64; 3],
}

impl Along {
    /// Of an axis, and parameters of the plan.
    ///
    /// # Panics
    /// If the plan is not a right one.
    pub fn of(plan: &Plan, parameters: &[Parameter], axis: AxisId) -> Self {
        let name = if plan.graph.training.is_some() { "parameters" } else { "weights" };
        let mut along = Self { name, ..Self::default() };
        let used: Vec<Vec<Use>> = parameters.iter().map(|it| it.uses(plan, axis)).collect();
        let is_split = |uses: &[Use]| uses.iter().any(|it| matches!(it, Use::Split(_)));
        let tensor = used.iter().any(|uses| is_split(uses));
        for (parameter, uses) in parameters.iter().zip(&used) {
            along.total += parameter.bytes;
            if uses.contains(&Use::Square) {
                along.square += parameter.bytes;
                continue;
            }
            if uses.contains(&Use::Rotated) {
                along.rotated += parameter.bytes;
                continue;
            }
            if is_split(uses) {
                along.add_split(parameter.bytes, uses);
                continue;
            }
            if let Some(stage) = parameter.stage(plan, axis) {
                along.stages[stage] += parameter.bytes;
            }
            if tensor && !parameter.in_product {
                let between = |it: &Use| match it {
                    Use::Sequence => Some(""),
                    Use::Batch => Some(" (along the batch)"),
                    Use::Split(_) | Use::Heads(_) | Use::Rotated | Use::Square | Use::Whole => None,
                };
                along.sequence = along.sequence.or_else(|| uses.iter().find_map(between));
            } else if uses.contains(&Use::Batch) {
                along.data += parameter.bytes;
            } else if uses.contains(&Use::Sequence) {
                along.context += parameter.bytes;
            }
        }
        along
    }

    fn add_split(&mut self, bytes: u64, uses: &[Use]) {
        let splits = || {
            uses.iter().filter_map(|it| match it {
                Use::Split(split) => Some(*split),
                _ => None,
            })
        };
        if splits().any(|it| it == Split::Vocabulary) {
            self.vocabulary += bytes;
        } else if splits().any(|it| it == Split::Experts) {
            self.experts += bytes;
        } else {
            self.tensor += bytes;
            for split in splits().filter(|&it| it != Split::Elements) {
                if !self.tensor_splits.contains(&split) {
                    self.tensor_splits.push(split);
                }
            }
        }
    }

    /// What is said before the axis and after it.
    fn phrases(&self) -> Vec<(String, String)> {
        let mut phrases = Vec::new();
        let mut say = |what: &str, bytes: u64, how: &str| {
            if bytes > 0 {
                phrases.push((what.to_owned(), format!("{how}{}", self.share(bytes))));
            }
        };
        say("data parallel", self.data, "");
        say("context parallel", self.context, "");
        let splits: Vec<&str> = self.tensor_splits.iter().map(|split| split.name()).collect();
        let splits = if splits.is_empty() { String::new() } else { format!(": {}", splits.join(" then ")) };
        say("tensor parallel", self.tensor, &splits);
        say("RTP", self.rotated, "");
        say("2-D tensor parallel", self.square, "");
        say("vocabulary parallel", self.vocabulary, "");
        say("expert parallel", self.experts, "");
        if let Some(how) = self.sequence {
            phrases.push(("sequence parallel".to_owned(), how.to_owned()));
        }
        phrases.extend(self.zero());
        if phrases.is_empty() {
            phrases.push(("replicated".to_owned(), String::new()));
        }
        phrases
    }

    /// Which stages of ZeRO there are, in one phrase.
    fn zero(&self) -> Option<(String, String)> {
        const STAGES: [&str; 3] = ["ZeRO-1", "ZeRO-2", "ZeRO-3 (FSDP)"];
        let mut some = STAGES.into_iter().zip(self.stages).filter(|it| it.1 > 0);
        let (first, bytes) = some.next()?;
        let mut after = self.share(bytes);
        for (stage, bytes) in some {
            after += &format!(", {stage} of {}", self.percent(bytes));
        }
        Some((first.to_owned(), after))
    }

    /// Of how many of the parameters something holds, if not of (almost) all.
    fn share(&self, bytes: u64) -> String {
        let almost_all = u128::from(bytes) * 1_000 >= u128::from(self.total) * 995;
        if almost_all { String::new() } else { format!(" ({} of the {})", self.percent(bytes), self.name) }
    }

    fn percent(&self, bytes: u64) -> String {
        let total = u128::from(self.total);
        match (u128::from(bytes) * 100 + total / 2) / total.max(1) {
            0 => "less than 1 %".to_owned(),
            percent => format!("{percent} %"),
        }
    }
}

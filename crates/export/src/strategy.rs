//! How a model is split, in the words of those who split models by hand: the same in all stages.

pub(crate) mod lost; // what of a plan a strategy has no words for

use plan::{Masters, Parallelism, Plan, Precision, Recompute, Scaling, examples};
use planner_ir::{DType, Op, Optimizer};
use schedule::Kind;
use serde_json::{Value, json};

use crate::error::ExportError;
use crate::job::Job;
use crate::layers::Layers;
use crate::model::Model;
use crate::roles::{AxisRole, roles};
use lost::Lost;

/// How a model is trained on all devices. Degrees are numbers of devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    /// All devices.
    pub devices: u64,
    /// Tensor parallelism.
    pub tensor: u64,
    /// Whether sequences are split between products that use parameters split.
    pub sequence: bool,
    /// Data parallelism, whatever is sharded over it.
    pub data: u64,
    /// Over how many of these states are sharded.
    pub sharded: u64,
    /// The stage of ZeRO: 0 for none, 3 for FSDP.
    pub zero: u8,
    /// Context parallelism.
    pub context: u64,
    /// Expert parallelism, over devices of the other kinds.
    pub experts: u64,
    /// Whether devices that share experts are known to be on several nodes.
    pub across: bool,
    /// Pipeline parallelism: groups of devices.
    pub pipeline: u64,
    /// Stages of each group.
    pub chunks: u64,
    /// For each stage, how many layers it has.
    pub layers: Vec<u64>,
    /// How many of the last layers predict tokens after the next (multi-token prediction).
    pub further: u64,
    /// What layers are called, before their number.
    pub prefix: String,
    /// The order of work of several groups, if it has a name.
    pub schedule: Option<Kind>,
    /// Micro-batches of a step.
    pub micro_batches: u64,
    /// Examples of a micro-batch on a data parallel device.
    pub micro_batch: u64,
    /// Recomputation.
    pub recompute: Again,
    /// In what the model computes.
    pub element: DType,
    /// How numbers of 8 bits are scaled, where products of linear layers are of such.
    pub scaling: Option<Scaling>,
    /// Where parameters are in f32, if the model computes with less; nothing if they are nowhere.
    pub masters: Option<Masters>,
    /// How parameters follow their gradients.
    pub optimizer: Optimizer,
    /// The largest norm of all gradients.
    pub clip: Option<f64>,
}

/// Recomputation for the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Nothing.
    Nothing,
    /// What takes much memory and little time.
    Selective,
    /// All but the inputs of layers.
    Full,
}

impl Again {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Selective => "selective",
            Self::Full => "full",
        }
    }
}

/// What a job does, and in words what of it a strategy cannot say.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// What it does.
    pub strategy: Strategy,
    /// What of it is lost.
    pub lost: Vec<String>,
}

/// The degrees of one stage.
#[derive(Clone, Debug, PartialEq)]
struct Degrees {
    tensor: u64,
    sequence: bool,
    context: u64,
    experts: u64,
    zero: u8,
    sharded: u64,
}

impl Degrees {
    fn of(axes: &[AxisRole]) -> Self {
        let product =
            |is: &dyn Fn(&AxisRole) -> bool| axes.iter().filter(|it| is(it)).map(|it| it.size).product();
        let zero =
            axes.iter().filter(|it| it.role != Parallelism::Tensor).map(|it| it.zero).max().unwrap_or(0);
        Self {
            tensor: product(&|it| it.role == Parallelism::Tensor),
            sequence: axes.iter().any(|it| it.role == Parallelism::Tensor && it.along.sequence.is_some()),
            context: product(&|it| it.role == Parallelism::Context),
            experts: product(&|it| it.experts),
            zero,
            sharded: product(&|it| it.role == Parallelism::Data && it.zero == zero && zero > 0),
        }
    }
}

/// What a job of training does.
pub fn read(job: &Job<'_>, model: &Model, target: &'static str) -> Result<Read, ExportError> {
    let recipe = job.recipe().ok_or(ExportError::Inference(target))?;
    let layers = Layers::of(job)?;
    let stages = job.stages();
    let axes: Vec<Vec<AxisRole>> = stages.iter().map(|plan| roles(plan)).collect();
    let degrees: Vec<Degrees> = axes.iter().map(|it| Degrees::of(it)).collect();
    // Stages without experts do not say over how many devices these lie.
    let of_experts: Vec<Degrees> =
        degrees.iter().zip(&stages).filter(|it| has_experts(it.1)).map(|it| it.0.clone()).collect();
    let common = most(if of_experts.is_empty() { &degrees } else { &of_experts });
    let (devices, groups) = (job.devices(), number(job.groups()));
    let each = common.tensor * common.context;
    if !devices.is_multiple_of(groups * each) {
        return Err(ExportError::Devices(devices, groups, each));
    }
    let data = devices / (groups * each);
    let [micro_batches, micro_batch] = batches(job, recipe.micro_batches, data)?;
    let sharded = if data.is_multiple_of(common.sharded) { common.sharded } else { data };
    let strategy = Strategy {
        devices,
        tensor: common.tensor,
        sequence: common.sequence,
        data,
        // Where the batch is not split states may be.
        sharded: if common.zero > 0 && sharded == 1 { data } else { sharded },
        zero: if data > 1 || common.context > 1 { common.zero } else { 0 },
        context: common.context,
        experts: common.experts,
        across: job.device().is_some_and(|device| common.experts > device.of_node),
        pipeline: groups,
        chunks: number(job.chunks()),
        layers: layers.of_stages.clone(),
        further: layers.further,
        prefix: layers.prefix.clone(),
        schedule: job.schedule().and_then(schedule::Schedule::kind),
        micro_batches,
        micro_batch,
        recompute: again(&recipe.recompute),
        element: element(recipe.precision, model),
        scaling: recipe.precision.scaling(),
        masters: (recipe.precision != Precision::Bf16Stochastic).then_some(recipe.masters),
        optimizer: recipe.optimizer,
        clip: recipe.clip,
    };
    let lost =
        Lost { job, axes: &axes, degrees: &degrees, common: &common, strategy: &strategy, layers: &layers };
    Ok(Read { lost: lost.words(recipe), strategy })
}

/// What the most stages have, the first of equals.
fn most(degrees: &[Degrees]) -> Degrees {
    let count = |it: &Degrees| degrees.iter().filter(|other| *other == it).count();
    let found = degrees.iter().rev().max_by_key(|it| count(it)).cloned();
    found.unwrap_or_else(|| Degrees::of(&[]))
}

/// Whether a stage has experts.
fn has_experts(stage: &Plan) -> bool {
    stage.graph.nodes.iter().any(|node| matches!(node.op, Op::Experts { .. }))
}

/// Micro-batches of a step, and examples of each on one of so many data parallel devices.
fn batches(job: &Job<'_>, micro_batches: u64, data: u64) -> Result<[u64; 2], ExportError> {
    let first = job.stages().into_iter().next().map(|plan| examples(&plan.graph));
    let at_once = first.filter(|&it| it < u64::MAX).ok_or(ExportError::NoExamples)?;
    if at_once.is_multiple_of(data) {
        return Ok([micro_batches, at_once / data]);
    }
    let all = at_once * micro_batches;
    if all.is_multiple_of(data) { Ok([all / data, 1]) } else { Err(ExportError::Examples(all, data)) }
}

/// What of most blocks is recomputed.
fn again(recompute: &[Recompute]) -> Again {
    let kind = |it: &Recompute| match it {
        Recompute::Nothing => Again::Nothing,
        Recompute::Selective | Recompute::AllBut(_) => Again::Selective,
        Recompute::Full => Again::Full,
    };
    let count = |wanted: Again| recompute.iter().filter(|it| kind(it) == wanted).count();
    // Of equals the last is the greatest: the one that computes the most again.
    let all = [Again::Nothing, Again::Selective, Again::Full];
    all.into_iter().max_by_key(|&it| count(it)).unwrap_or(Again::Nothing)
}

fn element(precision: Precision, model: &Model) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::Bf16
        | Precision::Bf16Stochastic
        | Precision::Fp8
        | Precision::Fp8Delayed
        | Precision::Mxfp8
        | Precision::Nvfp4 => DType::BF16,
        Precision::File => model.element.unwrap_or(DType::F32),
    }
}

impl Strategy {
    /// Examples of a step.
    pub fn examples(&self) -> u64 {
        self.data * self.micro_batch * self.micro_batches
    }

    /// Whether traffic of tensor parallelism goes on beside computing where the target can have it so.
    ///
    /// Sources: Megatron-LM, `megatron/training/arguments.py`, `validate_args`: only with sequences that are split;
    /// Megatron-Bridge's recipes in NVFP4, which do without it.
    pub fn overlaps_tensor(&self) -> bool {
        self.tensor > 1 && self.sequence && self.scaling != Some(Scaling::Nvfp4)
    }

    /// All layers but those that predict tokens after the next.
    pub fn layer_count(&self) -> u64 {
        self.layers.iter().sum::<u64>() - self.further
    }

    /// The layers of each stage, and how many of them predict tokens after the next: the last ones.
    pub(crate) fn layers_and_further(&self) -> Vec<[u64; 2]> {
        let mut left = self.layer_count();
        let of = |&all: &u64| {
            let layers = all.min(left);
            left -= layers;
            [layers, all - layers]
        };
        self.layers.iter().map(of).collect()
    }

    /// The same for a target that has no layers which predict tokens after the next.
    pub(crate) fn without_further(self, title: &str, lost: &mut Vec<String>) -> Self {
        if self.further == 0 {
            return self;
        }
        lost.push(format!(
            "{} of the layers predict tokens after the next: {title} does not train them, and times are as if it did",
            self.further
        ));
        let layers = self.layers_and_further().into_iter().map(|it| it[0]).collect();
        Self { layers, further: 0, ..self }
    }

    /// In a line: `data 32 (ZeRO-1), pipeline 2 of 4 stages each, 2 micro-batches of 1 example, recompute none`.
    pub fn in_words(&self) -> String {
        let mut words = vec![format!("data {}", self.data)];
        if self.zero > 0 {
            let over =
                if self.sharded == self.data { String::new() } else { format!(" over {}", self.sharded) };
            words[0] += &format!(" (ZeRO-{}{over})", self.zero);
        }
        let mut say = |what: &str, degree: u64, how: &str| {
            if degree > 1 {
                words.push(format!("{what} {degree}{how}"));
            }
        };
        say("tensor", self.tensor, if self.sequence { " with sequences" } else { "" });
        say("context", self.context, "");
        say("experts", self.experts, "");
        let chunks = if self.chunks > 1 { format!(" of {} stages each", self.chunks) } else { String::new() };
        say("pipeline", self.pipeline, &chunks);
        let counted = |count: u64, one: &str, several: &str| {
            if count == 1 { format!("1 {one}") } else { format!("{count} {several}") }
        };
        words.push(format!(
            "{} of {}",
            counted(self.micro_batches, "micro-batch", "micro-batches"),
            counted(self.micro_batch, "example", "examples")
        ));
        words.push(format!("recompute {}", self.recompute.name()));
        words.join(", ")
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "devices": self.devices,
            "tensor": self.tensor,
            "sequence": self.sequence,
            "data": self.data,
            "sharded": self.sharded,
            "zero": self.zero,
            "context": self.context,
            "experts": self.experts,
            "pipeline": self.pipeline,
            "chunks": self.chunks,
            "layers": self.layers,
            "further": self.further,
            "schedule": self.schedule.map(Kind::name),
            "micro_batches": self.micro_batches,
            "micro_batch": self.micro_batch,
            "recompute": self.recompute.name(),
            "element": self.element.to_string(),
            "products": self.scaling.map(|it| it.precision().to_string()),
            "masters": self.masters.map(|it| it.to_string()),
        })
    }
}

/// A count, which is small.
pub(crate) fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

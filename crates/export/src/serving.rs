//! How a plan of inference is served: degrees of parallelism, the same for all operations, and the sizes that a
//! server is told.

use plan::{ExpertsBy, Parallelism, Parameter, Plan, Served, Use, examples, parameters};
use planner_ir::{DType, OpClass, Source, ValueId};
use serde_json::{Value, json};

use crate::error::ExportError;
use crate::job::{Device, Job};
use crate::layers::{layer, names};
use crate::model::Model;
use crate::roles::{AxisRole, roles_of, split};
use crate::strategy::lost::{of_axes, share};

/// How a model is served on all devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// How many devices do what.
    pub served: Served,
    /// Sequences at once, on all devices together.
    pub sequences: u64,
    /// Tokens of a prompt that are taken at once.
    pub prompt: u64,
    /// Tokens of a sequence, prompt and all.
    pub context: u64,
    /// In what the model computes.
    pub element: DType,
    /// What a device holds.
    pub room: Room,
    /// What is known of the devices.
    pub device: Option<Device>,
}

/// What a device holds (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Weights.
    pub weights: u64,
    /// The cache of all its sequences, each as long as it may become.
    pub cache: u64,
    /// What a step makes besides, at its fullest moment.
    pub step: u64,
    /// What it may hold.
    pub capacity: u64,
}

/// What a job of inference does, and in words what of it a server of this name does not.
pub(crate) fn read(
    job: &Job<'_>,
    model: &Model,
    target: &'static str,
) -> Result<(Serving, Vec<String>), ExportError> {
    let (Some(plan), None) = (job.stages().first().copied(), job.recipe()) else {
        return Err(ExportError::Training(target));
    };
    let (served, mut lost) = shared(plan);
    if let Some(prompts) = job.generation().and_then(|it| it.prefill.as_ref()) {
        let (other, said) = shared(prompts);
        if other != served {
            lost.push(format!(
                "prompts are computed with {}, single tokens with {}: the target computes prompts as tokens",
                other.in_words(),
                served.in_words()
            ));
        }
        let of_prompts: Vec<String> = said.into_iter().filter(|it| !lost.contains(it)).collect();
        lost.extend(of_prompts.into_iter().map(|it| format!("of prompts: {it}")));
    }
    let (sequences, prompt, context) = match job.generation() {
        Some(generation) => (generation.batch(), generation.width(), generation.cache.capacity),
        None => {
            let tokens = model.sequence.ok_or(ExportError::NoTokens)?;
            (examples(&plan.graph), tokens, tokens)
        }
    };
    let places = served.replicas * served.data;
    if !sequences.is_multiple_of(places) {
        return Err(ExportError::Examples(sequences, places));
    }
    let room = room(job, plan);
    let element = model.element.unwrap_or(DType::F32);
    let device = job.device();
    if let Some(device) = device
        && room.capacity > device.memory
    {
        return Err(ExportError::Memory(room.capacity, device.memory));
    }
    Ok((Serving { served, sequences, prompt, context, element, room, device }, lost))
}

/// What a device holds. A step finds a cache and leaves one, unless it writes where it finds it; a server has one.
fn room(job: &Job<'_>, plan: &Plan) -> Room {
    let of = |plan: &Plan, kinds: &[&str]| -> u64 {
        plan.memory.iter().filter(|it| kinds.contains(&it.kind.as_str())).map(|it| it.bytes).sum()
    };
    let held = cache(job, plan, &|_| true);
    let made = |plan: &Plan| {
        let is_made = |value: ValueId| match plan.graph.value(value).source {
            Source::Result { node, .. } => plan.graph.written(node).is_none(),
            _ => true,
        };
        let made = of(plan, &["activations", "communication", "packing"]);
        made.saturating_sub(cache(job, plan, &is_made))
    };
    let prompts = job.generation().and_then(|it| it.prefill.as_ref());
    let step = prompts.map_or(0, made).max(made(plan));
    Room {
        weights: of(plan, &["weights"]),
        cache: held,
        step,
        capacity: job.generation().map_or(plan.capacity, |it| it.capacity),
    }
}

/// What a device holds of those parts of a cache that a step leaves (bytes).
fn cache(job: &Job<'_>, plan: &Plan, counts: &dyn Fn(ValueId) -> bool) -> u64 {
    let Some(generation) = job.generation() else { return 0 };
    let is_part = |name: &str| generation.cache.kept.iter().any(|it| it.present == name);
    let outputs =
        plan.graph.outputs.iter().zip(&plan.outputs).filter(|(it, _)| is_part(&it.name) && counts(it.value));
    let bytes = outputs
        .map(|(output, copy)| plan.layout(output.value, *copy).local_bytes(plan.graph.type_of(output.value)));
    bytes.sum()
}

/// The degrees of a plan, and in words what of it has others.
fn shared(plan: &Plan) -> (Served, Vec<String>) {
    let is_expert = |it: &Parameter| {
        let is = |node| matches!(plan.graph.node(node).op.class(), OpClass::Experts(_));
        it.used_by.iter().any(|it| is(it.0))
    };
    // What products use, and scales of norms: tables of positions are split with heads, as sequences would be.
    let counts = |it: &Parameter| it.in_product || plan.graph.type_of(it.value).rank() == 1;
    let (experts, others): (Vec<Parameter>, Vec<Parameter>) =
        parameters(plan).into_iter().filter(counts).partition(is_expert);
    let mut lost = Vec::new();
    let mut axes = roles_of(plan, &others);
    let of_experts = roles_of(plan, &experts);
    for it in &mut axes {
        if let Some(how) = it.along.sequence.take() {
            let how = if how.is_empty() { "sequences are split" } else { "sequences are shared out" };
            lost.push(format!("over {}, {how} between products: the target has all on each device", it.name));
        }
        if it.role == Parallelism::Context {
            lost.push(format!("over {}, sequences are split: the target is tensor parallel there", it.name));
            it.role = Parallelism::Tensor;
        }
    }
    lost.extend(of_axes(&axes, 0));
    lost.extend(axes.iter().filter_map(|it| whole(plan, it, &others)));
    let (inside, replicas): (Vec<_>, Vec<_>) = axes.iter().zip(&of_experts).partition(|(it, of_experts)| {
        it.role == Parallelism::Tensor || experts.is_empty() || is_shared(of_experts)
    });
    let product =
        |role: Parallelism| inside.iter().filter(|it| it.0.role == role).map(|it| it.0.size).product::<u64>();
    let by = by(&inside);
    for (axis, of_experts) in &inside {
        lost.extend(by.and_then(|by| otherwise(axis, of_experts, by)));
    }
    let served = Served {
        replicas: replicas.iter().map(|it| it.0.size).product(),
        data: product(Parallelism::Data),
        tensor: product(Parallelism::Tensor),
        experts: by.filter(|_| !experts.is_empty() && !inside.is_empty()),
    };
    (served, lost)
}

/// Products of layers of which all devices along a tensor parallel axis compute the same.
fn whole(plan: &Plan, it: &AxisRole, weights: &[Parameter]) -> Option<String> {
    let axis = plan.mesh.axis_ids().find(|axis| plan.mesh.axes[axis.0].name == it.name)?;
    let is = |weight: &&Parameter| {
        let of_layer = || names(plan, weight.value).into_iter().any(|name| layer(name).is_some());
        weight.in_product && weight.uses(plan, axis).iter().all(|it| *it == Use::Whole) && of_layer()
    };
    let bytes = weights.iter().filter(is).map(|it| it.bytes).sum();
    let share = share(bytes, it.along.total).filter(|_| it.role == Parallelism::Tensor)?;
    Some(format!(
        "{share} of the weights, over {}, are used whole by all devices alike: the target splits them",
        it.name
    ))
}

/// Whether experts, or their hidden units, are shared over an axis.
fn is_shared(of_experts: &AxisRole) -> bool {
    of_experts.along.experts + split(&of_experts.along) > 0
}

/// How most bytes of experts are shared.
fn by(inside: &[(&AxisRole, &AxisRole)]) -> Option<ExpertsBy> {
    let sum = |of: &dyn Fn(&AxisRole) -> u64| inside.iter().map(|it| of(it.1)).sum::<u64>();
    let whole = sum(&|it| it.along.experts);
    let units = sum(&|it| split(&it.along));
    match whole + units {
        0 => Some(ExpertsBy::Units).filter(|_| !inside.is_empty()),
        _ if whole >= units => Some(ExpertsBy::Experts),
        _ => Some(ExpertsBy::Units),
    }
}

/// Experts that are shared otherwise than most over an axis.
fn otherwise(axis: &AxisRole, of_experts: &AxisRole, by: ExpertsBy) -> Option<String> {
    let along = &of_experts.along;
    let so = match by {
        ExpertsBy::Experts => along.experts,
        ExpertsBy::Units => split(along),
    };
    let share = share(along.total.saturating_sub(so), along.total)?;
    Some(format!(
        "{share} of the experts, over {}, are not shared as most: the target has {} there",
        axis.name,
        by.in_words()
    ))
}

impl Serving {
    /// Devices of a server.
    pub fn of_server(&self) -> u64 {
        self.served.data * self.served.tensor
    }

    /// The same with its data parallel groups as servers of their own.
    pub(crate) fn groups_apart(self) -> Self {
        let Served { replicas, data, .. } = self.served;
        Self { served: Served { replicas: replicas * data, data: 1, ..self.served }, ..self }
    }

    /// The same with the devices of a server as one group, or as many as heads fall into; others are further servers.
    pub(crate) fn without_groups(self, model: &Model) -> Self {
        let Served { replicas, data, tensor, .. } = self.served;
        let all = data * tensor;
        let falls = |it: &u64| {
            all.is_multiple_of(*it)
                && model.heads.is_none_or(|[heads, ..]| heads.is_multiple_of(*it))
                && self.sequences.is_multiple_of(replicas * (all / it))
        };
        let tensor = (1..=all).rev().find(falls).unwrap_or(1);
        let experts = self.served.experts.filter(|_| tensor > 1);
        Self { served: Served { replicas: replicas * (all / tensor), data: 1, tensor, experts }, ..self }
    }

    /// Nodes of a server.
    pub(crate) fn nodes(&self) -> u64 {
        self.device.map_or(1, |it| self.of_server().div_ceil(it.of_node.max(1)))
    }

    /// Sequences of a data parallel group.
    pub(crate) fn of_group(&self) -> u64 {
        self.sequences / (self.served.replicas * self.served.data)
    }

    /// The name of the type in which the model computes.
    pub(crate) fn element(&self) -> &'static str {
        match self.element {
            DType::BF16 => "bfloat16",
            DType::F16 => "float16",
            _ => "float32",
        }
    }

    /// Of so many bytes what share these are, in thousandths, rounded down; servers take none of less than one.
    pub(crate) fn share(part: u64, whole: u64) -> String {
        let thousandths = (u128::from(part) * 1000 / u128::from(whole.max(1))).max(1);
        let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    /// In a line: `data 2, tensor 4, 16 sequences of 4096 tokens, prompts 64 tokens at a time`.
    pub fn in_words(&self) -> String {
        let Self { served, sequences, prompt, context, .. } = self;
        let sequences = counted(*sequences, "sequence");
        format!("{}, {sequences} of {context} tokens, prompts {prompt} tokens at a time", served.in_words())
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let Self { served, sequences, prompt, context, room, .. } = self;
        json!({
            "replicas": served.replicas,
            "data": served.data,
            "tensor": served.tensor,
            "experts": served.experts.map(ExpertsBy::in_words),
            "sequences": sequences,
            "prompt": prompt,
            "context": context,
            "element": self.element(),
            "weights_bytes": room.weights,
            "cache_bytes": room.cache,
            "step_bytes": room.step,
            "capacity_bytes": room.capacity,
        })
    }
}

/// A count of things that are called so.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

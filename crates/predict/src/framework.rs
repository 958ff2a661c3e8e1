//! What training frameworks add to the prices of a machine: figures from files, each with a source.
//!
//! A figure that a framework's own file lacks is that of `common.json`. Figures that were fitted
//! state the range in which they were sought.

pub use cost_models::frameworks::{COMMON, FILES, PROGRAMS};
use std::collections::BTreeMap;
use std::fmt;

use cost_models::units::exact;
use serde_json::Value;

/// What a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Time that a host takes to start what the forward pass of a layer is made of (seconds).
    LayerLaunch,
    /// The same for one collective operation of a layer (seconds).
    CollectiveLaunch,
    /// How many times that long the backward pass takes to start (1).
    BackwardLaunch,
    /// Time of a step outside layers: reading data, scaling, norms of gradients (seconds).
    StepOverhead,
    /// How often values `[tokens, hidden]` are read or written forward outside products (1).
    HiddenPasses,
    /// How often the columns of queries, keys and values are, besides (1).
    QkvPasses,
    /// How often values `[tokens, ffn_hidden]` are, besides (1).
    FfnPasses,
    /// How often scores `[heads, seq, seq]` are, where attention is not one kernel (1).
    ScorePasses,
    /// How many times as much is read and written backward (1).
    BackwardPasses,
    /// Bytes read and written for each operand's element that is narrowed to 8 bits or fewer (bytes).
    NarrowingBytes,
    /// Bytes read and written for each logit, forward and backward together (bytes).
    LogitBytes,
    /// Bytes of an element of a gradient as it is kept and reduced (bytes).
    GradientBytes,
    /// Bytes read and written for each parameter of an expert to add a micro-batch's gradient (bytes).
    AccumulationBytes,
    /// Bytes read and written for each parameter when it is updated (bytes).
    UpdateBytes,
    /// The part of computing that data-parallel traffic can hide behind, where it is overlapped (1).
    DataHidden,
    /// The part of tensor-parallel traffic that is hidden, where it is overlapped (1).
    TensorHidden,
    /// The part of backward tensor-parallel traffic that runs beside gradients of weights, where these are no part of
    /// their own (1).
    TensorBeside,
    /// Whether weights that were gathered are let go after each micro-batch where gradients are sharded: 1 if so, else 0.
    GathersAgain,
    /// How many times as long computing takes while traffic runs beside it (1).
    Contention,
    /// The rate of products in training, relative to the machine's prices (1).
    ProductRate,
    /// The rate of products in 4 bits, relative to those in 8 (1).
    FourBitRate,
    /// Time that a host takes to start what experts add to a layer forward (seconds).
    ExpertLaunch,
    /// Whether tokens of experts are sent once to each node, where nobody says: 1 if so, else 0.
    DispatchOnce,
    /// The rate of FlashAttention 2, relative to kernels with the device's own matrix instructions (1).
    FlashRate,
    /// How many tensors of a layer are gathered one after another where weights are sharded (1).
    GatheredTensors,
    /// Examples that are put together in one where adapters or answers are trained (1).
    PackedExamples,
    /// Whether pipelines are interleaved where nobody says: 1 if so, else 0.
    Interleaves,
    /// By how many times a step is longer a year before the version that was calibrated on (1).
    YearlyDrift,
    /// The year of that version (year).
    Year,
    /// The rate of attention in one kernel, relative to the machine's prices (1).
    AttentionRate,
    /// Whether the last product of a layer is recomputed too: 1 if so, else 0.
    LastAgain,
    /// Whether tensor-parallel ranks each send a part of what goes to the next stage: 1 if so, else 0.
    ScatteredMessages,
    /// The part of an interleaved pipeline's messages that is hidden between its ends (1).
    PipelineHidden,
    /// Bytes that each parameter takes beside its weight, gradient and optimizer states (bytes).
    ParameterBytes,
    /// Bytes of optimizer states, master weight included, of a parameter (bytes).
    OptimizerBytes,
    /// The part of held memory that an allocator adds by rounding and holes (1).
    Fragmentation,
    /// Bytes held for each logit at the peak (bytes).
    HeldLogitBytes,
    /// The part of held memory by which this model may err (1).
    MemoryMargin,
    /// Bytes held besides, by libraries and as workspace (bytes).
    Workspace,
}

/// A figure of a framework.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated {
    /// How much.
    pub value: f64,
    /// Where it was read or how it was fitted.
    pub source: String,
    /// The range in which it was sought, if it was fitted.
    pub range: Option<(f64, f64)>,
    /// The file that states it; where that is for one device only, with `@` and the device.
    pub owner: String,
}

/// A training framework at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Framework {
    /// Its name, as that of its file.
    pub name: String,
    /// Its figures, those of all frameworks included.
    pub figures: BTreeMap<Figure, Stated>,
    /// Figures that are others on some devices, by the beginning of their names.
    pub on: Vec<(String, BTreeMap<Figure, Stated>)>,
}

/// Why a text is not a framework file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameworkError {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub message: String,
}

impl Figure {
    /// Every figure.
    pub const ALL: [Self; 39] = [
        Self::LayerLaunch,
        Self::CollectiveLaunch,
        Self::BackwardLaunch,
        Self::StepOverhead,
        Self::HiddenPasses,
        Self::QkvPasses,
        Self::FfnPasses,
        Self::ScorePasses,
        Self::BackwardPasses,
        Self::NarrowingBytes,
        Self::LogitBytes,
        Self::GradientBytes,
        Self::AccumulationBytes,
        Self::UpdateBytes,
        Self::DataHidden,
        Self::TensorHidden,
        Self::TensorBeside,
        Self::GathersAgain,
        Self::Contention,
        Self::ProductRate,
        Self::FourBitRate,
        Self::ExpertLaunch,
        Self::DispatchOnce,
        Self::FlashRate,
        Self::GatheredTensors,
        Self::PackedExamples,
        Self::Interleaves,
        Self::YearlyDrift,
        Self::Year,
        Self::AttentionRate,
        Self::LastAgain,
        Self::ScatteredMessages,
        Self::PipelineHidden,
        Self::ParameterBytes,
        Self::OptimizerBytes,
        Self::Fragmentation,
        Self::HeldLogitBytes,
        Self::MemoryMargin,
        Self::Workspace,
    ];

    /// The name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LayerLaunch => "layer_launch",
            Self::CollectiveLaunch => "collective_launch",
            Self::BackwardLaunch => "backward_launch",
            Self::StepOverhead => "step_overhead",
            Self::HiddenPasses => "hidden_passes",
            Self::QkvPasses => "qkv_passes",
            Self::FfnPasses => "ffn_passes",
            Self::ScorePasses => "score_passes",
            Self::BackwardPasses => "backward_passes",
            Self::NarrowingBytes => "narrowing_bytes",
            Self::LogitBytes => "logit_bytes",
            Self::GradientBytes => "gradient_bytes",
            Self::AccumulationBytes => "accumulation_bytes",
            Self::UpdateBytes => "update_bytes",
            Self::DataHidden => "data_hidden",
            Self::TensorHidden => "tensor_hidden",
            Self::TensorBeside => "tensor_beside",
            Self::GathersAgain => "gathers_again",
            Self::Contention => "contention",
            Self::ProductRate => "product_rate",
            Self::FourBitRate => "four_bit_rate",
            Self::ExpertLaunch => "expert_launch",
            Self::DispatchOnce => "dispatch_once",
            Self::FlashRate => "flash_rate",
            Self::GatheredTensors => "gathered_tensors",
            Self::PackedExamples => "packed_examples",
            Self::Interleaves => "interleaves",
            Self::YearlyDrift => "yearly_drift",
            Self::Year => "year",
            Self::AttentionRate => "attention_rate",
            Self::LastAgain => "last_again",
            Self::ScatteredMessages => "scattered_messages",
            Self::PipelineHidden => "pipeline_hidden",
            Self::ParameterBytes => "parameter_bytes",
            Self::OptimizerBytes => "optimizer_bytes",
            Self::Fragmentation => "fragmentation",
            Self::HeldLogitBytes => "held_logit_bytes",
            Self::MemoryMargin => "memory_margin",
            Self::Workspace => "workspace",
        }
    }

    /// The unit in which files state it.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::LayerLaunch | Self::CollectiveLaunch | Self::ExpertLaunch | Self::StepOverhead => "s",
            Self::NarrowingBytes | Self::LogitBytes | Self::GradientBytes | Self::AccumulationBytes => "B",
            Self::UpdateBytes
            | Self::ParameterBytes
            | Self::OptimizerBytes
            | Self::HeldLogitBytes
            | Self::Workspace => "B",
            Self::Year => "year",
            _ => "1",
        }
    }
}

/// How many figures of shipped files were fitted, on all devices together.
pub fn fitted() -> Result<usize, FrameworkError> {
    let mut found = std::collections::BTreeSet::new();
    for (name, _) in FILES {
        let Framework { figures, on, .. } = Framework::shipped(name)?;
        let all = figures.into_iter().chain(on.into_iter().flat_map(|(_, figures)| figures));
        let fitted = all.filter(|(_, stated)| stated.range.is_some());
        found.extend(fitted.map(|(figure, stated)| (stated.owner, figure)));
    }
    Ok(found.len())
}

impl Framework {
    /// The framework of a shipped file.
    pub fn shipped(name: &str) -> Result<Self, FrameworkError> {
        let file = FILES.iter().find(|(known, _)| *known == name);
        let known: Vec<_> = FILES.iter().map(|(known, _)| *known).collect();
        let error = || FrameworkError {
            file: name.to_owned(),
            message: format!("no such framework, expected one of {}", known.join(", ")),
        };
        let (name, text) = file.ok_or_else(error)?;
        Self::read(name, text, COMMON.1)
    }

    /// The framework that `text` states, with what `common` states besides.
    pub fn read(name: &str, text: &str, common: &str) -> Result<Self, FrameworkError> {
        let (mut figures, mut on) = sections(COMMON.0, common)?;
        let (own, own_on) = sections(name, text)?;
        // What a framework says of all devices is nearer to it than what all say of one.
        for (_, others) in &mut on {
            others.retain(|figure, _| !own.contains_key(figure));
        }
        figures.extend(own);
        on.extend(own_on);
        if let Some(missing) = Figure::ALL.iter().find(|it| !figures.contains_key(it)) {
            let message = format!("`{}` is missing, here and in `common`", missing.name());
            return Err(FrameworkError { file: name.to_owned(), message });
        }
        Ok(Self { name: name.to_owned(), figures, on })
    }

    /// The framework as it is on a machine.
    #[must_use]
    pub fn on(mut self, machine: &str) -> Self {
        for (_, figures) in self.on.iter().filter(|(device, _)| machine.starts_with(device)) {
            self.figures.extend(figures.clone());
        }
        self
    }

    /// The same with nothing of this.
    #[must_use]
    pub fn without(mut self, figure: Figure) -> Self {
        if let Some(stated) = self.figures.get_mut(&figure) {
            stated.value = 0.0;
        }
        self
    }

    /// Whether steps are longer or shorter by the year of its version.
    #[must_use]
    pub fn has_trend(&self) -> bool {
        (self.at(Figure::YearlyDrift) - 1.0).abs() > f64::EPSILON
    }

    /// By how many times a step is longer with the version of a year than with the one that figures are of: above 1
    /// before it, below 1 after it, 1 in every year where they have no trend.
    #[must_use]
    pub fn drift(&self, year: u64) -> f64 {
        self.at(Figure::YearlyDrift).powf(self.at(Figure::Year) - exact(year))
    }

    /// A figure.
    #[must_use]
    pub fn at(&self, figure: Figure) -> f64 {
        self.figures.get(&figure).map_or(0.0, |stated| stated.value)
    }
}

type Figures = BTreeMap<Figure, Stated>;

/// The figures that a file states: `figures`, and those of some devices, `on`.
fn sections(file: &str, text: &str) -> Result<(Figures, Vec<(String, Figures)>), FrameworkError> {
    let wrong = |message: &str| FrameworkError { file: file.to_owned(), message: message.to_owned() };
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    let figures = value.get("figures").and_then(Value::as_object);
    let figures = self::figures(file, file, figures.ok_or_else(|| wrong("expected `figures`, an object"))?)?;
    let none = serde_json::Map::new();
    let on = match value.get("on") {
        None => &none,
        Some(on) => on.as_object().ok_or_else(|| wrong("expected `on`, an object of devices"))?,
    };
    let on = on.iter().map(|(device, fields)| {
        let fields = fields.as_object().ok_or_else(|| wrong("expected figures for each device of `on`"))?;
        Ok((device.clone(), self::figures(file, &format!("{file}@{device}"), fields)?))
    });
    Ok((figures, on.collect::<Result<_, _>>()?))
}

fn figures(
    file: &str,
    owner: &str,
    fields: &serde_json::Map<String, Value>,
) -> Result<Figures, FrameworkError> {
    let wrong = |message: String| FrameworkError { file: file.to_owned(), message };
    let mut found = BTreeMap::new();
    for (name, field) in fields {
        let figure = Figure::ALL.into_iter().find(|it| it.name() == name);
        let figure = figure.ok_or_else(|| wrong(format!("`{name}` is not a figure of frameworks")))?;
        let stated = stated(figure, owner, field).map_err(|message| wrong(format!("`{name}`: {message}")))?;
        found.insert(figure, stated);
    }
    Ok(found)
}

fn stated(figure: Figure, owner: &str, field: &Value) -> Result<Stated, String> {
    let number =
        |value: Option<&Value>| value.and_then(Value::as_f64).filter(|it| it.is_finite() && *it >= 0.0);
    let value = number(field.get("value")).ok_or("expected `value`, a finite number of at least 0")?;
    let unit = field.get("unit").and_then(Value::as_str);
    if unit != Some(figure.unit()) {
        return Err(format!("unit {unit:?}, expected `{}`", figure.unit()));
    }
    let source = field.get("source").and_then(Value::as_str).map(str::trim).filter(|it| !it.is_empty());
    let source = source.ok_or("expected `source`, where the value was read or how it was fitted")?;
    let range = field.get("range").map(|range| {
        let ends = (number(range.get(0)), number(range.get(1)));
        let (Some(low), Some(high)) = ends else { return Err("expected `range`, two numbers") };
        Ok((low, high))
    });
    Ok(Stated { value, source: source.to_owned(), range: range.transpose()?, owner: owner.to_owned() })
}

impl fmt::Display for FrameworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "framework `{}`: {}", self.file, self.message)
    }
}

impl std::error::Error for FrameworkError {}

#[cfg(test)]
mod tests;

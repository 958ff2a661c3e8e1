//! The operations' names and attributes: one table for both directions.

use std::fmt;

use super::attribute::{Attribute, Named};
use super::blank::BLANK;
use super::data::{parse_data, print_data};
use super::print::Print;
use super::scan::{ParseError, Result, Scan};
use crate::data::{Real, Type};
use crate::op::{Attention, Binary, Conv, Dynamic, Nvfp4, Op, Optimizer, Resize, Unary};

/// The operation that a text such as `gather dim=0` names.
pub fn parse_op(text: &str) -> Result<Op> {
    let mut scan = Scan::new(text);
    let op = Op::parse(&mut scan)?;
    scan.end()?;
    Ok(op)
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(&mut Print::new(f))
    }
}

impl Op {
    /// The name of every kind of operation, in order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BLANK.keys().copied()
    }

    /// The name in the text form, without attributes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Constant { .. } => "constant",
            Self::Fill { .. } => "fill",
            Self::Iota { .. } => "iota",
            Self::Unary(unary) => unary.name(),
            Self::Binary(binary) => binary.name(),
            Self::Select => "select",
            Self::Cast(_) => "cast",
            Self::Gated(_) => "gated",
            Self::Contract(_) => "contract",
            Self::Reduce { reduction, .. } => reduction.name(),
            Self::ArgExtreme { .. } => "arg_extreme",
            Self::Softmax { .. } => "softmax",
            Self::LogSoftmax { .. } => "log_softmax",
            Self::LayerNorm { .. } => "layer_norm",
            Self::RmsNorm { .. } => "rms_norm",
            Self::InstanceNorm { .. } => "instance_norm",
            Self::Attention(_) => "attention",
            Self::AttentionMerge => "attention_merge",
            Self::Recurrence(it) => Named::name(*it),
            Self::Rotary(_) => "rotary",
            Self::Reshape { .. } => "reshape",
            Self::Transpose { .. } => "transpose",
            Self::Expand { .. } => "expand",
            Self::Concat { .. } => "concat",
            Self::Slice { .. } => "slice",
            Self::Pad { .. } => "pad",
            Self::Gather { .. } => "gather",
            Self::GatherElements { .. } => "gather_elements",
            Self::GatherNd { .. } => "gather_nd",
            Self::ScatterElements { .. } => "scatter_elements",
            Self::ScatterNd { .. } => "scatter_nd",
            Self::Triangle { .. } => "triangle",
            Self::CumSum { .. } => "cum_sum",
            Self::TopK { .. } => "top_k",
            Self::Conv(_) => "conv",
            Self::Resize(_) => "resize",
            Self::CrossEntropy { .. } => "cross_entropy",
            Self::Experts { .. } => "experts",
            Self::Dequantize { .. } => "dequantize",
            Self::Dropout { .. } => "dropout",
            Self::RoundStochastically { .. } => "round_stochastically",
            Self::Amax { .. } => "amax",
            Self::Quantize { .. } => "quantize",
            Self::Remember => "remember",
            Self::QuantizeBlocks { .. } => "quantize_blocks",
            Self::QuantizeNvfp4(_) => "quantize_nvfp4",
            Self::ScaledContract { .. } => "scaled_contract",
            Self::UnaryGradient(_) => "unary_gradient",
            Self::GatedGradient(_) => "gated_gradient",
            Self::SoftmaxGradient { .. } => "softmax_gradient",
            Self::LayerNormGradient { .. } => "layer_norm_gradient",
            Self::RmsNormGradient { .. } => "rms_norm_gradient",
            Self::AttentionGradient { .. } => "attention_gradient",
            Self::RotaryGradient(_) => "rotary_gradient",
            Self::GatherGradient { .. } => "gather_gradient",
            Self::ConvInputGradient { .. } => "conv_input_gradient",
            Self::ConvWeightGradient { .. } => "conv_weight_gradient",
            Self::CrossEntropyGradient { .. } => "cross_entropy_gradient",
            Self::ExpertsGradient { .. } => "experts_gradient",
            Self::Update(Optimizer::Sgd { .. }) => "update_sgd",
            Self::Update(Optimizer::Momentum { .. }) => "update_momentum",
            Self::Update(Optimizer::AdamW { .. }) => "update_adamw",
            Self::Region(_) => "region",
            Self::Dynamic(dynamic) => match dynamic {
                Dynamic::Shape => "dynamic_shape",
                Dynamic::NonZero => "dynamic_non_zero",
                Dynamic::Reshape { .. } => "dynamic_reshape",
                Dynamic::Expand => "dynamic_expand",
                Dynamic::Slice => "dynamic_slice",
                Dynamic::Range => "dynamic_range",
                Dynamic::Fill { .. } => "dynamic_fill",
                Dynamic::Split { .. } => "dynamic_split",
                Dynamic::TopK { .. } => "dynamic_top_k",
                Dynamic::Tile => "dynamic_tile",
                Dynamic::Unsqueeze { .. } => "dynamic_unsqueeze",
                Dynamic::Squeeze { .. } => "dynamic_squeeze",
                Dynamic::If { .. } => "dynamic_if",
                Dynamic::Loop { .. } => "dynamic_loop",
            },
        }
    }
}

/// What goes over an operation's attributes in order: a printer reads them, a parser sets them.
trait Form {
    type Error;

    fn field<A: Attribute>(&mut self, name: &str, attribute: &mut A) -> std::result::Result<(), Self::Error>;

    /// What is written only if it is not as usual.
    fn unless_usual<A: Attribute + Default + PartialEq>(
        &mut self,
        name: &str,
        attribute: &mut A,
    ) -> std::result::Result<(), Self::Error>;

    fn data(&mut self, result: &Type, data: &mut Vec<u8>) -> std::result::Result<(), Self::Error>;
}

/// The attributes of each operation, with their names. One whose name is empty stands alone.
fn attributes<F: Form>(op: &mut Op, form: &mut F) -> std::result::Result<(), F::Error> {
    match op {
        Op::Constant { result, data } => {
            form.field("type", result)?;
            form.data(result, data)
        }
        Op::Fill { result, value } => {
            form.field("type", result)?;
            form.field("value", value)
        }
        Op::Iota { dtype, length, start, step } => {
            form.field("dtype", dtype)?;
            form.field("length", length)?;
            form.field("start", start)?;
            form.field("step", step)
        }
        Op::Unary(_) | Op::Binary(_) | Op::Select | Op::AttentionMerge | Op::Recurrence(_) | Op::Remember => {
            Ok(())
        }
        Op::Cast(dtype) => form.field("to", dtype),
        Op::Gated(activation) | Op::GatedGradient(activation) => form.field("activation", activation),
        Op::UnaryGradient(function) => form.field("function", function),
        Op::Contract(contract) => form.field("", contract),
        Op::Reduce { reduction: _, dims } => form.field("dims", dims),
        Op::ArgExtreme { extreme, dim } => {
            form.field("extreme", extreme)?;
            form.field("dim", dim)
        }
        Op::Softmax { dim } | Op::LogSoftmax { dim } | Op::Concat { dim } | Op::SoftmaxGradient { dim } => {
            form.field("dim", dim)
        }
        Op::Gather { dim } | Op::GatherElements { dim } => form.field("dim", dim),
        Op::GatherGradient { dim, extent } => {
            form.field("dim", dim)?;
            form.field("extent", extent)
        }
        Op::LayerNorm { dims, epsilon }
        | Op::RmsNorm { dims, epsilon }
        | Op::LayerNormGradient { dims, epsilon }
        | Op::RmsNormGradient { dims, epsilon } => {
            form.field("dims", dims)?;
            form.field("epsilon", epsilon)
        }
        Op::InstanceNorm { epsilon } => form.field("epsilon", epsilon),
        Op::Attention(attention) => attention_attributes(attention, form),
        Op::AttentionGradient { attention, mask } => {
            attention_attributes(attention, form)?;
            form.field("mask", mask)
        }
        Op::Rotary(pairing) | Op::RotaryGradient(pairing) => form.field("pairing", pairing),
        Op::Reshape { shape } | Op::Expand { shape } => form.field("shape", shape),
        Op::Transpose { permutation } => form.field("permutation", permutation),
        Op::Slice { starts, steps, sizes } => {
            form.field("starts", starts)?;
            form.field("steps", steps)?;
            form.field("sizes", sizes)
        }
        Op::Pad { before, after, edge } => {
            form.field("before", before)?;
            form.field("after", after)?;
            form.field("edge", edge)
        }
        Op::GatherNd { batch_dims } => form.field("batch_dims", batch_dims),
        Op::ScatterElements { dim, scatter } => {
            form.field("dim", dim)?;
            form.field("scatter", scatter)
        }
        Op::ScatterNd { scatter } => form.field("scatter", scatter),
        Op::Triangle { triangle, diagonal } => {
            form.field("triangle", triangle)?;
            form.field("diagonal", diagonal)
        }
        Op::CumSum { dim, exclusive, reverse } => {
            form.field("dim", dim)?;
            form.field("exclusive", exclusive)?;
            form.field("reverse", reverse)
        }
        Op::TopK { dim, k, extreme } => {
            form.field("dim", dim)?;
            form.field("k", k)?;
            form.field("extreme", extreme)
        }
        Op::Conv(conv) => conv_attributes(conv, form),
        Op::ConvInputGradient { conv, spatial } => {
            conv_attributes(conv, form)?;
            form.field("spatial", spatial)
        }
        Op::ConvWeightGradient { conv, window } => {
            conv_attributes(conv, form)?;
            form.field("window", window)
        }
        Op::Resize(Resize { shape, scales, half_pixel, interpolation }) => {
            form.field("shape", shape)?;
            form.field("scales", scales)?;
            form.field("half_pixel", half_pixel)?;
            form.field("interpolation", interpolation)
        }
        Op::CrossEntropy { ignored } | Op::CrossEntropyGradient { ignored } => form.field("ignored", ignored),
        Op::Experts { activation, limit, active } => experts_attributes((activation, limit, active), form),
        Op::ExpertsGradient { activation, limit, active, adds } => {
            experts_attributes((activation, limit, active), form)?;
            form.unless_usual("adds", adds)
        }
        Op::Dequantize { bits, block, columns } => {
            form.field("bits", bits)?;
            form.field("block", block)?;
            form.field("columns", columns)
        }
        Op::Dropout { ratio, seed } => {
            form.field("ratio", ratio)?;
            form.field("seed", seed)
        }
        Op::RoundStochastically { seed } => form.field("seed", seed),
        Op::Amax { parts, rotated } => {
            form.field("parts", parts)?;
            form.unless_usual("rotated", rotated)
        }
        Op::Quantize { to, parts } => {
            form.field("to", to)?;
            form.unless_usual("parts", parts)
        }
        Op::QuantizeBlocks { to, dim, block } => {
            form.field("to", to)?;
            form.field("dim", dim)?;
            form.field("block", block)
        }
        Op::QuantizeNvfp4(Nvfp4 { dim, across, rotated, seed }) => {
            form.field("dim", dim)?;
            form.unless_usual("across", across)?;
            form.unless_usual("rotated", rotated)?;
            form.unless_usual("seed", seed)
        }
        Op::ScaledContract { contract, to } => {
            form.field("", contract)?;
            form.field("to", to)
        }
        Op::Update(optimizer) => optimizer_attributes(optimizer, form),
        Op::Region(body) => form.field("body", &mut **body),
        Op::Dynamic(dynamic) => dynamic_attributes(dynamic, form),
    }
}

fn attention_attributes<F: Form>(
    Attention { scale, causal, softcap, window, blind, sinks, statistics }: &mut Attention,
    form: &mut F,
) -> std::result::Result<(), F::Error> {
    form.field("scale", scale)?;
    form.field("causal", causal)?;
    form.field("softcap", softcap)?;
    form.field("window", window)?;
    form.unless_usual("blind", blind)?;
    form.unless_usual("sinks", sinks)?;
    form.unless_usual("statistics", statistics)
}

fn experts_attributes<F: Form>(
    (activation, limit, active): (&mut Unary, &mut Option<Real>, &mut u64),
    form: &mut F,
) -> std::result::Result<(), F::Error> {
    form.field("activation", activation)?;
    form.unless_usual("limit", limit)?;
    form.field("active", active)
}

fn conv_attributes<F: Form>(
    Conv { strides, dilations, before, after, groups }: &mut Conv,
    form: &mut F,
) -> std::result::Result<(), F::Error> {
    form.field("strides", strides)?;
    form.field("dilations", dilations)?;
    form.field("before", before)?;
    form.field("after", after)?;
    form.field("groups", groups)
}

fn optimizer_attributes<F: Form>(
    optimizer: &mut Optimizer,
    form: &mut F,
) -> std::result::Result<(), F::Error> {
    match optimizer {
        Optimizer::Sgd { decay } => form.field("decay", decay),
        Optimizer::Momentum { momentum, decay } => {
            form.field("momentum", momentum)?;
            form.field("decay", decay)
        }
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => {
            form.field("beta1", beta1)?;
            form.field("beta2", beta2)?;
            form.field("epsilon", epsilon)?;
            form.field("decay", decay)
        }
    }
}

fn dynamic_attributes<F: Form>(dynamic: &mut Dynamic, form: &mut F) -> std::result::Result<(), F::Error> {
    match dynamic {
        Dynamic::Shape | Dynamic::NonZero | Dynamic::Expand => Ok(()),
        Dynamic::Slice | Dynamic::Range | Dynamic::Tile => Ok(()),
        Dynamic::Reshape { zero_is_zero } => form.field("zero_is_zero", zero_is_zero),
        Dynamic::Fill { dtype, value } => {
            form.field("dtype", dtype)?;
            form.field("value", value)
        }
        Dynamic::Split { dim } => form.field("dim", dim),
        Dynamic::TopK { dim, extreme } => {
            form.field("dim", dim)?;
            form.field("extreme", extreme)
        }
        Dynamic::Unsqueeze { dims } | Dynamic::Squeeze { dims } => form.field("dims", dims),
        Dynamic::If { yes, no } => {
            form.field("yes", &mut **yes)?;
            form.field("no", &mut **no)
        }
        Dynamic::Loop { states, body } => {
            form.field("states", states)?;
            form.field("body", &mut **body)
        }
    }
}

impl Form for Print<'_> {
    type Error = fmt::Error;

    fn field<A: Attribute>(&mut self, name: &str, attribute: &mut A) -> fmt::Result {
        self.text(" ")?;
        if !name.is_empty() {
            self.text(format_args!("{name}="))?;
        }
        attribute.print(self)
    }

    fn unless_usual<A: Attribute + Default + PartialEq>(
        &mut self,
        name: &str,
        attribute: &mut A,
    ) -> fmt::Result {
        if *attribute == A::default() { Ok(()) } else { self.field(name, attribute) }
    }

    fn data(&mut self, result: &Type, data: &mut Vec<u8>) -> fmt::Result {
        self.text(" data=")?;
        print_data(result, data, self)
    }
}

impl Form for Scan<'_> {
    type Error = ParseError;

    fn field<A: Attribute>(&mut self, name: &str, attribute: &mut A) -> Result<()> {
        let named = name.is_empty() || self.eat_word(name) && self.eat("=");
        if !named {
            return self.error(format!("`{name}=`"));
        }
        *attribute = A::parse(self)?;
        Ok(())
    }

    fn unless_usual<A: Attribute + Default + PartialEq>(
        &mut self,
        name: &str,
        attribute: &mut A,
    ) -> Result<()> {
        if self.eat_word(name) {
            self.expect("=")?;
            *attribute = A::parse(self)?;
        }
        Ok(())
    }

    fn data(&mut self, result: &Type, data: &mut Vec<u8>) -> Result<()> {
        self.expect("data=")?;
        *data = parse_data(result, self)?;
        Ok(())
    }
}

impl Attribute for Op {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.text(self.name())?;
        attributes(&mut self.clone(), print)
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        const EXPECTED: &str = "an operation";
        let at = scan.place();
        let name = scan.word(EXPECTED)?;
        let Some(op) = BLANK.get(name) else { return scan.error_at(at, EXPECTED) };
        let mut op = op.clone();
        attributes(&mut op, scan)?;
        Ok(op)
    }
}

impl Named for Binary {
    const WHAT: &'static str = "a function of two elements";
    const NAMES: &'static [(&'static str, Self)] = &[
        ("add", Self::Add),
        ("and", Self::And),
        ("div", Self::Div),
        ("equal", Self::Equal),
        ("greater", Self::Greater),
        ("greater_or_equal", Self::GreaterOrEqual),
        ("less", Self::Less),
        ("less_or_equal", Self::LessOrEqual),
        ("max", Self::Max),
        ("min", Self::Min),
        ("mod", Self::Mod),
        ("fmod", Self::Fmod),
        ("mul", Self::Mul),
        ("or", Self::Or),
        ("pow", Self::Pow),
        ("sub", Self::Sub),
        ("xor", Self::Xor),
    ];
}

//! Random programs: well numbered, otherwise of anything.

use arbtest::arbitrary::{Result, Unstructured};

use crate::data::{DType, Real, Type};
use crate::graph::{Carried, Graph, Output, Phase, Source, State, StateKind, Training, ValueId};
use crate::op::{
    Attention, Blind, Contract, Conv, Dynamic, Edge, Label, Nvfp4, Op, Optimizer, Region, RegionNode, Resize,
    Unary,
};
use crate::text::attribute::Named;
use crate::text::blank::BLANK;

pub(crate) fn graph(u: &mut Unstructured<'_>) -> Result<Graph> {
    let mut graph = Graph { name: u.arbitrary()?, ..Graph::default() };
    while graph.values.len() < 12 && u.ratio(9, 10)? {
        match u.int_in_range(0..=6)? {
            0 => drop(graph.push_value(type_(u)?, Source::Input(u.arbitrary()?))),
            1 => drop(graph.push_value(type_(u)?, Source::Weight(u.arbitrary()?))),
            2 => {
                let state = State { kind: *u.choose(&StateKind::ALL)?, name: u.arbitrary()? };
                graph.push_value(type_(u)?, Source::State(state));
            }
            _ => {
                let operands = list(u, |u| Ok(ValueId(u.int_in_range(0..=20)?)))?;
                let types = list(u, type_)?;
                let phase = *u.choose(&Phase::ALL)?;
                graph.push_node_in(phase, op(u, 0)?, operands, types, u.arbitrary()?);
            }
        }
    }
    graph.outputs = list(u, |u| Ok(Output { name: u.arbitrary()?, value: ValueId(u.arbitrary()?) }))?;
    if u.arbitrary()? {
        let value = |u: &mut Unstructured<'_>| Ok(ValueId(u.int_in_range(0..=14)?));
        let carried = list(u, |u| Ok(Carried { state: value(u)?, next: value(u)? }))?;
        graph.training = Some(Training { micro_batches: u.arbitrary()?, carried });
    }
    Ok(graph)
}

/// An operation, with regions at most two deep.
pub(crate) fn plain_op(u: &mut Unstructured<'_>) -> Result<Op> {
    op(u, 0)
}

pub(super) fn op(u: &mut Unstructured<'_>, depth: usize) -> Result<Op> {
    let names: Vec<&str> = BLANK.keys().copied().collect();
    let mut op = BLANK[u.choose(&names)?].clone();
    match &mut op {
        Op::Constant { result, data } => {
            *result = type_(u)?;
            *data = u.arbitrary()?;
            if u.ratio(1, 4)? {
                let count = usize::try_from(result.dtype.bytes()).unwrap();
                *data = f32::NAN.to_le_bytes().into_iter().cycle().take(4 * count).collect();
            }
        }
        Op::Fill { result, value } => (*result, *value) = (type_(u)?, real(u)?),
        Op::Iota { dtype, length, start, step } => {
            (*dtype, *length, *start, *step) = (element(u)?, u.arbitrary()?, real(u)?, real(u)?);
        }
        Op::Unary(_) | Op::Binary(_) | Op::Select | Op::AttentionMerge | Op::Recurrence(_) | Op::Remember => {
        }
        Op::Cast(dtype) => *dtype = element(u)?,
        Op::Gated(it) | Op::UnaryGradient(it) | Op::GatedGradient(it) => *it = named(u)?,
        Op::Contract(it) => *it = contract(u)?,
        Op::Amax { parts, rotated } => (*parts, *rotated) = (u.arbitrary()?, u.arbitrary()?),
        Op::QuantizeNvfp4(Nvfp4 { dim, across, rotated, seed }) => {
            (*dim, *across, *rotated, *seed) =
                (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
        }
        Op::Quantize { to, parts } => (*to, *parts) = (element(u)?, u.arbitrary()?),
        Op::QuantizeBlocks { to, dim, block } => {
            (*to, *dim, *block) = (element(u)?, u.arbitrary()?, u.arbitrary()?);
        }
        Op::ScaledContract { contract: it, to } => (*it, *to) = (contract(u)?, element(u)?),
        Op::Reduce { dims, .. } => *dims = u.arbitrary()?,
        Op::ArgExtreme { extreme, dim } => (*extreme, *dim) = (named(u)?, u.arbitrary()?),
        Op::Softmax { dim } | Op::LogSoftmax { dim } | Op::Concat { dim } => *dim = u.arbitrary()?,
        Op::SoftmaxGradient { dim } => *dim = u.arbitrary()?,
        Op::GatherGradient { dim, extent } => (*dim, *extent) = (u.arbitrary()?, u.arbitrary()?),
        Op::Gather { dim } | Op::GatherElements { dim } => *dim = u.arbitrary()?,
        Op::LayerNorm { dims, epsilon }
        | Op::RmsNorm { dims, epsilon }
        | Op::LayerNormGradient { dims, epsilon }
        | Op::RmsNormGradient { dims, epsilon } => {
            (*dims, *epsilon) = (u.arbitrary()?, real(u)?);
        }
        Op::InstanceNorm { epsilon } => *epsilon = real(u)?,
        Op::Attention(it) => *it = attention(u)?,
        Op::AttentionGradient { attention: it, mask } => (*it, *mask) = (attention(u)?, u.arbitrary()?),
        Op::Rotary(pairing) | Op::RotaryGradient(pairing) => *pairing = named(u)?,
        Op::Reshape { shape } | Op::Expand { shape } => *shape = u.arbitrary()?,
        Op::Transpose { permutation } => *permutation = u.arbitrary()?,
        Op::Slice { starts, steps, sizes } => {
            (*starts, *steps, *sizes) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
        }
        Op::Pad { before, after, edge } => {
            (*before, *after) = (u.arbitrary()?, u.arbitrary()?);
            let constant = Edge::Constant(real(u)?);
            *edge = *u.choose(&[Edge::Reflect, Edge::Repeat, Edge::Wrap, constant])?;
        }
        Op::GatherNd { batch_dims } => *batch_dims = u.arbitrary()?,
        Op::ScatterElements { dim, scatter } => (*dim, *scatter) = (u.arbitrary()?, named(u)?),
        Op::ScatterNd { scatter } => *scatter = named(u)?,
        Op::Triangle { triangle, diagonal } => (*triangle, *diagonal) = (named(u)?, u.arbitrary()?),
        Op::CumSum { dim, exclusive, reverse } => {
            (*dim, *exclusive, *reverse) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
        }
        Op::TopK { dim, k, extreme } => (*dim, *k, *extreme) = (u.arbitrary()?, u.arbitrary()?, named(u)?),
        Op::Conv(it) => *it = conv(u)?,
        Op::ConvInputGradient { conv: it, spatial } => (*it, *spatial) = (conv(u)?, u.arbitrary()?),
        Op::ConvWeightGradient { conv: it, window } => (*it, *window) = (conv(u)?, u.arbitrary()?),
        Op::Resize(Resize { shape, scales, half_pixel, interpolation }) => {
            (*shape, *scales) = (u.arbitrary()?, list(u, real)?);
            (*half_pixel, *interpolation) = (u.arbitrary()?, named(u)?);
        }
        Op::CrossEntropy { ignored } | Op::CrossEntropyGradient { ignored } => *ignored = u.arbitrary()?,
        Op::Experts { activation, limit, active } => {
            (*activation, *active) = (named::<Unary>(u)?, u.arbitrary()?);
            *limit = if u.arbitrary()? { Some(real(u)?) } else { None };
        }
        Op::ExpertsGradient { activation, limit, active, adds } => {
            (*activation, *active, *adds) = (named::<Unary>(u)?, u.arbitrary()?, u.arbitrary()?);
            *limit = if u.arbitrary()? { Some(real(u)?) } else { None };
        }
        Op::Update(it) => optimizer(u, it)?,
        Op::Dequantize { bits, block, columns } => {
            (*bits, *block, *columns) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
        }
        Op::Dropout { ratio, seed } => (*ratio, *seed) = (real(u)?, u.arbitrary()?),
        Op::RoundStochastically { seed } => *seed = u.arbitrary()?,
        Op::Region(body) => **body = region(u, depth)?,
        Op::Dynamic(dynamic) => random_dynamic(u, depth, dynamic)?,
    }
    Ok(op)
}

fn attention(u: &mut Unstructured<'_>) -> Result<Attention> {
    Ok(Attention {
        scale: real(u)?,
        causal: u.arbitrary()?,
        softcap: real(u)?,
        window: u.arbitrary()?,
        blind: *u.choose(&[Blind::Zero, Blind::Mean, Blind::Once])?,
        sinks: u.arbitrary()?,
        statistics: u.arbitrary()?,
    })
}

fn contract(u: &mut Unstructured<'_>) -> Result<Contract> {
    let label = |u: &mut Unstructured<'_>| Ok(Label(u.arbitrary()?));
    Ok(Contract { left: list(u, label)?, right: list(u, label)?, result: list(u, label)? })
}

fn conv(u: &mut Unstructured<'_>) -> Result<Conv> {
    Ok(Conv {
        strides: u.arbitrary()?,
        dilations: u.arbitrary()?,
        before: u.arbitrary()?,
        after: u.arbitrary()?,
        groups: u.arbitrary()?,
    })
}

fn optimizer(u: &mut Unstructured<'_>, optimizer: &mut Optimizer) -> Result<()> {
    match optimizer {
        Optimizer::Sgd { decay } => *decay = real(u)?,
        Optimizer::Momentum { momentum, decay } => (*momentum, *decay) = (real(u)?, real(u)?),
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => {
            (*beta1, *beta2, *epsilon, *decay) = (real(u)?, real(u)?, real(u)?, real(u)?);
        }
    }
    Ok(())
}

fn random_dynamic(u: &mut Unstructured<'_>, depth: usize, dynamic: &mut Dynamic) -> Result<()> {
    match dynamic {
        Dynamic::Shape | Dynamic::NonZero | Dynamic::Expand => {}
        Dynamic::Slice | Dynamic::Range | Dynamic::Tile => {}
        Dynamic::Reshape { zero_is_zero } => *zero_is_zero = u.arbitrary()?,
        Dynamic::Fill { dtype, value } => (*dtype, *value) = (element(u)?, real(u)?),
        Dynamic::Split { dim } => *dim = u.arbitrary()?,
        Dynamic::TopK { dim, extreme } => (*dim, *extreme) = (u.arbitrary()?, named(u)?),
        Dynamic::Unsqueeze { dims } | Dynamic::Squeeze { dims } => *dims = u.arbitrary()?,
        Dynamic::Loop { states, body } => (*states, **body) = (u.arbitrary()?, region(u, depth)?),
        Dynamic::If { yes, no } => (**yes, **no) = (region(u, depth)?, region(u, depth)?),
    }
    Ok(())
}

fn region(u: &mut Unstructured<'_>, depth: usize) -> Result<Region> {
    let node = |u: &mut Unstructured<'_>| {
        let op = op(u, depth + 1)?;
        Ok(RegionNode { op, operands: list(u, |u| u.arbitrary())?, results: u.int_in_range(0..=3)? })
    };
    let nodes = if depth < 2 { list(u, node)? } else { vec![] };
    let operands = u.int_in_range(0..=3)?;
    Ok(Region { operands, nodes, results: u.arbitrary()?, types: list(u, type_)? })
}

fn list<T>(
    u: &mut Unstructured<'_>,
    mut item: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    (0..u.int_in_range(0..=3)?).map(|_| item(u)).collect()
}

fn named<T: Named>(u: &mut Unstructured<'_>) -> Result<T> {
    Ok(u.choose(T::NAMES)?.1)
}

fn element(u: &mut Unstructured<'_>) -> Result<DType> {
    u.choose(&DType::ALL).copied()
}

fn type_(u: &mut Unstructured<'_>) -> Result<Type> {
    Ok(Type { dtype: element(u)?, shape: list(u, |u| u.arbitrary())? })
}

fn real(u: &mut Unstructured<'_>) -> Result<Real> {
    if u.ratio(1, 8)? {
        return Ok(Real(*u.choose(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-5])?));
    }
    Ok(Real(f64::from_bits(u.arbitrary()?)))
}

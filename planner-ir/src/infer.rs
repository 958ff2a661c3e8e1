//! What an operation makes of its operands' types.

mod checks; // what is asked of operands
mod elements; // the elements of results
mod gradients; // gradients and the steps of optimizers
mod movement; // operations that move elements
mod narrow; // numbers of 8 bits with scales
mod products; // contractions, attention, convolutions, experts
mod recurrence; // states that go from token to token

use std::fmt;

use crate::data::{DType, Type};
use crate::op::{Attention, Op, Optimizer, Recurrence, Resize, Scatter};
use checks::{
    ascending, broadcast, checked_bytes, checked_elements, expect, fits_into, indices, is_index, kept,
    not_empty, same_dtype, within,
};
use elements::{binary_dtype, unary_dtype};
use gradients::{
    attention_gradient_type, conv_input_gradient_type, conv_weight_gradient_type,
    cross_entropy_gradient_type, experts_gradient_type, gather_gradient_type, norm_gradient_type,
    same_floats, smooth, update_type,
};
use movement::{concat_type, elements_indexed, gather_nd_type, pad_type, slice_type};
use narrow::{
    amax_type, quantize_blocks_type, quantize_nvfp4_type, quantize_type, remember_type, scaled_contract_type,
};
use products::{
    attention_merge_type, attention_type, contract_type, conv_type, dequantize_type, experts_type,
    region_type,
};
use recurrence::recurrence_type;

/// Why operands do not fit an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeError {
    /// The number of operands; found, expected.
    Count(usize, &'static str),
    /// The type of an operand: which, what it is, what was expected.
    Operand(usize, Type, String),
    /// An attribute that does not fit the operands.
    Attribute(String),
    /// The operation is only for regions, where types are not inferred.
    Dynamic,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(found, expected) => write!(f, "{found} operands, expected {expected}"),
            Self::Operand(index, found, expected) => {
                write!(f, "operand {index} is {found}, expected {expected}")
            }
            Self::Attribute(message) => f.write_str(message),
            Self::Dynamic => f.write_str("shapes that depend on data occur only inside a region"),
        }
    }
}

impl std::error::Error for TypeError {}

type Result<T> = std::result::Result<T, TypeError>;

impl Op {
    /// The types of the results, given the operands'.
    pub fn infer(&self, operands: &[Type]) -> Result<Vec<Type>> {
        self.check_count(operands.len())?;
        let one = |dtype: DType, shape: Vec<u64>| Ok(vec![Type { dtype, shape }]);
        match self {
            Self::Constant { result, data } => {
                let bytes = checked_bytes(result)?;
                if u64::try_from(data.len()) != Ok(bytes) {
                    return Err(TypeError::Attribute(format!(
                        "{} bytes of data, expected {bytes} for {result}",
                        data.len()
                    )));
                }
                Ok(vec![result.clone()])
            }
            Self::Fill { result, .. } => {
                checked_bytes(result)?;
                Ok(vec![result.clone()])
            }
            Self::Iota { dtype, length, .. } => one(*dtype, vec![*length]),
            Self::Unary(unary) => one(unary_dtype(*unary, operands)?, operands[0].shape.clone()),
            Self::Binary(binary) => {
                let dtype = binary_dtype(*binary, operands)?;
                one(dtype, broadcast(&operands[0].shape, operands, 1..2)?)
            }
            Self::Select => {
                expect(operands, 0, operands[0].dtype == DType::Bool, "truth values")?;
                same_dtype(operands, 1, 2)?;
                one(operands[1].dtype, broadcast(&operands[0].shape, operands, 1..3)?)
            }
            Self::Cast(dtype) => one(*dtype, operands[0].shape.clone()),
            Self::Gated(_) => {
                same_dtype(operands, 0, 1)?;
                one(operands[0].dtype, broadcast(&operands[0].shape, operands, 1..2)?)
            }
            Self::Contract(contract) => contract_type(contract, operands),
            Self::Reduce { dims, .. } => {
                ascending(dims, operands[0].rank())?;
                one(operands[0].dtype, kept(&operands[0].shape, dims))
            }
            Self::ArgExtreme { dim, .. } => {
                within(*dim, operands[0].rank())?;
                not_empty(operands, &[*dim])?;
                one(DType::I64, kept(&operands[0].shape, &[*dim]))
            }
            Self::Softmax { dim } | Self::LogSoftmax { dim } => {
                within(*dim, operands[0].rank())?;
                expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
                Ok(vec![operands[0].clone()])
            }
            Self::CumSum { dim, .. } => {
                within(*dim, operands[0].rank())?;
                Ok(vec![operands[0].clone()])
            }
            Self::LayerNorm { dims, .. } | Self::RmsNorm { dims, .. } => {
                if *dims == 0 || *dims > operands[0].rank() {
                    return Err(TypeError::Attribute(format!(
                        "{dims} dimensions normalised of {}",
                        operands[0].rank()
                    )));
                }
                expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
                let rank = operands[0].rank();
                not_empty(operands, &(rank - dims..rank).collect::<Vec<_>>())?;
                fits_into(operands, 1..operands.len())?;
                Ok(vec![operands[0].clone()])
            }
            Self::InstanceNorm { .. } => {
                let channels = operands[0].shape.get(1).copied();
                expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
                expect(operands, 0, operands[0].rank() >= 2, "two dimensions at least")?;
                for index in 1..3 {
                    let right =
                        operands[index].rank() == 1 && operands[index].shape.first().copied() == channels;
                    expect(operands, index, right, "one number for each channel")?;
                }
                Ok(vec![operands[0].clone()])
            }
            Self::Attention(attention) => attention_type(attention, operands),
            Self::Recurrence(it) => recurrence_type(*it, operands),
            Self::Rotary(_) | Self::RotaryGradient(_) => {
                let last = operands[0].shape.last().copied().unwrap_or(1);
                expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
                expect(operands, 0, last.is_multiple_of(2) && operands[0].rank() > 0, "an even last extent")?;
                fits_into(operands, 1..3)?;
                for index in 1..3 {
                    expect(
                        operands,
                        index,
                        operands[index].shape.last() == Some(&last),
                        "the last extent of operand 0",
                    )?;
                }
                Ok(vec![operands[0].clone()])
            }
            Self::Reshape { shape } => {
                let elements = checked_elements(shape)?;
                let message = || format!("{elements} elements, for shape {shape:?}");
                expect(operands, 0, operands[0].elements() == elements, &message())?;
                one(operands[0].dtype, shape.clone())
            }
            Self::Transpose { permutation } => {
                let mut sorted = permutation.clone();
                sorted.sort_unstable();
                if sorted != (0..operands[0].rank()).collect::<Vec<_>>() {
                    return Err(TypeError::Attribute(format!(
                        "{permutation:?} does not permute {} dimensions",
                        operands[0].rank()
                    )));
                }
                one(operands[0].dtype, permutation.iter().map(|&dim| operands[0].shape[dim]).collect())
            }
            Self::Expand { shape } => {
                checked_elements(shape)?;
                let target = Type::new(operands[0].dtype, shape.clone());
                let joined = broadcast(shape, operands, 0..1)?;
                expect(operands, 0, joined == *shape, &format!("what repeats to {target}"))?;
                Ok(vec![target])
            }
            Self::Concat { dim } => concat_type(*dim, operands),
            Self::Slice { starts, steps, sizes } => slice_type(starts, steps, sizes, &operands[0]),
            Self::Pad { before, after, .. } => pad_type(before, after, &operands[0]),
            Self::Gather { dim } => {
                within(*dim, operands[0].rank())?;
                indices(operands)?;
                let mut shape = operands[0].shape.clone();
                shape.splice(*dim..=*dim, operands[1].shape.iter().copied());
                one(operands[0].dtype, shape)
            }
            Self::GatherElements { dim } => {
                elements_indexed(*dim, operands)?;
                one(operands[0].dtype, operands[1].shape.clone())
            }
            Self::GatherNd { batch_dims } => gather_nd_type(*batch_dims, operands),
            Self::ScatterElements { dim, scatter } => {
                elements_indexed(*dim, operands)?;
                same_dtype(operands, 0, 2)?;
                let [data, indices, updates] = [0, 1, 2].map(|it: usize| &operands[it].shape);
                let repeats = |it: usize| *scatter == Scatter::Write && it != *dim && indices[it] == 1;
                let fits = |it| updates[it] == indices[it] || (repeats(it) && updates[it] <= data[it]);
                let right = updates.len() == indices.len() && (0..updates.len()).all(fits);
                expect(operands, 2, right, "the shape of the indices")?;
                Ok(vec![operands[0].clone()])
            }
            Self::ScatterNd { .. } => {
                let slice = gather_nd_type(0, &operands[..2])?;
                same_dtype(operands, 0, 2)?;
                expect(
                    operands,
                    2,
                    operands[2].shape == slice[0].shape,
                    &format!("shape {:?}", slice[0].shape),
                )?;
                Ok(vec![operands[0].clone()])
            }
            Self::Triangle { .. } => {
                expect(operands, 0, operands[0].rank() >= 2, "two dimensions at least")?;
                Ok(vec![operands[0].clone()])
            }
            Self::TopK { dim, k, .. } => {
                within(*dim, operands[0].rank())?;
                expect(operands, 0, operands[0].shape[*dim] >= *k, &format!("an extent of {k} at least"))?;
                let mut shape = operands[0].shape.clone();
                shape[*dim] = *k;
                Ok(vec![Type::new(operands[0].dtype, shape.clone()), Type::new(DType::I64, shape)])
            }
            Self::Conv(conv) => conv_type(conv, operands),
            Self::Resize(Resize { shape, scales, .. }) => {
                let right = shape.len() == operands[0].rank() && scales.len() == shape.len();
                expect(operands, 0, right, "as many dimensions as the shape")?;
                checked_elements(shape)?;
                one(operands[0].dtype, shape.clone())
            }
            Self::CrossEntropy { .. } => {
                let rank = operands[0].rank();
                expect(operands, 0, rank > 0 && operands[0].dtype.is_float(), "rows of scores")?;
                let rows = operands[0].shape[..rank - 1].to_vec();
                let right = operands[1].shape == rows && is_index(operands[1].dtype);
                expect(operands, 1, right, "an integer for each row")?;
                one(operands[0].dtype, rows)
            }
            Self::Experts { .. } => experts_type(operands),
            Self::Dequantize { bits, block, columns } => dequantize_type(*bits, *block, *columns, operands),
            Self::Dropout { .. } => {
                numbered(operands)?;
                Ok(vec![operands[0].clone(), Type::new(DType::Bool, operands[0].shape.clone())])
            }
            Self::RoundStochastically { .. } => {
                expect(operands, 0, operands[0].dtype == DType::F32, "numbers in f32")?;
                numbered(operands)?;
                one(DType::BF16, operands[0].shape.clone())
            }
            Self::Amax { parts, rotated } => amax_type(parts, *rotated, operands),
            Self::Quantize { to, parts } => quantize_type(*to, parts.as_deref(), operands),
            Self::Remember => remember_type(operands),
            Self::QuantizeBlocks { to, dim, block } => quantize_blocks_type(*to, *dim, *block, operands),
            Self::QuantizeNvfp4(it) => quantize_nvfp4_type(it, operands),
            Self::ScaledContract { contract, to } => scaled_contract_type(contract, *to, operands),
            Self::UnaryGradient(function) => {
                smooth(*function, operands)?;
                Ok(vec![operands[0].clone()])
            }
            Self::GatedGradient(activation) => {
                smooth(*activation, operands)?;
                Ok(vec![operands[0].clone(), operands[1].clone()])
            }
            Self::SoftmaxGradient { dim } => {
                within(*dim, operands[0].rank())?;
                same_floats(operands)?;
                Ok(vec![operands[0].clone()])
            }
            Self::LayerNormGradient { dims, .. } | Self::RmsNormGradient { dims, .. } => {
                norm_gradient_type(*dims, operands)
            }
            Self::AttentionMerge => attention_merge_type(operands),
            Self::AttentionGradient { attention: Attention { sinks: true, .. }, .. } => {
                Err(TypeError::Attribute("sinks, which the statistics tell of".to_owned()))
            }
            Self::AttentionGradient { mask, .. } => attention_gradient_type(*mask, operands),
            Self::GatherGradient { dim, extent } => gather_gradient_type(*dim, *extent, operands),
            Self::ConvInputGradient { conv, spatial } => conv_input_gradient_type(conv, spatial, operands),
            Self::ConvWeightGradient { conv, window } => conv_weight_gradient_type(conv, window, operands),
            Self::CrossEntropyGradient { .. } => cross_entropy_gradient_type(operands),
            Self::ExpertsGradient { activation, adds, .. } => {
                experts_gradient_type(*activation, adds, operands)
            }
            Self::Update(optimizer) => update_type(*optimizer, operands),
            Self::Region(region) => region_type(region),
            Self::Dynamic(_) => Err(TypeError::Dynamic),
        }
    }

    fn check_count(&self, found: usize) -> Result<()> {
        let (right, expected) = match self {
            Self::Constant { .. } | Self::Fill { .. } | Self::Iota { .. } => (found == 0, "none"),
            Self::Binary(_)
            | Self::Gated(_)
            | Self::Gather { .. }
            | Self::GatherElements { .. }
            | Self::GatherNd { .. }
            | Self::CrossEntropy { .. }
            | Self::Quantize { .. }
            | Self::Remember
            | Self::UnaryGradient(_)
            | Self::SoftmaxGradient { .. }
            | Self::GatherGradient { .. }
            | Self::ConvInputGradient { .. }
            | Self::ConvWeightGradient { .. } => (found == 2, "2"),
            Self::Select
            | Self::InstanceNorm { .. }
            | Self::Rotary(_)
            | Self::RotaryGradient(_)
            | Self::GatedGradient(_)
            | Self::LayerNormGradient { .. }
            | Self::RmsNormGradient { .. }
            | Self::CrossEntropyGradient { .. }
            | Self::ScatterElements { .. }
            | Self::ScatterNd { .. } => (found == 3, "3"),
            Self::LayerNorm { .. } | Self::Conv(_) | Self::Contract(_) => {
                (found == 2 || found == 3, "2 or 3")
            }
            Self::Dequantize { .. } => (found == 2 || found == 3, "2 or 3"),
            Self::RmsNorm { .. } => (found == 2, "2"),
            Self::AttentionMerge => (found == 4, "4"),
            Self::QuantizeNvfp4(it) if it.seed.is_some() => (found == 3, "3"),
            Self::QuantizeNvfp4(_) => (found == 2, "2"),
            Self::ScaledContract { .. } => ((4..=7).contains(&found), "4 to 7"),
            Self::Attention(Attention { sinks: true, .. }) => ((4..=7).contains(&found), "4 to 7"),
            Self::Attention(_) => ((3..=6).contains(&found), "3 to 6"),
            Self::AttentionGradient { mask: true, .. } => (found == 7 || found == 9, "7 or 9"),
            Self::AttentionGradient { mask: false, .. } => ((6..=9).contains(&found), "6 to 9"),
            Self::Recurrence(Recurrence::SelectiveScan) => (found == 5, "5"),
            Self::Recurrence(Recurrence::GatedDelta) => (found == 6, "6"),
            Self::Recurrence(Recurrence::SelectiveScanGradient) => (found == 7, "7"),
            Self::Recurrence(Recurrence::GatedDeltaGradient) => (found == 8, "8"),
            Self::Experts { limit: Some(_), .. } => (found == 5 || found == 7, "5 or 7"),
            Self::Experts { .. } => (matches!(found, 4 | 5 | 7), "4, 5 or 7"),
            Self::ExpertsGradient { limit, adds, .. } => {
                let given = found.checked_sub(adds.len());
                match (limit.is_some(), adds.is_empty()) {
                    (true, true) => (matches!(given, Some(6 | 8)), "6 or 8"),
                    (true, false) => (matches!(given, Some(6 | 8)), "6 or 8, and what is added to"),
                    (false, true) => (matches!(given, Some(5 | 6 | 8)), "5, 6 or 8"),
                    (false, false) => (matches!(given, Some(5 | 6 | 8)), "5, 6 or 8, and what is added to"),
                }
            }
            Self::Dropout { .. } | Self::RoundStochastically { .. } => (found == 1 || found == 2, "1 or 2"),
            Self::Update(Optimizer::Sgd { .. }) => (found == 4, "4"),
            Self::Update(Optimizer::Momentum { .. }) => (found == 5, "5"),
            Self::Update(Optimizer::AdamW { .. }) => (found == 7, "7"),
            Self::Concat { .. } => (found >= 1, "1 at least"),
            Self::Region(region) => (found == region.operands, "what its region takes"),
            Self::Dynamic(_) => (true, ""),
            _ => (found == 1, "1"),
        };
        if right { Ok(()) } else { Err(TypeError::Count(found, expected)) }
    }
}

/// Asks of what makes randomness another one, if it is there, that it is one number.
fn numbered(operands: &[Type]) -> Result<()> {
    match operands.get(1) {
        Some(number) => {
            let right = number.dtype == DType::I64 && number.rank() == 0;
            expect(operands, 1, right, "one number (i64) of no dimensions")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

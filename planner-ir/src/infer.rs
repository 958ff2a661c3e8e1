//! What an operation makes of its operands' types.

use std::fmt;

use crate::data::{DType, Type};
use crate::op::{Binary, Contract, Conv, Label, Op, Region, Resize, Unary};

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
                fits_into(operands, 1..operands.len())?;
                Ok(vec![operands[0].clone()])
            }
            Self::InstanceNorm { .. } => {
                let channels = operands[0].shape.get(1).copied();
                expect(operands, 0, operands[0].rank() >= 2, "two dimensions at least")?;
                for index in 1..3 {
                    let right =
                        operands[index].rank() == 1 && operands[index].shape.first().copied() == channels;
                    expect(operands, index, right, "one number for each channel")?;
                }
                Ok(vec![operands[0].clone()])
            }
            Self::Attention(_) => attention_type(operands),
            Self::Rotary(_) => {
                let last = operands[0].shape.last().copied().unwrap_or(1);
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
            Self::ScatterElements { dim, .. } => {
                elements_indexed(*dim, operands)?;
                same_dtype(operands, 0, 2)?;
                expect(operands, 2, operands[2].shape == operands[1].shape, "the shape of the indices")?;
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
                Ok(vec![operands[0].clone(), Type::new(DType::Bool, operands[0].shape.clone())])
            }
            Self::Region(region) => region_type(region),
            Self::Dynamic(_) => Err(TypeError::Dynamic),
        }
    }

    fn check_count(&self, found: usize) -> Result<()> {
        let (right, expected) = match self {
            Self::Constant { .. } | Self::Fill { .. } | Self::Iota { .. } => (found == 0, "none"),
            Self::Binary(_)
            | Self::Gated(_)
            | Self::Contract(_)
            | Self::Gather { .. }
            | Self::GatherElements { .. }
            | Self::GatherNd { .. }
            | Self::CrossEntropy { .. } => (found == 2, "2"),
            Self::Select
            | Self::InstanceNorm { .. }
            | Self::Rotary(_)
            | Self::ScatterElements { .. }
            | Self::ScatterNd { .. } => (found == 3, "3"),
            Self::LayerNorm { .. } | Self::Conv(_) => (found == 2 || found == 3, "2 or 3"),
            Self::Dequantize { .. } => (found == 2 || found == 3, "2 or 3"),
            Self::RmsNorm { .. } => (found == 2, "2"),
            Self::Attention(_) => (found == 3 || found == 4, "3 or 4"),
            Self::Experts { .. } => (found == 4 || found == 5, "4 or 5"),
            Self::Concat { .. } => (found >= 1, "1 at least"),
            Self::Region(region) => (found == region.operands, "what its region takes"),
            Self::Dynamic(_) => (true, ""),
            _ => (found == 1, "1"),
        };
        if right { Ok(()) } else { Err(TypeError::Count(found, expected)) }
    }
}

fn expect(operands: &[Type], index: usize, right: bool, expected: &str) -> Result<()> {
    if right {
        return Ok(());
    }
    Err(TypeError::Operand(index, operands[index].clone(), expected.to_owned()))
}

fn same_dtype(operands: &[Type], first: usize, second: usize) -> Result<()> {
    let right = operands[first].dtype == operands[second].dtype;
    expect(operands, second, right, &format!("elements {}", operands[first].dtype))
}

fn is_index(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32)
}

fn indices(operands: &[Type]) -> Result<()> {
    expect(operands, 1, is_index(operands[1].dtype), "indices (i64 or i32)")
}

fn within(dim: usize, rank: usize) -> Result<()> {
    if dim < rank { Ok(()) } else { Err(TypeError::Attribute(format!("dimension {dim} of {rank}"))) }
}

fn ascending(dims: &[usize], rank: usize) -> Result<()> {
    let rising = dims.windows(2).all(|pair| pair[0] < pair[1]);
    if rising && dims.iter().all(|&dim| dim < rank) {
        return Ok(());
    }
    Err(TypeError::Attribute(format!("dimensions {dims:?}, expected ascending ones below {rank}")))
}

fn kept(shape: &[u64], dims: &[usize]) -> Vec<u64> {
    let mut shape = shape.to_vec();
    for &dim in dims {
        shape[dim] = 1;
    }
    shape
}

fn checked_elements(shape: &[u64]) -> Result<u64> {
    // An extent of 0 makes any product 0, but the others must still be sane.
    let product = shape.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent.max(1)));
    let sane = product.filter(|&product| product <= 1 << 56);
    sane.map(|_| shape.iter().product())
        .ok_or_else(|| TypeError::Attribute(format!("shape {shape:?} has too many elements")))
}

fn checked_bytes(result: &Type) -> Result<u64> {
    Ok(checked_elements(&result.shape)? * result.dtype.bytes())
}

/// The shape that `first` and the operands in the range broadcast to.
fn broadcast(first: &[u64], operands: &[Type], range: std::ops::Range<usize>) -> Result<Vec<u64>> {
    let mut shape = first.to_vec();
    for index in range {
        let other = &operands[index].shape;
        while shape.len() < other.len() {
            shape.insert(0, 1);
        }
        let offset = shape.len() - other.len();
        for (dim, &extent) in other.iter().enumerate() {
            let target = &mut shape[offset + dim];
            if *target == 1 {
                *target = extent;
            } else {
                let right = extent == 1 || extent == *target;
                expect(operands, index, right, &format!("extent 1 or {target} in dimension {dim}"))?;
            }
        }
    }
    Ok(shape)
}

/// Operands of the range broadcast to operand 0 without growing it.
fn fits_into(operands: &[Type], range: std::ops::Range<usize>) -> Result<()> {
    for index in range {
        same_dtype(operands, 0, index)?;
        let joined = broadcast(&operands[0].shape, operands, index..index + 1)?;
        expect(operands, index, joined == operands[0].shape, "what broadcasts to operand 0")?;
    }
    Ok(())
}

fn unary_dtype(unary: Unary, operands: &[Type]) -> Result<DType> {
    let dtype = operands[0].dtype;
    match unary {
        Unary::Not => {
            expect(operands, 0, dtype == DType::Bool, "truth values")?;
            Ok(DType::Bool)
        }
        Unary::IsNan | Unary::IsInf => Ok(DType::Bool),
        Unary::Abs | Unary::Neg | Unary::Sign | Unary::Relu => {
            expect(operands, 0, dtype != DType::Bool, "numbers")?;
            Ok(dtype)
        }
        _ => {
            expect(operands, 0, dtype.is_float(), "floating-point numbers")?;
            Ok(dtype)
        }
    }
}

fn binary_dtype(binary: Binary, operands: &[Type]) -> Result<DType> {
    let dtype = operands[0].dtype;
    if binary == Binary::Pow {
        return Ok(dtype);
    }
    same_dtype(operands, 0, 1)?;
    match binary {
        Binary::And | Binary::Or | Binary::Xor => {
            expect(operands, 0, dtype == DType::Bool, "truth values")?;
            Ok(DType::Bool)
        }
        Binary::Equal => Ok(DType::Bool),
        Binary::Greater | Binary::GreaterOrEqual | Binary::Less | Binary::LessOrEqual => Ok(DType::Bool),
        _ => {
            expect(operands, 0, dtype != DType::Bool, "numbers")?;
            Ok(dtype)
        }
    }
}

fn contract_type(contract: &Contract, operands: &[Type]) -> Result<Vec<Type>> {
    let Contract { left, right, result } = contract;
    same_dtype(operands, 0, 1)?;
    for (index, labels) in [left, right].into_iter().enumerate() {
        expect(
            operands,
            index,
            operands[index].rank() == labels.len(),
            &format!("{} dimensions", labels.len()),
        )?;
    }
    let bad = |message: &str| Err(TypeError::Attribute(message.to_owned()));
    for labels in [left, right, result] {
        let mut sorted = labels.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != labels.len() {
            return bad("a label occurs twice in one list");
        }
    }
    let extent = |label: &Label| {
        let in_left = left.iter().position(|it| it == label).map(|dim| operands[0].shape[dim]);
        let in_right = right.iter().position(|it| it == label).map(|dim| operands[1].shape[dim]);
        (in_left, in_right)
    };
    for label in left.iter().chain(right) {
        match extent(label) {
            (Some(a), Some(b)) if a != b => {
                return Err(TypeError::Attribute(format!("extents {a} and {b} for one label")));
            }
            (Some(_), Some(_)) => {}
            _ if result.contains(label) => {}
            _ => return bad("a label of one operand only is missing in the result"),
        }
    }
    let mut shape = Vec::new();
    for label in result {
        match extent(label) {
            (Some(a), _) | (None, Some(a)) => shape.push(a),
            (None, None) => return bad("a label of the result is missing in the operands"),
        }
    }
    checked_elements(&shape)?;
    Ok(vec![Type::new(operands[0].dtype, shape)])
}

fn attention_type(operands: &[Type]) -> Result<Vec<Type>> {
    for index in 0..3 {
        expect(operands, index, operands[index].rank() == 4, "[batch, heads, sequence, size]")?;
        same_dtype(operands, 0, index)?;
    }
    let (q, k, v) = (&operands[0].shape, &operands[1].shape, &operands[2].shape);
    expect(operands, 1, k[0] == q[0] && k[3] == q[3], "the batch and size of the queries")?;
    expect(operands, 1, k[1] > 0 && q[1].is_multiple_of(k[1]), "heads that divide the queries'")?;
    expect(operands, 2, v[..3] == k[..3], "the batch, heads and sequence of the keys")?;
    if let Some(mask) = operands.get(3) {
        let scores = vec![q[0], q[1], q[2], k[2]];
        let right = mask.dtype == DType::Bool || mask.dtype == operands[0].dtype;
        expect(operands, 3, right, "truth values or the elements of the queries")?;
        let joined = broadcast(&scores, operands, 3..4)?;
        expect(operands, 3, joined == scores, &format!("what broadcasts to {scores:?}"))?;
    }
    Ok(vec![Type::new(operands[0].dtype, vec![q[0], q[1], q[2], v[3]])])
}

fn concat_type(dim: usize, operands: &[Type]) -> Result<Vec<Type>> {
    within(dim, operands[0].rank())?;
    let mut result = operands[0].clone();
    for index in 1..operands.len() {
        same_dtype(operands, 0, index)?;
        let other = &operands[index].shape;
        let same_rank = other.len() == result.rank();
        let right = same_rank && (0..other.len()).all(|it| it == dim || other[it] == result.shape[it]);
        expect(operands, index, right, &format!("the extents of operand 0 outside dimension {dim}"))?;
        result.shape[dim] += other[dim];
    }
    checked_elements(&result.shape)?;
    Ok(vec![result])
}

fn slice_type(starts: &[u64], steps: &[i64], sizes: &[u64], operand: &Type) -> Result<Vec<Type>> {
    let rank = operand.rank();
    if starts.len() != rank || steps.len() != rank || sizes.len() != rank {
        return Err(TypeError::Attribute(format!("a slice of {} dimensions, expected {rank}", starts.len())));
    }
    for dim in 0..rank {
        if sizes[dim] == 0 {
            continue;
        }
        let last = i128::from(starts[dim]) + i128::from(steps[dim]) * i128::from(sizes[dim] - 1);
        let extent = i128::from(operand.shape[dim]);
        if i128::from(starts[dim]) >= extent || last < 0 || last >= extent {
            return Err(TypeError::Attribute(format!(
                "a slice from {} to {last} in dimension {dim} of extent {extent}",
                starts[dim]
            )));
        }
    }
    Ok(vec![Type::new(operand.dtype, sizes.to_vec())])
}

fn pad_type(before: &[i64], after: &[i64], operand: &Type) -> Result<Vec<Type>> {
    let rank = operand.rank();
    if before.len() != rank || after.len() != rank {
        return Err(TypeError::Attribute(format!("padding of {} dimensions, expected {rank}", before.len())));
    }
    let mut shape = Vec::new();
    for dim in 0..rank {
        let extent = i128::from(operand.shape[dim]) + i128::from(before[dim]) + i128::from(after[dim]);
        let extent = u64::try_from(extent)
            .map_err(|_| TypeError::Attribute(format!("extent {extent} after padding dimension {dim}")))?;
        shape.push(extent);
    }
    checked_elements(&shape)?;
    Ok(vec![Type::new(operand.dtype, shape)])
}

fn elements_indexed(dim: usize, operands: &[Type]) -> Result<()> {
    within(dim, operands[0].rank())?;
    indices(operands)?;
    let (data, index) = (&operands[0].shape, &operands[1].shape);
    let right = data.len() == index.len() && (0..data.len()).all(|it| it == dim || index[it] <= data[it]);
    expect(operands, 1, right, "extents within those of operand 0")
}

fn gather_nd_type(batch_dims: usize, operands: &[Type]) -> Result<Vec<Type>> {
    indices(operands)?;
    let (data, index) = (&operands[0].shape, &operands[1].shape);
    expect(operands, 1, index.len() > batch_dims, "a dimension of indices")?;
    let depth = usize::try_from(index[index.len() - 1]).unwrap_or(usize::MAX);
    let fits = depth.checked_add(batch_dims).is_some_and(|used| used <= data.len());
    expect(operands, 1, fits, &format!("at most {} indices in its last dimension", data.len()))?;
    expect(operands, 1, index[..batch_dims] == data[..batch_dims], "the batch dimensions of operand 0")?;
    let mut shape = index[..index.len() - 1].to_vec();
    shape.extend_from_slice(&data[batch_dims + depth..]);
    checked_elements(&shape)?;
    Ok(vec![Type::new(operands[0].dtype, shape)])
}

fn conv_type(conv: &Conv, operands: &[Type]) -> Result<Vec<Type>> {
    let (x, w) = (&operands[0].shape, &operands[1].shape);
    let spatial = conv.strides.len();
    expect(operands, 0, x.len() == spatial + 2, &format!("{} dimensions", spatial + 2))?;
    expect(operands, 1, w.len() == spatial + 2, &format!("{} dimensions", spatial + 2))?;
    let lists = [&conv.dilations, &conv.before, &conv.after];
    if lists.iter().any(|list| list.len() != spatial) || conv.strides.contains(&0) || conv.groups == 0 {
        return Err(TypeError::Attribute("attributes of another number of dimensions, or zero".to_owned()));
    }
    expect(operands, 1, w[1].checked_mul(conv.groups) == Some(x[1]), "the channels of operand 0")?;
    expect(operands, 1, w[0].is_multiple_of(conv.groups), "channels that the groups divide")?;
    if operands.len() == 3 {
        expect(operands, 2, operands[2].shape == [w[0]], "one number for each channel")?;
    }
    let mut shape = vec![x[0], w[0]];
    for dim in 0..spatial {
        let window = conv.dilations[dim] * (w[dim + 2].max(1) - 1) + 1;
        let extent = x[dim + 2] + conv.before[dim] + conv.after[dim];
        expect(
            operands,
            0,
            extent >= window,
            &format!("an extent of {window} at least in dimension {}", dim + 2),
        )?;
        shape.push((extent - window) / conv.strides[dim] + 1);
    }
    Ok(vec![Type::new(operands[0].dtype, shape)])
}

fn experts_type(operands: &[Type]) -> Result<Vec<Type>> {
    let x = &operands[0];
    expect(operands, 0, x.rank() == 2, "[tokens, hidden]")?;
    let gates = &operands[1].shape;
    expect(operands, 1, gates.len() == 2 && gates[0] == x.shape[0], "[tokens, experts]")?;
    let up = operands[2].shape.clone();
    let right = up.len() == 3 && up[0] == gates[1] && up[2] == x.shape[1];
    expect(operands, 2, right, "[experts, units, hidden]")?;
    let down = operands.len() - 1;
    if down == 4 {
        expect(operands, 3, operands[3].shape == up, "[experts, units, hidden]")?;
    }
    expect(operands, down, operands[down].shape == [up[0], up[2], up[1]], "[experts, hidden, units]")?;
    for index in 1..operands.len() {
        same_dtype(operands, 0, index)?;
    }
    Ok(vec![x.clone()])
}

fn dequantize_type(bits: u64, block: u64, columns: u64, operands: &[Type]) -> Result<Vec<Type>> {
    if !matches!(bits, 2 | 4 | 8) || block == 0 || columns == 0 {
        return Err(TypeError::Attribute(format!("{bits} bits in blocks of {block}")));
    }
    let blocks = columns.div_ceil(block);
    let packed = &operands[0].shape;
    let right = packed.len() == 3 && packed[1] == blocks && packed[2] * 8 == block * bits;
    expect(operands, 0, right && operands[0].dtype == DType::U8, "packed rows (u8)")?;
    let scales = operands[1].elements() == packed[0] * blocks;
    expect(operands, 1, scales, "a number for each block")?;
    Ok(vec![Type::new(operands[1].dtype, vec![packed[0], columns])])
}

fn region_type(region: &Region) -> Result<Vec<Type>> {
    if region.types.len() != region.results.len() {
        return Err(TypeError::Attribute(format!(
            "{} types for {} results",
            region.types.len(),
            region.results.len()
        )));
    }
    Ok(region.types.clone())
}

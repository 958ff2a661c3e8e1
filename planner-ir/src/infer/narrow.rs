//! The results of operations on numbers of 8 bits with scales.

use super::checks::{expect, within};
use super::products::contract_shape;
use super::{Result, TypeError};
use crate::data::{DType, Type};
use crate::op::{Contract, Nvfp4, numbers, packed_dim};

pub(super) fn amax_type(parts: &[u64], rotated: Option<usize>, operands: &[Type]) -> Result<Vec<Type>> {
    let x = &operands[0];
    expect(operands, 0, x.dtype.is_float(), "floating-point numbers")?;
    let falls = parts.len() == x.rank()
        && parts.iter().zip(&x.shape).all(|(&parts, &size)| parts > 0 && size > 0 && size % parts == 0);
    expect(operands, 0, falls, &format!("dimensions that fall into {parts:?} parts"))?;
    if let Some(dim) = rotated {
        within(dim, parts.len())?;
        let whole = (x.shape[dim] / parts[dim]).is_multiple_of(Nvfp4::BLOCK);
        expect(operands, 0, whole, &format!("parts of whole blocks of 16 along dimension {dim}"))?;
    }
    Ok(vec![Type::new(DType::F32, parts)])
}

pub(super) fn quantize_type(to: DType, parts: Option<&[u64]>, operands: &[Type]) -> Result<Vec<Type>> {
    quantised(to, operands)?;
    let magnitudes = parts.map(|parts| amax_type(parts, None, operands)).transpose()?;
    let [x, amax] = [&operands[0], &operands[1]];
    expect(operands, 1, amax.dtype == DType::F32 && amax.elements() > 0, "magnitudes in f32")?;
    let mut results = vec![Type::new(to, &x.shape[..]), Type::new(DType::F32, [])];
    results.extend(magnitudes.into_iter().flatten());
    Ok(results)
}

pub(super) fn remember_type(operands: &[Type]) -> Result<Vec<Type>> {
    let [history, magnitudes] = [&operands[0], &operands[1]];
    let right = history.dtype == DType::F32 && history.rank() == 1 && history.elements() > 0;
    expect(operands, 0, right, "magnitudes (f32) in one dimension")?;
    expect(operands, 1, magnitudes.dtype == DType::F32 && magnitudes.elements() > 0, "magnitudes in f32")?;
    Ok(vec![history.clone()])
}

pub(super) fn quantize_blocks_type(
    to: DType,
    dim: usize,
    block: u64,
    operands: &[Type],
) -> Result<Vec<Type>> {
    quantised(to, operands)?;
    let mut blocks = operands[0].shape.clone();
    within(dim, blocks.len())?;
    let falls = block > 0 && blocks[dim].is_multiple_of(block);
    expect(operands, 0, falls, &format!("blocks of {block} along dimension {dim}"))?;
    blocks[dim] /= block;
    Ok(vec![Type::new(to, &operands[0].shape[..]), Type::new(DType::U8, blocks)])
}

/// Refuses what is not made numbers of 8 bits of wider ones.
fn quantised(to: DType, operands: &[Type]) -> Result<()> {
    if !to.is_f8() {
        return Err(TypeError::Attribute(format!("elements {to}, expected floating point of 8 bits")));
    }
    let wider = operands[0].dtype.is_float() && !operands[0].dtype.is_f8();
    expect(operands, 0, wider, "floating-point numbers of more than 8 bits")
}

pub(super) fn quantize_nvfp4_type(it: &Nvfp4, operands: &[Type]) -> Result<Vec<Type>> {
    let [x, amax] = [&operands[0], &operands[1]];
    let wider = x.dtype.is_float() && !x.dtype.is_f8();
    expect(operands, 0, wider, "floating-point numbers of more than 8 bits")?;
    expect(operands, 1, amax.dtype == DType::F32 && amax.elements() > 0, "magnitudes in f32")?;
    within(it.dim, x.rank())?;
    if let Some(across) = it.across {
        within(across, x.rank())?;
    }
    if let Some(number) = operands.get(2) {
        let one = number.dtype == DType::I64 && number.rank() == 0;
        expect(operands, 2, one, "one number (i64) of no dimensions")?;
    }
    let blocks = it.blocks(&x.shape);
    expect(operands, 0, blocks.is_some(), "blocks of 16 along the dimensions that are said")?;
    let scales = Type::new(DType::F8E4M3FN, blocks.unwrap_or_default());
    Ok(vec![Type::new(DType::U8, it.bytes(&x.shape)), scales, Type::new(DType::F32, [])])
}

fn scaled_contract_of_4_bits(contract: &Contract, to: DType, operands: &[Type]) -> Result<Type> {
    for index in [0, 1] {
        let (codes, scales, all) = (&operands[index], &operands[index + 2], &operands[index + 4]);
        expect(operands, index, codes.dtype == DType::U8, "numbers of 4 bits, two in a byte (u8)")?;
        let packed = packed_dim(codes, scales);
        let falls = |(dim, (&size, &blocks)): (usize, (&u64, &u64))| {
            Some(dim) == packed || size == blocks || size == Nvfp4::BLOCK * blocks
        };
        let right = scales.dtype == DType::F8E4M3FN
            && packed.is_some()
            && codes.shape.iter().zip(&scales.shape).enumerate().all(falls);
        expect(operands, index + 2, right, "scales (f8e4m3fn) of blocks of 16")?;
        expect(operands, index + 4, all.dtype == DType::F32 && all.rank() == 0, "one scale (f32)")?;
    }
    let wide = [0, 1].map(|it: usize| numbers(&operands[it], &operands[it + 2]));
    Ok(Type::new(to, contract_shape(contract, &wide)?))
}

pub(super) fn scaled_contract_type(contract: &Contract, to: DType, operands: &[Type]) -> Result<Vec<Type>> {
    if !matches!(to, DType::F32 | DType::F16 | DType::BF16) {
        return Err(TypeError::Attribute(format!("elements {to}, expected f32, f16 or bf16")));
    }
    let (sum, addend) = match operands {
        [all @ .., addend] if operands.len() % 2 == 1 => (all, Some(addend)),
        all => (all, None),
    };
    let made = match sum.len() {
        6 => scaled_contract_of_4_bits(contract, to, sum)?,
        _ => scaled_contract_of_8_bits(contract, to, sum)?,
    };
    if let Some(addend) = addend {
        expect(operands, sum.len(), *addend == made, &made.to_string())?;
    }
    Ok(vec![made])
}

fn scaled_contract_of_8_bits(contract: &Contract, to: DType, operands: &[Type]) -> Result<Type> {
    for index in [0, 1] {
        let (x, scale) = (&operands[index], &operands[index + 2]);
        expect(operands, index, x.dtype.is_f8(), "floating-point numbers of 8 bits")?;
        let one = scale.dtype == DType::F32 && scale.rank() == 0;
        let falls = |(&size, &blocks): (&u64, &u64)| blocks > 0 && size.is_multiple_of(blocks);
        let of_blocks = scale.dtype == DType::U8
            && scale.rank() == x.rank()
            && x.shape.iter().zip(&scale.shape).all(falls);
        expect(operands, index + 2, one || of_blocks, "one scale (f32) or exponents (u8) of blocks")?;
    }
    Ok(Type::new(to, contract_shape(contract, operands)?))
}

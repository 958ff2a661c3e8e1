//! The results of gradients and of the steps of optimizers.

use super::checks::{checked_elements, expect, fits_into, is_index, same_dtype};
use super::products::{attention_type, conv_type, experts_type, sum_type};
use super::{Result, TypeError};
use crate::data::{DType, Type};
use crate::op::{Attention, Blind, Conv, Op, Optimizer, Unary};

/// Floating-point operands of one type, of a function that has a derivative.
pub(super) fn smooth(function: Unary, operands: &[Type]) -> Result<()> {
    has_derivative(function)?;
    same_floats(operands)
}

/// Floating-point operands of one type.
pub(super) fn same_floats(operands: &[Type]) -> Result<()> {
    expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
    for index in 1..operands.len() {
        expect(operands, index, operands[index] == operands[0], "the type of operand 0")?;
    }
    Ok(())
}

fn has_derivative(function: Unary) -> Result<()> {
    if function.is_smooth() {
        return Ok(());
    }
    Err(TypeError::Attribute(format!("`{}` has no derivative", Op::Unary(function).name())))
}

pub(super) fn norm_gradient_type(dims: usize, operands: &[Type]) -> Result<Vec<Type>> {
    let rank = operands[0].rank();
    if dims == 0 || dims > rank {
        return Err(TypeError::Attribute(format!("{dims} dimensions normalised of {rank}")));
    }
    expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
    fits_into(operands, 1..2)?;
    expect(operands, 2, operands[2] == operands[0], "the type of operand 0")?;
    Ok(vec![operands[0].clone()])
}

/// Operands q, k, v, y, statistics, dy and perhaps a mask, and documents.
pub(super) fn attention_gradient_type(mask: bool, operands: &[Type]) -> Result<Vec<Type>> {
    let given: Vec<Type> = operands[..3].iter().chain(&operands[6..]).cloned().collect();
    // Told with the places that operands have here.
    let placed = |error| match error {
        TypeError::Operand(at @ 3.., found, expected) => TypeError::Operand(at + 3, found, expected),
        other => other,
    };
    expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
    let made = attention_type(&Attention { statistics: true, ..PLAIN }, &given).map_err(placed)?;
    for (index, expected) in [(3, &made[0]), (4, &made[1]), (5, &made[0])] {
        expect(operands, index, operands[index] == *expected, &expected.to_string())?;
    }
    let mut results = operands[..3].to_vec();
    if mask {
        let is_number = operands[6].dtype != DType::Bool;
        expect(operands, 6, is_number, "a mask of numbers, which has a gradient")?;
        results.push(operands[6].clone());
    }
    Ok(results)
}

/// Attention of which only the types matter.
const PLAIN: Attention = Attention {
    scale: crate::data::Real(1.0),
    causal: false,
    softcap: crate::data::Real(0.0),
    window: None,
    blind: Blind::Zero,
    sinks: false,
    statistics: false,
};

/// Operands indices, dy.
pub(super) fn gather_gradient_type(dim: usize, extent: u64, operands: &[Type]) -> Result<Vec<Type>> {
    expect(operands, 0, is_index(operands[0].dtype), "indices (i64 or i32)")?;
    let (indices, made) = (&operands[0].shape, &operands[1].shape);
    expect(operands, 1, operands[1].dtype != DType::Bool, "numbers")?;
    let end = dim.checked_add(indices.len()).filter(|&end| end <= made.len());
    let right = end.is_some_and(|end| made[dim..end] == indices[..]);
    expect(operands, 1, right, &format!("the extents of the indices from dimension {dim}"))?;
    let mut shape = made.clone();
    shape.splice(dim..dim + indices.len(), [extent]);
    checked_elements(&shape)?;
    Ok(vec![Type::new(operands[1].dtype, shape)])
}

/// Operands w, dy.
pub(super) fn conv_input_gradient_type(conv: &Conv, spatial: &[u64], operands: &[Type]) -> Result<Vec<Type>> {
    let (w, dy) = (&operands[0], &operands[1]);
    let ranks = w.rank() == spatial.len() + 2 && dy.rank() == w.rank();
    expect(operands, 1, ranks, &format!("{} dimensions", spatial.len() + 2))?;
    let channels = w.shape[1].saturating_mul(conv.groups);
    let x = Type::new(w.dtype, [&[dy.shape[0], channels], spatial].concat());
    checked_elements(&x.shape)?;
    same_dtype(operands, 0, 1)?;
    let made = conv_type(conv, &[x.clone(), w.clone()])?;
    expect(operands, 1, *dy == made[0], &made[0].to_string())?;
    Ok(vec![x])
}

/// Operands x, dy.
pub(super) fn conv_weight_gradient_type(conv: &Conv, window: &[u64], operands: &[Type]) -> Result<Vec<Type>> {
    let (x, dy) = (&operands[0], &operands[1]);
    let ranks = x.rank() == window.len() + 2 && dy.rank() == x.rank();
    expect(operands, 1, ranks, &format!("{} dimensions", window.len() + 2))?;
    let divides = conv.groups > 0 && x.shape[1].is_multiple_of(conv.groups);
    expect(operands, 0, divides, "channels that the groups divide")?;
    let w = Type::new(x.dtype, [&[dy.shape[1], x.shape[1] / conv.groups], window].concat());
    checked_elements(&w.shape)?;
    same_dtype(operands, 0, 1)?;
    let made = conv_type(conv, &[x.clone(), w.clone()])?;
    expect(operands, 1, *dy == made[0], &made[0].to_string())?;
    Ok(vec![w])
}

/// Operands scores, labels, dloss.
pub(super) fn cross_entropy_gradient_type(operands: &[Type]) -> Result<Vec<Type>> {
    let scores = &operands[0];
    expect(operands, 0, scores.rank() > 0 && scores.dtype.is_float(), "rows of scores")?;
    let rows = &scores.shape[..scores.rank() - 1];
    let right = operands[1].shape == rows && is_index(operands[1].dtype);
    expect(operands, 1, right, "an integer for each row")?;
    same_dtype(operands, 0, 2)?;
    expect(operands, 2, operands[2].shape == rows, "a number for each row")?;
    Ok(vec![scores.clone()])
}

/// Operands x, gates, up, gate (if gated), down, biases (if there are some), dy, and what these results are added to.
pub(super) fn experts_gradient_type(
    activation: Unary,
    adds: &[usize],
    operands: &[Type],
) -> Result<Vec<Type>> {
    has_derivative(activation)?;
    let given = operands.len() - adds.len();
    let last = given - 1;
    experts_type(&operands[..last])?;
    expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
    expect(operands, last, operands[last] == operands[0], "the type of operand 0")?;
    let mut results = operands[..last].to_vec();
    let is_weight = |it: &usize| *it >= 2 && results.get(*it).is_some_and(|it| it.rank() == 3);
    if !adds.iter().all(is_weight) || !adds.is_sorted_by(|one, other| one < other) {
        let message = format!("{adds:?} is added to, expected gradients of weights, in order");
        return Err(TypeError::Attribute(message));
    }
    for (index, &result) in (given..).zip(adds) {
        results[result] = sum_type(&results[result], operands, index)?;
    }
    Ok(results)
}

/// Operands p, g, moments, and numbers of no dimensions.
pub(super) fn update_type(optimizer: Optimizer, operands: &[Type]) -> Result<Vec<Type>> {
    let numbers = 2 + optimizer.moments();
    for index in 0..numbers {
        let right = operands[index].dtype.is_float() && operands[index].shape == operands[0].shape;
        expect(operands, index, right, "floating-point numbers in the parameter's shape")?;
    }
    let number = Type::new(DType::F32, []);
    for index in numbers..operands.len() {
        expect(operands, index, operands[index] == number, &number.to_string())?;
    }
    let moments = operands[2..numbers].iter();
    Ok(operands[..1].iter().chain(moments).cloned().collect())
}

//! Which products are of linear layers, and how their operands fall into blocks.

use std::collections::BTreeSet;

use plan::Scaling;
use planner_ir::{Contract, Graph, Label, Nvfp4, OpClass, Phase, Source, StateKind, Type};

use crate::derived::Step;

/// What extents of a product are a multiple of: 16 bytes.
///
/// Source: NVIDIA cuBLAS documentation, "8-bit Floating Point Data Types (FP8) Usage".
const ALIGNED: u64 = 16;

/// How many numbers of 8 bits share a scale.
///
/// Source: Open Compute Project, "Microscaling Formats (MX) Specification", version 1.0, section 5.2.
pub(super) const BLOCK: u64 = 32;

/// How many parts the magnitudes of a value are found in, along its last dimension and along the others
/// together, at most: so many devices may each have one.
const PARTS: [u64; 2] = [32, 512];

/// For each value, whether it is a weight, or one taken apart.
pub(super) fn weights(graph: &Graph) -> Vec<bool> {
    let is_weight = |source: &Source| match source {
        Source::Weight(_) => true,
        Source::State(state) => state.kind == StateKind::Parameter,
        Source::Input(_) | Source::Result { .. } => false,
    };
    let mut weights: Vec<bool> = graph.values.iter().map(|value| is_weight(&value.source)).collect();
    for (node, on) in graph.nodes.iter().zip(graph.on_parameters()) {
        let any = on && node.operands.iter().any(|operand| weights[operand.0]);
        for result in &node.results {
            weights[result.0] = any;
        }
    }
    weights
}

/// For each operation, whether it is the forward product of a linear layer: of a weight with what is none,
/// followed by other products.
pub(super) fn linear(graph: &Graph, weights: &[bool]) -> Vec<bool> {
    // For each value, whether it leads to another product.
    let mut leads = vec![false; graph.values.len()];
    let mut linear = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev().filter(|(_, it)| it.phase == Phase::Forward) {
        let class = node.op.class();
        let follows = node.results.iter().any(|result| leads[result.0]);
        if let (OpClass::MatrixProduct(_), [a, b]) = (class, &node.operands[..]) {
            linear[index] = follows && weights[a.0] != weights[b.0];
        }
        let is_product = matches!(
            class,
            OpClass::MatrixProduct(_) | OpClass::Attention(_) | OpClass::Recurrence(_) | OpClass::Experts(_)
        );
        for operand in &node.operands {
            leads[operand.0] |= follows || is_product;
        }
    }
    linear
}

/// In how many parts the magnitudes of a value are found: as many along each dimension as it falls into, up to
/// a bound. Blocks that are turned along a dimension are not cut.
pub(super) fn parts(shape: &[u64], rotated: Option<usize>) -> Vec<u64> {
    let [of_last, mut of_others] = PARTS;
    let last = shape.len().saturating_sub(1);
    let part = |(dim, &size): (usize, &u64)| {
        let most = if dim == last { of_last } else { of_others };
        let size = if rotated == Some(dim) { size / Nvfp4::BLOCK } else { size };
        let parts = gcd(size, most);
        if dim != last {
            of_others /= parts;
        }
        parts
    };
    shape.iter().enumerate().map(part).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether rows, columns and the sum of a product that is no batch of them are multiples of what units for
/// 8 bits take.
pub(super) fn is_aligned(contract: &Contract, operands: &[Type]) -> bool {
    let [mut rows, mut columns, mut summed] = [1; 3];
    for (label, &size) in contract.left.iter().zip(&operands[0].shape) {
        match (contract.right.contains(label), contract.result.contains(label)) {
            (true, true) if size > 1 => return false,
            (true, _) => summed *= size,
            (false, _) => rows *= size,
        }
    }
    for (_, &size) in
        contract.right.iter().zip(&operands[1].shape).filter(|(it, _)| !contract.left.contains(it))
    {
        columns *= size;
    }
    [rows, columns, summed].iter().all(|it: &u64| it.is_multiple_of(ALIGNED))
}

/// The dimensions of both operands that blocks lie along: the last of the left one that is summed, if it falls
/// into blocks.
pub(super) fn block_dims(contract: &Contract, operands: &[Type]) -> Option<[usize; 2]> {
    let summed = |label: &Label| contract.right.contains(label) && !contract.result.contains(label);
    let left = contract.left.iter().rposition(summed)?;
    let right = contract.right.iter().position(|it| *it == contract.left[left])?;
    operands[0].shape[left].is_multiple_of(BLOCK).then_some([left, right])
}

/// What a product is of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Its result.
    Result,
    /// The gradient of its left operand.
    Left,
    /// That of its right one.
    Right,
}

/// What a sum is of a linear layer, by the layer's forward sum.
pub(super) fn side(contract: &Contract, forward: &Contract) -> Option<Side> {
    let operands = [&contract.left, &contract.right];
    if contract == forward {
        // Forward, or done again.
        Some(Side::Result)
    } else if operands == [&forward.result, &forward.right] {
        Some(Side::Left)
    } else if operands == [&forward.left, &forward.result] {
        Some(Side::Right)
    } else {
        None
    }
}

/// Leaves out the linear layers of the last blocks, as many as stay in 16 bits.
pub(super) fn stay_wide(step: &Step, scaling: Scaling, linear: &mut [bool]) {
    let all = || step.homes.iter().zip(linear.iter()).filter(|(_, it)| **it).map(|(home, _)| *home);
    let homes: BTreeSet<usize> = all().collect();
    let wide = scaling.wide(homes.len());
    let Some(&first) = wide.checked_sub(1).and_then(|it| homes.iter().nth_back(it)) else { return };
    for (it, home) in linear.iter_mut().zip(&step.homes) {
        *it &= *home < first;
    }
}

/// How both operands of a product become numbers of 4 bits, by the sum, the operands' types and the place of the
/// weight of the linear layer that it is of; `None` if they do not fall into blocks of 16.
///
/// Blocks lie along the last label that is summed over. A weight has those of both products that read it.
pub(super) fn fours(forward: &Contract, types: &[Type], weight: usize, side: Side) -> Option<[Nvfp4; 2]> {
    let labels = [&forward.left, &forward.right];
    let [of_weight, of_value] = [labels[weight], labels[1 - weight]];
    let last = |of: &[Label], is: &dyn Fn(&Label) -> bool| of.iter().copied().rfind(|it| is(it));
    let summed = last(of_weight, &|it| !forward.result.contains(it))?;
    let column = last(of_weight, &|it| forward.result.contains(it))?;
    let row = last(of_value, &|it| forward.result.contains(it))?;
    let dim = |of: &[Label], label: Label| of.iter().position(|it| *it == label);
    let sizes = [(weight, summed), (weight, column), (1 - weight, row)];
    for (operand, label) in sizes {
        if !types[operand].shape[dim(labels[operand], label)?].is_multiple_of(Nvfp4::BLOCK) {
            return None;
        }
    }
    let along = |of: &[Label], label: Label| Some(Nvfp4 { dim: dim(of, label)?, ..Nvfp4::default() });
    let square = Nvfp4 { across: dim(of_weight, column), ..along(of_weight, summed)? };
    let by_chance = |it: Nvfp4| Nvfp4 { seed: Some(0), ..it };
    let rotated = |it: Nvfp4| Nvfp4 { rotated: true, ..it };
    let gradient = |label: Label| Some(by_chance(along(&forward.result, label)?));
    // In the order of the weight and what it is multiplied with, or the gradient that stands in the place of one.
    let is_of_weight = match side {
        Side::Result => None,
        Side::Left => Some(weight == 0),
        Side::Right => Some(weight == 1),
    };
    let [in_weight, in_value] = match is_of_weight {
        None => [square, along(of_value, summed)?],
        Some(false) => [square, gradient(column)?],
        Some(true) => [rotated(gradient(row)?), rotated(along(of_value, row)?)],
    };
    Some(if weight == 0 { [in_weight, in_value] } else { [in_value, in_weight] })
}

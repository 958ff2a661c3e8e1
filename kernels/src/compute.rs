//! Which kernel computes an operation, on blocks and on whole values.

mod region; // programs whose shapes depend on data

use planner_ir::{Op, Type};

use crate::array::{Array, Tensor, TensorMut, byte_count};
use crate::attention::Turn;
use crate::error::KernelError;
use crate::norm::{Centre, Scale};
use crate::number::{Number, computed_as, with_number};
use crate::pieces::in_pieces;
use crate::reduce::{From, Own};
use crate::widen::{converted, widened};
use crate::{
    attention, cast, contract, conv, elementwise, experts, generate, indexing, loss, movement, narrow, norm,
    optimizer, order, quantised, recurrence, reduce, resize,
};

/// Computes blocks of an operation's results from blocks of its operands.
///
/// Shapes are those of the blocks, whatever the operation says of whole values; spans say where
/// the blocks lie. Every element of the results is set. Addends of sums may be asked for in the
/// elements in which they are accumulated: see `DType::accumulated`.
pub fn compute(op: &Op, operands: &[Tensor], results: &mut [TensorMut]) -> Result<(), KernelError> {
    for x in operands {
        check_bytes(x.bytes.len(), byte_count(x.dtype, x.shape)?)?;
        check_spans(x.shape.len(), x.spans.len())?;
    }
    for y in results.iter() {
        check_bytes(y.bytes.len(), byte_count(y.dtype, y.shape)?)?;
        check_spans(y.shape.len(), y.spans.len())?;
    }
    let addends = op.addends(operands.len()).len();
    if addends > 0 {
        let (factors, addends) = operands.split_at(operands.len() - addends);
        return add(op, factors, &addends.iter().copied().map(Some).collect::<Vec<_>>(), results);
    }
    if moves_bytes(op) {
        return picked(op, operands, results);
    }
    in_pieces(op, operands, results, |operands, results| {
        attention::with_low(op, operands, |operands| {
            widened(operands, results, |operands, results| dispatch(op, operands, results))
        })
    })
}

/// Computes blocks of an operation that adds results to its last operands: the addends, in order, of which none is
/// given that is where the result is written. Each element of a sum is that of the product and a sum of their own, in
/// the elements in which kernels compute, rounded once.
pub fn add(
    op: &Op,
    factors: &[Tensor],
    addends: &[Option<Tensor>],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let sums = op.addends(factors.len() + addends.len());
    let of_results = sums.iter().all(|it| it.1 < results.len());
    if sums.len() != addends.len() || !of_results {
        let (found, expected) = (addends.len(), "as many as results are added to");
        return Err(KernelError::Count { of: "addends", found, expected });
    }
    for (addend, &(_, result)) in addends.iter().zip(&sums) {
        if let Some(addend) = addend {
            cast::cast(addend, &mut results[result])?;
        }
    }
    let product = |(number, y): (usize, &TensorMut)| {
        let adds = sums.iter().any(|it| it.1 == number);
        adds.then(|| Array::zeros(Type::new(computed_as(y.dtype), y.shape))).transpose()
    };
    let mut products: Vec<Option<Array>> =
        results.iter().enumerate().map(product).collect::<Result<_, _>>()?;
    let mut targets: Vec<TensorMut> = Vec::with_capacity(results.len());
    for (y, product) in results.iter_mut().zip(&mut products) {
        targets.push(match product {
            Some(product) => TensorMut { spans: y.spans, ..product.tensor_mut() },
            None => y.reborrow(),
        });
    }
    compute(&op.alone(), factors, &mut targets)?;
    let sums = results.iter_mut().zip(&products).filter_map(|(y, product)| Some((y, product.as_ref()?)));
    sums.into_iter().try_for_each(|(y, product)| add_to(y, product))
}

/// Writes what an operation changes of what lies where its result is: the operands but for that one.
pub fn write(op: &Op, others: &[Tensor], y: &mut TensorMut) -> Result<(), KernelError> {
    let [index, updates] = these(others, "2")?;
    match op {
        Op::ScatterElements { dim, scatter } => indexing::write_elements(*dim, *scatter, [index, updates], y),
        Op::ScatterNd { scatter } => indexing::write_nd(*scatter, [index, updates], y),
        _ => Err(KernelError::Type(format!("{} writes over no operand", op.name()))),
    }
}

/// Adds a product to what is there.
fn add_to(y: &mut TensorMut, product: &Array) -> Result<(), KernelError> {
    let wide = product.type_().dtype;
    if wide == y.dtype {
        return with_number!(wide, "a sum", T => added::<T>(product.elements()?, y.elements_mut()?));
    }
    let mut sum = converted(&y.there(), wide)?;
    with_number!(wide, "a sum", T => {
        added::<T>(product.elements()?, sum.tensor_mut().elements_mut()?)
    })?;
    cast::cast(&sum.tensor(), y)
}

fn added<T: Number>(more: &[T], to: &mut [T]) -> Result<(), KernelError> {
    to.iter_mut().zip(more).for_each(|(to, more)| *to = to.plus(*more));
    Ok(())
}

/// Computes an operation's whole results from whole operands.
///
/// Results have the types that inference gives them; those of an operation whose shapes depend
/// on data have the shapes that the data ask for.
pub fn evaluate(op: &Op, operands: &[&Array]) -> Result<Vec<Array>, KernelError> {
    let operands: Vec<Tensor> = operands.iter().map(|x| x.tensor()).collect();
    evaluate_tensors(op, &operands)
}

/// Computes an operation's whole results from whole operands.
pub(crate) fn evaluate_tensors(op: &Op, operands: &[Tensor]) -> Result<Vec<Array>, KernelError> {
    match op {
        Op::Region(region) => return region::interpret(region, operands),
        Op::Dynamic(dynamic) => return region::dynamic(dynamic, operands),
        _ => {}
    }
    let types: Vec<Type> = operands.iter().map(|x| Type::new(x.dtype, x.shape)).collect();
    let types = op.infer(&types).map_err(|error| KernelError::Type(error.to_string()))?;
    let mut results = types.into_iter().map(Array::zeros).collect::<Result<Vec<_>, _>>()?;
    let mut targets: Vec<TensorMut> = results.iter_mut().map(Array::tensor_mut).collect();
    compute(op, operands, &mut targets)?;
    Ok(results)
}

/// The operations that take elements of every type. Addends of sums, which elements that are picked
/// by an index may be, can be asked for in the elements in which they are accumulated.
fn picked(op: &Op, operands: &[Tensor], results: &mut [TensorMut]) -> Result<(), KernelError> {
    let picks = matches!(op, Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. });
    match (operands.first(), &mut results[..]) {
        (Some(data), [y]) if picks && data.dtype != y.dtype && data.dtype.accumulated() == y.dtype => {
            let mut narrow = Array::zeros(Type::new(data.dtype, y.shape))?;
            dispatch(op, operands, &mut [TensorMut { spans: y.spans, ..narrow.tensor_mut() }])?;
            cast::cast(&narrow.tensor(), y)
        }
        _ => dispatch(op, operands, results),
    }
}

/// Whether an operation's kernel takes elements of every type.
fn moves_bytes(op: &Op) -> bool {
    match op {
        Op::Constant { .. }
        | Op::Fill { .. }
        | Op::Iota { .. }
        | Op::Select
        | Op::Cast(_)
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Expand { .. }
        | Op::Concat { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. }
        | Op::Triangle { .. }
        | Op::Dequantize { .. }
        | Op::Update(_)
        | Op::RoundStochastically { .. }
        | Op::Amax { .. }
        | Op::Quantize { .. }
        | Op::QuantizeBlocks { .. }
        | Op::QuantizeNvfp4(_)
        | Op::Remember
        | Op::ScaledContract { .. }
        | Op::Region(_) => true,
        Op::ScatterElements { scatter, .. } | Op::ScatterNd { scatter } => scatter.replaces(),
        _ => false,
    }
}

fn dispatch(op: &Op, operands: &[Tensor], results: &mut [TensorMut]) -> Result<(), KernelError> {
    match op {
        Op::TopK { dim, extreme, .. } => {
            let [x] = these(operands, "1")?;
            order::top(*extreme, *dim, x, pair(results)?)
        }
        Op::Dropout { ratio, seed } => match operands {
            [x] => generate::dropout(*ratio, *seed, (x, None), pair(results)?),
            [x, number] => generate::dropout(*ratio, *seed, (x, Some(number)), pair(results)?),
            _ => Err(unfit(operands.len())),
        },
        Op::RoundStochastically { seed } => match operands {
            [x] => generate::round_stochastically(*seed, (x, None), single(results)?),
            [x, number] => generate::round_stochastically(*seed, (x, Some(number)), single(results)?),
            _ => Err(unfit(operands.len())),
        },
        Op::Amax { rotated, .. } => {
            let [x] = these(operands, "1")?;
            narrow::amax(*rotated, x, single(results)?)
        }
        Op::Quantize { .. } => narrow::quantize(these(operands, "2")?, results),
        Op::Remember => narrow::remember(these(operands, "2")?, single(results)?),
        Op::QuantizeBlocks { dim, block, .. } => {
            let [x] = these(operands, "1")?;
            narrow::quantize_blocks(*dim, *block, x, pair(results)?)
        }
        Op::QuantizeNvfp4(how) => narrow::quantize_nvfp4(how, operands, results),
        Op::ScaledContract { contract, .. } => narrow::scaled_contract(contract, operands, single(results)?),
        Op::GatedGradient(activation) => {
            let operands = these(operands, "3")?;
            elementwise::gated_gradient(*activation, operands, pair(results)?)
        }
        Op::Attention(attributes) => attention::attention(attributes, operands, results),
        Op::AttentionMerge => attention::attention_merge(these(operands, "4")?, pair(results)?),
        Op::AttentionGradient { attention, .. } => {
            attention::attention_gradient(attention, operands, results)
        }
        Op::Recurrence(it) => recurrence::recurrence(*it, operands, results),
        Op::ExpertsGradient { activation, limit, .. } => {
            experts::experts_gradient(*activation, *limit, operands, results)
        }
        Op::Update(optimizer) => optimizer::update(*optimizer, operands, results),
        Op::Region(region) => region::compute(region, operands, results),
        Op::Dynamic(_) => Err(KernelError::Type("shapes that depend on data have no blocks".to_owned())),
        Op::Concat { .. } | Op::Experts { .. } => dispatch_many(op, operands, single(results)?),
        _ => {
            let y = single(results)?;
            match operands {
                [] => dispatch_none(op, y),
                [x] => dispatch_one(op, x, y),
                [a, b] => dispatch_two(op, [a, b], y),
                [a, b, c] => dispatch_three(op, [a, b, c], y),
                _ => Err(unfit(operands.len())),
            }
        }
    }
}

fn dispatch_none(op: &Op, y: &mut TensorMut) -> Result<(), KernelError> {
    match op {
        Op::Constant { result, data } => generate::constant(result, data, y),
        Op::Fill { value, .. } => movement::fill(*value, y),
        Op::Iota { start, step, .. } => generate::iota(*start, *step, y),
        _ => Err(unfit(0)),
    }
}

fn dispatch_one(op: &Op, x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    match op {
        Op::Unary(function) => elementwise::unary(*function, x, y),
        Op::Cast(_) => cast::cast(x, y),
        Op::Reduce { reduction, dims } => reduce::reduce(*reduction, dims, x, y),
        Op::ArgExtreme { extreme, dim } => order::arg_extreme(*extreme, *dim, x, y),
        Op::Softmax { dim } => norm::softmax(Scale::Linear, *dim, x, y),
        Op::LogSoftmax { dim } => norm::softmax(Scale::Logarithmic, *dim, x, y),
        Op::Reshape { .. } => movement::reshape(x, y),
        Op::Transpose { permutation } => movement::transpose(permutation, x, y),
        Op::Expand { .. } => movement::expand(x, y),
        Op::Slice { starts, steps, .. } => movement::slice(starts, steps, x, y),
        Op::Pad { before, edge, .. } => movement::pad(before, *edge, x, y),
        Op::Triangle { triangle, diagonal } => movement::triangle(*triangle, *diagonal, x, y),
        Op::CumSum { dim, exclusive, reverse } => {
            let own = if *exclusive { Own::LeftOut } else { Own::Included };
            let from = if *reverse { From::End } else { From::Start };
            reduce::cumulative_sum(*dim, own, from, x, y)
        }
        Op::Resize(attributes) => resize::resize(attributes, x, y),
        _ => Err(unfit(1)),
    }
}

fn dispatch_two(op: &Op, operands: [&Tensor; 2], y: &mut TensorMut) -> Result<(), KernelError> {
    match op {
        Op::Binary(function) => elementwise::binary(*function, operands, y),
        Op::Gated(activation) => elementwise::gated(*activation, operands, y),
        Op::Contract(labels) => contract::contract(labels, operands, y),
        Op::LayerNorm { dims, epsilon } => norm::normalise(Centre::Mean, *dims, *epsilon, operands, None, y),
        Op::RmsNorm { dims, epsilon } => norm::normalise(Centre::Zero, *dims, *epsilon, operands, None, y),
        Op::Gather { dim } => indexing::gather(*dim, operands, y),
        Op::GatherElements { dim } => indexing::gather_elements(*dim, operands, y),
        Op::GatherNd { batch_dims } => indexing::gather_nd(*batch_dims, operands, y),
        Op::Conv(attributes) => conv::conv(attributes, operands, None, y),
        Op::CrossEntropy { ignored } => loss::cross_entropy(*ignored, operands, y),
        Op::Dequantize { bits, block, .. } => quantised::dequantise(*bits, *block, operands, None, y),
        Op::UnaryGradient(function) => elementwise::unary_gradient(*function, operands, y),
        Op::SoftmaxGradient { dim } => norm::softmax_gradient(*dim, operands, y),
        Op::GatherGradient { dim, .. } => indexing::gather_gradient(*dim, operands, y),
        Op::ConvInputGradient { conv, .. } => conv::conv_input_gradient(conv, operands, y),
        Op::ConvWeightGradient { conv, .. } => conv::conv_weight_gradient(conv, operands, y),
        _ => Err(unfit(2)),
    }
}

fn dispatch_three(op: &Op, [a, b, c]: [&Tensor; 3], y: &mut TensorMut) -> Result<(), KernelError> {
    match op {
        Op::Select => elementwise::select([a, b, c], y),
        Op::LayerNorm { dims, epsilon } => norm::normalise(Centre::Mean, *dims, *epsilon, [a, b], Some(c), y),
        Op::InstanceNorm { epsilon } => norm::normalise_instances(*epsilon, [a, b, c], y),
        Op::Rotary(pairing) => attention::rotary(*pairing, Turn::Forward, [a, b, c], y),
        Op::RotaryGradient(pairing) => attention::rotary(*pairing, Turn::Back, [a, b, c], y),
        Op::LayerNormGradient { dims, epsilon } => {
            norm::normalise_gradient(Centre::Mean, *dims, *epsilon, [a, b, c], y)
        }
        Op::RmsNormGradient { dims, epsilon } => {
            norm::normalise_gradient(Centre::Zero, *dims, *epsilon, [a, b, c], y)
        }
        Op::CrossEntropyGradient { ignored } => loss::cross_entropy_gradient(*ignored, [a, b, c], y),
        Op::ScatterElements { dim, scatter } => indexing::scatter_elements(*dim, *scatter, [a, b, c], y),
        Op::ScatterNd { scatter } => indexing::scatter_nd(*scatter, [a, b, c], y),
        Op::Conv(attributes) => conv::conv(attributes, [a, b], Some(c), y),
        Op::Dequantize { bits, block, .. } => quantised::dequantise(*bits, *block, [a, b], Some(c), y),
        _ => Err(unfit(3)),
    }
}

fn dispatch_many(op: &Op, operands: &[Tensor], y: &mut TensorMut) -> Result<(), KernelError> {
    match op {
        Op::Concat { dim } => movement::concat(*dim, operands, y),
        Op::Experts { activation, limit, .. } => experts::experts(*activation, *limit, operands, y),
        _ => Err(unfit(operands.len())),
    }
}

fn unfit(found: usize) -> KernelError {
    KernelError::Count { of: "operands", found, expected: "what the operation takes" }
}

/// The operands, if there are just so many.
fn these<'a, 'b, const N: usize>(
    operands: &'a [Tensor<'b>],
    expected: &'static str,
) -> Result<[&'a Tensor<'b>; N], KernelError> {
    let found = operands.len();
    operands.iter().collect::<Vec<_>>().try_into().map_err(|_| KernelError::Count {
        of: "operands",
        found,
        expected,
    })
}

/// The result, if there is one.
fn single<'a, 'b>(results: &'a mut [TensorMut<'b>]) -> Result<&'a mut TensorMut<'b>, KernelError> {
    match results {
        [y] => Ok(y),
        _ => Err(KernelError::Count { of: "results", found: results.len(), expected: "1" }),
    }
}

/// The results, if there are two.
fn pair<'a, 'b>(results: &'a mut [TensorMut<'b>]) -> Result<[&'a mut TensorMut<'b>; 2], KernelError> {
    match results {
        [first, second] => Ok([first, second]),
        _ => Err(KernelError::Count { of: "results", found: results.len(), expected: "2" }),
    }
}

fn check_bytes(found: usize, expected: usize) -> Result<(), KernelError> {
    if found == expected {
        return Ok(());
    }
    let expected = u64::try_from(expected).map_err(|_| KernelError::Size)?;
    Err(KernelError::Bytes { found, expected })
}

fn check_spans(rank: usize, found: usize) -> Result<(), KernelError> {
    if found == 0 || found == rank {
        return Ok(());
    }
    Err(KernelError::Count { of: "spans", found, expected: "one for each dimension" })
}

#[cfg(test)]
mod tests;

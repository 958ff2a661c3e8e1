//! Attention and its gradients, and sums of products.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{Attention, Blind, Contract, Conv, DType, Label, Op, Real, Type};

use super::emulator::{Trial, check, missing_barriers};
use super::values::{many, numbers, tolerance, whole};
use crate::array::{Array, Span};
use crate::finite::cast;

/// Attention of some kind, and its operands.
fn attention(u: &mut Unstructured, dtype: DType, seed: u64) -> Result<(Attention, Vec<Array>)> {
    let groups = u.int_in_range(1..=2)?;
    let heads = groups * u.int_in_range(1..=2)?;
    let batch = u.int_in_range(1..=2)?;
    let (queries, keys) = (*u.choose(&[1, 7, 32, 40, 140])?, *u.choose(&[1, 9, 32, 70, 150])?);
    let (size, value_size) =
        *u.choose(&[(8, 8), (16, 16), (20, 36), (64, 64), (80, 80), (112, 96), (128, 128)])?;
    let attention = Attention {
        scale: Real(0.3),
        causal: u.arbitrary()?,
        softcap: Real(if u.ratio(1, 4)? { 2.0 } else { 0.0 }),
        window: if u.ratio(1, 4)? { Some(u.int_in_range(1..=20)?) } else { None },
        blind: Blind::Zero,
        sinks: false,
        statistics: true,
    };
    let mut operands = vec![
        numbers(dtype, &[batch, heads, queries, size], seed),
        numbers(dtype, &[batch, groups, keys, size], seed + 1),
        numbers(dtype, &[batch, groups, keys, value_size], seed + 2),
    ];
    let mut attention = attention;
    if u.ratio(1, 2)? {
        let mask = [
            *u.choose(&[1, batch])?,
            *u.choose(&[1, heads])?,
            *u.choose(&[1, queries])?,
            *u.choose(&[1, keys])?,
        ];
        let from = u.int_in_range(0..=2)?;
        let of = if u.arbitrary()? { DType::Bool } else { dtype };
        let mask = numbers(of, &mask[from..], seed + 3);
        if of == DType::Bool || mask.to_floats().unwrap().contains(&f64::NEG_INFINITY) {
            attention.blind = *u.choose(&[Blind::Zero, Blind::Mean, Blind::Once])?;
        }
        operands.push(if of == dtype && u.arbitrary()? { with_blind_rows(u, &mask)? } else { mask });
    }
    if u.ratio(1, 3)? {
        let of = *u.choose(&[DType::I64, DType::I32])?;
        let examples = *u.choose(&[1, batch])?;
        operands.push(whole(of, &[examples, 1, queries, 1], 0, 2, seed + 5));
        operands.push(whole(of, &[examples, 1, 1, keys], 0, 2, seed + 6));
    }
    if attention.blind == Blind::Zero && u.ratio(1, 3)? {
        attention.sinks = true;
        operands.push(numbers(
            dtype,
            &[*u.choose(&[1, batch])?, heads, *u.choose(&[1, queries])?, 1],
            seed + 7,
        ));
    }
    Ok((attention, operands))
}

/// A mask some of whose rows hide all keys, and others some, by a number so low that nothing of a score
/// is left.
fn with_blind_rows(u: &mut Unstructured, mask: &Array) -> Result<Array> {
    let dtype = mask.dtype();
    let lowest = match dtype {
        DType::F64 => f64::MIN,
        DType::F32 => f64::from(f32::MIN),
        DType::BF16 => -3.389_531_389_251_535_5e38,
        _ => -65504.0,
    };
    let written = if dtype == DType::F16 { -10000.0 } else { -1e9 };
    let low = *u.choose(&[lowest, written, f64::NEG_INFINITY])?;
    let keys = usize::try_from(*mask.shape().last().unwrap()).unwrap();
    let mut hidden = mask.to_floats().unwrap();
    for (row, numbers) in hidden.chunks_mut(keys).enumerate() {
        match row % 3 {
            0 => numbers.fill(low),
            1 => numbers.iter_mut().skip(keys / 2).for_each(|it| *it = low),
            _ => {}
        }
    }
    Ok(cast(&Array::of(mask.shape(), &hidden).unwrap(), dtype))
}

/// Stripes of queries, and of keys at the same distance or none, where there were blocks.
fn in_stripes(u: &mut Unstructured, trial: &mut Trial) -> Result<()> {
    let stride = u.int_in_range(2..=4)?;
    let own = u.int_in_range(0..=stride - 1)?;
    let of_keys = *u.choose(&[1, stride])?;
    for (operand, stride) in [stride, of_keys, of_keys].into_iter().enumerate() {
        let span = &mut trial.operands[operand].1[2];
        let start = span.start * stride + own.min(stride - 1);
        *span = Span { extent: span.extent * stride, start, run: 1, stride };
    }
    Ok(())
}

#[test]
fn attention_is_computed() {
    let trials = many(40, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64])?;
        let (mut attention, operands) = attention(u, dtype, seed)?;
        attention.statistics = u.arbitrary()?;
        // On tensor cores weights are rounded to as many bits as values have.
        let near = match dtype {
            DType::BF16 => 4e-3,
            DType::F16 => 1e-3,
            _ => 10.0 * tolerance(dtype),
        };
        let mut trial = Trial::whole(Op::Attention(attention), operands, near);
        if u.ratio(1, 3)? {
            // A block of queries, and one of keys.
            let spans = |shape: &[u64], before: u64, after: u64| -> Vec<Span> {
                let whole = shape.iter().map(|&extent| Span::contiguous(extent, 0));
                let mut spans: Vec<Span> = whole.collect();
                spans[2] = Span::contiguous(shape[2] + before + after, before);
                spans
            };
            let (before, after) = (u.int_in_range(0..=40)?, u.int_in_range(0..=20)?);
            let key_before = u.int_in_range(0..=40)?;
            trial.operands[0].1 = spans(trial.operands[0].0.shape(), before, after);
            for operand in 1..3 {
                trial.operands[operand].1 = spans(trial.operands[operand].0.shape(), key_before, after);
            }
            if u.arbitrary()? {
                in_stripes(u, &mut trial)?;
            }
        }
        Ok(trial)
    });
    check(&trials);
}

#[test]
fn gradients_of_attention_are_computed() {
    let trials = many(30, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F16, DType::F64])?;
        let (attention, operands) = attention(u, dtype, seed)?;
        let given: Vec<&Array> = operands.iter().collect();
        let made = crate::evaluate(&Op::Attention(attention), &given).unwrap();
        let dy = numbers(dtype, made[0].shape(), seed + 4);
        let masks = attention.masking(&operands[3..]).to_vec();
        let differentiated = masks.first().is_some_and(|it| it.dtype().is_float()) && u.arbitrary()?;
        let attention = Attention { sinks: false, ..attention };
        let mut all = operands[..3].to_vec();
        all.extend(made.into_iter().chain([dy]).chain(masks));
        let op = Op::AttentionGradient { attention, mask: differentiated };
        // On tensor cores weights and their gradients are rounded to as many bits as values have.
        let near = match dtype {
            DType::BF16 => 1e-2,
            DType::F16 => 2e-3,
            _ => 30.0 * tolerance(dtype),
        };
        let mut trial = Trial::whole(op, all, near);
        if u.ratio(1, 3)? {
            for (array, spans) in &mut trial.operands[..3] {
                *spans = array.shape().iter().map(|&extent| Span::contiguous(extent, 0)).collect();
            }
            in_stripes(u, &mut trial)?;
        }
        Ok(trial)
    });
    check(&trials);
}

#[test]
fn parts_of_attention_are_merged() {
    let trials = many(10, |u, seed| {
        let shape = [2, *u.choose(&[1, 5])?, *u.choose(&[3, 8])?];
        let pairs = [shape[0], shape[1], 2];
        // Sums of one key or more.
        let of = |seed: u64| -> Vec<f32> {
            let made = numbers(DType::F32, &pairs, seed);
            let made = made.elements::<f32>().unwrap().iter().enumerate();
            made.map(|(at, it)| if at % 2 == 0 { *it } else { it.abs() + 1.0 }).collect()
        };
        let mut sums = [0, 1].map(|it| of(seed + it));
        let blind = *u.choose(&[None, Some([f32::NEG_INFINITY, 0.0]), Some([f32::MIN, 3.0])])?;
        if let Some(blind) = blind {
            sums[0][..2].copy_from_slice(&blind);
            if u.arbitrary()? {
                sums[1][..2].copy_from_slice(&blind);
                sums[1][1] /= 3.0;
            }
        }
        let sums = sums.map(|it| Array::of(pairs, &it).unwrap());
        let dtype = *u.choose(&[DType::F32, DType::BF16])?;
        let [first, second] = [2, 3].map(|it| numbers(dtype, &shape, seed + it));
        let [s1, s2] = sums;
        Ok(Trial {
            op: Op::AttentionMerge,
            operands: [first, s1, second, s2].into_iter().map(|it| (it, vec![])).collect(),
            results: vec![(Type::new(dtype, shape), vec![]), (Type::new(DType::F32, pairs), vec![])],
            tolerance: 1e-5,
            in_place: vec![None, None],
            chain: None,
        })
    });
    check(&trials);
}

#[test]
fn odd_sums_of_products_are_computed() {
    let label = |text: &str| text.bytes().map(Label).collect::<Vec<_>>();
    let forms = [("abc", "cb", "ac"), ("ab", "bc", "ac"), ("aibj", "ijc", "cba"), ("ab", "ba", "")];
    let trials = many(24, |u, seed| {
        let (left, right, result) = *u.choose(&forms)?;
        let contract = Contract { left: label(left), right: label(right), result: label(result) };
        let extent = |label: u8| u64::from(label % 7) + 2;
        let shape = |text: &str| text.bytes().map(extent).collect::<Vec<u64>>();
        let is_odd = left.len() > 2 || result.is_empty();
        let floats: &[DType] = if is_odd { &[DType::F32, DType::BF16] } else { &[] };
        let dtypes = [floats, &[DType::I64, DType::I32, DType::U8]].concat();
        let dtype = *u.choose(&dtypes)?;
        let operand = |text: &str, more: u64| match dtype.is_float() {
            true => numbers(dtype, &shape(text), seed + more),
            false => whole(dtype, &shape(text), 0, 9, seed + more),
        };
        let mut operands = vec![operand(left, 0), operand(right, 1)];
        if u.arbitrary()? {
            // Added to something, in more digits where there are fewer than of f32.
            operands.push(match dtype.is_float() {
                true => numbers(dtype.accumulated(), &shape(result), seed + 2),
                false => operand(result, 2),
            });
        }
        Ok(Trial::whole(Op::Contract(contract), operands, 20.0 * tolerance(dtype)))
    });
    check(&trials);
}

#[test]
fn convolutions_and_their_gradients_are_computed() {
    let trials = many(30, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F64])?;
        let spatial = u.int_in_range(1..=2)?;
        let groups = u.int_in_range(1..=2)?;
        let each = |u: &mut Unstructured, low, high| {
            (0..spatial).map(|_| u.int_in_range(low..=high)).collect::<Result<Vec<u64>>>()
        };
        let (strides, dilations) = (each(u, 1, 2)?, each(u, 1, 2)?);
        let (before, after, window) = (each(u, 0, 2)?, each(u, 0, 2)?, each(u, 1, 3)?);
        let pixels = each(u, 5, 9)?;
        let conv = Conv { strides, dilations, before, after, groups };
        let shape = |first: [u64; 2], rest: &[u64]| [&first[..], rest].concat();
        let x = numbers(dtype, &shape([2, 3 * groups], &pixels), seed);
        let w = numbers(dtype, &shape([2 * groups, 3], &window), seed + 1);
        let y = crate::evaluate(&Op::Conv(conv.clone()), &[&x, &w]).unwrap().remove(0);
        let dy = numbers(dtype, y.shape(), seed + 2);
        let near = 20.0 * tolerance(dtype);
        Ok(match u.int_in_range(0..=3)? {
            0 => Trial::whole(Op::Conv(conv), vec![x, w], near),
            1 => Trial::whole(Op::Conv(conv), vec![x, w, numbers(dtype, &[2 * groups], seed + 3)], near),
            2 => Trial::whole(Op::ConvInputGradient { conv, spatial: pixels }, vec![w, dy], near),
            _ => Trial::whole(Op::ConvWeightGradient { conv, window }, vec![x, dy], near),
        })
    });
    check(&trials);
}

/// Attention over several tiles of queries and keys, and a gradient of what it makes.
fn in_tiles(dtype: DType) -> [Trial; 2] {
    let attention = Attention {
        scale: Real(0.3),
        causal: true,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: true,
    };
    let shape = [1, 1, 140, 16];
    let operands = [0, 1, 2].map(|it| numbers(dtype, &shape, 7 + it)).to_vec();
    let made = crate::evaluate(&Op::Attention(attention), &operands.iter().collect::<Vec<_>>()).unwrap();
    let dy = numbers(dtype, made[0].shape(), 17);
    let all = operands.iter().cloned().chain(made).chain([dy]).collect();
    let near = if dtype == DType::F32 { 1e-3 } else { 2e-2 };
    let gradient = Op::AttentionGradient { attention, mask: false };
    [Trial::whole(Op::Attention(attention), operands, near), Trial::whole(gradient, all, near)]
}

/// Where threads of a warp have met in a shuffle just before, and need meet again only for what they wrote
/// to be seen: by kernel, the numbers of these places.
const SHUFFLED: [&[usize]; 4] = [&[2], &[], &[], &[]];

#[test]
fn where_threads_do_not_meet_it_is_found() {
    let trials = [DType::F32, DType::BF16].into_iter().flat_map(in_tiles);
    for (trial, shuffled) in trials.zip(SHUFFLED) {
        let found = missing_barriers(&trial, 6);
        let missed: Vec<usize> = (0..found.len()).filter(|it| !found[*it]).collect();
        println!("{:?}: {found:?}", trial.op);
        assert_eq!(missed, shuffled, "{:?}", trial.op);
    }
}

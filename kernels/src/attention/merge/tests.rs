//! Attention and its gradients by blocks of queries and of keys against those of all at once.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use planner_ir::{Attention, Blind, DType, Op, Real, Type};

use crate::array::{Array, Span, Tensor};
use crate::compute::{compute, evaluate};
use crate::finite::{cast, check_narrow_beside, check_near, smooth};
use crate::naive::{block, stripes};

/// Which dimensions of a value are those of queries and of keys.
type Dims = [Option<usize>; 2];

const QUERIES: Dims = [Some(2), None];
const KEYS: Dims = [None, Some(2)];

/// Attention of some operands, whose queries and keys are cut into blocks.
#[derive(Debug)]
struct Case {
    attention: Attention,
    q: Array,
    k: Array,
    v: Array,
    mask: Option<Array>,
    sinks: Option<Array>,
    dy: Array,
    /// How many blocks of queries and of keys there are.
    parts: [u64; 2],
    /// Whether those are stripes.
    striped: [bool; 2],
}

fn arbitrary_case(u: &mut Unstructured) -> Result<Case> {
    let [b, g, each, d, e] = {
        let mut draw = |high| u.int_in_range(1..=high);
        [draw(2)?, draw(2)?, draw(2)?, draw(3)?, draw(3)?]
    };
    let parts = [u.int_in_range(1..=3)?, u.int_in_range(1..=5)?];
    let [s, t] = [parts[0] * u.int_in_range(1..=3)?, parts[1] * u.int_in_range(1..=3)?];
    let attention = Attention {
        scale: Real(*u.choose(&[0.5, 8.0])?),
        causal: u.arbitrary()?,
        softcap: Real(if u.arbitrary()? { 1.5 } else { 0.0 }),
        window: if u.arbitrary()? { Some(u.int_in_range(1..=6)?) } else { None },
        blind: Blind::Zero,
        sinks: false,
        statistics: true,
    };
    let dims = [b, g * each, s, t];
    let mask = if u.arbitrary()? { Some(arbitrary_mask(u, dims)?) } else { None };
    let sinks = if u.arbitrary()? { Some(smooth(u, &[g * each, 1, 1])?) } else { None };
    let attention = Attention { sinks: sinks.is_some(), ..attention };
    Ok(Case {
        attention,
        sinks,
        q: smooth(u, &[b, g * each, s, d])?,
        k: smooth(u, &[b, g, t, d])?,
        v: smooth(u, &[b, g, t, e])?,
        mask,
        dy: smooth(u, &[b, g * each, s, e])?,
        parts,
        striped: u.arbitrary()?,
    })
}

/// What hides keys unevenly: some rows, and some rows' blocks, see none.
fn arbitrary_mask(u: &mut Unstructured, scores: [u64; 4]) -> Result<Array> {
    let missing = u.int_in_range(0..=3)?;
    let extent = |extent: &u64| Ok(if u.arbitrary()? { *extent } else { 1 });
    let shape: Vec<u64> = scores[missing..].iter().map(extent).collect::<Result<_>>()?;
    let mut numbers = smooth(u, &shape)?.to_floats().unwrap();
    if u.arbitrary()? {
        let truths: Vec<bool> = numbers.iter().map(|&it| it > 0.0).collect();
        return Ok(Array::of_truths(shape, &truths).unwrap());
    }
    for number in &mut numbers {
        *number = if *number > 0.5 { f64::NEG_INFINITY } else { *number };
    }
    Ok(Array::of(shape, &numbers).unwrap())
}

impl Case {
    /// The same of another type.
    fn cast(&self, dtype: DType) -> Self {
        let of = |x: &Array| if x.dtype().is_float() { cast(x, dtype) } else { x.clone() };
        let [mask, sinks] = [&self.mask, &self.sinks].map(|it| it.as_ref().map(of));
        let [q, k, v, dy] = [&self.q, &self.k, &self.v, &self.dy].map(of);
        Self { q, k, v, mask, sinks, dy, ..*self }
    }

    fn mask_dims(&self) -> Dims {
        let Some(mask) = &self.mask else { return [None; 2] };
        let dim =
            |from_end: usize| mask.shape().len().checked_sub(from_end).filter(|&dim| mask.shape()[dim] > 1);
        [dim(2), dim(1)]
    }

    /// The results of an operation on the blocks of operands, as parts of results are kept.
    fn on_blocks(&self, op: &Op, operands: &[(&Array, Dims)], at: [u64; 2]) -> Vec<Array> {
        let blocks: Vec<(Array, Vec<Span>)> =
            operands.iter().map(|&(whole, dims)| self.block(whole, dims, at)).collect();
        let types: Vec<Type> = blocks.iter().map(|(x, _)| x.type_().clone()).collect();
        let given: Vec<Tensor> = blocks.iter().map(|(x, spans)| Tensor { spans, ..x.tensor() }).collect();
        let made = op.infer(&types).unwrap().into_iter();
        let kept = made.map(|it| Type { dtype: it.dtype.accumulated(), ..it });
        let mut made: Vec<Array> = kept.map(|it| Array::zeros(it).unwrap()).collect();
        for result in &mut made {
            // Whatever stood there before must not matter.
            result.bytes_mut().fill(0x5a);
        }
        let mut targets: Vec<_> = made.iter_mut().map(Array::tensor_mut).collect();
        compute(op, &given, &mut targets).unwrap();
        made
    }

    /// A block of a value, and where it lies.
    fn block(&self, whole: &Array, dims: Dims, at: [u64; 2]) -> (Array, Vec<Span>) {
        let whole_span = |&extent: &u64| Span::contiguous(extent, 0);
        let mut spans: Vec<Span> = whole.shape().iter().map(whole_span).collect();
        let mut own = whole.clone();
        for (side, dim) in dims.into_iter().enumerate() {
            if let Some(dim) = dim {
                let take = if self.striped[side] { stripes } else { block };
                let (cut, of_cut) = take(&own, dim, self.parts[side], at[side]);
                (own, spans[dim]) = (cut, of_cut[dim]);
            }
        }
        (own, spans)
    }

    /// Attention to a block of keys.
    fn part(&self, at: [u64; 2]) -> Vec<Array> {
        let mut operands = vec![(&self.q, QUERIES), (&self.k, KEYS), (&self.v, KEYS)];
        operands.extend(self.mask.as_ref().map(|mask| (mask, self.mask_dims())));
        operands.extend(self.sinks.as_ref().map(|sinks| (sinks, [None; 2])));
        self.on_blocks(&Op::Attention(self.attention), &operands, at)
    }

    fn whole(&self) -> Vec<Array> {
        let mut operands: Vec<(&Array, Dims)> =
            [&self.q, &self.k, &self.v].into_iter().map(|it| (it, [None; 2])).collect();
        operands.extend(self.mask.iter().chain(&self.sinks).map(|it| (it, [None; 2])));
        self.on_blocks(&Op::Attention(self.attention), &operands, [0; 2])
    }
}

/// The numbers, with a number of their own for what is minus infinity in both.
fn finite(found: &Array, expected: &Array) -> [Vec<f64>; 2] {
    let (mut found, mut expected) = (found.to_floats().unwrap(), expected.to_floats().unwrap());
    for (found, expected) in found.iter_mut().zip(&mut expected) {
        if *found == f64::NEG_INFINITY && *expected == f64::NEG_INFINITY {
            (*found, *expected) = (0.0, 0.0);
        }
    }
    [found, expected]
}

/// What statistics say of the sum of exponentials of each row. Where the sink is the largest score of all, parts have
/// another largest: that of what they have of it.
fn sums(pairs: &[f64]) -> Vec<f64> {
    pairs.chunks_exact(2).map(|it| it[1].ln() + it[0]).collect()
}

const TYPES: [(DType, f64); 2] = [(DType::F64, 1e-12), (DType::F32, 1e-4)];

#[test]
fn parts_merged_in_any_order_are_attention_to_all_keys() {
    let Some(merging) = Op::Attention(Attention { statistics: false, ..PLAIN }).merging() else {
        panic!("attention is merged");
    };
    assert_eq!(merging.part, Op::Attention(PLAIN));
    arbtest(|u| {
        let case = arbitrary_case(u)?;
        for (dtype, tolerance) in TYPES.into_iter().chain([(DType::BF16, 1e-4)]) {
            let case = case.cast(dtype);
            let whole = case.whole();
            for query in 0..case.parts[0] {
                let mut parts: Vec<Vec<Array>> =
                    (0..case.parts[1]).map(|key| case.part([query, key])).collect();
                while parts.len() > 1 {
                    let [one, other] = {
                        let mut taken =
                            || -> Result<_> { Ok(parts.swap_remove(u.choose_index(parts.len())?)) };
                        [taken()?, taken()?]
                    };
                    let given: Vec<&Array> = one.iter().chain(&other).collect();
                    parts.push(evaluate(&merging.merge, &given).unwrap());
                }
                for (result, (found, whole)) in parts[0].iter().zip(&whole).enumerate() {
                    let expected = case.block(whole, QUERIES, [query, 0]).0;
                    assert_eq!(found.type_(), expected.type_());
                    let mut both = finite(found, &expected);
                    if case.sinks.is_some() && result == 1 {
                        both = both.map(|it| sums(&it));
                    }
                    let [found, expected] = both;
                    check_near(&found, &expected, tolerance, &format!("{dtype} {case:?}"));
                }
            }
        }
        Ok(())
    })
    .budget_ms(2000);
}

/// Gradients towards queries are sums over blocks of keys, those towards keys and values over
/// blocks of queries.
#[test]
fn gradients_of_blocks_add_up() {
    arbtest(|u| {
        let case = arbitrary_case(u)?;
        let of_numbers = case.mask.as_ref().is_some_and(|mask| mask.dtype().is_float());
        let attention = Attention { sinks: false, ..case.attention };
        let op = Op::AttentionGradient { attention, mask: of_numbers };
        for (dtype, tolerance) in TYPES {
            let case = case.cast(dtype);
            let made = case.whole();
            let mut operands = vec![(&case.q, QUERIES), (&case.k, KEYS), (&case.v, KEYS)];
            operands.extend([(&made[0], QUERIES), (&made[1], QUERIES), (&case.dy, QUERIES)]);
            operands.extend(case.mask.as_ref().map(|mask| (mask, case.mask_dims())));
            let wholes: Vec<&Array> = operands.iter().map(|it| it.0).collect();
            let expected = evaluate(&op, &wholes).unwrap();
            let dims = [QUERIES, KEYS, KEYS, case.mask_dims()];
            for (result, expected) in expected.iter().enumerate() {
                for at in every(case.parts) {
                    let [own, summed] =
                        [dims[result].map(|dim| dim.is_some()), dims[result].map(|dim| dim.is_none())];
                    let same = |other: &[u64; 2]| (0..2).all(|side| !own[side] || other[side] == at[side]);
                    if (0..2).any(|side| summed[side] && at[side] > 0) {
                        continue;
                    }
                    let mut total: Vec<f64> = Vec::new();
                    for other in every(case.parts).into_iter().filter(same) {
                        let addend = case.on_blocks(&op, &operands, other)[result].to_floats().unwrap();
                        total.resize(addend.len(), 0.0);
                        total.iter_mut().zip(addend).for_each(|(total, addend)| *total += addend);
                    }
                    let expected = case.block(expected, dims[result], at).0.to_floats().unwrap();
                    let what = format!("result {result} of {op} of {dtype} {case:?}");
                    check_near(&total, &expected, tolerance, &what);
                }
            }
        }
        Ok(())
    })
    .budget_ms(2000);
}

/// Every pair of blocks.
fn every(parts: [u64; 2]) -> Vec<[u64; 2]> {
    (0..parts[0]).flat_map(|query| (0..parts[1]).map(move |key| [query, key])).collect()
}

const PLAIN: Attention = Attention {
    scale: Real(1.0),
    causal: false,
    softcap: Real(0.0),
    window: None,
    blind: Blind::Zero,
    sinks: false,
    statistics: true,
};

#[test]
fn parts_that_saw_nothing_weigh_nothing() {
    let rows = |numbers: &[f32]| Array::of([4, 1], numbers).unwrap();
    let pairs = |pairs: [[f32; 2]; 4]| Array::of([4, 2], pairs.as_flattened()).unwrap();
    let nothing = [f32::NEG_INFINITY, 0.0];
    let made = evaluate(
        &Op::AttentionMerge,
        &[
            &rows(&[1.0, 0.0, 3.0, 0.0]),
            &pairs([[0.0, 1.0], nothing, [1000.0, 1.0], nothing]),
            &rows(&[5.0, 6.0, 7.0, 0.0]),
            &pairs([[0.0, 1.0], [2.0, 3.0], [-1000.0, 5.0], nothing]),
        ],
    )
    .unwrap();
    assert_eq!(made[0].elements::<f32>().unwrap(), [3.0, 6.0, 3.0, 0.0]);
    let expected = [[0.0, 2.0], [2.0, 3.0], [1000.0, 1.0], nothing];
    assert_eq!(made[1].elements::<f32>().unwrap(), expected.as_flattened());
}

/// Of rows whose keys are all hidden by a large finite mask each part weighs by how many keys it has.
#[test]
fn parts_of_blind_rows_weigh_by_their_keys() {
    for hidden in [f32::MIN, -1e9, -10_000.0] {
        let pairs = |sum: f32| Array::of([1, 2], &[hidden, sum]).unwrap();
        let row = |number: f32| Array::of([1, 1], &[number]).unwrap();
        let made = evaluate(&Op::AttentionMerge, &[&row(1.0), &pairs(3.0), &row(5.0), &pairs(1.0)]).unwrap();
        assert_eq!(made[0].elements::<f32>().unwrap(), [2.0]);
        assert_eq!(made[1].elements::<f32>().unwrap(), [hidden, 4.0]);
    }
}

#[test]
fn narrow_parts_are_merged_in_f32() {
    arbtest(|u| {
        let shape = [u.int_in_range(1..=3)?, u.int_in_range(1..=40)?, u.int_in_range(1..=20)?];
        let (y1, y2) = (smooth(u, &shape)?, smooth(u, &shape)?);
        let mut pairs = || -> Result<Array> {
            let numbers = smooth(u, &[shape[0], shape[1], 2])?.to_floats().unwrap();
            let positive: Vec<f64> = numbers.iter().map(|it| it.abs() + 0.1).collect();
            Ok(Array::of([shape[0], shape[1], 2], &positive).unwrap())
        };
        let (s1, s2) = (pairs()?, pairs()?);
        check_narrow_beside(&Op::AttentionMerge, &[&y1, &s1, &y2, &s2], &[1, 3]);
        Ok(())
    })
    .budget_ms(100);
}

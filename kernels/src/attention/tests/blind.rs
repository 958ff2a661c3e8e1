//! Rows all of whose keys are hidden by a mask: every such world that is small, whole and in parts,
//! against the definition in f64.

use planner_ir::{Attention, Blind, DType, Op, Real};

use crate::Array;
use crate::array::{Span, Tensor};
use crate::compute::{compute, evaluate};
use crate::finite::cast;
use crate::naive::{block, stripes};

const QUERIES: usize = 6;
const KEYS: usize = 12;
const HEADS: usize = 2;
/// The extents of a query and of a value.
const SIZES: [usize; 2] = [2, 3];

/// Which keys a row's mask hides.
const ROWS: [fn(usize) -> bool; QUERIES] =
    [|_| true, |key| key < 4, |key| key != 6, |_| false, |key| key % 2 == 0, |key| key > 0];

/// Numbers whose products and their sums are exact in every type, so that adding a mask to a score
/// rounds to the same wherever it is done.
fn exact(count: usize, seed: usize) -> Vec<f64> {
    let number = |at: usize| u8::try_from((at * 7 + seed * 5 + at * at * 3) % 9).unwrap();
    (0..count).map(|at| f64::from(number(at)) / 4.0 - 1.0).collect()
}

/// Attention and a mask, in numbers.
#[derive(Clone, Copy, Debug)]
struct World {
    dtype: DType,
    attention: Attention,
    groups: usize,
    /// What is added to hidden scores.
    hidden: f64,
    /// Whether what hides the first row hides them all.
    all: bool,
}

impl World {
    fn q(&self) -> Vec<f64> {
        exact(HEADS * QUERIES * SIZES[0], 1)
    }

    fn k(&self) -> Vec<f64> {
        exact(self.groups * KEYS * SIZES[0], 2)
    }

    fn v(&self) -> Vec<f64> {
        exact(self.groups * KEYS * SIZES[1], 3)
    }

    fn dy(&self) -> Vec<f64> {
        exact(HEADS * QUERIES * SIZES[1], 4)
    }

    fn mask(&self) -> Vec<f64> {
        let row = |query: usize| if self.all { ROWS[0] } else { ROWS[query] };
        let of = |query: usize| (0..KEYS).map(move |key| if row(query)(key) { self.hidden } else { 0.0 });
        (0..QUERIES).flat_map(of).collect()
    }

    /// A number as it is where scores are computed.
    #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is meant")]
    fn rounded(&self, number: f64) -> f64 {
        if self.dtype == DType::F64 { number } else { f64::from(number as f32) }
    }

    /// A score with what is added to it: as f16 rounds it where little is left of it, and otherwise as where scores
    /// are computed.
    fn sum(&self, score: f64, adds: f64) -> f64 {
        if self.dtype == DType::F16 && adds.is_finite() && adds < -8000.0 {
            let sum = Array::of([1], &[score + adds.max(-65504.0)]).unwrap();
            return cast(&sum, DType::F16).to_floats().unwrap()[0];
        }
        self.rounded(score + self.rounded(adds))
    }

    /// The scores of a row and the derivatives of what bounds them; of a key that is not seen none.
    fn scores(&self, head: usize, query: usize) -> Vec<Option<[f64; 2]>> {
        let (q, k, mask) = (self.q(), self.k(), self.mask());
        let group = head / (HEADS / self.groups);
        let Attention { scale, causal, softcap, window, blind, .. } = self.attention;
        let low = f64::from(Attention::BLIND);
        let own = query + KEYS - QUERIES;
        let window = window.map_or(usize::MAX, |it| usize::try_from(it).unwrap());
        let score = |key: usize| {
            let apart = (causal || window < usize::MAX) && (key > own || own - key >= window);
            if apart && blind == Blind::Zero {
                return None;
            }
            let dot = (0..SIZES[0])
                .map(|i| q[(head * QUERIES + query) * SIZES[0] + i] * k[(group * KEYS + key) * SIZES[0] + i]);
            let mut score = self.rounded(dot.sum::<f64>() * scale.0);
            let mut slope = 1.0;
            if softcap.0 != 0.0 {
                let bent = (score / softcap.0).tanh();
                (score, slope) = (self.rounded(softcap.0 * bent), 1.0 - bent * bent);
            }
            let adds = mask[query * KEYS + key];
            let adds = match blind {
                Blind::Zero => adds,
                // What is hidden is as if the lowest number was added to it, whatever hides it.
                _ if !apart && adds == 0.0 => 0.0,
                Blind::Once if apart && adds != 0.0 => f64::NEG_INFINITY,
                _ => low,
            };
            Some([self.sum(score, adds), slope])
        };
        (0..KEYS).map(score).collect()
    }

    /// Weights of a row, and the derivatives of what bounds its scores.
    fn weights(&self, head: usize, query: usize) -> Vec<[f64; 2]> {
        let scores = self.scores(head, query);
        let most = scores.iter().flatten().fold(f64::NEG_INFINITY, |most, it| most.max(it[0]));
        if most == f64::NEG_INFINITY {
            return vec![[0.0, 0.0]; KEYS];
        }
        let weight = |it: &Option<[f64; 2]>| it.map_or([0.0, 0.0], |it| [(it[0] - most).exp(), it[1]]);
        let weights: Vec<[f64; 2]> = scores.iter().map(weight).collect();
        let sum: f64 = weights.iter().map(|it| it[0]).sum();
        weights.into_iter().map(|[weight, slope]| [weight / sum, slope]).collect()
    }

    /// The result, and the gradients towards q, k, v and the mask.
    fn expected(&self) -> [Vec<f64>; 5] {
        let (q, k, v, dy) = (self.q(), self.k(), self.v(), self.dy());
        let [d, e] = SIZES;
        let mut y = vec![0.0; HEADS * QUERIES * e];
        let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
        let mut dmask = vec![0.0; QUERIES * KEYS];
        for head in 0..HEADS {
            let group = head / (HEADS / self.groups);
            for query in 0..QUERIES {
                let row = head * QUERIES + query;
                let weights = self.weights(head, query);
                let at = |key: usize| group * KEYS + key;
                let back = |key: usize| (0..e).map(|i| dy[row * e + i] * v[at(key) * e + i]).sum::<f64>();
                let own: f64 = (0..KEYS).map(|key| weights[key][0] * back(key)).sum();
                for (key, [weight, slope]) in weights.into_iter().enumerate() {
                    let towards = weight * (back(key) - own);
                    dmask[query * KEYS + key] += towards;
                    for i in 0..e {
                        y[row * e + i] += weight * v[at(key) * e + i];
                        dv[at(key) * e + i] += weight * dy[row * e + i];
                    }
                    for i in 0..d {
                        let factor = towards * slope * self.attention.scale.0;
                        dq[row * d + i] += factor * k[at(key) * d + i];
                        dk[at(key) * d + i] += factor * q[row * d + i];
                    }
                }
            }
        }
        [y, dq, dk, dv, dmask]
    }

    fn array(&self, shape: [usize; 4], numbers: &[f64]) -> Array {
        let shape = shape.map(|it| u64::try_from(it).unwrap());
        cast(&Array::of(shape, numbers).unwrap(), self.dtype)
    }

    /// q, k, v, dy and the mask.
    fn operands(&self) -> [Array; 5] {
        let [d, e] = SIZES;
        let mask = match self.attention.blind {
            Blind::Zero => self.array([1, 1, QUERIES, KEYS], &self.mask()),
            _ => {
                let shape = [1, 1, QUERIES, KEYS].map(|it| u64::try_from(it).unwrap());
                let seen: Vec<bool> = self.mask().iter().map(|it| *it == 0.0).collect();
                Array::of_truths(shape, &seen).unwrap()
            }
        };
        [
            self.array([1, HEADS, QUERIES, d], &self.q()),
            self.array([1, self.groups, KEYS, d], &self.k()),
            self.array([1, self.groups, KEYS, e], &self.v()),
            self.array([1, HEADS, QUERIES, e], &self.dy()),
            mask,
        ]
    }

    /// How far results may be off.
    fn tolerance(&self) -> f64 {
        match self.dtype {
            DType::F64 => 1e-12,
            DType::F32 => 2e-6,
            DType::F16 => 2e-3,
            _ => 2e-2,
        }
    }

    fn check(&self, what: &str, found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        let size = expected.iter().fold(1.0_f64, |size, it| size.max(it.abs()));
        for (at, (a, b)) in found.iter().zip(expected).enumerate() {
            let near = (a - b).abs() <= self.tolerance() * size;
            assert!(near, "{what} of {self:?}: {a} at {at}, expected {b}");
        }
    }

    /// Attention by parts of the keys, merged one after another, and its gradients by the same parts.
    fn by_parts(&self, parts: u64, striped: bool) -> [Vec<f64>; 5] {
        let [q, k, v, dy, mask] = &self.operands();
        let cut = |whole: &Array, dim: usize, at: u64| {
            if striped { stripes(whole, dim, parts, at) } else { block(whole, dim, parts, at) }
        };
        let whole = |it: &Array| -> (Array, Vec<Span>) {
            (it.clone(), it.shape().iter().map(|&extent| Span::contiguous(extent, 0)).collect())
        };
        let own = |at: u64| [whole(q), cut(k, 2, at), cut(v, 2, at), cut(mask, 3, at)];
        let forward = Op::Attention(self.attention);
        let merging = forward.merging().unwrap();
        let mut made: Option<Vec<Array>> = None;
        for at in 0..parts {
            let part = run(&forward, &own(at));
            made = Some(match made {
                None => part,
                Some(before) => {
                    let both: Vec<&Array> = before.iter().chain(&part).collect();
                    evaluate(&merging.merge, &both).unwrap()
                }
            });
        }
        let made = made.unwrap();
        let of_mask = self.attention.blind == Blind::Zero;
        let gradient = Op::AttentionGradient { attention: self.attention, mask: of_mask };
        // Kept as attention makes it: rounded once.
        let y = cast(&made[0], self.dtype);
        let mut sums = [vec![0.0; q.to_floats().unwrap().len()], vec![], vec![], vec![]];
        let mut cuts = vec![];
        for at in 0..parts {
            let [q, k, v, mask] = own(at);
            let results = run(&gradient, &[q, k, v, whole(&y), whole(&made[1]), whole(dy), mask]);
            sums[0].iter_mut().zip(results[0].to_floats().unwrap()).for_each(|(sum, it)| *sum += it);
            cuts.push(results);
        }
        // Blocks of keys are put together again in the order of the keys.
        let each = KEYS / usize::try_from(parts).unwrap();
        for (result, dim) in [(1, 2), (2, 2), (3, 3)].into_iter().take(cuts[0].len() - 1) {
            let shape = cuts[0][result].shape();
            let [outer, inner]: [u64; 2] = [shape[..dim].iter().product(), shape[dim + 1..].iter().product()];
            let (outer, inner) = (usize::try_from(outer).unwrap(), usize::try_from(inner).unwrap());
            let numbers: Vec<Vec<f64>> = cuts.iter().map(|it| it[result].to_floats().unwrap()).collect();
            let count = usize::try_from(parts).unwrap();
            for row in 0..outer {
                for key in 0..KEYS {
                    let (part, place) =
                        if striped { (key % count, key / count) } else { (key / each, key % each) };
                    let from = (row * each + place) * inner;
                    sums[result].extend(&numbers[part][from..from + inner]);
                }
            }
        }
        let [dq, dk, dv, dmask] = sums;
        [made[0].to_floats().unwrap(), dq, dk, dv, dmask]
    }
}

/// The results of an operation on blocks, kept as wide as sums are.
fn run(op: &Op, operands: &[(Array, Vec<Span>)]) -> Vec<Array> {
    let types: Vec<_> = operands.iter().map(|it| it.0.type_().clone()).collect();
    let given: Vec<Tensor> = operands.iter().map(|(x, spans)| Tensor { spans, ..x.tensor() }).collect();
    let kept = op.infer(&types).unwrap().into_iter();
    let kept = kept.map(|it| planner_ir::Type { dtype: it.dtype.accumulated(), ..it });
    let mut made: Vec<Array> = kept.map(|it| Array::zeros(it).unwrap()).collect();
    let mut targets: Vec<_> = made.iter_mut().map(Array::tensor_mut).collect();
    compute(op, &given, &mut targets).unwrap();
    made
}

/// Worlds of these kinds, whole and in parts.
fn hold(worlds: &[World]) {
    for world in worlds {
        let expected = world.expected();
        for (parts, striped) in [(1, false), (2, false), (3, false), (4, false), (3, true), (4, true)] {
            let found = world.by_parts(parts, striped);
            let names = ["y", "dq", "dk", "dv", "dmask"];
            let names = names.into_iter().take(if world.attention.blind == Blind::Zero { 5 } else { 4 });
            for ((name, found), expected) in names.zip(&found).zip(&expected) {
                world.check(&format!("{name} by {parts} parts, striped {striped},"), found, expected);
            }
        }
    }
    assert!(worlds.len() > 40, "{}", worlds.len());
}

/// What masks add to hidden scores: the lowest number of the type, of narrower ones, numbers that
/// people write, and infinity.
fn hidden(dtype: DType) -> Vec<f64> {
    let lowest = match dtype {
        DType::F64 => f64::MIN,
        DType::F32 => f64::from(f32::MIN),
        DType::BF16 => -3.389_531_389_251_535_5e38,
        _ => -65_504.0,
    };
    let written = [-1e9, -10_000.0, -100.0, f64::NEG_INFINITY];
    let fits = |it: &f64| *it >= lowest || it.is_infinite();
    [lowest, -65_504.0].into_iter().chain(written.into_iter().filter(fits)).collect()
}

#[test]
fn rows_all_of_whose_keys_are_hidden_are_means_whole_and_in_parts() {
    let plain = Attention {
        scale: Real(0.5),
        causal: false,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: true,
    };
    let kinds = [
        plain,
        Attention { causal: true, ..plain },
        Attention { causal: true, window: Some(5), ..plain },
        Attention { softcap: Real(2.0), ..plain },
    ];
    let mut worlds = Vec::new();
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for (attention, hidden) in
            kinds.into_iter().flat_map(|it| hidden(dtype).into_iter().map(move |hidden| (it, hidden)))
        {
            // A bound score is not exact: beside a mask that leaves some of it, it rounds either way.
            if attention.softcap.0 != 0.0 && (-1e6..-1e3).contains(&hidden) {
                continue;
            }
            for (groups, all) in [(1, false), (2, false), (1, true)] {
                worlds.push(World { dtype, attention, groups, hidden, all });
            }
        }
    }
    hold(&worlds);
}

/// Attention that gives rows without keys the mean of all values is attention with the lowest number added
/// to what a mask of truth values, the order of keys or a window hides: with its gradients, in parts too.
#[test]
fn rows_that_see_no_key_are_means_where_attention_says_so() {
    let plain = Attention {
        scale: Real(0.5),
        causal: true,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Mean,
        sinks: false,
        statistics: true,
    };
    let kinds = [
        plain,
        Attention { causal: false, ..plain },
        Attention { window: Some(2), ..plain },
        Attention { softcap: Real(2.0), ..plain },
        Attention { blind: Blind::Once, ..plain },
        Attention { blind: Blind::Once, window: Some(2), ..plain },
    ];
    let mut worlds = Vec::new();
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for attention in kinds {
            for (groups, all) in [(1, false), (2, false), (1, true)] {
                worlds.push(World { dtype, attention, groups, hidden: -1.0, all });
            }
        }
    }
    hold(&worlds);
}

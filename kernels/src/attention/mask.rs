//! What masks scores: numbers that are added, truth values, and documents.

use planner_ir::{Attention, DType, Op};

use crate::array::{Tensor, extents};
use crate::error::KernelError;
use crate::nest::repeated;
use crate::number::Float;
use crate::wide::wide;
use crate::widen::converted;

/// Computes attention with a mask in f16 as one in f32, whose lowest numbers are those of f32: what leaves nothing
/// of a score in the one must not leave it in the other. Whatever else is computed as it is.
pub(crate) fn with_low<T>(
    op: &Op,
    operands: &[Tensor],
    compute: impl FnOnce(&[Tensor]) -> Result<T, KernelError>,
) -> Result<T, KernelError> {
    let (first, attention) = match op {
        Op::Attention(attention) => (3, attention),
        Op::AttentionGradient { attention, .. } => (6, attention),
        _ => return compute(operands),
    };
    let rest = operands.get(first..).unwrap_or_default();
    let Some(&mask) = attention.masks(rest).0.filter(|it| it.dtype == DType::F16) else {
        return compute(operands);
    };
    let mut wide = converted(&mask, DType::F32)?;
    for number in wide.tensor_mut().elements_mut::<f32>()? {
        if number.is_finite() && *number <= Attention::LOW_F16 {
            *number = Attention::BLIND;
        }
    }
    let mut operands = operands.to_vec();
    operands[first] = Tensor { spans: mask.spans, ..wide.tensor() };
    compute(&operands)
}

/// A mask and documents, repeated to the scores.
pub(super) struct Mask<'a, T> {
    elements: Elements<'a, T>,
    /// How far apart its elements lie along each dimension of the scores.
    strides: Vec<usize>,
    documents: Option<Documents>,
}

/// The documents of queries and of keys, and how far apart their elements lie along each dimension of the scores.
struct Documents {
    queries: (Vec<i64>, Vec<usize>),
    keys: (Vec<i64>, Vec<usize>),
}

impl Documents {
    fn new([queries, keys]: [&Tensor; 2], scores: &[usize]) -> Result<Self, KernelError> {
        let side = |it: &Tensor| {
            let numbers = match it.dtype {
                DType::I32 => it.elements::<i32>()?.iter().map(|&it| i64::from(it)).collect(),
                _ => it.elements::<i64>()?.to_vec(),
            };
            Ok((numbers, repeated(&extents(it.shape)?, scores)?))
        };
        Ok(Self { queries: side(queries)?, keys: side(keys)? })
    }

    /// Whether a key is of another document than the query.
    fn differ(&self, score: [usize; 4]) -> bool {
        let of = |(numbers, strides): &(Vec<i64>, Vec<usize>)| numbers[place(score, strides)];
        of(&self.queries) != of(&self.keys)
    }
}

/// Where the element for a score is.
pub(super) fn place(score: [usize; 4], strides: &[usize]) -> usize {
    score.into_iter().zip(strides).map(|(at, stride)| at * stride).sum()
}

/// What a mask's elements do to scores.
enum Elements<'a, T> {
    None,
    Adds(&'a [T]),
    Hides(&'a [u8]),
}

impl<'a, T: Float> Mask<'a, T> {
    /// Of the operands that mask scores of these extents.
    pub(super) fn new(masking: &[Tensor<'a>], scores: [usize; 4]) -> Result<Self, KernelError> {
        let (mask, documents) = Attention::masks_of(masking);
        let documents = match documents {
            Some(documents) => Some(Documents::new(documents, &scores)?),
            None => None,
        };
        let Some(mask) = mask else {
            return Ok(Self { elements: Elements::None, strides: vec![], documents });
        };
        let strides = repeated(&extents(mask.shape)?, &scores)?;
        let elements = match mask.dtype {
            DType::Bool => Elements::Hides(mask.truths()?),
            _ => Elements::Adds(mask.elements()?),
        };
        Ok(Self { elements, strides, documents })
    }

    /// Where the element for a score is.
    pub(super) fn place(&self, score: [usize; 4]) -> usize {
        place(score, &self.strides)
    }

    /// Whether it hides a key.
    pub(super) fn hides(&self, score: [usize; 4]) -> bool {
        let is_other = self.documents.as_ref().is_some_and(|it| it.differ(score));
        is_other
            || match self.elements {
                Elements::None => false,
                Elements::Adds(mask) => mask[self.place(score)] == T::LOWEST,
                Elements::Hides(mask) => mask[self.place(score)] == 0,
            }
    }

    /// How far apart the elements for neighbouring keys lie.
    pub(super) fn stride(&self) -> usize {
        self.strides.last().copied().unwrap_or(0)
    }

    /// Applies it to the scores of the keys that a query sees, the first of which is given.
    pub(super) fn apply(&self, first: [usize; 4], row: &mut [T]) {
        if let Some(documents) = &self.documents {
            let [batch, head, query, start] = first;
            for (index, score) in row.iter_mut().enumerate() {
                if documents.differ([batch, head, query, start + index]) {
                    *score = T::LOWEST;
                }
            }
        }
        let (place, stride) = (self.place(first), self.stride());
        match self.elements {
            Elements::None => {}
            Elements::Adds(mask) if stride == 1 => {
                let length = row.len();
                wide!(add_row, (row, &mask[place..place + length]));
            }
            Elements::Adds(mask) => {
                for (index, score) in row.iter_mut().enumerate() {
                    *score = score.plus(mask[place + index * stride]);
                }
            }
            Elements::Hides(mask) => {
                for (index, score) in row.iter_mut().enumerate() {
                    if mask[place + index * stride] == 0 {
                        *score = T::LOWEST;
                    }
                }
            }
        }
    }
}

/// `row += mask`.
#[inline(always)]
pub(super) fn add_row<T: Float>((row, mask): (&mut [T], &[T])) {
    for (score, &mask) in row.iter_mut().zip(mask) {
        *score = score.plus(mask);
    }
}

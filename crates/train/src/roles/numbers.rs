//! What the numbers of a weight are: patterns that parameters do not have.
//!
//! Each test ends at the first element that is not of the pattern, so that nothing is read of
//! parameters but their beginnings.

use planner_ir::{DType, Type};

/// As low as a number of a mask is at least.
const LOW: f64 = -1e4;

/// How many numbers a progression has at least.
const FEWEST: usize = 3;

/// The elements of a weight.
pub(crate) struct Numbers<B> {
    dtype: DType,
    shape: Vec<usize>,
    /// How many bytes an element has.
    size: usize,
    count: usize,
    bytes: B,
}

impl<B: AsRef<[u8]>> Numbers<B> {
    /// The numbers that bytes stand for; nothing if they are not of this type.
    pub(crate) fn of(type_: &Type, bytes: B) -> Option<Self> {
        let size = usize::try_from(type_.dtype.bytes()).ok()?;
        let shape: Option<Vec<usize>> = type_.shape.iter().map(|&it| usize::try_from(it).ok()).collect();
        let shape = shape?;
        let count = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent))?;
        let fits = bytes.as_ref().len() == count.checked_mul(size)? && count > 0;
        let known = matches!(type_.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        (fits && known).then_some(Self { dtype: type_.dtype, shape, size, count, bytes })
    }

    pub(super) fn at(&self, index: usize) -> f64 {
        let bytes = &self.bytes.as_ref()[index * self.size..][..self.size];
        match (self.dtype, bytes) {
            (DType::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
            (DType::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
            (DType::BF16, &[a, b]) => f64::from(f32::from_le_bytes([0, 0, a, b])),
            (_, &[a, b]) => half(u16::from_le_bytes([a, b])),
            _ => f64::NAN,
        }
    }

    fn all(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.count).map(|index| self.at(index))
    }

    /// How near two numbers are that would be equal but for their digits.
    fn near(&self, a: f64, b: f64) -> bool {
        let digits = if self.size > 2 { 1e-4 } else { 2e-2 };
        (a - b).abs() <= digits * a.abs().max(b.abs())
    }

    /// Whether they are 0 and numbers so low that nothing is left of what they are added to.
    pub(crate) fn are_mask(&self) -> bool {
        self.count > 1 && self.all().all(|it| it == 0.0 || it <= LOW) && self.all().any(|it| it <= LOW)
    }

    /// Whether all are one number.
    pub(crate) fn are_one(&self) -> bool {
        let first = self.at(0);
        self.all().all(|it| it.to_bits() == first.to_bits())
    }

    /// Whether all are 0.
    pub(crate) fn are_zero(&self) -> bool {
        self.all().all(|it| it == 0.0)
    }

    /// Whether they are -1, 0 and 1, more than one of them.
    pub(crate) fn are_signs(&self) -> bool {
        self.all().all(|it| it == 0.0 || it.abs().to_bits() == 1_f64.to_bits()) && !self.are_one()
    }

    /// Whether each row along the last dimension of more than one number is in even steps.
    pub(crate) fn are_steps(&self) -> bool {
        let Some(dim) = self.shape.iter().rposition(|&extent| extent > 1) else { return false };
        let width = self.shape[dim];
        if width < FEWEST {
            return false;
        }
        let even = |row: usize| {
            let step = self.at(row * width + 1) - self.at(row * width);
            let one = |at: usize| {
                let found = self.at(row * width + at + 1) - self.at(row * width + at);
                self.near(found, step) || (found - step).abs() <= 1e-5 * self.at(row * width + at).abs()
            };
            step != 0.0 && step.is_finite() && (1..width - 1).all(one)
        };
        (0..self.count / width).all(even)
    }

    /// Whether they are a geometric progression, or two one after the other: slopes for attention, and
    /// frequencies.
    pub(crate) fn are_slopes(&self) -> bool {
        let ratio = |at: usize| self.at(at + 1) / self.at(at);
        if self.count < FEWEST || self.at(0) == 0.0 {
            return false;
        }
        let first = ratio(0);
        if !(first > 0.0 && first.is_finite()) || self.near(first, 1.0) {
            return false;
        }
        let mut others = (1..self.count - 1).filter(|&at| !self.near(ratio(at), first));
        // A second one starts where the first ends, which four numbers do not tell.
        let breaks = others.next().map_or(0, |_| 1 + usize::from(others.next().is_some()));
        breaks == 0 || breaks == 1 && self.count > 2 * FEWEST
    }

    /// Whether all of several are below zero, as what minus an exponential was taken of.
    pub(crate) fn are_negative(&self) -> bool {
        self.count > FEWEST && self.all().all(|it| it < 0.0)
    }

    /// Whether all are positive, each below the one before.
    pub(crate) fn fall(&self) -> bool {
        let falls = |at: usize| self.at(at + 1) < self.at(at);
        self.at(self.count - 1) > 0.0 && (0..self.count - 1).all(falls)
    }

    /// Whether they are sines and cosines of positions 0, 1, ..: 0 and 1 at the first, with the sine or
    /// the cosine of 1 at the second.
    pub(crate) fn are_waves(&self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= if self.size > 2 { 1e-4 } else { 5e-3 };
        let mut inner = self.count;
        for &extent in &self.shape {
            inner /= extent.max(1);
            if extent < 2 {
                continue;
            }
            // Dimensions before this one repeat it; the first position is enough to tell most weights.
            let first = (0..inner).all(|at| near(self.at(at), 0.0) || near(self.at(at), 1.0));
            let second = || {
                let ones = [1_f64.sin(), 1_f64.cos()];
                (inner..2 * inner).any(|at| ones.iter().any(|&it| near(self.at(at), it)))
            };
            if first && second() && self.all().all(|it| it.abs() <= 1.001) {
                return true;
            }
        }
        false
    }

    /// Whether they are the same at each place along some dimension.
    pub(crate) fn repeat(&self) -> bool {
        let mut inner = self.count;
        self.shape.iter().any(|&extent| {
            let outer = self.count / inner.max(1);
            inner /= extent.max(1);
            let own = inner;
            let same = |block: usize| {
                let start = block * extent * own;
                (own..extent * own)
                    .all(|at| self.at(start + at).to_bits() == self.at(start + at % own).to_bits())
            };
            extent > 1 && (0..outer).all(same)
        })
    }
}

/// The number that an f16 is.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, digits) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => digits * 2_f64.powi(-24),
        31 if digits == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + digits) * 2_f64.powi(exponent - 25),
    }
}

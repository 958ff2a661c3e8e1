//! All combinations of numbers, one after another.

use std::ops::AddAssign;

/// The next combination of numbers below these bounds, the last one running fastest; false after the last one,
/// when all are 0 again.
pub fn advance<T: Copy + PartialOrd + AddAssign + From<bool>>(numbers: &mut [T], bounds: &[T]) -> bool {
    for (number, &bound) in numbers.iter_mut().zip(bounds).rev() {
        *number += T::from(true);
        if *number < bound {
            return true;
        }
        *number = T::from(false);
    }
    false
}

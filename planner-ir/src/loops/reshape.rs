//! The finest loops that two shapes of the same elements share.
//!
//! A dimension of extent e whose elements lie s apart covers the *strides* from s to `s·e`: its
//! index is the part of the flat index between them. A loop between strides u and v, u dividing
//! v, lies in a dimension if s divides u and v divides `s·e`. So of two dimensions, one of each
//! shape, exactly the loop between the least common multiple of where they begin and the greatest
//! common divisor of where they end is shared, if the former divides the latter. What remains of a
//! dimension between shared loops is whole.

use super::nest::{Dims, Nest, gcd};
use super::{LoopId, Role};

/// Where a dimension, or a loop, begins and ends (elements).
#[derive(Clone, Copy)]
struct Strides {
    start: u64,
    end: u64,
}

/// The loops of both shapes' dimensions.
pub(super) fn reshape_dims(nest: &mut Nest, from: &[u64], to: &[u64]) -> (Dims, Dims) {
    if from.contains(&0) || to.contains(&0) {
        return (nest.dims(from, Role::Whole), nest.dims(to, Role::Whole));
    }
    let (from, to) = (strides(from), strides(to));
    let mut from_loops: Vec<Vec<(Strides, LoopId)>> = vec![Vec::new(); from.len()];
    let mut to_loops: Vec<Vec<(Strides, LoopId)>> = vec![Vec::new(); to.len()];
    for (a, from_loops) in from.iter().zip(&mut from_loops) {
        for (b, to_loops) in to.iter().zip(&mut to_loops) {
            let Some(both) = shared(*a, *b) else { continue };
            for it in nest.dim(both.end / both.start, Role::Map) {
                from_loops.push((both, it));
                to_loops.push((both, it));
            }
        }
    }
    let from = from.iter().zip(from_loops).map(|(&dim, loops)| filled(nest, dim, &loops)).collect();
    let to = to.iter().zip(to_loops).map(|(&dim, loops)| filled(nest, dim, &loops)).collect();
    (from, to)
}

fn strides(shape: &[u64]) -> Vec<Strides> {
    let mut end = shape.iter().product();
    let dim = |extent: &u64| {
        let dim = Strides { start: end / extent, end };
        end = dim.start;
        dim
    };
    shape.iter().map(dim).collect()
}

fn shared(a: Strides, b: Strides) -> Option<Strides> {
    let end = gcd(a.end, b.end);
    // A common multiple too large for the type does not divide anything.
    let start = (a.start / gcd(a.start, b.start)).checked_mul(b.start)?;
    (start < end && end.is_multiple_of(start)).then_some(Strides { start, end })
}

/// Shared loops (outermost first), with whole ones for what is between them.
fn filled(nest: &mut Nest, dim: Strides, shared: &[(Strides, LoopId)]) -> Vec<LoopId> {
    let mut loops = Vec::new();
    let mut end = dim.end;
    for &(strides, it) in shared {
        loops.extend(nest.dim(end / strides.end, Role::Whole));
        loops.push(it);
        end = strides.start;
    }
    loops.extend(nest.dim(end / dim.start, Role::Whole));
    loops
}

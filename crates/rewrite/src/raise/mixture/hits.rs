//! What is known of a region's values where all that is not known is how many elements of a mask
//! are not zero: the hits.

use planner_ir::{Binary, Dynamic, Op, RegionNode, Type};

use super::body::{Body, is_product};
use super::origin::integers;

/// An extent of a dimension, or a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// This many.
    Number(i64),
    /// As many as there are hits.
    Hits,
}

/// A number of each hit: `factors[0] * i + factors[1] * j` for the hit at `mask[i, j]`.
pub(super) type Index = [i64; 2];

/// What the elements of a value with a row for each hit are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Each {
    /// All are this number.
    Index(Index),
    /// Those of the operand's row of this number.
    Taken { operand: usize, index: Index },
    /// Something else.
    Other,
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// It is an operand.
    Operand(usize),
    /// It is these whole numbers: a scalar or a vector.
    Numbers(Vec<Extent>),
    /// It is the hits' coordinates: `[2, hits]`, or `[hits, 2]`.
    Coordinates { by_hit: bool },
    /// It has a row for each hit, in order: before that extent there are only extents of 1.
    Rows { each: Each, shape: Vec<Extent> },
}

/// Shapes and lists of more numbers than this are not looked at.
const LONGEST: u64 = 8;

/// What is known of a region's values.
pub(super) struct Hits {
    /// The operand whose elements are looked for, `[a, b]`.
    pub(super) mask: usize,
    /// Its extents.
    pub(super) extents: [i64; 2],
    values: Vec<Option<Known>>,
}

impl Hits {
    /// What is known of a region's values if it looks for the elements of one mask.
    pub(super) fn of(body: &Body, types: &[Type]) -> Option<Self> {
        let mut masks = body.region.nodes.iter().filter(|it| it.op == Op::Dynamic(Dynamic::NonZero));
        let &[mask] = masks.next()?.operands.as_slice() else {
            return None;
        };
        if !body.is_operand(mask) || masks.next().is_some() {
            return None;
        }
        let extents: Vec<i64> = signed(&types[mask].shape)?;
        let values = (0..body.region.operands).map(|it| Some(Known::Operand(it))).collect();
        let mut hits = Self { mask, extents: extents.try_into().ok()?, values };
        for node in &body.region.nodes {
            let mut results = hits.results(node, types).unwrap_or_default();
            results.resize(node.results, None);
            hits.values.extend(results);
        }
        Some(hits)
    }

    /// What is known of the elements and the shape of a value with a row for each hit.
    pub(super) fn rows(&self, value: usize) -> Option<(Each, &[Extent])> {
        match self.values.get(value)?.as_ref()? {
            Known::Rows { each, shape } => Some((*each, shape)),
            _ => None,
        }
    }

    fn results(&self, node: &RegionNode, types: &[Type]) -> Option<Vec<Option<Known>>> {
        let known: Option<Vec<&Known>> =
            node.operands.iter().map(|&it| self.values.get(it)?.as_ref()).collect();
        let known = known?;
        if let (
            Op::Dynamic(Dynamic::Split { dim: 1 }),
            [Known::Coordinates { by_hit: true }, Known::Numbers(parts)],
        ) = (&node.op, known.as_slice())
            && *parts == [Extent::Number(1); 2]
        {
            let column = |index| {
                Some(Known::Rows { each: Each::Index(index), shape: vec![Extent::Hits, Extent::Number(1)] })
            };
            return Some(vec![column([1, 0]), column([0, 1])]);
        }
        Some(vec![Some(self.result(&node.op, &known, types)?)])
    }

    /// What is known of the result of an operation that has one.
    fn result(&self, op: &Op, known: &[&Known], types: &[Type]) -> Option<Known> {
        let moved = |each: Each, shape: Option<Vec<Extent>>| {
            let shape = shape?;
            width(&shape)?;
            Some(Known::Rows { each, shape })
        };
        Some(match (op, known) {
            (Op::Fill { result, .. } | Op::Constant { result, .. }, []) if result.rank() > 1 => return None,
            (Op::Fill { .. } | Op::Iota { .. } | Op::Constant { .. }, []) => {
                Known::Numbers(integers(op, LONGEST)?.into_iter().map(Extent::Number).collect())
            }
            (Op::Concat { dim: 0 }, parts) => {
                let numbers = |part: &&Known| match part {
                    Known::Numbers(numbers) => Some(numbers.clone()),
                    _ => None,
                };
                Known::Numbers(parts.iter().map(numbers).collect::<Option<Vec<_>>>()?.concat())
            }
            (Op::Dynamic(Dynamic::Shape), [Known::Rows { shape, .. }]) => Known::Numbers(shape.clone()),
            (Op::Dynamic(Dynamic::NonZero), [_]) => Known::Coordinates { by_hit: false },
            (Op::Transpose { permutation }, [Known::Coordinates { by_hit: false }])
                if *permutation == [1, 0] =>
            {
                Known::Coordinates { by_hit: true }
            }
            (Op::Dynamic(Dynamic::Squeeze { dims }), [Known::Rows { each, shape }]) => {
                moved(*each, squeezed(shape, dims))?
            }
            (Op::Dynamic(Dynamic::Unsqueeze { dims }), [Known::Rows { each, shape }]) => {
                moved(*each, unsqueezed(shape, dims))?
            }
            (Op::Dynamic(Dynamic::Reshape { .. }), [Known::Rows { each, shape }, Known::Numbers(to)]) => {
                moved(*each, reshaped(shape, to))?
            }
            (Op::Dynamic(Dynamic::Expand), [Known::Rows { each, shape }, Known::Numbers(to)]) => {
                let to = broadcast(shape, to)?;
                if to != *shape && !matches!(each, Each::Index(_)) {
                    return None;
                }
                moved(*each, Some(to))?
            }
            (
                Op::Gather { dim },
                [Known::Operand(operand), Known::Rows { each: Each::Index(index), shape }],
            ) if *shape == [Extent::Hits] => {
                let each = Each::Taken { operand: *operand, index: *index };
                moved(each, self.gathered(&types[*operand].shape, *dim, *index))?
            }
            (
                Op::Binary(binary),
                [
                    Known::Rows { each: Each::Index(a), shape },
                    Known::Rows { each: Each::Index(b), shape: other },
                ],
            ) if *binary == Binary::Add && shape == other => {
                let sum = |dim: usize| a[dim].checked_add(b[dim]);
                moved(Each::Index([sum(0)?, sum(1)?]), Some(shape.clone()))?
            }
            (
                Op::Binary(Binary::Mul),
                [Known::Rows { each: Each::Index(index), shape }, Known::Numbers(factor)],
            )
            | (
                Op::Binary(Binary::Mul),
                [Known::Numbers(factor), Known::Rows { each: Each::Index(index), shape }],
            ) => {
                let &[Extent::Number(factor)] = factor.as_slice() else {
                    return None;
                };
                let product = |dim: usize| index[dim].checked_mul(factor);
                moved(Each::Index([product(0)?, product(1)?]), Some(shape.clone()))?
            }
            (Op::Unary(_) | Op::Cast(_), [Known::Rows { shape, .. }]) => {
                moved(Each::Other, Some(shape.clone()))?
            }
            (Op::Binary(_), [Known::Rows { shape, .. }, Known::Rows { shape: other, .. }]) => {
                moved(Each::Other, broadcast(shape, other))?
            }
            (Op::Contract(contract), [Known::Rows { shape, .. }, Known::Operand(weights)])
                if is_product(contract) =>
            {
                let (&[rows, _], &[_, out]) = (shape.as_slice(), signed(&types[*weights].shape)?.as_slice())
                else {
                    return None;
                };
                moved(Each::Other, Some(vec![rows, Extent::Number(out)]))?
            }
            _ => return None,
        })
    }

    /// The shape of what is taken from an operand of that shape along a dimension before which
    /// there are only extents of 1; all indices are within.
    fn gathered(&self, shape: &[u64], dim: usize, index: Index) -> Option<Vec<Extent>> {
        let shape = signed(shape)?;
        let last = |dim: usize| index[dim].checked_mul(self.extents[dim].checked_sub(1)?);
        let within =
            index.iter().all(|&factor| factor >= 0) && last(0)?.checked_add(last(1)?)? < *shape.get(dim)?;
        if !within || shape[..dim].iter().any(|&extent| extent != 1) {
            return None;
        }
        let number = |&extent: &i64| Extent::Number(extent);
        let before = shape[..dim].iter().map(number);
        Some(before.chain([Extent::Hits]).chain(shape[dim + 1..].iter().map(number)).collect())
    }
}

fn signed(shape: &[u64]) -> Option<Vec<i64>> {
    shape.iter().map(|&extent| i64::try_from(extent).ok()).collect()
}

/// How many elements a row has, if the rows are the first extent that is not 1.
fn width(shape: &[Extent]) -> Option<i64> {
    let mut rest = shape.iter().skip_while(|&&extent| extent == Extent::Number(1));
    if rest.next() != Some(&Extent::Hits) {
        return None;
    }
    rest.try_fold(1_i64, |product, extent| match extent {
        Extent::Number(extent) if *extent > 0 => product.checked_mul(*extent),
        _ => None,
    })
}

fn squeezed(shape: &[Extent], dims: &[usize]) -> Option<Vec<Extent>> {
    if dims.iter().any(|&dim| shape.get(dim) != Some(&Extent::Number(1))) {
        return None;
    }
    let kept = (0..shape.len()).filter(|dim| !dims.contains(dim));
    Some(kept.map(|dim| shape[dim]).collect())
}

fn unsqueezed(shape: &[Extent], dims: &[usize]) -> Option<Vec<Extent>> {
    let mut shape = shape.to_vec();
    for &dim in dims {
        if dim > shape.len() {
            return None;
        }
        shape.insert(dim, Extent::Number(1));
    }
    Some(shape)
}

/// The shape that a list of numbers asks for, if rows stay rows; -1 is how many there are.
fn reshaped(shape: &[Extent], to: &[Extent]) -> Option<Vec<Extent>> {
    let inferred = |&extent: &Extent| if extent == Extent::Number(-1) { Extent::Hits } else { extent };
    let to: Vec<Extent> = to.iter().map(inferred).collect();
    (width(&to)? == width(shape)?).then_some(to)
}

/// The shape that both repeat to, whatever the number of hits is.
fn broadcast(a: &[Extent], b: &[Extent]) -> Option<Vec<Extent>> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[Extent], dim: usize| {
        (dim + shape.len()).checked_sub(rank).map_or(Extent::Number(1), |dim| shape[dim])
    };
    let both = |dim: usize| match (extent(a, dim), extent(b, dim)) {
        (a, b) if a == b => Some(a),
        (Extent::Number(1), other) | (other, Extent::Number(1)) => Some(other),
        _ => None,
    };
    (0..rank).map(both).collect()
}

//! Sums of products in index notation.
//!
//! Labels fall into four groups: `batch` in all three values, `rows` in the left operand and the
//! result, `columns` in the right operand and the result, `summed` in both operands. Where the
//! labels of a group follow each other in memory they are one strided dimension, and the
//! contraction is one matrix product for each batch. A value whose labels do not follow each
//! other is first copied, or the result copied afterwards.

use planner_ir::{Contract, Label};

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::movement::copy_elements;
use crate::nest::{Level, Nest, for_each, row_major};
use crate::number::{Number, with_number};
use crate::product::{Extents, Matrix, product};

/// `y[..] = sum of a[..] * b[..]`.
pub(crate) fn contract(
    contract: &Contract,
    [a, b]: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(b.dtype, a.dtype)?;
    let places = [
        Indexed::new(&contract.left, a.shape)?,
        Indexed::new(&contract.right, b.shape)?,
        Indexed::new(&contract.result, y.shape)?,
    ];
    check(&places)?;
    with_number!(y.dtype, "a sum of products", T => {
        compute::<T>(&places, [a.elements()?, b.elements()?], y.elements_mut()?)
    })
}

/// The labels of a value and how its memory is indexed by them; extents of 1 are left out.
#[derive(Clone, Debug)]
struct Indexed {
    labels: Vec<(Label, Level<1>)>,
    count: usize,
}

impl Indexed {
    fn new(labels: &[Label], shape: &[u64]) -> Result<Self, KernelError> {
        if labels.len() != shape.len() {
            return Err(KernelError::Dimension { dim: labels.len(), rank: shape.len() });
        }
        let shape = extents(shape)?;
        let strides = row_major(&shape);
        let labels = labels
            .iter()
            .zip(shape.iter().zip(strides))
            .map(|(&label, (&extent, stride))| (label, Level { extent, strides: [stride] }))
            .collect();
        Ok(Self { labels, count: shape.iter().product() })
    }

    /// The value after its labels are put in that order.
    fn ordered(&self, order: &[Label]) -> Self {
        let levels: Vec<Level<1>> = order.iter().map(|&label| self.level(label)).collect();
        let strides = row_major(&levels.iter().map(|level| level.extent).collect::<Vec<_>>());
        let labels = order.iter().zip(levels.iter().zip(strides));
        let labels =
            labels.map(|(&label, (level, stride))| (label, Level { strides: [stride], ..*level })).collect();
        Self { labels, count: self.count }
    }

    fn find(&self, label: Label) -> Option<Level<1>> {
        self.labels.iter().find(|(own, _)| *own == label).map(|&(_, level)| level)
    }

    /// The loop over a label that it has.
    fn level(&self, label: Label) -> Level<1> {
        self.find(label).unwrap_or(Level { extent: 1, strides: [0] })
    }

    /// The labels as one strided dimension, if they follow each other in memory.
    fn fused(&self, labels: &[Label]) -> Option<Level<1>> {
        let nest = Nest::new(labels.iter().map(|&label| self.level(label)));
        nest.outer().is_empty().then(|| nest.row())
    }

    fn labels(&self) -> impl Iterator<Item = Label> {
        self.labels.iter().map(|&(label, _)| label)
    }
}

/// Refuses extents that differ and labels that are summed in one operand alone or twice in one.
fn check(places: &[Indexed; 3]) -> Result<(), KernelError> {
    for own in places {
        for (index, &(label, level)) in own.labels.iter().enumerate() {
            let others = places.iter().filter_map(|other| other.find(label));
            let extents: Vec<usize> = others.map(|other| other.extent).collect();
            let is_twice = own.labels[..index].iter().any(|&(other, _)| other == label);
            if is_twice || extents.len() < 2 || extents.iter().any(|&it| it != level.extent) {
                let to_shape = |extent: &usize| u64::try_from(*extent).map_err(|_| KernelError::Size);
                return Err(KernelError::Shape {
                    of: "a label of a contraction",
                    found: extents.iter().map(to_shape).collect::<Result<_, _>>()?,
                    expected: vec![to_shape(&level.extent)?],
                });
            }
        }
    }
    Ok(())
}

/// The labels of each group, in an order.
#[derive(Clone, Debug)]
struct Groups {
    batch: Vec<Label>,
    rows: Vec<Label>,
    columns: Vec<Label>,
    summed: Vec<Label>,
}

impl Groups {
    /// The two groups that make the matrix that a value is (0 and 1 operands, 2 the result).
    fn matrix(&self, value: usize) -> [&[Label]; 2] {
        match value {
            0 => [&self.rows, &self.summed],
            1 => [&self.summed, &self.columns],
            _ => [&self.rows, &self.columns],
        }
    }

    /// Whether a value's labels do not follow each other as the groups do.
    fn is_scattered(&self, value: usize, place: &Indexed) -> bool {
        self.matrix(value).iter().any(|group| place.fused(group).is_none())
    }
}

/// The order in each group that needs the fewest elements to be copied.
fn groups([a, b, y]: &[Indexed; 3]) -> Groups {
    let group = |ordered_by: &Indexed, members: [bool; 3]| -> Vec<Label> {
        let is_member = |label: &Label| [a, b, y].map(|value| value.find(*label).is_some()) == members;
        ordered_by.labels().filter(is_member).collect()
    };
    let mut best: Option<(usize, Groups)> = None;
    for rows_by in [y, a] {
        for columns_by in [y, b] {
            for summed_by in [a, b] {
                let groups = Groups {
                    batch: group(y, [true, true, true]),
                    rows: group(rows_by, [true, false, true]),
                    columns: group(columns_by, [false, true, true]),
                    summed: group(summed_by, [true, true, false]),
                };
                let copied = [a, b, y]
                    .into_iter()
                    .enumerate()
                    .map(|(value, place)| if groups.is_scattered(value, place) { place.count } else { 0 });
                let copied = copied.sum();
                if copied == 0 {
                    return groups;
                }
                if best.as_ref().is_none_or(|(least, _)| copied < *least) {
                    best = Some((copied, groups));
                }
            }
        }
    }
    best.expect("there are eight orders").1
}

fn compute<T: Number>(places: &[Indexed; 3], operands: [&[T]; 2], y: &mut [T]) -> Result<(), KernelError> {
    let groups = groups(places);
    let ordered: Vec<Option<Indexed>> = (0..3)
        .map(|value| {
            let [first, second] = groups.matrix(value);
            let order = [&groups.batch, first, second].concat();
            groups.is_scattered(value, &places[value]).then(|| places[value].ordered(&order))
        })
        .collect();
    let copies: Vec<Option<Vec<T>>> = (0..2)
        .map(|value| {
            let target = ordered[value].as_ref()?;
            let mut copy = vec![T::ZERO; places[value].count];
            copy_elements(&between(target, &places[value]), [0, 0], operands[value], &mut copy);
            Some(copy)
        })
        .collect();
    let final_places: Vec<&Indexed> =
        (0..3).map(|value| ordered[value].as_ref().unwrap_or(&places[value])).collect();
    let elements = |value: usize| copies[value].as_deref().unwrap_or(operands[value]);
    let products = Products::new(&groups, &final_places);
    match &ordered[2] {
        None => products.compute([elements(0), elements(1)], y),
        Some(source) => {
            let mut result = vec![T::ZERO; source.count];
            products.compute([elements(0), elements(1)], &mut result);
            copy_elements(&between(&places[2], source), [0, 0], &result, y);
        }
    }
    Ok(())
}

/// The loops that copy a value from one order (place 1) to another (place 0).
fn between(target: &Indexed, source: &Indexed) -> Nest<2> {
    Nest::new(target.labels.iter().map(|&(label, level)| Level {
        extent: level.extent,
        strides: [level.strides[0], source.level(label).strides[0]],
    }))
}

/// One matrix product for each batch.
struct Products {
    batch: Vec<Level<3>>,
    extents: Extents,
    matrices: [Matrix; 3],
}

impl Products {
    /// Of values none of which is scattered.
    fn new(groups: &Groups, places: &[&Indexed]) -> Self {
        let batch = groups.batch.iter().map(|&label| Level {
            extent: places[0].level(label).extent,
            strides: [0, 1, 2].map(|value: usize| places[value].level(label).strides[0]),
        });
        let nest = Nest::new(batch);
        let mut batch = nest.outer().to_vec();
        batch.push(nest.row());
        let level = |value: usize, group: usize| {
            let fused = places[value].fused(groups.matrix(value)[group]);
            fused.expect("the labels of a group follow each other")
        };
        let matrices = [0, 1, 2].map(|value| Matrix {
            start: 0,
            row_stride: level(value, 0).strides[0],
            column_stride: level(value, 1).strides[0],
        });
        let extents =
            Extents { rows: level(0, 0).extent, columns: level(1, 1).extent, summed: level(0, 1).extent };
        Self { batch, extents, matrices }
    }

    fn compute<T: Number>(&self, [a, b]: [&[T]; 2], y: &mut [T]) {
        let [a_at, b_at, y_at] = self.matrices;
        for_each(&self.batch, [0; 3], &mut |[a_start, b_start, y_start]| {
            product(
                self.extents,
                T::ONE,
                (a, Matrix { start: a_start, ..a_at }),
                (b, Matrix { start: b_start, ..b_at }),
                (y, Matrix { start: y_start, ..y_at }),
            );
        });
    }
}

#[cfg(test)]
mod tests;

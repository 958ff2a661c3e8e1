//! Every layout of a value with plain and free digits.

use planner_ir::{AxisId, Digit, Layout, Mesh, Type};

/// Every layout of values of that type on the mesh.
pub(super) fn every_layout(mesh: &Mesh, type_: &Type) -> Vec<Layout> {
    // For each axis: nothing, a sum owed, or one of the dimensions.
    let choices = type_.rank() + 2;
    let axes: Vec<AxisId> = mesh.axis_ids().collect();
    let mut every = Vec::new();
    for number in 0..choices.pow(u32::try_from(axes.len()).unwrap()) {
        let choice = |axis: AxisId| number / choices.pow(u32::try_from(axis.0).unwrap()) % choices;
        let of = |wanted: usize| -> Vec<AxisId> {
            axes.iter().copied().filter(|&axis| choice(axis) == wanted).collect()
        };
        let mut layouts = vec![Layout { dims: vec![], owed: of(1) }];
        for (dim, &extent) in type_.shape.iter().enumerate() {
            let options = dimension(mesh, &of(dim + 2), extent);
            let with = |layout: &Layout| -> Vec<Layout> {
                let add = |digits: &Vec<Digit>| {
                    let mut layout = layout.clone();
                    layout.dims.push(digits.clone());
                    layout
                };
                options.iter().map(add).collect()
            };
            layouts = layouts.iter().flat_map(with).collect();
        }
        every.append(&mut layouts);
    }
    every.retain(|layout| layout.check(mesh, type_).is_ok());
    every
}

/// The digits of a dimension that is split over just these axes, in every order, with every free
/// digit before each.
fn dimension(mesh: &Mesh, axes: &[AxisId], extent: u64) -> Vec<Vec<Digit>> {
    if axes.is_empty() {
        return vec![vec![]];
    }
    let mut options = Vec::new();
    for (index, &axis) in axes.iter().enumerate() {
        let mut others = axes.to_vec();
        others.remove(index);
        for free in (1..=extent).filter(|&free| extent.is_multiple_of(free * mesh.size(axis))) {
            for rest in dimension(mesh, &others, extent / free / mesh.size(axis)) {
                let mut digits = vec![Digit::free(free), Digit::axis(mesh, axis)];
                digits.retain(|digit| digit.size > 1);
                digits.extend(rest);
                options.push(digits);
            }
        }
    }
    options
}

//! The mesh that suits a program: several are tried.

use planner_ir::Mesh;

/// How many axes a mesh that is tried has at most.
const MOST_AXES: usize = 3;
/// Above this many devices, meshes with the most axes are not tried: their spaces are large.
const MANY_DEVICES: u64 = 64;

/// The meshes that are tried for a number of devices: one axis, then every product of two and
/// three factors, ascending, so that the last axis, whose devices are nearest, is the longest.
pub fn candidates(devices: u64) -> Vec<Mesh> {
    let mut products = vec![vec![devices]];
    let most = if devices > MANY_DEVICES { MOST_AXES - 1 } else { MOST_AXES };
    for axes in 2..=most {
        factors(devices, 2, axes, &mut Vec::new(), &mut products);
    }
    products.iter().map(|sizes| Mesh::of_sizes(sizes)).collect()
}

fn factors(rest: u64, least: u64, axes: usize, before: &mut Vec<u64>, products: &mut Vec<Vec<u64>>) {
    if axes == 1 {
        if rest >= least {
            products.push(before.iter().copied().chain([rest]).collect());
        }
        return;
    }
    let fits = |factor: &u64| factor.saturating_mul(*factor) <= rest;
    for factor in (least..).take_while(fits).filter(|&factor| rest.is_multiple_of(factor)) {
        before.push(factor);
        factors(rest / factor, factor, axes - 1, before, products);
        before.pop();
    }
}

/// Meshes of groups, such as `2,2x2`.
pub fn several(text: &str) -> Result<Vec<Mesh>, String> {
    let mesh = |text: &str| {
        let sized = text.split('x').all(|size| size.parse::<u64>().is_ok());
        let mesh = Mesh::parse(text).ok().filter(|_| sized);
        mesh.ok_or_else(|| format!("`{text}` is no mesh of a group, expected sizes such as `2x2`"))
    };
    text.split(',').map(mesh).collect()
}

/// A mesh as sizes: `2x4`.
pub fn sizes(mesh: &Mesh) -> String {
    mesh.axes.iter().map(|axis| axis.size.to_string()).collect::<Vec<_>>().join("x")
}

/// The divisors of a number up to so many, in order.
pub(crate) fn divisors(number: u64, most: u64) -> impl Iterator<Item = u64> {
    (1..=number.min(most)).filter(move |&it| number.is_multiple_of(it))
}

#[cfg(test)]
mod tests;

//! Operations that move elements, and look them up.

use super::case::{Case, Operand, Random, count};
use super::elements::listed;

pub(super) fn case(name: &str, random: &mut Random) -> Option<Case> {
    let shape = random.shape(1, 3);
    let dim = random.below(shape.len());
    let mode = random.one_of(&["add", "replace"]);
    Some(match name {
        "reshape" => {
            let mut to = shape.clone();
            match random.below(3) {
                0 => to = vec![shape.iter().product()],
                1 => to.insert(dim, 1),
                _ => to.reverse(),
            }
            Case::new(&format!("reshape shape={}", listed(&to)), [random.plain(&shape)])
        }
        "transpose" => {
            let permutation = random.order(shape.len());
            Case::new(&format!("transpose permutation={}", listed(&permutation)), [random.plain(&shape)])
        }
        "expand" => {
            let from = random.repeated(&shape);
            Case::new(&format!("expand shape={}", listed(&shape)), [random.plain(&from)])
        }
        "concat" => {
            let part = |random: &mut Random| {
                let mut shape = shape.clone();
                shape[dim] = random.extent(1, 3);
                random.plain(&shape)
            };
            let operands: Vec<Operand> = (0..random.between(1, 3)).map(|_| part(random)).collect();
            Case::new(&format!("concat dim={dim}"), operands)
        }
        "slice" => slice(random),
        "pad" => {
            let least = |extent: u64| -i64::try_from(extent / 2).unwrap();
            let [before, after] =
                [0, 1].map(|_| shape.iter().map(|&it| random.between(least(it), 2)).collect::<Vec<_>>());
            let edge = random.one_of(&["0.0", "1.5"]);
            let op = format!("pad before={} after={} edge=constant({edge})", listed(&before), listed(&after));
            let kept: i64 = shape
                .iter()
                .zip(before.iter().zip(&after))
                .map(|(&it, (before, after))| i64::try_from(it).unwrap() + before + after)
                .product();
            if kept == 0 {
                return case(name, random);
            }
            Case::new(&op, [random.plain(&shape)])
        }
        "triangle" => {
            let shape = random.shape(2, 3);
            let (side, diagonal) = (random.one_of(&["upper", "lower"]), random.between(-2, 2));
            Case::new(&format!("triangle triangle={side} diagonal={diagonal}"), [random.plain(&shape)])
        }
        "top_k" => {
            let (k, extreme) = (1 + random.below(index(shape[dim])), random.one_of(&["largest", "smallest"]));
            Case::new(&format!("top_k dim={dim} k={k} extreme={extreme}"), [random.distinct(&shape)])
        }
        "gather" => {
            let indices = random.shape(0, 2);
            let operands = [random.plain(&shape), random.indices(shape[dim], &indices)];
            Case::new(&format!("gather dim={dim}"), operands)
        }
        "gather_elements" => {
            let places = looked_up(random, &shape, dim);
            let operands = [random.plain(&shape), random.indices(shape[dim], &places)];
            Case::new(&format!("gather_elements dim={dim}"), operands)
        }
        "gather_nd" => {
            let (indices, _) = random_places(random, &shape);
            Case::new("gather_nd batch_dims=0", [random.plain(&shape), indices])
        }
        "scatter_elements" => {
            let mut places = looked_up(random, &shape, dim);
            // What is replaced twice depends on the order.
            let indices = match mode {
                "add" => random.indices(shape[dim], &places),
                _ => different(random, shape[dim], &mut places, dim),
            };
            let operands = [random.plain(&shape), indices, random.plain(&places)];
            Case::new(&format!("scatter_elements dim={dim} scatter={mode}"), operands)
        }
        "scatter_nd" => {
            let (indices, updates) = match mode {
                "add" => random_places(random, &shape),
                _ => different_rows(random, &shape),
            };
            let operands = [random.plain(&shape), indices, random.plain(&updates)];
            Case::new(&format!("scatter_nd scatter={mode}"), operands)
        }
        _ => return None,
    })
}

fn index(extent: u64) -> usize {
    usize::try_from(extent).unwrap()
}

/// Some of the elements of each dimension, forwards or backwards.
fn slice(random: &mut Random) -> Case {
    let shape: Vec<u64> = (0..random.between(1, 3)).map(|_| random.extent(1, 5)).collect();
    let (mut starts, mut steps, mut sizes) = (vec![], vec![], vec![]);
    for &extent in &shape {
        let step = random.between(1, 3);
        let size = random.extent(1, (i64::try_from(extent).unwrap() - 1) / step + 1);
        let reach = (size - 1) * step.unsigned_abs();
        let first = random.extent(0, i64::try_from(extent - 1 - reach).unwrap());
        let backwards = random.flip();
        starts.push(if backwards { first + reach } else { first });
        steps.push(if backwards { -step } else { step });
        sizes.push(size);
    }
    let op = format!("slice starts={} steps={} sizes={}", listed(&starts), listed(&steps), listed(&sizes));
    Case::new(&op, [random.plain(&shape)])
}

/// The shape of indices into a dimension: of other dimensions, at most the data's extents.
fn looked_up(random: &mut Random, shape: &[u64], dim: usize) -> Vec<u64> {
    let extent = |(it, &extent): (usize, &u64)| {
        let most = if it == dim { 3 } else { i64::try_from(extent).unwrap() };
        random.extent(1, most)
    };
    shape.iter().enumerate().map(extent).collect()
}

/// Indices into a dimension, all different in each row; no more than there are.
fn different(random: &mut Random, extent: u64, places: &mut [u64], dim: usize) -> Operand {
    places[dim] = places[dim].min(extent);
    let inner = count(&places[dim + 1..]);
    let length = index(places[dim]);
    let mut numbers = vec![0; count(places)];
    for row in 0..numbers.len() / length {
        let first = row / inner * length * inner + row % inner;
        for (at, place) in random.order(index(extent)).into_iter().take(length).enumerate() {
            numbers[first + at * inner] = i64::try_from(place).unwrap();
        }
    }
    Operand::integers(places, &numbers)
}

/// Places of slices of a value (some of them twice), and the shape of all those slices.
fn random_places(random: &mut Random, shape: &[u64]) -> (Operand, Vec<u64>) {
    let depth = 1 + random.below(shape.len());
    let rows = random.shape(0, 2);
    let mut numbers = Vec::new();
    for _ in 0..count(&rows) {
        for &extent in &shape[..depth] {
            let extent = i64::try_from(extent).unwrap();
            numbers.push(random.between(-extent, extent - 1));
        }
    }
    let places = [&rows[..], &[u64::try_from(depth).unwrap()]].concat();
    (Operand::integers(&places, &numbers), [&rows[..], &shape[depth..]].concat())
}

/// Different places of slices of a value's first dimension, and the shape of those slices.
fn different_rows(random: &mut Random, shape: &[u64]) -> (Operand, Vec<u64>) {
    let rows = random.extent(1, i64::try_from(shape[0]).unwrap());
    let order = random.order(index(shape[0]));
    let numbers: Vec<i64> =
        order.into_iter().take(index(rows)).map(|it| i64::try_from(it).unwrap()).collect();
    (Operand::integers(&[rows, 1], &numbers), [&[rows], &shape[1..]].concat())
}

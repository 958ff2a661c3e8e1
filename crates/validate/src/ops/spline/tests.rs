//! Factors that are planted are found.

use cost_models::units::exact;

use super::*;

/// Numbers that look random: those of a linear congruential generator.
fn numbers(count: usize) -> Vec<f64> {
    let mut state = 1_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        exact(state >> 40) / exact(1 << 24)
    };
    (0..count).map(next).collect()
}

fn rows(count: usize) -> Vec<Vec<f64>> {
    numbers(3 * count).chunks(3).map(|it| it.iter().map(|it| 16.0 * it).collect()).collect()
}

fn value(terms: &[Term], row: &[f64]) -> f64 {
    terms.iter().map(|term| term.value(row)).sum()
}

#[test]
fn powers_with_a_knot_are_found_even_where_a_tenth_is_far_off() {
    let rows = rows(2000);
    let truth = |row: &Vec<f64>| {
        0.1 * (row[0] - 7.0).max(0.0) - 0.02 * (9.0 - row[1]).max(0.0) * (row[0] - 3.0).max(0.0)
    };
    let mut targets: Vec<f64> = rows.iter().map(truth).collect();
    targets.iter_mut().step_by(10).for_each(|it| *it += 1.0);
    let terms = terms(&rows, &targets, 30);
    let mut off: Vec<f64> = rows.iter().map(|row| (value(&terms, row) - truth(row)).abs()).collect();
    off.sort_by(f64::total_cmp);
    assert!(off[1000] < 0.01 && off[1800] < 0.04, "{} {}", off[1000], off[1800]);
}

#[test]
fn a_size_that_does_not_matter_is_in_no_term_that_does() {
    let rows = rows(500);
    let targets: Vec<f64> = rows.iter().map(|row| 0.05 * row[0]).collect();
    let terms = terms(&rows, &targets, 10);
    let matter = terms.iter().filter(|it| it.weight.abs() > 1e-5);
    let sizes: Vec<usize> = matter.flat_map(|it| &it.hinges).map(|it| it.size).collect();
    assert!(!sizes.is_empty() && sizes.iter().all(|it| *it == 0), "{terms:?}");
}

#[test]
fn systems_are_solved() {
    for size in 1..=6 {
        let random = numbers(size * size + size);
        let (square, wanted) = random.split_at(size * size);
        // A matrix times itself turned is symmetric, and with a diagonal far from 0.
        let element = |row: usize, column: usize| -> f64 {
            let products = (0..size).map(|it| square[row * size + it] * square[column * size + it]);
            products.sum::<f64>() + if row == column { 0.5 } else { 0.0 }
        };
        let matrix: Vec<Vec<f64>> =
            (0..size).map(|row| (0..size).map(|it| element(row, it)).collect()).collect();
        let side: Vec<f64> =
            matrix.iter().map(|row| row.iter().zip(wanted).map(|(a, b)| a * b).sum()).collect();
        let found = solved(matrix, side);
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?} {wanted:?}");
    }
}

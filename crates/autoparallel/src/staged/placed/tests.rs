//! Blocks dealt by speed, against every cut.

use arbtest::arbtest;

use super::dealt;

/// How long the longest stage is at work (seconds).
fn longest(works: &[f64], speeds: &[f64], first: &[usize]) -> f64 {
    let end = |stage: usize| first.get(stage + 1).copied().unwrap_or(works.len());
    let own = |stage: usize| works[first[stage]..end(stage)].iter().sum::<f64>() / speeds[stage];
    (0..first.len()).map(own).fold(0.0, f64::max)
}

/// Every cut of so many blocks into so many stages.
fn cuts(blocks: usize, stages: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![0]];
    for _ in 1..stages {
        let longer = |cut: Vec<usize>| {
            let last = cut[cut.len() - 1];
            (last + 1..blocks).map(move |it| [cut.clone(), vec![it]].concat()).collect::<Vec<_>>()
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

#[test]
fn no_cut_keeps_the_longest_stage_shorter_at_work() {
    arbtest(|u| {
        let blocks = u.int_in_range(1..=7)?;
        let stages = u.int_in_range(1..=blocks)?;
        let mut numbers = |count: usize| -> arbtest::arbitrary::Result<Vec<f64>> {
            (0..count).map(|_| Ok(f64::from(u.int_in_range(1_u32..=9)?))).collect()
        };
        let (works, speeds) = (numbers(blocks)?, numbers(stages)?);
        let found = dealt(&works, &speeds).expect("there are as many blocks");
        assert_eq!((found.len(), found[0]), (stages, 0));
        assert!(found.is_sorted_by(|a, b| a < b));
        let of = |first: &Vec<usize>| longest(&works, &speeds, first);
        let least = cuts(blocks, stages).iter().map(of).fold(f64::INFINITY, f64::min);
        assert!(of(&found) <= least * (1.0 + 1e-12), "{works:?} at {speeds:?}: {found:?}, {least}");
        Ok(())
    });
    assert_eq!(dealt(&[1.0], &[1.0, 1.0]), None);
    // Twice as fast, twice as many blocks.
    assert_eq!(dealt(&[1.0; 6], &[2.0, 1.0]), Some(vec![0, 4]));
}

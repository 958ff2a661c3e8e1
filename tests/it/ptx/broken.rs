//! Kernels that are broken on purpose: each place where threads wait is left out once, and found missing.

use std::collections::BTreeMap;

use device::Nvrtc;
use kernels::cuda::Kernel;
use rayon::prelude::*;

use super::cases::TRIALS;
use super::emulation::{ARCHITECTURES, Modules, compiler, parsed};
use super::trial::Trial;
use crate::corpus::expect_none;
use crate::cuda::known;

/// How threads of a block meet, and those of a warp, and how they wait for what is on its way.
const WAITS: [&str; 4] = ["t_barrier();", "t_warp_barrier();", "t_wait_but_one();", "t_wait_but_two();"];

/// A place where threads wait: the family of the kernel, how many such places its source has, and which it is.
type Place = (String, usize, usize);

/// A source without what waits, for each place where something does.
fn without(source: &str) -> Vec<String> {
    let mut places: Vec<(usize, &str)> = WAITS.iter().flat_map(|it| source.match_indices(it)).collect();
    places.sort_unstable();
    places.into_iter().map(|(at, text)| format!("{};{}", &source[..at], &source[at + text.len()..])).collect()
}

/// Whether a trial is found to be wrong with another source of one of its kernels, the others as they are known.
fn is_found(nvrtc: &Nvrtc, known: &Modules, trial: &Trial, broken: &Kernel) -> bool {
    let mut modules = known.clone();
    modules.extend(parsed(&known::compiled(nvrtc, ARCHITECTURES[0], &[broken])));
    trial.check(&modules).is_err()
}

#[test]
fn a_wait_that_is_left_out_is_found() {
    let Some(nvrtc) = compiler() else { return };
    let mut places: BTreeMap<Place, Vec<(&Trial, Kernel)>> = BTreeMap::new();
    for trial in TRIALS.iter() {
        for (_, kernel) in trial.kernels() {
            let sources = without(&kernel.source);
            let count = sources.len();
            for (number, source) in sources.into_iter().enumerate() {
                let tried = places.entry((kernel.family().to_owned(), count, number)).or_default();
                tried.push((trial, Kernel { source, ..kernel.clone() }));
            }
        }
    }
    assert!(places.len() > 20, "only {} places where threads wait", places.len());
    let kernels = places.values().flatten().flat_map(|it| it.0.kernels());
    let known = parsed(&known::ptx(&nvrtc, ARCHITECTURES[0], &kernels.collect()));
    // Some trials are too small to need one of them.
    let is_missed = |(_, tried): &(&Place, &Vec<(&Trial, Kernel)>)| {
        !tried.iter().any(|(trial, broken)| is_found(&nvrtc, &known, trial, broken))
    };
    let missed: Vec<String> = places
        .par_iter()
        .filter(is_missed)
        .map(|(place, tried)| format!("{place:?}: {}", tried.len()))
        .collect();
    println!("{} places where threads wait, each left out", places.len());
    expect_none(&missed);
}

//! Fitting finds again what rows were made with.

use super::*;
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::framework::Framework;
use crate::kinds::Kind;
use crate::setup::Setup;
use crate::stated::{Blank, gpt};

#[test]
fn rows_are_halved_by_their_ids() {
    let halves = (0..1000).map(|it| half(&format!("t{it:05}"))).filter(|it| *it == Half::Fitted).count();
    assert!((400..600).contains(&halves), "{halves}");
}

#[test]
fn the_figures_that_rows_were_made_with_are_found_again() {
    let framework = Framework::shipped("megatron-lm").unwrap();
    let mut other = framework.clone();
    let sought = [(Figure::HiddenPasses, 20.0)];
    for (figure, stated) in &mut other.figures {
        match sought.iter().find(|(it, _)| it == figure) {
            Some((_, value)) => stated.value = *value,
            None => stated.range = None,
        }
    }
    let cluster = Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let rows = [(1, 1024), (4, 1024), (1, 4096), (2, 8192)].map(|(mbs, hidden)| {
        let setups = vec![Setup { mbs, gbs: mbs, ..gpt(12, hidden, 16, 1024) }];
        let kind = Kind { cluster: cluster.clone(), framework: other.clone(), ranks: 0..1 };
        let mut case = Case { setups, recompute: Blank::Stated, kinds: vec![kind] };
        let time = case.told().unwrap().time.total().0;
        for (figure, stated) in case.kinds.iter_mut().flat_map(|kind| &mut kind.framework.figures) {
            stated.value = framework.at(*figure);
        }
        Measured { case, time, weight: 1.0 }
    });
    let (fitted, [before, after]) = fit(&rows);
    assert!(after < before / 20.0, "{before} -> {after}");
    for (figure, value) in sought {
        let found = fitted.iter().find(|it| it.figure == figure).unwrap().after;
        assert!((found / value - 1.0).abs() < 0.05, "{}: {found}, not {value}", figure.name());
    }
}

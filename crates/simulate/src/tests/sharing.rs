//! Links are shared as max-min fairness says.

use arbtest::arbtest;

use super::same;
use crate::{Flow, Link, Schedule, run};

fn flow(bytes: f64, rate: f64, uses: &[(Link, f64)]) -> Flow {
    Flow { latency: 0.0, bytes, rate, uses: uses.to_vec() }
}

#[test]
fn two_flows_halve_a_link_and_the_longer_one_has_it_alone_afterwards() {
    let mut schedule = Schedule::default();
    let link = schedule.link(10.0);
    let [short, long] = [100.0, 300.0].map(|it| schedule.moving(flow(it, 10.0, &[(link, 1.0)]), &[]));
    let times = run(&schedule).unwrap();
    assert!(same(times.end(short), 20.0));
    assert!(same(times.end(long), 40.0));
}

#[test]
fn what_one_link_denies_another_flow_gets_on_the_next() {
    // Bertsekas and Gallager: one flow over both links, one over each.
    let mut schedule = Schedule::default();
    let (narrow, wide) = (schedule.link(1.0), schedule.link(2.0));
    let both = schedule.moving(flow(10.0, 9.0, &[(narrow, 1.0), (wide, 1.0)]), &[]);
    let on_narrow = schedule.moving(flow(10.0, 9.0, &[(narrow, 1.0)]), &[]);
    let on_wide = schedule.moving(flow(15.0, 9.0, &[(wide, 1.0)]), &[]);
    let times = run(&schedule).unwrap();
    // The wide link's flow gets what the other one leaves: 1.5; then it is gone.
    assert!(same(times.end(on_wide), 10.0));
    assert!(same(times.end(both), 20.0));
    assert!(same(times.end(on_narrow), 20.0));
}

#[test]
fn a_flow_that_reaches_its_own_rate_leaves_the_rest() {
    let mut schedule = Schedule::default();
    let link = schedule.link(10.0);
    let slow = schedule.moving(flow(20.0, 2.0, &[(link, 1.0)]), &[]);
    let fast = schedule.moving(flow(80.0, 20.0, &[(link, 1.0)]), &[]);
    let times = run(&schedule).unwrap();
    assert!(same(times.end(slow), 10.0));
    assert!(same(times.end(fast), 10.0));
}

#[test]
fn latency_takes_no_part_of_a_link() {
    let mut schedule = Schedule::default();
    let link = schedule.link(10.0);
    let late = schedule.moving(Flow { latency: 5.0, ..flow(100.0, 10.0, &[(link, 1.0)]) }, &[]);
    let early = schedule.moving(flow(100.0, 10.0, &[(link, 1.0)]), &[]);
    let times = run(&schedule).unwrap();
    // Five seconds alone, then halves: the early one has 50 left, and the late one 100.
    assert!(same(times.end(early), 15.0));
    assert!(same(times.end(late), 20.0));
}

#[test]
fn a_flow_without_bytes_takes_its_latency() {
    let mut schedule = Schedule::default();
    let nothing = schedule.moving(Flow { latency: 3.0, ..flow(0.0, 1.0, &[]) }, &[]);
    assert!(same(run(&schedule).unwrap().end(nothing), 3.0));
}

#[test]
fn every_flow_has_its_own_rate_or_a_full_link_on_which_none_has_more() {
    use crate::sharing::{Moving, Sharing};
    arbtest(|u| {
        let rates: Vec<f64> = (0..u.int_in_range(1..=4)?)
            .map(|_| Ok(f64::from(u.int_in_range(1..=9u8)?)))
            .collect::<Result<_, _>>()?;
        let mut flows = Vec::new();
        for _ in 0..u.int_in_range(1..=6)? {
            let mut uses = Vec::new();
            for link in 0..rates.len() {
                if u.ratio(1, 2)? {
                    let part = f64::from(u.int_in_range(1..=4u8)?) / 2.0;
                    uses.push((Link(u32::try_from(link).unwrap()), part));
                }
            }
            flows.push(Flow { latency: 0.0, bytes: 1.0, rate: f64::from(u.int_in_range(1..=9u8)?), uses });
        }
        let moving: Vec<Moving> =
            (0..u32::try_from(flows.len()).unwrap()).map(|it| Moving { task: it, flow: it }).collect();
        let mut sharing = Sharing::new(&rates, &flows);
        for &it in &moving {
            sharing.start(it);
        }
        let parts: Vec<f64> =
            moving.iter().map(|_| Ok(if u.ratio(1, 2)? { 0.5 } else { 1.0 })).collect::<Result<_, _>>()?;
        let shared = sharing.share(&moving, &parts);
        let load = |link: u32| -> f64 {
            let part = |flow: &Flow| flow.uses.iter().find(|it| it.0.0 == link).map_or(0.0, |it| it.1);
            flows.iter().zip(&shared).map(|(flow, rate)| part(flow) * rate).sum()
        };
        for (link, rate) in (0..).zip(&rates) {
            assert!(load(link) <= rate * (1.0 + 1e-9), "link {link} carries {}", load(link));
        }
        for ((flow, part), rate) in flows.iter().zip(&parts).zip(&shared) {
            let most = |link: u32| {
                let on_it =
                    flows.iter().zip(&shared).filter(|(it, _)| it.uses.iter().any(|it| it.0.0 == link));
                on_it.map(|it| *it.1).fold(0.0, f64::max)
            };
            let full = |&(Link(link), _): &(Link, f64)| {
                load(link) >= rates[usize::try_from(link).unwrap()] * (1.0 - 1e-9)
                    && most(link) <= rate * (1.0 + 1e-9)
            };
            assert!(same(*rate, part * flow.rate) || flow.uses.iter().any(full), "{flows:?} {shared:?}");
        }
        Ok(())
    });
}

//! Chains, graphs, and tasks that wait for each other.

use arbtest::arbtest;

use super::same;
use crate::{Flow, Schedule, Task, run};

#[test]
fn a_task_starts_when_the_last_one_before_it_is_over() {
    arbtest(|u| {
        let mut schedule = Schedule::default();
        let mut tasks: Vec<Task> = Vec::new();
        let mut ends: Vec<f64> = Vec::new();
        for _ in 0..u.int_in_range(1..=20)? {
            let before: Vec<usize> = (0..tasks.len())
                .map(|it| Ok(u.ratio(1, 4)?.then_some(it)))
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .flatten()
                .collect();
            let seconds = f64::from(u.int_in_range(0..=7u8)?);
            let start = before.iter().map(|&it| ends[it]).fold(0.0, f64::max);
            tasks.push(schedule.lasting(seconds, &before.iter().map(|&it| tasks[it]).collect::<Vec<_>>()));
            ends.push(start + seconds);
        }
        let times = run(&schedule).unwrap();
        for (task, end) in tasks.iter().zip(&ends) {
            assert!(same(times.end(*task), *end));
        }
        Ok(())
    });
}

#[test]
fn tasks_that_wait_for_each_other_are_named() {
    let mut schedule = Schedule::default();
    let free = schedule.lasting(1.0, &[]);
    let one = schedule.lasting(1.0, &[free]);
    let other = schedule.lasting(1.0, &[one]);
    let behind = schedule.lasting(1.0, &[other]);
    schedule.after(one, other);
    let deadlock = run(&schedule).unwrap_err();
    assert_eq!((deadlock.waiting, deadlock.first), (3, one));
    assert_eq!(deadlock.to_string(), "3 tasks wait for each other, among them task 1");
    assert!(schedule.len() == 4 && behind > other);
}

#[test]
fn a_task_again_takes_as_long() {
    let mut schedule = Schedule::default();
    let link = schedule.link(4.0);
    let flow = Flow { latency: 1.0, bytes: 8.0, rate: 4.0, uses: vec![(link, 1.0)] };
    let first = schedule.moving(flow, &[]);
    let again = schedule.again(first, &[first]);
    let times = run(&schedule).unwrap();
    assert!(same(times.start(again), 3.0) && same(times.end(again), 6.0) && same(times.last(), 6.0));
}

#[test]
fn the_order_in_which_independent_tasks_are_named_changes_no_time() {
    let ends = |forwards: bool| {
        let mut schedule = Schedule::default();
        let link = schedule.link(1.0);
        let mut sizes = [3.0, 1.0, 2.0, 5.0];
        if !forwards {
            sizes.reverse();
        }
        let flow = |bytes| Flow { latency: 0.5, bytes, rate: 1.0, uses: vec![(link, 1.0)] };
        let tasks = sizes.map(|it| schedule.moving(flow(it), &[]));
        let times = run(&schedule).unwrap();
        let mut ends = tasks.map(|it| times.end(it));
        ends.sort_by(f64::total_cmp);
        ends
    };
    let (one, other) = (ends(true), ends(false));
    assert!(one.iter().zip(&other).all(|(one, other)| same(*one, *other)), "{one:?} {other:?}");
}

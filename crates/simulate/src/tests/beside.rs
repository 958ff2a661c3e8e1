//! Computing and moving slow each other down on a processor.

use arbtest::arbtest;
use cost_models::collective;
use cost_models::machine::shipped;
use cost_models::topology::Topology;
use cost_models::units::Bytes;
use cost_models::work;
use lower::CollectiveKind;

use super::same;
use super::script::{Script, wait};
use crate::{Flow, Order, Schedule, Task, run, simulate};

fn flow(latency: f64, bytes: f64, rate: f64) -> Flow {
    Flow { latency, bytes, rate, uses: Vec::new() }
}

#[test]
fn both_sides_keep_a_part_of_their_rates_until_one_is_over() {
    let mut schedule = Schedule::default();
    schedule.slows(0.5);
    let computed = schedule.computing(4.0, 0, &[]);
    let elsewhere = schedule.computing(4.0, 1, &[]);
    let moved = schedule.moving(flow(0.0, 100.0, 10.0), &[]);
    schedule.keeps_busy(moved, 0);
    let times = run(&schedule).unwrap();
    // Half as fast until 8; then 60 of 100 are left.
    assert!(same(times.end(computed), 8.0) && same(times.end(elsewhere), 4.0));
    assert!(same(times.end(moved), 14.0), "{}", times.end(moved));
}

#[test]
fn a_flow_slows_computing_while_it_waits_for_its_first_byte() {
    let mut schedule = Schedule::default();
    schedule.slows(0.5);
    let computed = schedule.computing(4.0, 0, &[]);
    let moved = schedule.moving(flow(6.0, 5.0, 10.0), &[]);
    schedule.keeps_busy(moved, 0);
    let times = run(&schedule).unwrap();
    // Of four, three are done at 6 and half of one more at 7, when all bytes are there.
    assert!(same(times.end(moved), 7.0), "{}", times.end(moved));
    assert!(same(times.end(computed), 7.5), "{}", times.end(computed));
}

/// What a task of the oracle is.
struct Drawn {
    start: f64,
    /// Seconds alone.
    left: f64,
    processors: Vec<u32>,
    moves: bool,
    end: Option<f64>,
}

/// The same by looking at every moment at which anything changes, for tasks that wait for nobody.
fn ends(tasks: &mut [Drawn], part: f64) {
    let mut now = 0.0_f64;
    while tasks.iter().any(|it| it.end.is_none()) {
        let going: Vec<bool> = tasks.iter().map(|it| it.end.is_none() && it.start <= now).collect();
        let slowed = |it: &Drawn| {
            let other = |(other, going): (&Drawn, &bool)| {
                *going
                    && other.moves != it.moves
                    && other.processors.iter().any(|p| it.processors.contains(p))
            };
            tasks.iter().zip(&going).any(other)
        };
        let rates: Vec<f64> = tasks.iter().map(|it| if slowed(it) { part } else { 1.0 }).collect();
        let mut next = f64::INFINITY;
        for ((task, going), rate) in tasks.iter().zip(&going).zip(&rates) {
            if *going {
                next = next.min(now + task.left / rate);
            } else if task.end.is_none() {
                next = next.min(task.start);
            }
        }
        for ((task, going), rate) in tasks.iter_mut().zip(going).zip(rates) {
            if going {
                task.left -= (next - now) * rate;
                if task.left <= 1e-12 {
                    task.end = Some(next);
                }
            }
        }
        now = next;
    }
}

#[test]
fn random_tasks_end_when_every_moment_says() {
    arbtest(|u| {
        let part = f64::from(u.int_in_range(1..=8u8)?) / 8.0;
        let mut schedule = Schedule::default();
        schedule.slows(part);
        let (mut drawn, mut tasks): (Vec<Drawn>, Vec<Task>) = (Vec::new(), Vec::new());
        for _ in 0..u.int_in_range(1..=8)? {
            let start = f64::from(u.int_in_range(0..=9u8)?);
            let left = f64::from(u.int_in_range(1..=9u8)?);
            let moves = u.ratio(1, 2)?;
            let after = schedule.lasting(start, &[]);
            let mut processors = vec![u.int_in_range(0..=2u32)?];
            if moves && u.ratio(1, 2)? {
                processors.push(u.int_in_range(0..=2u32)?);
            }
            let task = if moves {
                let task = schedule.moving(flow(0.0, 3.0 * left, 3.0), &[after]);
                processors.iter().for_each(|&it| schedule.keeps_busy(task, it));
                task
            } else {
                schedule.computing(left, processors[0], &[after])
            };
            drawn.push(Drawn { start, left, processors, moves, end: None });
            tasks.push(task);
        }
        ends(&mut drawn, part);
        let times = run(&schedule).unwrap();
        for (task, drawn) in tasks.iter().zip(&drawn) {
            let (found, expected) = (times.end(*task), drawn.end.unwrap());
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        Ok(())
    });
}

/// An all-reduce beside computing takes longer on a GPU, and computing does; on threads, which do one
/// after the other, nothing is slower.
#[test]
fn programs_are_slowed_down_by_what_the_machine_says() {
    const ELEMENTS: u64 = 1 << 23;
    let machine = shipped::named("h100-80g-8x").unwrap();
    let part = machine.transport.beside.as_ref().unwrap().value.0;
    assert!(part < 1.0 && shipped::named("cpu-2x").unwrap().transport.beside.is_none());
    let mut script = Script::new(&[8], &[&[0]]);
    let [a, b, c] = [0; 3].map(|_| script.buffer(ELEMENTS));
    script.collective(CollectiveKind::AllReduce, 0, [a, c], ELEMENTS);
    script.compute(a, b);
    let timeline = simulate(&script.alike, &machine, Order::Streams).unwrap();
    let computing = work::copy(&machine.device, Bytes(4 * ELEMENTS)).0;
    let group = Topology::of(&machine).alone(&(0..8).collect::<Vec<u64>>()).unwrap();
    let exchange = collective::all_reduce(&machine, &group, Bytes(4 * ELEMENTS)).0;
    let latency = collective::all_reduce(&machine, &group, Bytes(1)).0;
    assert!(exchange > 2.0 * computing && latency < computing);
    let spans: Vec<_> = timeline.spans(&timeline.classes[0]).collect();
    assert!(same(spans[1].end, computing / part), "{}", spans[1].end);
    // It moves that much less than it could while something is computed.
    let lost = (1.0 - part) * (computing / part - latency);
    assert!(same(timeline.seconds, exchange + lost), "{} {exchange} {lost}", timeline.seconds);
    wait(&mut script, 1, 0);
    let after = simulate(&script.alike, &machine, Order::Streams).unwrap();
    assert!(same(after.seconds, exchange + computing));
}

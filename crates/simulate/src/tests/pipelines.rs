//! Pipelines drawn on paper, against closed forms and against another simulator.

use std::collections::BTreeMap;

use crate::{Flow, Link, Schedule, Task, run};

/// A pass of one micro-batch through a piece of the layers.
type Pass = (Way, usize, usize);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Forward,
    Backward,
}

/// How what stages hand on gets there.
#[derive(Clone, Copy, PartialEq)]
enum Sending {
    /// The stage does nothing else meanwhile.
    Blocking,
    /// Beside what is computed.
    Beside,
    /// Beside, and backward when this part of the pass is done: gradients of weights come last.
    Early(f64),
}

/// A pipeline of equal stages, each with several pieces of the layers.
struct Pipeline {
    stages: usize,
    pieces: usize,
    batches: usize,
    /// Time of the forward and the backward pass of a piece.
    passes: [f64; 2],
    /// Time of handing on.
    hop: f64,
    sending: Sending,
}

impl Pipeline {
    /// The order of one stage's passes: some forward, then one of each in turn.
    fn order(&self, stage: usize, eager: bool) -> Vec<Pass> {
        let all = self.pieces * self.batches;
        let ahead = match (self.pieces, eager) {
            (1, false) => self.stages - stage,
            (1, true) => 2 * (self.stages - stage) - 1,
            (pieces, _) => 2 * (self.stages - stage - 1) + (pieces - 1) * self.stages + 1,
        };
        let pass = |way: Way, number: usize| {
            let (round, within) =
                (number / (self.stages * self.pieces), number % (self.stages * self.pieces));
            let piece = match (self.pieces, way) {
                (1, _) => 0,
                (_, Way::Forward) => within / self.stages,
                (_, Way::Backward) => self.pieces - 1 - within / self.stages,
            };
            let batch = if self.pieces == 1 { number } else { round * self.stages + within % self.stages };
            (way, piece, batch)
        };
        let ahead = ahead.min(all);
        let mut order: Vec<Pass> = (0..ahead).map(|it| pass(Way::Forward, it)).collect();
        for number in 0..all {
            order.push(pass(Way::Backward, number));
            if ahead + number < all {
                order.push(pass(Way::Forward, ahead + number));
            }
        }
        order
    }

    /// What a pass waits for: the stage, and the pass whose result it takes; none for what is given.
    fn taken(&self, stage: usize, (way, piece, batch): Pass) -> Option<(usize, Pass)> {
        let (last, top) = (self.stages - 1, self.pieces - 1);
        match way {
            Way::Forward if stage > 0 => Some((stage - 1, (way, piece, batch))),
            Way::Forward if piece > 0 => Some((last, (way, piece - 1, batch))),
            Way::Forward => None,
            Way::Backward if stage < last => Some((stage + 1, (way, piece, batch))),
            Way::Backward if piece < top => Some((0, (way, piece + 1, batch))),
            Way::Backward => Some((last, (Way::Forward, top, batch))),
        }
    }

    fn seconds(&self, eager: bool) -> f64 {
        let mut schedule = Schedule::default();
        let mut links: BTreeMap<(usize, usize), (Link, Option<Task>)> = BTreeMap::new();
        // For each pass its end and the moment from which its result is there for others.
        let mut made: BTreeMap<(usize, Pass), [Task; 2]> = BTreeMap::new();
        let mut waiting: Vec<(Task, (usize, Pass))> = Vec::new();
        for stage in 0..self.stages {
            let mut last: Option<Task> = None;
            for pass in self.order(stage, eager) {
                let before: Vec<Task> = last.into_iter().collect();
                let [start, ready, mut end] = self.compute(&mut schedule, pass, &before);
                waiting.extend(self.taken(stage, pass).map(|it| (start, it)));
                let to = self.receiver(stage, pass).filter(|to| *to != stage);
                let mut sent = ready;
                if let (Some(to), true) = (to, self.hop > 0.0) {
                    let (link, behind) =
                        links.entry((stage, to)).or_insert_with(|| (schedule.link(1.0), None));
                    let flow = Flow { latency: 0.0, bytes: self.hop, rate: 1.0, uses: vec![(*link, 1.0)] };
                    let before: Vec<Task> = behind.iter().copied().chain([ready]).collect();
                    sent = schedule.moving(flow, &before);
                    *behind = Some(sent);
                    if self.sending == Sending::Blocking {
                        end = sent;
                    }
                }
                made.insert((stage, pass), [end, sent]);
                last = Some(end);
            }
        }
        for (task, from) in waiting {
            schedule.after(task, made[&from][1]);
        }
        run(&schedule).unwrap().last()
    }

    /// The tasks of a pass: the one that waits, the one whose result is handed on, the last one.
    fn compute(&self, schedule: &mut Schedule, (way, ..): Pass, before: &[Task]) -> [Task; 3] {
        let [forward, backward] = self.passes;
        match (way, self.sending) {
            (Way::Backward, Sending::Early(part)) => {
                let first = schedule.lasting(part * backward, before);
                [first, first, schedule.lasting((1.0 - part) * backward, &[first])]
            }
            (Way::Forward, _) => [schedule.lasting(forward, before); 3],
            (Way::Backward, _) => [schedule.lasting(backward, before); 3],
        }
    }

    /// Who takes the result of a pass.
    fn receiver(&self, stage: usize, (way, piece, _): Pass) -> Option<usize> {
        let (last, top) = (self.stages - 1, self.pieces - 1);
        match way {
            Way::Forward if stage < last => Some(stage + 1),
            Way::Forward => (piece < top).then_some(0),
            Way::Backward if stage > 0 => Some(stage - 1),
            Way::Backward => (piece > 0).then_some(last),
        }
    }
}

fn real(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap())
}

fn close(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-3
}

#[test]
fn one_forward_one_backward_takes_its_closed_form() {
    for (stages, batches) in [(2, 8), (4, 16), (8, 8), (8, 64)] {
        let it =
            Pipeline { stages, pieces: 1, batches, passes: [1.0, 2.0], hop: 0.0, sending: Sending::Beside };
        let closed = real(batches + stages - 1) * 3.0;
        assert!(close(it.seconds(false), closed), "{stages} {batches}");
    }
}

#[test]
fn handing_on_costs_a_round_trip_for_each_round_of_stages() {
    for (stages, batches) in [(2, 9), (4, 17), (8, 65)] {
        let it =
            Pipeline { stages, pieces: 1, batches, passes: [1.0, 2.0], hop: 0.125, sending: Sending::Beside };
        let (p, m) = (real(stages), real(batches));
        let closed = (m + p - 1.0) * 3.0 + 2.0 * (p - 1.0) * (1.0 + (m - 1.0) / p) * it.hop;
        assert!(close(it.seconds(false), closed), "{stages} {batches}: {} {closed}", it.seconds(false));
    }
}

#[test]
fn interleaving_divides_the_bubble_by_the_pieces() {
    for (stages, pieces, batches) in [(4, 2, 8), (4, 4, 16), (8, 2, 16)] {
        let v = real(pieces);
        let it = Pipeline {
            stages,
            pieces,
            batches,
            passes: [1.0 / v, 2.0 / v],
            hop: 0.0,
            sending: Sending::Beside,
        };
        let closed = real(batches) * 3.0 + real(stages - 1) / v * 3.0;
        assert!(close(it.seconds(false), closed), "{stages} {pieces}: {} {closed}", it.seconds(false));
    }
}

/// Times of `eager1f1b_sim.py`: stages and micro-batches, backward pass and hop (forward is 1), and
/// 1F1B blocking, 1F1B, eager blocking, eager, and eager with gradients of weights last.
const OTHER: [([usize; 2], [f64; 2], [f64; 5]); 10] = [
    ([2, 16], [2.0, 0.00], [51.0, 51.0, 51.0, 51.0, 50.0]),
    ([2, 16], [2.0, 0.25], [55.25, 55.0, 55.25, 51.5, 50.5]),
    ([2, 16], [2.0, 1.00], [68.0, 67.0, 68.0, 53.0, 52.0]),
    ([4, 16], [2.0, 0.25], [65.75, 64.0, 63.5, 58.5, 55.5]),
    ([4, 16], [2.0, 0.50], [74.5, 71.0, 72.0, 60.0, 57.0]),
    ([4, 16], [2.0, 1.00], [92.0, 85.0, 89.0, 63.0, 60.0]),
    ([8, 32], [2.0, 0.25], [135.75, 134.0, 133.5, 120.5, 113.5]),
    ([8, 32], [2.0, 1.00], [192.0, 185.0, 189.0, 131.0, 124.0]),
    ([4, 3], [1.5, 0.25], [17.25, 17.0, 17.0, 16.5, 14.25]),
    ([4, 3], [1.5, 1.00], [24.0, 23.0, 23.0, 21.0, 18.75]),
];

#[test]
fn eager_pipelines_take_what_another_simulator_says() {
    for ([stages, batches], [backward, hop], expected) in OTHER {
        let manners = [
            (Sending::Blocking, false),
            (Sending::Beside, false),
            (Sending::Blocking, true),
            (Sending::Beside, true),
            (Sending::Early(0.5), true),
        ];
        for ((sending, eager), expected) in manners.into_iter().zip(expected) {
            let it = Pipeline { stages, pieces: 1, batches, passes: [1.0, backward], hop, sending };
            let found = it.seconds(eager);
            assert!(close(found, expected), "{stages} {batches} {hop} {eager}: {found} {expected}");
        }
    }
}

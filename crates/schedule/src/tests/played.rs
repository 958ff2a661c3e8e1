//! A pipeline that is played tick by tick, from nothing but what waits for what, and timelines
//! against it.

use std::collections::BTreeSet;

use super::*;

/// What a group or channel is doing, and until when.
type Busy<T> = Option<(T, u64)>;

/// What has happened, and what is happening.
struct Play<'a> {
    schedule: &'a Schedule,
    durations: &'a Durations,
    now: u64,
    /// How many tasks each group has begun.
    begun: Vec<usize>,
    groups: Vec<Busy<Task>>,
    /// Tasks that are done, by stage.
    done: BTreeSet<(usize, Work, usize)>,
    /// What waits to be sent, in order: crossing, direction, micro-batch. One queue for each group
    /// where sending blocks, else for each crossing and direction.
    queues: Vec<Vec<(usize, Work, usize)>>,
    sending: Vec<Busy<(usize, Work, usize)>>,
    arrived: BTreeSet<(usize, Work, usize)>,
    last: u64,
}

/// Durations are whole numbers of ticks here.
fn ticks(time: f64) -> u64 {
    (0..10_000_u32).find(|&it| (f64::from(it) - time).abs() < 1e-9).unwrap().into()
}

impl Play<'_> {
    fn home(&self, stage: usize) -> usize {
        stage % self.schedule.groups.len()
    }

    fn is_sent(&self, crossing: &Crossing) -> bool {
        self.home(crossing.from) != self.home(crossing.to)
    }

    fn queue(&self, crossing: usize, work: Work) -> usize {
        let it = &self.durations.crossings[crossing];
        match (self.durations.overlap, work) {
            (Overlap::Blocking, Work::Forward) => self.home(it.from),
            (Overlap::Blocking, _) => self.home(it.to),
            (Overlap::Overlapped, Work::Forward) => 2 * crossing,
            (Overlap::Overlapped, _) => 2 * crossing + 1,
        }
    }

    fn may_start(&self, stage: usize, task: &Task) -> bool {
        let (last, i) = (self.schedule.stages() - 1, task.micro_batch);
        let arrived = |end: fn(&Crossing) -> usize| {
            self.durations.crossings.iter().enumerate().all(|(number, it)| {
                end(it) != stage || !self.is_sent(it) || self.arrived.contains(&(number, task.work, i))
            })
        };
        match task.work {
            Work::Forward => {
                (stage == 0 || self.done.contains(&(stage - 1, Work::Forward, i))) && arrived(|it| it.to)
            }
            Work::Backward => {
                self.done.contains(&(stage, Work::Forward, i))
                    && (stage == last || self.done.contains(&(stage + 1, Work::Backward, i)))
                    && arrived(|it| it.from)
            }
            Work::Weight => self.done.contains(&(stage, Work::Backward, i)),
        }
    }

    fn time(&self, stage: usize, work: Work) -> u64 {
        let it = &self.durations.stages[stage];
        match work {
            Work::Forward => ticks(it.forward),
            Work::Backward if self.schedule.splits_backward => ticks(it.backward),
            Work::Backward => ticks(it.backward) + ticks(it.weight),
            Work::Weight => ticks(it.weight),
        }
    }

    /// Everything that ends or starts now; whether anything does.
    fn happen(&mut self) -> bool {
        let mut happened = false;
        for group in 0..self.groups.len() {
            if let Some((task, _)) = self.groups[group].filter(|it| it.1 == self.now) {
                (self.groups[group], self.last, happened) = (None, self.now, true);
                let stage = self.schedule.stage(group, task.chunk);
                self.done.insert((stage, task.work, task.micro_batch));
                for (number, it) in self.durations.crossings.iter().enumerate() {
                    let sender = if task.work == Work::Forward { it.from } else { it.to };
                    if sender == stage && task.work != Work::Weight && self.is_sent(it) {
                        let queue = self.queue(number, task.work);
                        self.queues[queue].push((number, task.work, task.micro_batch));
                    }
                }
            }
        }
        for queue in 0..self.queues.len() {
            if let Some((message, _)) = self.sending[queue].filter(|it| it.1 == self.now) {
                (self.sending[queue], happened) = (None, true);
                self.arrived.insert(message);
            }
            if self.sending[queue].is_none() && !self.queues[queue].is_empty() {
                let message = self.queues[queue].remove(0);
                let crossing = &self.durations.crossings[message.0];
                let time = if message.1 == Work::Forward { crossing.forward } else { crossing.backward };
                (self.sending[queue], happened) = (Some((message, self.now + ticks(time))), true);
            }
        }
        for group in 0..self.groups.len() {
            let blocks = self.durations.overlap == Overlap::Blocking
                && (self.sending[group].is_some() || !self.queues[group].is_empty());
            let next = self.schedule.groups[group].get(self.begun[group]).copied();
            if let (Some(task), None, false) = (next, self.groups[group], blocks) {
                let stage = self.schedule.stage(group, task.chunk);
                if self.may_start(stage, &task) {
                    self.groups[group] = Some((task, self.now + self.time(stage, task.work)));
                    (self.begun[group], happened) = (self.begun[group] + 1, true);
                }
            }
        }
        happened
    }
}

/// How many ticks a schedule takes, if it comes to an end.
pub(super) fn played(schedule: &Schedule, durations: &Durations) -> Option<u64> {
    let groups = schedule.groups.len();
    let queues = groups.max(2 * durations.crossings.len());
    let mut play = Play {
        schedule,
        durations,
        now: 0,
        begun: vec![0; groups],
        groups: vec![None; groups],
        done: BTreeSet::new(),
        queues: vec![Vec::new(); queues],
        sending: vec![None; queues],
        arrived: BTreeSet::new(),
        last: 0,
    };
    loop {
        while play.happen() {}
        if play.groups.iter().all(Option::is_none) && play.sending.iter().all(Option::is_none) {
            let all = play.begun.iter().zip(&schedule.groups).all(|(begun, tasks)| *begun == tasks.len());
            return all.then_some(play.last);
        }
        play.now += 1;
    }
}

/// Durations of stages that differ, messages between neighbours and past some stages.
fn random_durations(
    u: &mut arbtest::arbitrary::Unstructured<'_>,
    stages: usize,
) -> arbtest::arbitrary::Result<Durations> {
    let mut time =
        |most: u32| -> arbtest::arbitrary::Result<f64> { Ok(f64::from(u.int_in_range(0..=most)?)) };
    let mut times = Vec::new();
    for _ in 0..stages {
        times.push(StageTimes { forward: time(4)?, backward: time(4)?, weight: time(3)? });
    }
    let mut crossings = Vec::new();
    for from in 0..stages {
        for to in from + 1..stages {
            // Most neighbours, and some others.
            if time(3)? < if to == from + 1 { 2.5 } else { 0.5 } {
                crossings.push(Crossing { from, to, forward: time(3)?, backward: time(3)? });
            }
        }
    }
    let overlap = if time(1)? < 0.5 { Overlap::Blocking } else { Overlap::Overlapped };
    Ok(Durations { stages: times, crossings, overlap })
}

#[test]
fn timelines_take_what_playing_takes() {
    let all: Vec<Verified> = small().into_iter().map(|(kind, sizes)| named(kind, sizes)).collect();
    arbtest::arbtest(|u| {
        let verified = u.choose(&all)?;
        let schedule = verified.schedule();
        let durations = random_durations(u, schedule.stages())?;
        let found = timeline(verified, &durations).unwrap();
        assert_eq!(Some(ticks(found.makespan)), played(schedule, &durations), "{durations:?}\n{schedule}");
        assert_eq!(makespan(verified, &durations).unwrap().to_bits(), found.makespan.to_bits());
        consistent(verified, &durations, &found);
        Ok(())
    })
    .budget_ms(2_000);
}

/// Spans follow each other, what is idle is what is left, and messages lie between their tasks.
fn consistent(verified: &Verified, durations: &Durations, found: &Timeline) {
    let schedule = verified.schedule();
    let at = |stage: usize, work, micro_batch| {
        let (group, chunk) = schedule.home(stage);
        let task = Task { work, chunk, micro_batch };
        found.groups[group][schedule.groups[group].iter().position(|it| *it == task).unwrap()]
    };
    for (spans, idle) in found.groups.iter().zip(&found.idle) {
        assert!(spans.windows(2).all(|it| it[0].end <= it[1].start));
        let busy: f64 = spans.iter().map(|it| it.end - it.start).sum();
        assert!((busy + idle - found.makespan).abs() < 1e-9);
    }
    let sent = durations.crossings.iter().filter(|it| schedule.home(it.from).0 != schedule.home(it.to).0);
    assert_eq!(found.messages.len(), 2 * sent.count() * verified.micro_batches());
    for it in &found.messages {
        assert!(at(it.from, it.of.work, it.of.micro_batch).end <= it.span.start);
        assert!(it.span.end <= at(it.to, it.of.work, it.of.micro_batch).start);
    }
}

#[test]
fn durations_that_do_not_suit_a_schedule_are_refused() {
    let verified = named(Kind::GPipe, [3, 1, 2]);
    let times = StageTimes { forward: 1.0, backward: 1.0, weight: 0.0 };
    let good = Durations::equal(3, times, 1.0, Overlap::Blocking);
    let said = |durations: &Durations| makespan(&verified, durations).unwrap_err().to_string();
    assert!(makespan(&verified, &good).is_ok());
    let fewer = Durations { stages: vec![times; 2], ..good.clone() };
    assert_eq!(said(&fewer), "times of 2 stages, expected 3");
    let mut wrong = good.clone();
    wrong.crossings[0].to = 3;
    assert_eq!(said(&wrong), "a crossing from stage 0 to 3, expected it to lead to a later one of 3");
    wrong.crossings[0].to = 0;
    assert_eq!(said(&wrong), "a crossing from stage 0 to 0, expected it to lead to a later one of 3");
    let mut wrong = good.clone();
    wrong.crossings[1].backward = f64::NAN;
    assert_eq!(said(&wrong), "a time of NaN, expected a number from 0");
    let mut wrong = good;
    wrong.stages[2].forward = -1.0;
    assert_eq!(said(&wrong), "a time of -1, expected a number from 0");
}

//! Programs of the stages of pipelines, against the timelines of their schedules.

use cost_models::collective;
use cost_models::machine::Machine;
use cost_models::topology::Topology;
use cost_models::units::Bytes;
use cost_models::work;
use lower::{
    Action, BufferId, Program, Received, Remote, Repeated, RepeatedPart, Sent, Stream, Strided, Turn, Way,
};
use schedule::{
    self, Crossing, Durations, Kind, Overlap, Schedule, StageTimes, Task, Verified, Work, makespan,
};

use super::same;
use super::script::{Script, machine};
use crate::{Order, simulate_each};

/// A pipeline of equal stages, each on several ranks, of which each sends to its like of other stages.
struct Drawn<'a> {
    schedule: &'a Schedule,
    /// How many ranks a group has.
    each: u64,
    /// What a stage computes forward, backward and for the weights (elements).
    computed: [u64; 3],
    /// What goes from a stage to which other (elements).
    crossings: &'a [(usize, usize, u64)],
}

impl Drawn<'_> {
    fn programs(&self) -> Vec<Program> {
        let groups = u64::try_from(self.schedule.groups.len()).unwrap();
        (0..groups * self.each).map(|rank| self.program(rank)).collect()
    }

    fn program(&self, rank: u64) -> Program {
        let group = usize::try_from(rank / self.each).unwrap();
        let ranks = self.each * u64::try_from(self.schedule.groups.len()).unwrap();
        let mut script = Script::new(&[ranks], &[]);
        let works = self.schedule.works();
        let mut parts = Vec::new();
        for chunk in 0..self.schedule.chunks {
            let stage = self.schedule.stage(group, chunk);
            for &work in works {
                let start = script.alike.program.instructions.len();
                self.part(&mut script, rank, stage, work);
                parts.push(RepeatedPart {
                    instructions: start..script.alike.program.instructions.len(),
                    stage,
                });
            }
        }
        let turn = |task: &Task| {
            let work = works.iter().position(|it| *it == task.work).unwrap();
            Turn {
                part: task.chunk * works.len() + work,
                micro_batch: u64::try_from(task.micro_batch).unwrap(),
            }
        };
        let turns: Vec<Turn> = self.schedule.groups[group].iter().map(turn).collect();
        let mut program = script.alike.program;
        program.storages.iter_mut().for_each(|it| it.places = 2);
        let times = u64::try_from(self.schedule.micro_batches()).unwrap();
        program.repeated = Some(Repeated {
            instructions: 0..program.instructions.len(),
            parts,
            turns,
            times,
            inputs: vec![],
        });
        program.rank = rank;
        program
    }

    /// Receives, computes, sends.
    fn part(&self, script: &mut Script, rank: u64, stage: usize, work: Work) {
        let (mut arrive, mut leave) = (Vec::new(), Vec::new());
        for &(first, second, elements) in self.crossings {
            let (from, to) = match work {
                Work::Forward => (first, second),
                Work::Backward => (second, first),
                Work::Weight => continue,
            };
            if to == stage {
                arrive.push((from, elements));
            }
            if from == stage {
                leave.push((to, elements));
            }
        }
        for (from, elements) in arrive {
            let output = script.buffer(elements);
            let parts = vec![self.remote(rank, from, Way::From, elements)];
            script.crossing(Stream::Receiving, Action::Receive(Received { output, parts }), 0);
        }
        let elements = match work {
            Work::Forward => self.computed[0],
            Work::Backward if self.schedule.splits_backward => self.computed[1],
            Work::Backward => self.computed[1] + self.computed[2],
            Work::Weight => self.computed[2],
        };
        let [a, b] = [0; 2].map(|_| script.buffer(elements));
        let event = wait_for_received(script);
        script.compute(a, b).waits = event;
        let made = script.alike.program.instructions.len() - 1;
        for (to, elements) in leave {
            let input = script.buffer(elements);
            let parts = vec![self.remote(rank, to, Way::To, elements)];
            script.crossing(Stream::Sending, Action::Send(Sent { input, parts }), 0);
            let last = script.alike.program.instructions.len() - 1;
            super::script::wait(script, last, made);
        }
    }

    fn remote(&self, rank: u64, stage: usize, way: Way, elements: u64) -> Remote {
        let (group, _) = self.schedule.home(stage);
        let rank = u64::try_from(group).unwrap() * self.each + rank % self.each;
        Remote { way, rank, strided: Strided::of_box(&[elements], &[0], &[elements]) }
    }

    fn durations(&self, machine: &Machine, overlap: Overlap) -> Durations {
        let computing = |elements: u64| work::copy(&machine.device, Bytes(4 * elements)).0;
        let [forward, backward, weight] = self.computed.map(computing);
        // One computation of both is started once.
        let weight = if self.schedule.splits_backward {
            weight
        } else {
            computing(self.computed[1] + self.computed[2]) - backward
        };
        let topology = Topology::of(machine);
        let crossing = |&(from, to, elements): &(usize, usize, u64)| {
            let rank = |stage: usize| u64::try_from(self.schedule.home(stage).0).unwrap() * self.each;
            let time = match (rank(from), rank(to)) {
                (from, to) if from == to => 0.0,
                (from, to) => {
                    let pair = topology.alone(&[from, to]).unwrap();
                    collective::send(machine, &pair, Bytes(4 * elements)).0
                }
            };
            Crossing { from, to, forward: time, backward: time }
        };
        let stages = vec![StageTimes { forward, backward, weight }; self.schedule.stages()];
        Durations { stages, crossings: self.crossings.iter().map(crossing).collect(), overlap }
    }
}

/// The events of what has been received at the end of the program.
fn wait_for_received(script: &mut Script) -> Vec<lower::Event> {
    let instructions = &mut script.alike.program.instructions;
    let known = instructions.iter().filter(|it| it.signals.is_some()).count();
    let received = instructions.iter_mut().rev().take_while(|it| it.stream == Stream::Receiving);
    let signal = |(number, it): (usize, &mut lower::Instruction)| {
        it.signals = Some(lower::Event(number));
        lower::Event(number)
    };
    (known..).zip(received).map(signal).collect()
}

fn verified(kind: Kind, [groups, chunks, micro_batches]: [usize; 3]) -> Verified {
    let schedule = kind.schedule(groups, chunks, micro_batches).unwrap();
    schedule::verify(schedule, groups * chunks, micro_batches).unwrap()
}

fn line(stages: usize, elements: u64) -> Vec<(usize, usize, u64)> {
    (1..stages).map(|to| (to - 1, to, elements)).collect()
}

const COMPUTED: [u64; 3] = [1 << 26, 5 << 24, 3 << 24];

#[test]
fn equal_stages_take_what_their_timeline_says() {
    let machine = machine("h100-80g-8x");
    for kind in Kind::ALL {
        let chunks = if kind.interleaves() { 2 } else { 1 };
        for (groups, each, micro_batches) in [(2, 4, 8), (4, 2, 12), (8, 1, 16)] {
            let verified = verified(kind, [groups, chunks, micro_batches]);
            // Hardly anything, and as long as a sixth and as half of the forward part.
            for elements in [1, 1 << 20, 3 << 20] {
                let crossings = line(groups * chunks, elements);
                let drawn =
                    Drawn { schedule: verified.schedule(), each, computed: COMPUTED, crossings: &crossings };
                let programs = drawn.programs();
                // Where ranks wait until they have sent, a rank may receive from both sides at a time,
                // and each takes longer.
                let orders =
                    [(Order::Streams, Overlap::Overlapped, 1e-3), (Order::OneByOne, Overlap::Blocking, 1e-2)];
                for (order, overlap, most) in orders {
                    let expected = makespan(&verified, &drawn.durations(&machine, overlap)).unwrap();
                    let timeline = simulate_each(&programs, &machine, order).unwrap();
                    let found = timeline.seconds;
                    assert!(
                        (found / expected - 1.0).abs() < most,
                        "{kind} {groups} {elements} {order:?}: {found} {expected}"
                    );
                    // Ranks of a stage are alike.
                    assert_eq!(timeline.classes.len(), groups);
                    assert!(timeline.classes.iter().all(|it| u64::try_from(it.ranks.len()) == Ok(each)));
                }
            }
        }
    }
}

#[test]
fn what_skips_stages_takes_what_its_timeline_says_but_for_the_links_that_it_shares() {
    let machine = machine("h100-80g-8x");
    for kind in [Kind::OneForwardOneBackward, Kind::ZeroBubbleH1, Kind::Eager] {
        let verified = verified(kind, [4, 1, 8]);
        for (skipping, least, most) in [(1, -1e-3, 1e-3), (1 << 19, 0.0, 2e-2)] {
            let crossings = [(0, 1, 1 << 20), (1, 2, 1 << 20), (2, 3, 1 << 20), (1, 3, skipping)];
            let drawn =
                Drawn { schedule: verified.schedule(), each: 2, computed: COMPUTED, crossings: &crossings };
            let expected = makespan(&verified, &drawn.durations(&machine, Overlap::Overlapped)).unwrap();
            let found = simulate_each(&drawn.programs(), &machine, Order::Streams).unwrap().seconds;
            let more = found / expected - 1.0;
            assert!(more > least && more < most, "{kind} {skipping}: {found} {expected}");
        }
    }
}

#[test]
fn stages_of_one_rank_send_each_other_nothing_over_links() {
    // Two stages on one rank: what goes between them is copied.
    let machine = machine("h100-80g-1x");
    let verified = verified(Kind::Interleaved, [1, 2, 3]);
    let crossings = [(0, 1, 1 << 20)];
    let drawn = Drawn { schedule: verified.schedule(), each: 1, computed: COMPUTED, crossings: &crossings };
    let programs = drawn.programs();
    let durations = drawn.durations(&machine, Overlap::Overlapped);
    let copy = work::copy(&machine.device, Bytes(4 << 20)).0;
    let found = simulate_each(&programs, &machine, Order::Streams).unwrap().seconds;
    let whole: f64 = durations.stages.iter().map(StageTimes::total).sum::<f64>() * 3.0;
    assert!(found > whole && found <= whole + 6.0 * copy * 1.0001, "{found} {whole} {copy}");
}

#[test]
fn messages_of_ranks_that_share_an_adapter_share_its_rate() {
    // Two devices share an adapter: what both send takes twice as long as what one does.
    let machine = machine("v100-32g-16x");
    let verified = verified(Kind::GPipe, [2, 1, 1]);
    let crossings = [(0, 1, 1 << 26)];
    let drawn =
        |each| Drawn { schedule: verified.schedule(), each, computed: [1, 1, 1], crossings: &crossings };
    let mut alone = drawn(8).programs();
    for program in &mut alone {
        if program.rank % 8 != 0 {
            program.instructions.retain(|it| it.stream == Stream::Compute);
            program.instructions.iter_mut().for_each(|it| (it.waits, it.signals) = (vec![], None));
            program.repeated = Some(Repeated::whole(0..program.instructions.len(), 1));
        }
    }
    let seconds = |programs: &[Program]| simulate_each(programs, &machine, Order::Streams).unwrap().seconds;
    let (both, one) = (seconds(&drawn(8).programs()), seconds(&alone));
    assert!((both / one - 2.0).abs() < 0.02, "{both} {one}");
}

#[test]
fn pipelines_have_the_same_timeline_each_time() {
    let machine = machine("v100-32g-16x");
    let verified = verified(Kind::Eager, [4, 1, 8]);
    let crossings = [(0, 1, 1 << 20), (1, 2, 1 << 20), (2, 3, 1 << 20), (1, 3, 1 << 19)];
    let drawn = Drawn { schedule: verified.schedule(), each: 4, computed: COMPUTED, crossings: &crossings };
    let programs = drawn.programs();
    let bits = || {
        let timeline = simulate_each(&programs, &machine, Order::Streams).unwrap();
        let spans = timeline.classes.iter().flat_map(|class| timeline.spans(class).collect::<Vec<_>>());
        spans.map(|it| (it.start.to_bits(), it.end.to_bits())).collect::<Vec<_>>()
    };
    assert_eq!(bits(), bits());
}

#[test]
fn micro_batches_that_are_kept_are_held_each() {
    // What the forward part makes is kept for the backward part: as many times as the schedule says.
    let machine = machine("h100-80g-2x");
    for (kind, expected) in [(Kind::GPipe, [6, 6]), (Kind::OneForwardOneBackward, [2, 1])] {
        let verified = verified(kind, [2, 1, 6]);
        let crossings = [(0, 1, 1)];
        let drawn =
            Drawn { schedule: verified.schedule(), each: 1, computed: COMPUTED, crossings: &crossings };
        let mut programs = drawn.programs();
        let elements = 1 << 20;
        for program in &mut programs {
            // The results of the forward part are read by the backward part.
            let computes: Vec<BufferId> = program
                .instructions
                .iter()
                .filter(|it| it.stream == Stream::Compute)
                .flat_map(|it| it.action.writes())
                .collect();
            for (number, storage) in program.storages.iter_mut().enumerate() {
                storage.bytes = if number == computes[0].0 { 4 * elements } else { 0 };
            }
            let backward = program.instructions.iter_mut().filter(|it| it.stream == Stream::Compute).nth(1);
            if let Some(Action::Compute(it)) = backward.map(|it| &mut it.action) {
                it.operands[0].buffer = computes[0];
            }
        }
        let timeline = simulate_each(&programs, &machine, Order::Streams).unwrap();
        for (group, expected) in expected.into_iter().enumerate() {
            let rank = u64::try_from(group).unwrap();
            let class = timeline.classes.iter().find(|it| it.ranks == [rank]).unwrap();
            let most = timeline.memory(class).iter().map(|it| it.bytes).max().unwrap();
            assert_eq!(most, expected * 4 * elements, "{kind} {group}");
        }
    }
}

#[test]
fn a_rank_passes_on_what_has_come_to_it() {
    let machine = machine("h100-80g-4x");
    let elements = 1 << 22;
    let remote = |way, rank| Remote { way, rank, strided: Strided::of_box(&[elements], &[0], &[elements]) };
    let program = |rank: u64, stream, parts: Vec<Remote>, received: bool| {
        let mut script = Script::new(&[4], &[]);
        let buffer = script.buffer(elements);
        let action = match received {
            true => Action::Receive(Received { output: buffer, parts }),
            false => Action::Send(Sent { input: buffer, parts }),
        };
        script.crossing(stream, action, 0);
        Program { rank, ..script.alike.program }
    };
    // 0 to 1 to 2 to 3.
    let passing = |rank: u64| {
        let mut parts = vec![remote(Way::From, rank - 1)];
        parts.extend((rank < 3).then(|| remote(Way::To, rank + 1)));
        program(rank, Stream::Receiving, parts, true)
    };
    let mut programs = vec![program(0, Stream::Sending, vec![remote(Way::To, 1)], false)];
    programs.extend((1..4).map(passing));
    let timeline = simulate_each(&programs, &machine, Order::Streams).unwrap();
    let pair = Topology::of(&machine).alone(&[0, 1]).unwrap();
    let one = collective::send(&machine, &pair, Bytes(4 * elements)).0;
    assert!(same(timeline.seconds, 3.0 * one), "{} {one}", timeline.seconds);
    let end = |rank: u64| timeline.classes.iter().find(|it| it.ranks.contains(&rank)).unwrap().seconds;
    assert!(same(end(0), one) && same(end(1), 2.0 * one) && same(end(2), 3.0 * one));
}

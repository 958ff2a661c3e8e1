//! Programs in another simulator: what all ranks do, replayed by SimGrid.
//!
//! Every rank is two actors there, one for each stream. Collectives are messages around a ring, as
//! many rounds as there are, and events are semaphores; no ranks are taken together. The prices are
//! ours: what is compared is who waits for whom, and what runs beside what.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cost_models::collective;
use cost_models::machine::{Machine, shipped};
use cost_models::topology::{Group, Topology};
use cost_models::units::Bytes;
use lower::{Action, Collective, CollectiveKind, Instruction, Message, Program, Stream, lower};
use plan::Plan;
use shardloom::pipeline;
use simulate::{Order, simulate};

use crate::simulated::{Case, planned};

/// How far both may be apart, as a part.
const NEAR: f64 = 0.03;

/// Times are given to SimGrid in microseconds: it counts no time below 1e-5.
const MICROSECONDS: f64 = 1e6;

/// Plans whose exchanges have their links for themselves: in one node, each rank in one at a time.
const CASES: [Case; 3] = [
    Case {
        model: "gpt2-loss.onnx",
        arguments: "--machine h100-80g-4x --mesh 2x2 --memory 90kB --dim batch=4 --dim seq=16",
        further: None,
    },
    Case {
        model: "full/gpt3_2.6b-loss-fp32",
        arguments: "--machine h100-80g-8x --mesh 2x4 --dim batch=8 --dim seq=1024 --mode train --loss loss \
                    --precision bf16 --microbatches 2",
        further: None,
    },
    Case {
        model: "full/gpt3_2.6b-loss-fp32",
        arguments: "--machine h100-80g-8x --mesh 8 --dim batch=8 --dim seq=1024 --mode train --loss loss \
                    --precision bf16 --microbatches 1",
        further: None,
    },
];

/// The replaying program, compiled; none if there is no SimGrid or no compiler.
fn replayer(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/simgrid/replay.cpp");
    let program = folder.join("replay");
    if !Path::new("/usr/include/simgrid/s4u.hpp").exists() {
        println!("left out: SimGrid is not there (Debian: libsimgrid-dev)");
        return None;
    }
    let compiled =
        Command::new("g++").arg("-O1").arg("-o").arg(&program).arg(source).arg("-lsimgrid").output();
    let Ok(compiled) = compiled else {
        println!("left out: there is no g++");
        return None;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(program)
}

/// The programs of all ranks as the replaying program reads them.
struct Export<'a> {
    machine: &'a Machine,
    topology: Topology,
    /// What every link carries (bytes per second).
    rate: f64,
    /// What each instruction takes that meets nobody (seconds).
    alone: Vec<f64>,
}

impl Export<'_> {
    fn text(&self, programs: &[Program]) -> String {
        let mut text = format!("hosts {}\nrate {}\n", programs.len(), self.rate / MICROSECONDS);
        for program in programs {
            let used = |it: Stream| program.instructions.iter().any(|instruction| instruction.stream == it);
            let contrary = Some(Stream::Contrary).filter(|&it| used(it));
            for stream in [Stream::Compute, Stream::Communication].into_iter().chain(contrary) {
                // Writing to a string does not fail.
                let _ = writeln!(text, "actor {}", program.rank);
                self.actor(program, stream, &mut text);
            }
        }
        text
    }

    fn actor(&self, program: &Program, stream: Stream, text: &mut String) {
        let repetition = program.repetition();
        let times = program.repeated.as_ref().map_or(0, |it| it.times);
        let part = |range: std::ops::Range<usize>, text: &mut String| {
            for index in range {
                if program.instructions[index].stream == stream {
                    self.instruction(program, index, text);
                }
            }
        };
        part(0..repetition.start, text);
        for _ in 0..times {
            text.push_str("barrier\n");
            part(repetition.clone(), text);
        }
        part(repetition.end..program.instructions.len(), text);
    }

    fn instruction(&self, program: &Program, index: usize, text: &mut String) {
        let instruction = &program.instructions[index];
        for event in &instruction.waits {
            let _ = writeln!(text, "wait {}", event.0);
        }
        match &instruction.action {
            Action::Compute(_) | Action::Copy(_) => {
                let _ = writeln!(text, "compute {}", MICROSECONDS * self.alone[index]);
            }
            Action::Collective(it) => self.collective(program, it, text),
            Action::Message(it) => self.message(program, it, text),
            Action::Send(_) | Action::Receive(_) => panic!("one stage sends nothing to others"),
        }
        if let Some(event) = instruction.signals {
            let waits = |it: &&Instruction| it.waits.contains(&event);
            let count = program.instructions.iter().filter(waits).count();
            let _ = writeln!(text, "signal {} {count}", event.0);
        }
    }

    /// The latency of an exchange (microseconds), and what its busiest link carries after that
    /// (bytes).
    fn cost(&self, ranks: &[u64], bytes: u64, price: &dyn Fn(&Group, Bytes) -> f64) -> (f64, f64) {
        let group = self.topology.alone(ranks).unwrap();
        let whole = price(&group, Bytes(bytes));
        let latency = price(&group, Bytes(1)).min(whole);
        (MICROSECONDS * latency, (whole - latency) * self.rate)
    }

    fn collective(&self, program: &Program, it: &Collective, text: &mut String) {
        let members = program.members(it.communicator);
        let ranks = u64::try_from(members.len()).unwrap();
        let place = members.iter().position(|&rank| rank == program.rank).unwrap();
        let size = program.buffer(it.input).type_.dtype.bytes();
        let machine = self.machine;
        let all = ranks * it.elements * size;
        let (cost, rounds) = match it.kind {
            CollectiveKind::AllGather => {
                let price = |group: &Group, size| collective::ring_all_gather(machine, group, size).0;
                (self.cost(members, all, &price), ranks - 1)
            }
            CollectiveKind::ReduceScatter => {
                let price = |group: &Group, size| collective::reduce_scatter(machine, group, size).0;
                (self.cost(members, all, &price), ranks - 1)
            }
            CollectiveKind::AllReduce => {
                let price = |group: &Group, size| collective::all_reduce(machine, group, size).0;
                (self.cost(members, it.elements * size, &price), 2 * (ranks - 1))
            }
            CollectiveKind::AllToAll => {
                let price = |group: &Group, size| collective::all_to_all(machine, group, size).0;
                (self.cost(members, all, &price), ranks - 1)
            }
            CollectiveKind::Broadcast(_) | CollectiveKind::Reduce(_) => {
                let price = |group: &Group, size| collective::broadcast(machine, group, size).0;
                (self.cost(members, it.elements * size, &price), ranks - 1)
            }
        };
        let ((latency, carried), name) = (cost, format!("c{}", it.communicator.0));
        let rounds_ = f64::from(u32::try_from(rounds).unwrap());
        if it.kind == CollectiveKind::AllToAll {
            let members: Vec<String> = members.iter().map(u64::to_string).collect();
            let _ = writeln!(text, "exchange {name} {latency} {} {}", carried / rounds_, members.join(" "));
            return;
        }
        let count = members.len();
        let (next, previous) = (members[(place + 1) % count], members[(place + count - 1) % count]);
        let (latency, carried) = (latency / rounds_, carried / rounds_);
        let _ = writeln!(text, "ring {name} {next} {previous} {rounds} {latency} {carried}");
    }

    fn message(&self, program: &Program, it: &Message, text: &mut String) {
        let bytes = program.buffer(it.input).type_.bytes();
        let price = |group: &Group, size| collective::send(self.machine, group, size).0;
        let partner = it.to.first().copied().or((it.from != program.rank).then_some(it.from));
        let (latency, carried) = match partner {
            Some(partner) => self.cost(&[program.rank, partner], bytes, &price),
            None => (0.0, 0.0),
        };
        let to: Vec<String> = it.to.iter().map(u64::to_string).collect();
        let _ =
            writeln!(text, "message m{} {latency} {carried} {} {}", it.communicator.0, it.from, to.join(" "));
    }
}

/// What a step takes by our clock, and by SimGrid's (seconds).
fn both(plan: &Plan, replayer: &Path, folder: &Path) -> (f64, f64) {
    let mut machine = shipped::named(&plan.machine.name).unwrap();
    // There, computing is as fast beside a message as without.
    machine.transport.beside = None;
    let alike = pipeline::alike(plan).unwrap();
    let timeline = simulate(&alike, &machine, Order::Streams).unwrap();
    let spans = timeline.spans(&timeline.classes[0]).filter(|span| span.repetition == 0);
    let mut alone = vec![0.0; alike.program.instructions.len()];
    spans.for_each(|span| alone[span.instruction] = span.end - span.start);
    let topology = Topology::of(&machine);
    let rate = topology.rate(topology.route(0, 1)[0].0).0;
    let text = Export { machine: &machine, topology, rate, alone }.text(&lower(plan).unwrap());
    let path = folder.join("programs.txt");
    std::fs::write(&path, text).unwrap();
    let replayed = Command::new(replayer).arg(&path).output().unwrap();
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    let found: f64 = String::from_utf8(replayed.stdout).unwrap().trim().parse().unwrap();
    (timeline.seconds, found / MICROSECONDS)
}

#[test]
fn programs_take_as_long_in_simgrid() {
    let folder = std::env::temp_dir().join(format!("shardloom-simgrid-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    if let Some(replayer) = replayer(&folder) {
        for case in &CASES {
            let Some(plan) = planned(case, &folder) else { continue };
            assert!(!plan.transfers.is_empty(), "{} {}: nothing is exchanged", case.model, case.arguments);
            let (ours, theirs) = both(&plan, &replayer, &folder);
            println!("{} on {}: {ours} seconds, {theirs} in SimGrid", case.model, plan.machine.name);
            assert!((ours / theirs - 1.0).abs() < NEAR, "{} {}: {ours} {theirs}", case.model, case.arguments);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

//! Programs in another simulator: what all ranks do, replayed by SimGrid.
//!
//! Every rank is an actor for each stream there, and one for each rank of another stage that it sends to.
//! Collectives are messages around a ring, as many rounds as there are, after what all of them take at least, and
//! what is over is a semaphore; no ranks are taken together. The prices are ours: what is compared is who waits for whom, and what runs
//! beside what.

mod export; // programs as text

use std::path::{Path, PathBuf};
use std::process::Command;

use cost_models::machine::{Machine, shipped};
use driver::pipeline;
use lower::Program;
use plan::Plan;
use plan::json::{Content, read_any};
use simulate::{Order, simulate, simulate_each};

use crate::simulated::{Case, written};
use crate::tier::first;
use export::MICROSECONDS;

/// How far both may be apart, as a part: 0.014 % are found where exchanges beside computing share links with those
/// that it waits for, 0.0014 % elsewhere.
const NEAR: f64 = 0.0002;

/// Plans whose exchanges have their links for themselves: in one node, each rank in one at a time.
const CASES: [Case; 6] = [
    Case {
        model: "gpt2-loss.onnx",
        arguments: "--machine h100-80g-4x --mesh 2x2 --memory 90kB --dim batch=4 --dim seq=16",
        further: None,
    },
    // Pipelines: of single ranks; below, of stages that exchange within, by a schedule that has gradients of weights
    // apart, and of two stages for each rank group. The gate tries
    // these two, and one of many exchanges on the same links.
    Case {
        model: "gpt2-bytes.onnx",
        arguments: "--machine h100-80g-4x --stages 4 --mesh 1 --microbatches 8 --mode train \
                    --loss cross-entropy:logits,labels --dim batch=1 --dim sequence=16",
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
    Case {
        model: "full/gpt3_2.6b-loss-fp32",
        arguments: "--machine h100-80g-8x --stages 2 --mesh 4 --schedule zb-h1 --dim batch=8 --dim seq=1024 \
                    --mode train --loss loss --precision bf16 --microbatches 4",
        further: None,
    },
    Case {
        model: "full/gpt3_2.6b-loss-fp32",
        arguments: "--machine h100-80g-8x --stages 4 --mesh 2 --schedule interleaved --chunks 2 --dim batch=8 \
                    --dim seq=1024 --mode train --loss loss --precision bf16 --microbatches 4",
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

/// A machine where computing is as fast beside a message as without, as it is in SimGrid.
fn machine(name: &str) -> Machine {
    let mut machine = shipped::named(name).unwrap();
    machine.transport.beside = None;
    machine
}

/// What a step takes by our clock (seconds), and what all ranks do in it.
fn ours(plan: &Plan, machine: &Machine) -> (f64, Vec<Program>) {
    assert!(!plan.transfers.is_empty(), "nothing is exchanged");
    let alike = pipeline::alike(plan).unwrap();
    (simulate(&alike, machine, Order::Streams).unwrap().seconds, lower::lower(plan).unwrap())
}

/// What a step takes by SimGrid's clock (seconds).
fn theirs(programs: &[Program], machine: &Machine, replayer: &Path, folder: &Path) -> f64 {
    let path = folder.join("programs.txt");
    std::fs::write(&path, export::text(machine, programs)).unwrap();
    let replayed = Command::new(replayer).arg(&path).output().unwrap();
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    let found: f64 = String::from_utf8(replayed.stdout).unwrap().trim().parse().unwrap();
    found / MICROSECONDS
}

#[test]
fn programs_take_as_long_in_simgrid() {
    let folder = std::env::temp_dir().join(format!("shardloom-simgrid-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    if let Some(replayer) = replayer(&folder) {
        for case @ Case { model, arguments, .. } in first(3, &CASES) {
            let bytes = written(case, &folder);
            let (machine, (ours, programs)) = match read_any(&bytes).unwrap() {
                Content::Plan(plan) => {
                    let machine = machine(&plan.machine.name);
                    let ours = ours(&plan, &machine);
                    (machine, ours)
                }
                Content::Pipeline(pipeline) => {
                    let machine = machine(&pipeline.machine.name);
                    let programs = lower::pipeline(&pipeline).unwrap();
                    let seconds = simulate_each(&programs, &machine, Order::Streams).unwrap().seconds;
                    (machine, (seconds, programs))
                }
                Content::Generation(_) => panic!("{model} {arguments}: no step"),
            };
            let theirs = theirs(&programs, &machine, &replayer, &folder);
            println!("{model} {arguments}: {ours} seconds, {theirs} in SimGrid");
            assert!((ours / theirs - 1.0).abs() < NEAR, "{model} {arguments}: {ours} {theirs}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

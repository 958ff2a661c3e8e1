//! Models on a GPU that is not there: plans on one rank and several, held against the oracles.

use std::collections::BTreeMap;

use device::{Device, Issuing, Settings};
use lower::Program;
use plan::Plan;
use rayon::prelude::*;
use run::Session;
use search::MachinePrices;

use super::cases::{self, Subject, difference};
use super::{expect_none, faults_of, trial};
use crate::emulated::{Emulated, emulated};
use crate::training::manners::{Manner, Preferring};

/// How a model is planned.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// As the search likes it.
    Chosen,
    /// In another manner.
    In(Manner),
}

/// What is run: the model, the mesh, how it is planned.
const TRIALS: [(&str, &str, Kind); 14] = [
    ("gpt2-bf16-dynamo2.9-op20-dyn io0", "1", Kind::Chosen),
    ("bert-fill-optimum0.1-op18-ortopt io0", "2", Kind::Chosen),
    ("gpt2-eager-legacy2.9-op17-static io0", "1", Kind::Chosen),
    ("gpt2-eager-legacy2.9-op17-static io0", "2", Kind::In(Manner::Tensor)),
    ("gpt2-eager-legacy2.9-op17-static io0", "4", Kind::In(Manner::BothWays)),
    ("gpt2-past-dynamo2.9-op18-dyn io0", "2", Kind::Chosen),
    ("llama-fp16-legacy2.9-op17-dyn io0", "2", Kind::Chosen),
    ("llama-fwd-dynamo2.15-op23-dyn io0", "2x2", Kind::Chosen),
    ("llama-past-dynamo2.9-op18-dyn io0", "1", Kind::Chosen),
    ("mixtral-batchedmm-dynamo2.15-op21-dyn io0", "2", Kind::Chosen),
    ("t5-seq2seq-optimum0.1-op17-dyn io0", "4", Kind::Chosen),
    ("vit-fwd-dynamo2.9-op18-static io0", "2", Kind::Chosen),
    ("whisper-fwd-dynamo2.9-op18-dyn io0", "1", Kind::Chosen),
    ("llama-ortcpu-hf5.23-op20-dyn io0", "2", Kind::In(Manner::Striped)),
];

/// How far results in narrow numbers may be from the oracle, relative to the largest: sums are made in
/// another order than on processors, and rounded.
const NARROW: f64 = 3e-2;

/// What programs need on the GPU that is not there.
pub(crate) fn settings(emulated: &Emulated) -> Settings {
    Settings {
        libraries: vec![emulated.libraries.clone()],
        cache: Some(emulated.cache.clone()),
        gpu: 0,
        workspace: 1 << 16,
        issuing: Issuing::Captured,
    }
}

/// A session of programs on one GPU.
pub(crate) fn session(
    emulated: &Emulated,
    programs: Vec<Program>,
    weights: &dyn run::Stored,
) -> Result<Session, String> {
    lower::verify(&programs).map_err(|error| format!("the programs are rejected: {error}"))?;
    let device = Device::together(&settings(emulated), &programs).map_err(|error| error.to_string())?;
    for remark in device.remarks() {
        println!("  {remark}");
    }
    Session::on(Box::new(device), None, programs, weights).map_err(|error| format!("not started: {error}"))
}

impl Subject {
    fn planned(&self, mesh: &str, kind: Kind) -> Result<Plan, String> {
        let (mesh, machine) = trial::machine(mesh);
        let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
        match kind {
            Kind::Chosen => self.chosen(&mesh, &machine, &prices),
            Kind::In(manner) => {
                let (graph, sections) = (&self.prepared.graph, &self.prepared.sections);
                self.plan(&mesh, &machine, &Preferring::new(manner, prices, graph, sections))
            }
        }
    }

    /// Runs a plan on the GPU, three times: as it is issued, captured, and issued again.
    fn check_on(&self, emulated: &Emulated, plan: &Plan) -> Result<(), String> {
        let programs = lower::lower(plan).map_err(|error| format!("not lowered: {error}"))?;
        let mut session = session(emulated, programs, &self.file)?;
        let narrow = self.whole.values().any(|it| it.dtype().bytes() < 4 && it.dtype().is_float())
            || plan.graph.values.iter().any(|it| it.type_.dtype.is_float() && it.type_.dtype.bytes() < 4);
        let tolerance = if narrow { NARROW } else { self.tolerance };
        let mut before: Option<BTreeMap<String, kernels::Array>> = None;
        for step in 0..3 {
            let outcome = session.step(&self.inputs).map_err(|error| format!("not run: {error}"))?;
            trial::check_bytes(plan, &outcome.received)?;
            for (name, expected) in self.oracle.iter().chain(&self.whole) {
                let found = outcome.outputs.get(name).ok_or_else(|| format!("no output `{name}`"))?;
                let apart = difference(found, expected);
                if apart > tolerance {
                    return Err(format!("step {step}: `{name}` is {apart:.1e} off, {tolerance:.0e} at most"));
                }
            }
            if before.as_ref().is_some_and(|it| *it != outcome.outputs) {
                return Err(format!("step {step} makes other bits than the one before"));
            }
            before = Some(outcome.outputs);
        }
        Ok(())
    }
}

/// What is planned for each trial whose model is there, lowered.
pub(crate) fn programs() -> Vec<(String, Result<Vec<Program>, String>)> {
    let (all, _) = cases::all();
    let of = |(title, mesh, kind): &(&str, &str, Kind)| {
        let case = all.iter().find(|case| case.title == *title)?;
        let plan = case.open().and_then(|subject| subject.planned(mesh, *kind));
        let programs =
            plan.and_then(|plan| lower::lower(&plan).map_err(|error| format!("not lowered: {error}")));
        Some((format!("{title} on {mesh}, {kind:?}"), programs))
    };
    TRIALS.par_iter().filter_map(of).collect()
}

#[test]
fn plans_on_a_gpu_compute_what_the_oracles_say() {
    let (all, _) = cases::all();
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let mut failures = Vec::new();
    let mut tried = 0;
    for (title, mesh, kind) in TRIALS.into_iter().filter(|(title, ..)| title.contains(&wanted)) {
        let Some(case) = all.iter().find(|case| case.title == title) else {
            println!("left out: {title}, which is not there");
            continue;
        };
        tried += 1;
        let start = std::time::Instant::now();
        let what = format!("{title} on {mesh}, {kind:?}");
        println!("{what}");
        failures.extend(faults_of(&what, || {
            let checked = case.open().and_then(|subject| {
                let plan = subject.planned(mesh, kind)?;
                println!("  planned after {:?}", start.elapsed());
                subject.check_on(&emulated(), &plan)
            });
            checked.err().map(|error| format!("{what}: {error}")).into_iter().collect()
        }));
        println!("  done after {:?}", start.elapsed());
    }
    assert!(tried > 0 || !wanted.is_empty());
    expect_none(&failures);
}

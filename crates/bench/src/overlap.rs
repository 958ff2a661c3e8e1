//! `bench overlap`: what training steps in stages take by each way of crossing and each schedule, on the
//! machine and with the models of the paper on broadcast and eager-1F1B.
//!
//! Each model is planned once, by 1F1B. Its programs are then simulated with all that crosses travelling
//! by a strategy, by a schedule, and with work that waits for what is sent or does not.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use cost_models::quantity;
use cost_models::units::BytesPerSecond;
use driver::pipeline;
use driver::pipeline::staged::{self, Forward, Meshes, Order, Wanted};
use files::folder::Folder;
use files::{Failure, Say};
use files::{machine, model_file};
use import::Bindings;
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Start};
use model_zoo::unet;
use plan::{Loss, Pipeline, Precision, Recipe, Recompute};
use planner_ir::{Mesh, Optimizer, Real};
use reshard::Strategy;
use rewrite::Steps;
use schedule::Kind;
use serde_json::{Value, json};

use super::Report;
use super::half::as_fast_in_bf16;

/// The devices that the models are trained on: two nodes.
const MACHINE: &str = "v100-16g-10gbe-8x";

/// `bench overlap`.
#[derive(Args, Clone, Debug)]
pub struct Overlap {
    /// Only models whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// A model of the paper.
struct Published {
    name: &'static str,
    /// The mesh of a stage.
    mesh: &'static str,
    model: Model,
    micro_batches: u64,
    /// How many times as fast as others the paper says that its step is, where it does.
    gain: Option<f64>,
}

enum Model {
    Gpt { size: gpt2::Size, sequences: u64 },
    Unet(unet::Size),
}

/// GPT 2.6B.
const GPT: gpt2::Size =
    gpt2::Size { layers: 32, hidden: 2560, heads: 32, vocabulary: 51200, positions: 1024 };

/// The models, of the suites of the paper's artifact (Alpa, branch `mlsys23-artifact`): GPT 2.6B in 16-bit
/// numbers with 1,024 sequences, (dp, op, pp) = (2, 2, 2), 64 micro-batches, and (2, 1, 4), 128
/// micro-batches; U-Transformer 2B in 32-bit numbers with 2,048 images, two stages of four devices, 32
/// micro-batches. Both compute layers again. The gains are those of the paper's abstract.
const PUBLISHED: [Published; 4] = [
    Published {
        name: "GPT 2.6B, 2 stages",
        mesh: "2x2",
        model: Model::Gpt { size: GPT, sequences: 16 },
        micro_batches: 64,
        gain: Some(1.1),
    },
    Published {
        name: "GPT 2.6B, 4 stages",
        mesh: "2",
        model: Model::Gpt { size: GPT, sequences: 8 },
        micro_batches: 128,
        gain: None,
    },
    Published {
        name: "U-Transformer 2B",
        mesh: "4",
        model: Model::Unet(unet::Size { channels: 672, blocks: 4, pixels: 32, images: 64 }),
        micro_batches: 32,
        gain: Some(1.5),
    },
    // For tests: no model of the paper.
    Published {
        name: "small U-Transformer",
        mesh: "4",
        model: Model::Unet(unet::Size { channels: 64, blocks: 3, pixels: 16, images: 8 }),
        micro_batches: 8,
        gain: None,
    },
];

/// How programs are simulated.
struct Way {
    name: &'static str,
    strategy: Strategy,
    kind: Kind,
    order: simulate::Order,
    network: Network,
}

/// What is between nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    /// What the machine has.
    Own,
    /// Adapters so fast that only messages take time, not their bytes: what the paper calls signals, the
    /// bound of everything that is done about crossings.
    Signals,
}

const fn way(name: &'static str, strategy: Strategy, kind: Kind, order: simulate::Order) -> Way {
    Way { name, strategy, kind, order, network: Network::Own }
}

/// From what others do to what the paper does. Work waits for what it has sent where instructions are done
/// one by one.
const WAYS: [Way; 6] = [
    way(
        "send/receive, 1f1b, one by one",
        Strategy::SendReceive,
        Kind::OneForwardOneBackward,
        simulate::Order::OneByOne,
    ),
    way(
        "local all-gather, 1f1b, one by one",
        Strategy::LocalGather,
        Kind::OneForwardOneBackward,
        simulate::Order::OneByOne,
    ),
    way(
        "broadcast, 1f1b, one by one",
        Strategy::Broadcast,
        Kind::OneForwardOneBackward,
        simulate::Order::OneByOne,
    ),
    way(
        "broadcast, 1f1b, beside work",
        Strategy::Broadcast,
        Kind::OneForwardOneBackward,
        simulate::Order::Streams,
    ),
    way("broadcast, eager-1f1b, beside work", Strategy::Broadcast, Kind::Eager, simulate::Order::Streams),
    Way {
        name: "signals, eager-1f1b, beside work",
        strategy: Strategy::SendReceive,
        kind: Kind::Eager,
        order: simulate::Order::Streams,
        network: Network::Signals,
    },
];
/// The places of what others do, of the paper's method, and of the bound.
const OTHERS: [usize; 2] = [0, 1];
const METHOD: usize = 4;
const BOUND: usize = 5;

/// Plans and simulates the models.
pub(crate) fn measure(options: &Overlap, say: &Say<'_>) -> Result<Report, Failure> {
    let mut text = String::from(
        "| model | boundary tensors, each micro-batch | strategy | step | over send/receive | over local all-gather | of the bound | paper |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut lines = Vec::new();
    for row in PUBLISHED.iter().filter(|row| row.name.contains(&options.only)) {
        say(format!("planning {}", row.name).into());
        let machine = as_fast_in_bf16(machine::named(MACHINE, None)?);
        let planned = planned(row, &machine, say)?;
        let mut times = Vec::new();
        let mut bytes = Vec::new();
        for way in &WAYS {
            say(format!("simulating {}: {}", row.name, way.name).into());
            let machine = match way.network {
                Network::Own => machine.clone(),
                Network::Signals => signalling(&machine),
            };
            let pipeline =
                staged::travelling_by(&planned, &Cluster::of(machine.clone()), way.kind, way.strategy)?;
            bytes.push(staged::received(&pipeline));
            times.push(simulated(&pipeline, &machine, way.order)?);
        }
        let [single, gathered] = OTHERS.map(|other| times[other]);
        for (place, way) in WAYS.iter().enumerate() {
            let paper = row.gain.filter(|_| place == METHOD).map(|gain| format!("{gain:.1} x"));
            let paper = paper.unwrap_or_default();
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.2} x | {:.2} x | {} | {paper} |",
                row.name,
                quantity::bytes(bytes[place]),
                way.name,
                quantity::seconds(times[place]),
                single / times[place],
                gathered / times[place],
                quantity::percent(times[BOUND], times[place]),
            );
        }
        let named: serde_json::Map<String, Value> =
            WAYS.iter().zip(&times).map(|(way, &time)| (way.name.to_owned(), time.into())).collect();
        lines.push(json!({
            "benchmark": "overlap",
            "model": row.name,
            "machine": machine.full_name(),
            "stages": planned.stages.iter().map(|stage| stage.first_block).collect::<Vec<_>>(),
            "strategies": planned.stages.iter().map(|stage| plan::strategy(&stage.plan)).collect::<Vec<_>>(),
            "mesh": row.mesh,
            "micro_batches": row.micro_batches,
            "crossing_bytes": bytes[METHOD],
            "seconds": named,
            "gain_over_send_receive": single / times[METHOD],
            "gain_over_local_all_gather": gathered / times[METHOD],
            "bound": times[BOUND] / times[METHOD],
            "paper_gain": row.gain,
        }));
    }
    Ok(Report { text, lines })
}

fn simulated(pipeline: &Pipeline, machine: &Machine, order: simulate::Order) -> Result<f64, Failure> {
    let groups = lower::grouped(pipeline).map_err(|error| Failure::internal("lower", error))?;
    let timeline = simulate::simulate_grouped(&groups, &Cluster::of(machine.clone()), order);
    Ok(timeline.map_err(|error| Failure::internal("simulate", error))?.seconds)
}

/// The same machine with adapters that bytes take no time on.
fn signalling(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    if let Some(network) = &mut machine.network {
        network.adapter_bandwidth.value = BytesPerSecond(1e6 * network.adapter_bandwidth.value.0);
    }
    machine
}

/// A model in stages by 1F1B, without regard to memory.
fn planned(row: &Published, machine: &Machine, say: &Say<'_>) -> Result<Pipeline, Failure> {
    let folder = Folder::new("overlap", None)?;
    let failed = |error| Failure::file(&folder.path, format!("cannot be written: {error}"));
    let writer = Writer::absent(&folder.path);
    let (path, dims, loss, precision) = match row.model {
        Model::Gpt { size, sequences } => (
            gpt2::write(writer, size, Start::Alike, 0).map_err(failed)?,
            vec![("batch".to_owned(), sequences), ("sequence".to_owned(), size.positions)],
            Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
            Precision::Bf16,
        ),
        Model::Unet(size) => (
            unet::write(writer, size).map_err(failed)?,
            vec![],
            Loss::Output("loss".to_owned()),
            Precision::F32,
        ),
    };
    let file = model_file::open(&path)?;
    let bindings = Bindings { dims: dims.iter().cloned().collect(), ..Bindings::default() };
    let graph = pipeline::import(&file, &bindings, &mut |_, _| {});
    let graph = graph.map_err(|error| Failure::internal("import", error))?;
    let recipe = Recipe {
        precision,
        micro_batches: row.micro_batches,
        ..Recipe::new(loss, Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.0) })
    };
    let forward = Forward::of(&file, &graph, &recipe)?.again(&Recompute::Full);
    let mesh = Mesh::parse(row.mesh).map_err(|error| Failure::internal("bench", error))?;
    let wanted = Wanted {
        cluster: &Cluster::of(machine.clone()),
        meshes: Meshes::Alike(&mesh),
        memory: Some(u64::MAX >> 1),
        steps: Steps::One,
        order: Order::Named(Kind::OneForwardOneBackward),
        chunks: 1,
        first: None,
        fixed: &[],
        rules: None,
        alike: false,
    };
    let header = plan::ModelFile { path: row.name.to_owned(), sha256: file.sha256.clone(), dims };
    staged::staged(&forward, &header, &wanted, say)
}

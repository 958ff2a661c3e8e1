//! OPT layers on 4 to 64 V100: what the search finds, beside Megatron's plans and PrimePar's.
//!
//! The ledger has a line for each plan: four layers, 8 sequences of 2048 tokens, FP32, plain
//! gradient descent, the machine of `tests/cases/machines/primepar-v100.json`. With `PAPERS=4,8/All`
//! all plans for 4 devices and those of that kind for 8 are made again and their lines appended;
//! without it some that take little time are made, and held against their lines.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use planner_ir::{DType, Mesh, Optimizer, Real, Unary};
use serde_json::{Value, json};

use super::graph::{Sizes, layers};
use super::machines;
use super::restricted::{Kind, held, planned};

/// Batch and sequence are those of Fig. 9, where the paper prints them or its kernels show them;
/// so is the precision. How many layers there are hardly matters for ratios.
const OPT_6_7B: Sizes = Sizes {
    layers: 4,
    batch: 8,
    sequence: 2048,
    hidden: 4096,
    heads: 32,
    vocabulary: None,
    dtype: DType::F32,
    activation: Unary::Relu,
};
const OPT_175B: Sizes = Sizes { hidden: 12288, heads: 96, ..OPT_6_7B };
const MODELS: [(&str, Sizes); 2] = [("OPT 6.7B", OPT_6_7B), ("OPT 175B", OPT_175B)];

/// The meshes of Megatron's plans (data by tensor parallel), PrimePar's, and all.
const MESHES: [(u64, [&[&str]; 3]); 5] = [
    (4, [&["4x1", "2x2", "1x4"], &["2x2"], &["4", "2x2"]]),
    (8, [&["8x1", "4x2", "2x4", "1x8"], &["2x4", "2x2x2"], &["8", "2x4", "2x2x2"]]),
    (16, [&["8x2", "4x4", "2x8", "1x16"], &["4x4", "2x8", "4x2x2", "2x2x4"], &["16", "2x8", "4x4", "4x2x2"]]),
    (
        32,
        [&["8x4", "4x8", "2x16", "1x32"], &["8x4", "4x8", "2x4x4", "8x2x2"], &["32", "8x4", "4x8", "8x2x2"]],
    ),
    (64, [&["8x8", "4x16"], &["8x8"], &["64", "8x8", "4x4x4"]]),
];

const KINDS: [Kind; 3] = [Kind::Megatron, Kind::PrimePar, Kind::All];

/// A plan's line in the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seconds: f64,
    pub(crate) bytes: f64,
    /// What the search took of processors, all threads together; nothing where it was not measured.
    pub(crate) search: Option<f64>,
    pub(crate) saturated: bool,
}

/// What plan: the model, devices, kind and mesh.
pub(crate) type Key = (String, u64, String, String);

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/ledger/papers.jsonl")
}

/// The ledger: of lines for one plan the last.
pub(crate) fn ledger() -> BTreeMap<Key, Row> {
    let text = std::fs::read_to_string(path()).unwrap();
    let row = |line: &str| {
        let it: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| it[name].as_str().unwrap().to_owned();
        let key = (text("model"), it["devices"].as_u64().unwrap(), text("kind"), text("mesh"));
        let number = |name: &str| it[name].as_f64().unwrap();
        let saturated = it["saturated"].as_bool().unwrap();
        let row = Row {
            seconds: number("predicted_seconds"),
            bytes: number("bytes"),
            search: it["search_processor_seconds"].as_f64(),
            saturated,
        };
        (key, row)
    };
    text.lines().map(row).collect()
}

/// What the process has taken of processors (seconds), in hundredths.
fn processor() -> f64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/stat") else { return 0.0 };
    let after = text.rsplit_once(") ").map_or("", |it| it.1);
    let ticks = after.split(' ').skip(11).take(2).map(|it| it.parse::<f64>().unwrap_or(0.0));
    ticks.sum::<f64>() / 100.0
}

fn found(sizes: &Sizes, devices: u64, kind: Kind, mesh: &str) -> Option<Row> {
    let step = layers(sizes, Optimizer::Sgd { decay: Real(0.0) });
    let machine = machines::primepar(devices);
    let before = processor();
    let plan = planned(&step, sizes, &machine, &Mesh::parse(mesh).unwrap(), kind).ok()?;
    let search = Some(processor() - before);
    #[expect(clippy::cast_precision_loss, reason = "bytes of a device are exact")]
    let bytes = held(&plan) as f64;
    Some(Row { seconds: plan.seconds(), bytes, search, saturated: plan.space.saturated })
}

/// Makes the plans again whose devices, kind and mesh begin with one of these texts.
fn measure(wanted: &[&str]) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path()).unwrap();
    for (devices, meshes) in MESHES {
        for (kind, meshes) in KINDS.into_iter().zip(meshes) {
            for mesh in meshes {
                let name = format!("{devices}/{kind:?}/{mesh}/");
                if !wanted.iter().any(|it| name.starts_with(&format!("{it}/"))) {
                    continue;
                }
                for (model, sizes) in &MODELS {
                    let Some(row) = found(sizes, devices, kind, mesh) else { continue };
                    let line = json!({
                        "benchmark": "papers", "model": model, "devices": devices, "mesh": mesh,
                        "kind": format!("{kind:?}"), "predicted_seconds": row.seconds, "bytes": row.bytes,
                        "search_processor_seconds": row.search, "saturated": row.saturated,
                    });
                    writeln!(file, "{line}").unwrap();
                }
            }
        }
    }
}

/// The best row of a kind: of least time.
pub(crate) fn best<'a>(
    ledger: &'a BTreeMap<Key, Row>,
    model: &str,
    devices: u64,
    kind: &str,
) -> Option<(&'a str, &'a Row)> {
    let of = ledger.iter().filter(|(key, _)| key.0 == model && key.1 == devices && key.2 == kind);
    of.map(|(key, row)| (key.3.as_str(), row)).min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds))
}

#[test]
fn plans_are_as_good_as_the_ledger_says() {
    if let Ok(wanted) = std::env::var("PAPERS") {
        measure(&wanted.split(',').collect::<Vec<&str>>());
        return;
    }
    let ledger = ledger();
    let again = [
        (4, Kind::Megatron, "4x1"),
        (4, Kind::All, "4"),
        (8, Kind::Megatron, "1x8"),
        (8, Kind::All, "8"),
        (16, Kind::All, "16"),
    ];
    for (model, sizes) in &MODELS {
        for (devices, kind, mesh) in again {
            let key = ((*model).to_owned(), devices, format!("{kind:?}"), mesh.to_owned());
            let (row, written) = (found(sizes, devices, kind, mesh).unwrap(), &ledger[&key]);
            // The search may find better ones; what is written by hand does not change.
            let least = if kind == Kind::All { 0.5 } else { 0.999 };
            let ratio = row.seconds / written.seconds;
            assert!((least..1.001).contains(&ratio), "{key:?}: {row:?}, in the ledger {written:?}");
        }
    }
}

#[test]
fn the_whole_space_has_plans_as_good_as_the_papers() {
    let ledger = ledger();
    for (devices, _) in MESHES {
        for (model, _) in MODELS {
            let of = |kind: &str| best(&ledger, model, devices, kind);
            let (mesh, all) = of("All").unwrap();
            for (other, row) in [of("Megatron"), of("PrimePar")].into_iter().flatten() {
                assert!(all.seconds <= row.seconds, "{model}, {devices}: {mesh} {all:?}, {other} {row:?}");
            }
        }
    }
}

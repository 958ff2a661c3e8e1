//! A plan and the prices that it was made by.

use std::fs;

use serde_json::Value;

use super::{Folder, example, fails, planned, says, works};
use crate::tidy::root;

/// The file of the machine that comes as `cpu`, with other rates and its name; and the same numbers with
/// other sources, in one line.
fn edited(folder: &Folder) -> [String; 2] {
    let mut said: Value = serde_json::from_str(&works(&["--json", "machines", "show", "cpu-4x"])).unwrap();
    let rate = said["device"]["memory_bandwidth"]["value"].as_f64().unwrap();
    said["device"]["memory_bandwidth"]["value"] = (10.0 * rate).into();
    let (edited, again) = (folder.path("edited.json"), folder.path("again.json"));
    fs::write(&edited, serde_json::to_string_pretty(&said).unwrap()).unwrap();
    said["device"]["memory_bandwidth"]["source"] = "elsewhere".into();
    fs::write(&again, said.to_string()).unwrap();
    [edited, again]
}

/// A plan by the prices of a file.
fn by(folder: &Folder, machine: &str, name: &str) -> String {
    let (model, plan) = (example("model.onnx"), folder.path(name));
    works(&["plan", &model, "--machine", machine, "--devices", "4", "--mesh", "4", "-o", &plan]);
    plan
}

#[test]
fn a_plan_is_not_priced_by_other_prices_of_the_same_name() {
    let folder = Folder::new("other-prices");
    let [edited, again] = edited(&folder);
    let plan = by(&folder, &edited, "plan.json");
    says(&fails(2, &["simulate", &plan]), &["made by other prices", "`cpu-4x`", "`--machine FILE`"]);
    let own = works(&["simulate", &plan, "--machine", &edited]);
    assert!(!own.contains("planned for"), "{own}");
    assert_eq!(works(&["simulate", &plan, "--machine", &again]), own);
    let other = works(&["simulate", &plan, "--machine", "cpu-4x"]);
    assert!(other.contains("planned for cpu-4x by other prices"), "{other}");
    let explained = works(&["explain", &plan]);
    assert!(explained.contains("not priced: it was made by other prices"), "{explained}");
    says(
        &fails(2, &["explain", &plan, "--machine", "cpu-4x"]),
        &["other prices", "plan again with `--machine cpu-4x`"],
    );
    assert!(works(&["explain", &plan, "--machine", &again]).contains("otherwise"));
    assert!(!works(&["check", &plan]).contains("its times are"));
    says(&fails(2, &["check", &plan, "--machine", "cpu-4x"]), &["other prices"]);
    assert!(works(&["check", &plan, "--machine", &again]).contains("its times are those of the prices"));
    let shipped = planned(&folder, "shipped.json", &["--mesh", "4"]);
    let differs = works(&["diff", &plan, &shipped]);
    assert!(differs.contains("machine"), "{differs}");
}

#[test]
fn a_plan_has_one_price_in_every_command() {
    let folder = Folder::new("one-price");
    let plan = planned(&folder, "plan.json", &["--mesh", "4"]);
    assert!(works(&["check", &plan]).contains("its times are those of the prices of `cpu-4x`"));
    let mut said = plan::json::read(&fs::read(&plan).unwrap()).unwrap();
    let transfer = said.transfers.iter().position(|it| it.takes() > 0.0).unwrap();
    let (kept, name) = (said.transfers[transfer].takes() / 10.0, said.transfers[transfer].moves[0].name());
    let saved = said.transfers[transfer].takes() - kept;
    said.transfers[transfer].seconds = plan::shared(kept, &said.transfers[transfer].bytes);
    said.estimate.iter_mut().filter(|it| it.name == name).for_each(|it| it.seconds -= saved);
    said.proof = plan::Proof::Optimal;
    fs::write(&plan, plan::json::write(&said)).unwrap();
    says(&fails(2, &["check", &plan]), &[&format!("transfer {transfer} "), "by the prices of its machine"]);
}

/// What is said of a setup by `plan`, `explain`, `simulate` and `check` is of one price, and nothing that
/// `explain` searches beside it takes less than is proven.
#[test]
fn one_setup_has_one_price_and_nothing_beside_it_beats_what_is_proven() {
    let folder = Folder::new("one-setup");
    let path = folder.path("plan.json");
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let of_model = ["plan", model.to_str().unwrap(), "--dim", "batch=4", "--dim", "sequence=16", "-o", &path];
    let train = ["--mode", "train", "--loss", "cross-entropy:logits,labels"];
    let said = |arguments: &[&str]| -> Value {
        serde_json::from_str(&works(&[&["--json"], arguments].concat())).unwrap()
    };
    let mut beside = 0;
    for (machine, trains, more) in [
        ("cpu-4x", false, &["--mesh", "4"][..]),
        ("cpu-4x", false, &["--mesh", "2x2"]),
        ("cpu-4x", false, &["--mesh", "4", "--memory", "3MB"]),
        ("h100-80g-4x", false, &["--mesh", "4", "--in-time", "never"]),
        ("cpu-4x", true, &["--mesh", "4", "--microbatches", "4", "--clip", "1"]),
        ("h100-80g-4x", true, &["--mesh", "4", "--recompute", "full"]),
        ("cpu-4x", true, &["--mesh", "2", "--stages", "2", "--microbatches", "2"]),
    ] {
        let trained = if trains { &train[..] } else { &[] };
        let setup = [&["--machine", machine][..], more, trained].concat();
        let planned = said(&[&of_model[..], &setup].concat());
        let explained = said(&["explain", &path]);
        assert_eq!(planned["seconds"], explained["seconds"], "{setup:?}");
        assert_eq!(planned["seconds"], said(&["simulate", &path])["estimated_seconds"], "{setup:?}");
        let checked = works(&["check", &path]);
        assert!(checked.contains("its times are those of the prices of"), "{setup:?}: {checked}");
        let now = planned["seconds"].as_f64().unwrap();
        let proven = planned["proof"]["lower_bound"].as_f64().unwrap_or(now);
        for other in explained["otherwise"].as_array().into_iter().flatten() {
            let Some(seconds) = other["price"]["seconds"].as_f64() else { continue };
            assert!(seconds >= proven * (1.0 - 1e-9), "{setup:?} takes {now} s, {proven} at least: {other}");
            beside += 1;
        }
    }
    assert!(beside > 8, "{beside}");
}

#[test]
fn a_plan_that_does_not_say_its_prices_is_read() {
    let folder = Folder::new("no-prices");
    let plan = planned(&folder, "plan.json", &["--mesh", "4"]);
    let mut said = plan::json::read(&fs::read(&plan).unwrap()).unwrap();
    assert!(said.machine.sha256.is_some());
    said.machine.sha256 = None;
    fs::write(&plan, plan::json::write(&said)).unwrap();
    assert!(!fs::read_to_string(&plan).unwrap().contains("\"devices\":4,\"sha256\""));
    works(&["check", &plan]);
    works(&["explain", &plan]);
    let simulated = works(&["simulate", &plan]);
    assert!(simulated.contains("the plan does not say by which prices"), "{simulated}");
}

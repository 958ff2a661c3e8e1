//! Stated setups, and prices beside measurements.

use std::fs;

use serde_json::Value;

use super::{Folder, example, fails, works};
use crate::tidy::root;

fn case(path: &str) -> String {
    root().join("tests/cases").join(path).to_str().unwrap().to_owned()
}

#[test]
fn a_setup_is_priced_by_terms_that_sum_to_its_time() {
    let config = case("predict/llama-70b.toml");
    let text = works(&["predict", "--config", &config]);
    for word in ["70.6 billion parameters on 64 x h100-80g by nemo", "products", "pipeline bubble", "fits"] {
        assert!(text.contains(word), "no `{word}` in\n{text}");
    }
    let value: Value = serde_json::from_str(&works(&["predict", "--config", &config, "--json"])).unwrap();
    let sum = |list: &str, part: &str| -> f64 {
        value[list].as_array().unwrap().iter().map(|it| it[part].as_f64().unwrap()).sum()
    };
    let seconds = value["seconds"].as_f64().unwrap();
    assert!((sum("terms", "seconds") / seconds - 1.0).abs() < 1e-9, "{value}");
    assert!((sum("memory", "bytes") / value["memory_bytes"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{value}");
    assert!((value["tokens_per_second"].as_f64().unwrap() * seconds / (128.0 * 8192.0) - 1.0).abs() < 1e-9);
    // The same run is published: 10.1 to 10.2 s.
    assert!((seconds / 10.15 - 1.0).abs() < 0.15, "{seconds}");
}

#[test]
fn a_setup_that_makes_no_sense_is_one_message() {
    let folder = Folder::new("predict-wrong");
    let text = fs::read_to_string(case("predict/llama-70b.toml")).unwrap();
    let check = |from: &str, to: &str, expected: &str| {
        let path = folder.path("run.toml");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        assert_eq!(fails(2, &["predict", "--config", &path]), format!("error: {path}: {expected}\n"));
    };
    check("hidden_size", "hiden_size", "no key `hiden_size`, did you mean `hidden_size`?");
    check("num_layers = 80\n", "", "`num_layers` is missing");
    check(
        "world_size = 64",
        "world_size = 40",
        "`world_size` is 40, expected a multiple of tp x pp x cp = 32",
    );
    check(
        "\"nemo\"",
        "\"mine\"",
        "framework `mine`: no such framework, expected one of megatron-lm, megatron-core, nemo, deepspeed, \
         fsdp, serving, torchtitan, fsdp-compiled, shardloom",
    );
    let missing = folder.path("absent.toml");
    assert!(fails(2, &["predict", "--config", &missing]).starts_with(&format!("error: {missing}: ")));
}

/// The file of several kinds says how many devices there are; the step waits for the slowest of them.
#[test]
fn a_setup_runs_on_several_kinds_of_nodes() {
    let folder = Folder::new("predict-kinds");
    let (run, cluster) = (folder.path("run.toml"), folder.path("cluster.json"));
    let kinds = r#"{ "format": 2, "kinds": [ { "devices": 32, "machine": "h100-80g" },
                                             { "devices": 32, "machine": "a100-80g" } ] }"#;
    fs::write(&cluster, kinds).unwrap();
    let text = fs::read_to_string(case("predict/llama-70b.toml")).unwrap();
    let seconds = |machine: &str| {
        let text = text.replace("precision = \"fp8\"", "precision = \"bf16\"");
        fs::write(&run, text.replace("\"h100-80g\"", &format!("\"{machine}\""))).unwrap();
        let said = works(&["predict", "--config", &run, "--json"]);
        serde_json::from_str::<Value>(&said).unwrap()["seconds"].as_f64().unwrap()
    };
    let (mixed, slow, fast) = (seconds(&cluster), seconds("a100-80g"), seconds("h100-80g"));
    assert!(fast < mixed && mixed < 1.01 * slow && slow > 1.5 * fast, "{fast} {mixed} {slow}");
    let said = works(&["predict", "--config", &run]);
    assert!(said.contains("64 x h100-80g by nemo"), "{said}");
    fs::write(&cluster, kinds.replacen("32", "40", 1)).unwrap();
    fs::write(&run, text.replace("\"h100-80g\"", &format!("\"{cluster}\""))).unwrap();
    let refused = fails(2, &["predict", "--config", &run]);
    assert_eq!(refused, format!("error: {run}: `world_size` is 64, expected 72 as `{cluster}` has\n"));
}

/// Stated numbers are taken in place of the machine file's: less power and slower memory take longer.
#[test]
fn stated_power_memory_and_adapters_are_obeyed() {
    let folder = Folder::new("predict-chip");
    let run = folder.path("run.toml");
    let text = fs::read_to_string(case("predict/llama-70b.toml")).unwrap();
    let of = |lines: &str| -> Value {
        fs::write(&run, format!("{text}{lines}\n")).unwrap();
        serde_json::from_str(&works(&["predict", "--config", &run, "--json"])).unwrap()
    };
    let seconds = |lines: &str| of(lines)["seconds"].as_f64().unwrap();
    let usual = seconds("");
    assert!(seconds("device_power = 500") > 1.04 * usual);
    assert!(seconds("device_memory_bandwidth = 2400") > 1.02 * usual);
    assert!(seconds("adapters_per_node = 1\nadapter_bandwidth = 12.5") > 1.01 * usual);
    assert!(seconds("attention_backend = \"flash\"") > 1.05 * usual);
    assert_eq!(of("device_memory = 40")["fits"], Value::Bool(false));
}

#[test]
fn every_row_of_a_folder_is_one_line_and_unknown_files_one_message() {
    let folder = Folder::new("validate");
    for file in fs::read_dir(case("validation")).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), folder.path(file.file_name().to_str().unwrap())).unwrap();
    }
    fs::write(folder.path("weather.csv"), "day,rain\n1,0\n").unwrap();
    let data = folder.path("");
    let lines = works(&["validate", "--data", &data, "--json"]);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |file: &str| rows.iter().filter(|row| row["file"] == file).count();
    assert_eq!((of("training_throughput.csv"), of("memory_rows.csv"), of("weather.csv")), (21, 8, 1));
    for row in &rows {
        let priced = row["predicted"].is_number() && row["measured"].is_number();
        assert!(priced || row["skipped"].is_string(), "{row}");
    }
    let report = folder.path("report.md");
    fs::create_dir(folder.path("images")).unwrap();
    let text = works(&["validate", "--data", &data, "--report", &report]);
    assert!(
        text.contains("megatron_sc21_table1") && text.contains("weather.csv: not a kind of file"),
        "{text}"
    );
    assert!(fs::read_to_string(&report).unwrap().contains("## training_throughput.csv"));
    assert!(
        fs::read_to_string(folder.path("images/prices-training-throughput.svg")).unwrap().starts_with("<svg")
    );
}

#[test]
fn every_line_of_measured_operations_is_one_object() {
    let folder = Folder::new("validate-ops");
    for file in fs::read_dir(case("operations")).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), folder.path(file.file_name().to_str().unwrap())).unwrap();
    }
    fs::write(folder.path("serving.csv"), "system,gemm_quant_mode\nh100_sxm,fp8\n").unwrap();
    fs::write(folder.path("weather.csv"), "day,rain\n1,0\n").unwrap();
    let data = folder.path("");
    let lines = works(&["validate", "--ops", &data, "--json"]);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |file: &str| rows.iter().filter(|row| row["file"] == file).count();
    assert_eq!((of("gemm.csv"), of("moe.csv"), of("serving.csv"), of("weather.csv")), (40, 40, 1, 1));
    let gemm: Vec<u64> =
        rows.iter().filter(|it| it["file"] == "gemm.csv").filter_map(|it| it["row"].as_u64()).collect();
    assert_eq!(gemm, (0..40).collect::<Vec<u64>>());
    for row in rows.iter().filter(|row| row["file"] != "weather.csv") {
        let is_priced = row["predicted_ms"].is_number() && row["measured_ms"].is_number();
        assert!(row["gpu"].is_string() && row["format"].is_string(), "{row}");
        assert_ne!(is_priced, row["skipped"].is_string(), "{row}");
        assert_eq!(is_priced, row["file"] != "serving.csv", "{row}");
    }
    let report = folder.path("report.md");
    let text = works(&["validate", "--ops", &data, "--report", &report]);
    assert!(text.contains("moe") && text.contains("a whole engine, not an operation"), "{text}");
    assert!(fs::read_to_string(&report).unwrap().contains("## context_attention"));
}

#[test]
fn laws_are_fitted_again_to_operations_that_are_there() {
    let (folder, to) = (Folder::new("fit-ops"), Folder::new("fit-ops-to"));
    let mut rows = "gpu,gemm_dtype,m,n,k,ms_median\n".to_owned();
    for m in 1..=8 {
        for n in 1..=8 {
            let time = 5e-3 + f64::from(m * n) * 1e-3;
            rows.push_str(&format!("h100_sxm,bfloat16,{},{},4096,{time}\n", 512 * m, 512 * n));
        }
    }
    fs::write(folder.path("gemm.csv"), rows).unwrap();
    let (data, made) = (folder.path(""), to.path("made"));
    let text = works(&["validate", "--ops", &data, "--fit", &made]);
    assert!(text.contains("h100-80g") && text.contains("gemm bfloat16"), "{text}");
    let machine = fs::read_to_string(format!("{made}/h100-80g.json")).unwrap();
    assert!(machine.contains("docs/ledger/operation-fit.jsonl, line 1: gemm bfloat16"), "{machine}");
    let ledger = fs::read_to_string(format!("{made}/operation-fit.jsonl")).unwrap();
    let line: Value = serde_json::from_str(ledger.trim()).unwrap();
    assert!(line["fitted"]["median"].as_f64().unwrap() < 0.05, "{line}");
}

#[test]
fn a_file_without_a_column_is_one_message() {
    let folder = Folder::new("validate-wrong");
    fs::write(folder.path("memory_rows.csv"), "row_id,source\nm1,me\n").unwrap();
    let message = fails(2, &["validate", "--data", &folder.path("")]);
    assert!(message.contains("memory_rows.csv: no column `gpu`"), "{message}");
    let ops = Folder::new("validate-ops-wrong");
    fs::write(ops.path("gemm.csv"), "gpu,m,n,k,ms_median\nh100_sxm,1,32,32,0.1\n").unwrap();
    let message = fails(2, &["validate", "--ops", &ops.path("")]);
    assert!(message.contains("gemm.csv: no column `gemm_dtype`"), "{message}");
    fs::write(ops.path("gemm.csv.gz"), "no gzip").unwrap();
    fs::remove_file(ops.path("gemm.csv")).unwrap();
    assert!(fails(2, &["validate", "--ops", &ops.path("")]).contains("gemm.csv.gz: cannot be read"));
    let empty = Folder::new("validate-empty");
    assert!(fails(2, &["validate", "--data", &empty.path("")]).contains("no CSV files"));
}

#[test]
fn numbers_are_fitted_again_to_rows_that_are_there() {
    let folder = Folder::new("fit");
    let rows = |file: &str| fs::read_to_string(case(&format!("validation/{file}"))).unwrap();
    fs::write(folder.path("training_throughput.csv"), rows("training_throughput.csv")).unwrap();
    let (data, ledger) = (folder.path(""), folder.path("fit.jsonl"));
    let text = works(&["bench", "fit", "--data", &data, "--ledger", &ledger]);
    assert!(text.contains("figures of frameworks: ") && text.contains("common.layer_launch"), "{text}");
    let line: Value = serde_json::from_str(&fs::read_to_string(&ledger).unwrap()).unwrap();
    let error = |of: &str| line["mean_absolute_error"][of]["fitted"].as_f64().unwrap();
    assert!(error("found") > 0.0 && error("found") < error("stated") + 0.01, "{line}");
    assert!(line["rows"]["fitted"].as_u64().unwrap() > 2 && line["benchmark"] == "fit", "{line}");
    let empty = Folder::new("fit-empty");
    let message = fails(2, &["bench", "fit", "--data", &empty.path("")]);
    assert!(message.contains("no rows that numbers were fitted to"), "{message}");
    assert!(fails(2, &["bench", "fit", "--data", &folder.path("absent")]).contains("cannot be read"));
}

#[test]
fn what_cannot_be_measured_is_one_message() {
    let folder = Folder::new("calibrate-wrong");
    let machine = folder.path("host.json");
    let said = fails(1, &["calibrate", "--device", "cuda", "--nccl", "-o", &machine]);
    assert!(said.contains("start at least two, one for each GPU"), "{said}");
    if device::count(&[]).is_err() {
        let said = fails(2, &["calibrate", "--device", "cuda", "-o", &machine]);
        assert!(said.contains("`calibrate` cannot run on this machine: the driver"), "{said}");
    }
    let said = fails(1, &["calibrate", "--like", "h100-80g", "-o", &machine]);
    assert!(said.contains("`--like` goes with `--device cuda`"), "{said}");
    let said = fails(1, &["calibrate", "--nccl", "-o", &machine]);
    assert!(said.contains("`--device cuda`"), "{said}");
    // A plan for it could not be told from one for the machine that comes with the program.
    let said = fails(1, &["calibrate", "-o", &folder.path("cpu.json")]);
    assert!(said.contains("expected another name than `cpu`"), "{said}");
    let partial = folder.path("host.json.partial");
    fs::write(&partial, r#"{"format": 1, "machine": "a toaster", "seconds": {}}"#).unwrap();
    let said = fails(2, &["calibrate", "-o", &machine]);
    assert!(said.contains(&format!("{partial}: was begun on \"a toaster\"")), "{said}");
}

/// Of a device's memory a setup may take what a plan may: what is left free by default, or what is said.
#[test]
fn a_setup_has_the_room_that_a_plan_has() {
    let folder = Folder::new("predict-room");
    let (config, plan) = (case("predict/llama-70b.toml"), folder.path("plan.json"));
    let model = example("model.onnx");
    let number = |arguments: &[&str], how: &[&str], name: &str| {
        let said = works(&[arguments, how, &["--json"]].concat());
        serde_json::from_str::<Value>(&said).unwrap()[name].as_u64().unwrap()
    };
    let rooms = [&[][..], &["--reserve", "0"], &["--reserve", "5%"], &["--reserve", "3GB"]].map(|how| {
        let room = number(&["predict", "--config", &config], how, "room_bytes");
        let planned = ["plan", &model, "--machine", "h100-80g-2x", "--mesh", "2", "-o", &plan];
        assert_eq!(room, number(&planned, how, "capacity"), "{how:?}");
        room
    });
    let [usual, all, part, bytes] = rooms;
    assert!(part < usual && usual < all, "{rooms:?}");
    assert_eq!(all - bytes, 3_000_000_000);
    let short = works(&["predict", "--config", &config, "--reserve", "40GB"]);
    assert!(short.contains("a device: does not fit"), "{short}");
}

/// Three rows of small models: one on one mesh, one in stages, one that is not planned.
#[test]
fn every_stated_training_step_is_planned_or_skipped_with_a_reason() {
    let folder = Folder::new("validate-plans");
    let columns = "row_id,source,gpu,n_gpus,framework,layers,hidden,heads,seq,gbs,mbs,tp,pp,vpp,dp,step_time_s,\
                   mlp_gated,zero_stage,precision,vocab";
    let rows = "a,mine,H100-SXM5-80GB,8,FSDP,2,128,4,64,8,1,1,1,1,8,0.01,1,3,bf16,256\n\
                b,mine,H100-SXM5-80GB,8,Megatron-LM,2,128,4,64,8,1,2,2,1,2,0.01,0,0,bf16,256\n\
                c,mine,H100-SXM5-80GB,8,Megatron-LM,2,128,4,64,8,1,2,2,1,2,0.01,0,0,fp8,256\n\
                d,other,H100-SXM5-80GB,8,Megatron-LM,2,128,4,64,8,1,2,2,1,2,0.01,0,0,nvfp4,256\n";
    fs::write(folder.path("training_throughput.csv"), format!("{columns}\n{rows}")).unwrap();
    let (data, report) = (folder.path(""), folder.path("report.md"));
    let lines = works(&["validate", "--plans", "--data", &data, "--json"]);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let skipped: Vec<bool> = rows.iter().map(|row| row["skipped"].is_string()).collect();
    assert_eq!(skipped, [false, false, false, true], "{lines}");
    for row in &rows[..3] {
        let ms = |name: &str| row[name].as_f64().unwrap();
        let added: f64 =
            row["framework_terms"].as_array().unwrap().iter().map(|it| it["ms"].as_f64().unwrap()).sum();
        assert!((ms("planned_ms") + added - ms("with_framework_ms")).abs() < 1e-9, "{row}");
        for (total, terms) in [("planned_ms", "planned_terms"), ("predicted_ms", "predicted_terms")] {
            let terms: f64 = row[terms].as_array().unwrap().iter().map(|it| it["ms"].as_f64().unwrap()).sum();
            assert!((terms / ms(total) - 1.0).abs() < 1e-9, "{row}");
        }
        assert!(ms("simulated_ms") > 0.0 && (ms("measured_ms") - 10.0).abs() < 1e-9, "{row}");
    }
    let text = works(&["validate", "--plans", "--data", &data, "--source", "mine", "--report", &report]);
    assert!(text.contains("mine") && !text.contains("skipped"), "{text}");
    assert!(fs::read_to_string(&report).unwrap().contains("| b | mine | 8 x H100-SXM5-80GB |"));
    // What no row is of is refused beside what some are.
    let asked = ["--source", "mine", "--source", "nobody"];
    let refused = fails(1, &[&["validate", "--plans", "--data", &data][..], &asked].concat());
    assert_eq!(
        refused,
        "error: `--source nobody`: no row of training_throughput.csv is of that source, expected one of mine, other\n"
    );
}

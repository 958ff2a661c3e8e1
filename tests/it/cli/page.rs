//! Plans as pages for a browser. What a browser makes of them is tried by `.ci/page.py`.

use serde_json::Value;

use super::{Folder, fails, says, works};

const GPT2: &str = "models/gpt2-bytes.onnx";
const DIMS: [&str; 4] = ["--dim", "batch=8", "--dim", "sequence=64"];

/// What is said in a page.
fn said(path: &str) -> Value {
    let page = std::fs::read_to_string(path).unwrap();
    let (_, rest) = page.split_once("id=\"plan\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&works(&[arguments, &["--json"]].concat())).unwrap()
}

/// What `explain` says, of what a page says.
fn without_commands(said: &Value) -> Value {
    let mut said = said.clone();
    for it in said.as_array_mut().unwrap() {
        it.as_object_mut().unwrap().remove("command").unwrap();
    }
    said
}

/// Its numbers are those of `explain` and `simulate`.
#[test]
fn a_page_says_what_the_commands_say() {
    let folder = Folder::new("page");
    let (plan, page) = (folder.path("plan.json"), folder.path("plan.html"));
    let to = ["-o", &plan, "--html", &page];
    let text = works(&[&["plan", GPT2, "--machine", "cpu-4x", "--mesh", "4"][..], &DIMS, &to].concat());
    assert!(text.ends_with(&format!("page       {page}\n")), "{text}");
    assert_eq!(said(&page)["limits"].as_array().unwrap().len(), 0, "searches are asked for");
    works(&["explain", &plan, "--alternatives", "--html", &page]);
    let page_said = said(&page);
    let (explained, simulated) = (json(&["explain", &plan]), json(&["simulate", &plan]));
    assert_eq!(page_said["seconds"], explained["seconds"]);
    assert_eq!(page_said["terms"], explained["estimate"]);
    assert_eq!(without_commands(&page_said["otherwise"]), explained["otherwise"]);
    assert_eq!(page_said["speed"]["mfu"], explained["mfu"]);
    assert_eq!(page_said["memory"][0]["holdings"], explained["memory"]);
    assert_eq!(page_said["simulated"], simulated["seconds"]);
    let blocks = page_said["programs"][0]["blocks"].as_array().unwrap();
    let of_explain = explained["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), of_explain.len());
    for (block, told) in blocks.iter().zip(of_explain) {
        assert_eq!(block["count"], told["count"]);
        let names = |it: &Value| -> Vec<Value> {
            it["operations"].as_array().unwrap().iter().map(|it| it["partition"].clone()).collect()
        };
        assert_eq!(names(block), names(told));
    }
    // Whom a rank exchanges with, and what that takes, is what the simulation has for its kind of ranks.
    let ranks = page_said["timeline"]["ranks"].as_array().unwrap();
    let of_kinds = |it: &Value| it["seconds"].as_f64().unwrap();
    for (rank, class) in ranks.iter().zip(simulated["classes"].as_array().unwrap()) {
        let sum: f64 = rank["with"].as_array().unwrap().iter().map(of_kinds).sum();
        let kinds = class["exchanged"].as_array().unwrap().iter();
        let expected: f64 = kinds.filter(|it| it["kind"] != "copy").map(of_kinds).sum();
        assert!((sum - expected).abs() <= 1e-9 * expected, "{sum} {expected}");
        assert!(rank["with"].as_array().unwrap().iter().all(|it| it["axes"].is_array()));
    }
    // Less memory never takes less time, and what is found fits in it.
    let limits = page_said["limits"].as_array().unwrap();
    assert!(!limits.is_empty());
    let found: Vec<&Value> = limits.iter().filter(|it| it["seconds"].is_number()).collect();
    assert!(found.iter().all(|it| it["bytes"].as_u64() <= it["capacity"].as_u64()), "{found:?}");
    let sorted = found.windows(2).all(|it| it[0]["seconds"].as_f64() >= it[1]["seconds"].as_f64());
    assert!(sorted, "{found:?}");
}

#[test]
fn pipelines_and_generation_have_pages() {
    let folder = Folder::new("pages");
    let (plan, page) = (folder.path("plan.json"), folder.path("plan.html"));
    let train =
        ["--mode", "train", "--loss", "cross-entropy:logits,labels", "--stages", "2", "--microbatches", "4"];
    works(&[&["plan", GPT2, "--machine", "cpu-4x", "-o", &plan][..], &DIMS, &train].concat());
    works(&["explain", &plan, "--html", &page]);
    let page_said = said(&page);
    assert_eq!(page_said["simulated"], json(&["simulate", &plan])["seconds"]);
    assert_eq!(page_said["memory"].as_array().unwrap().len(), 2, "two groups");
    let turns = page_said["timeline"]["ranks"][0]["turns"].as_array().unwrap();
    let count = |phase: &str| turns.iter().filter(|it| it[2] == phase).count();
    assert!(count("forward") >= 4 && count("backward") >= 4, "a turn for each micro-batch: {turns:?}");

    let model = "models/llama-past-dynamo2.9-op18-dyn/model.onnx";
    let generate = ["--mode", "generate", "--batch", "2", "--context", "32", "--prompt", "8", "-o", &plan];
    works(&[&["plan", model, "--machine", "cpu-2x", "--mesh", "2"][..], &generate].concat());
    works(&["explain", &plan, "--html", &page]);
    let page_said = said(&page);
    let names: Vec<&Value> = page_said["programs"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["prefill", "decode"]);
    // Both steps are held, and what else operations could be is said of each.
    let holdings = page_said["memory"][0]["holdings"].as_array().unwrap();
    let sum: u64 = holdings.iter().map(|it| it["bytes"].as_u64().unwrap()).sum();
    let explained = json(&["explain", &plan, "--alternatives"]);
    assert_eq!(sum, explained["held_bytes"].as_u64().unwrap());
    works(&["explain", &plan, "--alternatives", "--html", &page]);
    let page_said = said(&page);
    // Of generation a pin is of both steps, so that there is no command for one.
    assert!(page_said["otherwise"].as_array().unwrap().iter().all(|it| it["command"].is_null()));
    assert_eq!(without_commands(&page_said["otherwise"]), explained["decode"]["otherwise"]);
    let count = |it: &Value| it["alternatives"].as_array().unwrap().len();
    assert_eq!(count(&page_said), count(&explained["prefill"]) + count(&explained["decode"]));
}

#[test]
fn pages_are_refused_where_they_make_no_sense() {
    let folder = Folder::new("page-wrong");
    let plan = folder.path("plan.json");
    works(&[&["plan", GPT2, "--machine", "cpu-4x", "--mesh", "4", "-o", &plan][..], &DIMS].concat());
    says(&fails(1, &["explain", &plan, "--html", &plan]), &[&plan]);
    says(&fails(2, &["explain", &plan, "--html", &folder.path("none/page.html")]), &["none"]);
    let stop = ["--html", "page.html", "--stop-after", "import", "-o", &plan];
    says(
        &fails(1, &[&["plan", GPT2, "--machine", "cpu-4x"][..], &DIMS, &stop].concat()),
        &["`--html`", "--stop-after"],
    );
}

/// The arguments of a command as a page shows it.
fn arguments(command: &Value) -> Vec<String> {
    let parts = command.as_str().unwrap().split('\'').enumerate();
    let words = parts.flat_map(|(place, part)| match place % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    let words: Vec<String> = words.collect();
    assert_eq!(words[0], "shardloom");
    words[1..].to_vec()
}

/// The plan that a command of a page makes.
fn again(command: &Value, folder: &Folder) -> Vec<u8> {
    let made = folder.path("again.json");
    let words = arguments(command);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["-o", &made]).collect();
    works(&words);
    std::fs::read(made).unwrap()
}

/// Each command of a page, run as it stands there, makes what the page says of it.
#[test]
fn pages_show_the_commands_that_plan_again() {
    let folder = Folder::new("again");
    let (plan, page) = (folder.path("plan.json"), folder.path("plan.html"));
    let cross_entropy = ["--mode", "train", "--loss", "cross-entropy:logits,labels"];
    let train =
        [&cross_entropy[..], &["--clip", "1", "--no-decay", "vectors", "--precision", "bf16"]].concat();
    let pipeline = [&train[..], &["--stages", "2", "--microbatches", "4", "--mesh", "2"]].concat();
    let pinned = ["--mesh", "2x2", "--pin", "h.0.mlp.*=[a,-,-,b]"];
    let kinds: [(&[&str], usize); 3] =
        [(&pinned, 2), (&[&train[..], &["--mesh", "4"]].concat(), 3), (&pipeline, 2)];
    for (kind, ways) in kinds {
        works(&[&["plan", GPT2, "--machine", "cpu-4x", "-o", &plan][..], &DIMS, kind].concat());
        works(&["explain", &plan, "--html", &page]);
        let said = said(&page);
        let shown = said["again"].as_array().unwrap();
        assert_eq!(shown.len(), ways, "{kind:?}: {shown:?}");
        assert_eq!(again(&shown[0]["command"], &folder), std::fs::read(&plan).unwrap(), "{kind:?}");
        for way in &shown[1..] {
            again(&way["command"], &folder);
        }
    }
    works(&[&["plan", GPT2, "--machine", "cpu-4x", "--mesh", "4", "-o", &plan][..], &DIMS].concat());
    works(&["explain", &plan, "--alternatives", "--html", &page]);
    let shown = said(&page);
    // How long a step takes by the plan that a command makes, in parts of what the page says.
    let made = |it: &Value, said: &Value| {
        again(&it["command"], &folder);
        let seconds = |it: &Value| it.as_f64().unwrap();
        seconds(&json(&["explain", &folder.path("again.json")])["seconds"]) / seconds(said)
    };
    for limit in shown["limits"].as_array().unwrap() {
        if limit["seconds"].is_number() {
            let part = made(limit, &limit["seconds"]);
            assert!((part - 1.0).abs() < 1e-9, "{part}: {limit}");
        }
    }
    // What is next best of each operation is made by the command beside it, if a pin says it: it takes no longer. It
    // takes less where equal operations of other blocks are computed otherwise too in what was priced.
    let alternatives = shown["alternatives"].as_array().unwrap();
    let priced: Vec<&Value> = alternatives.iter().filter(|it| it["price"]["seconds"].is_number()).collect();
    let commands: Vec<&&Value> = priced.iter().filter(|it| it["command"].is_string()).collect();
    assert!(
        commands.len() > 10 && 2 * commands.len() > priced.len(),
        "{} of {}",
        commands.len(),
        priced.len()
    );
    let mut exact = 0;
    for (number, alternative) in commands.iter().enumerate().filter(|it| it.0.is_multiple_of(3)) {
        let part = made(alternative, &alternative["price"]["seconds"]);
        assert!(part < 1.0 + 1e-9, "{part} of {number}: {alternative}");
        exact += usize::from(part > 1.0 - 1e-9);
    }
    assert!(exact > 3, "{exact}");
    // What is usually done is made by the command beside it; nothing is better by it than what was priced, but for
    // products in several time steps, which are not usual.
    let usual = shown["otherwise"].as_array().unwrap();
    assert!(usual.iter().filter(|it| it["command"].is_string()).count() > 1, "{usual:?}");
    for it in usual.iter().filter(|it| it["price"]["seconds"].is_number()) {
        let part = made(it, &it["price"]["seconds"]);
        assert!((part - 1.0).abs() < 1e-9, "{part}: {it}");
    }
    // What it is good for next is what a reader types.
    for command in shown["commands"].as_object().unwrap().values() {
        let words = arguments(command);
        let place =
            |it: &String| it.replace("trace.json", &folder.path("trace.json")).replace("page.html", &page);
        let words: Vec<String> = words.iter().map(place).collect();
        works(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// A plan that was made with less memory is planned again with as much.
#[test]
fn commands_that_plan_again_have_the_memory_of_the_plan() {
    let folder = Folder::new("again-memory");
    let (plan, page) = (folder.path("plan.json"), folder.path("plan.html"));
    // What plans leave free if nothing is said is no limit of theirs.
    let gpus = ["--machine", "h100-80g-4x", "--mesh", "4", "-o", &plan, "--html", &page];
    works(&[&["plan", GPT2][..], &DIMS, &gpus].concat());
    assert_eq!(said(&page)["again"][0]["memory"], Value::Null);
    let asked = ["--machine", "cpu-4x", "--mesh", "4", "--memory", "4500kB", "-o", &plan, "--html", &page];
    works(&[&["plan", GPT2][..], &DIMS, &asked].concat());
    let shown = said(&page);
    let way = &shown["again"][0];
    assert_eq!(way["memory"], 4_500_000);
    let command = Value::String(format!("{} --memory {}", way["command"].as_str().unwrap(), way["memory"]));
    assert_eq!(again(&command, &folder), std::fs::read(&plan).unwrap());
}

/// Of a machine file the commands have the file; without it there are none.
#[test]
fn commands_that_plan_again_have_the_machine_file() {
    let folder = Folder::new("again-file");
    let (plan, page, machine) =
        (folder.path("plan.json"), folder.path("plan.html"), folder.path("mine.json"));
    let past = "models/gpt2-past-dynamo2.9-op18-dyn/model.onnx";
    let text = cost_models::machine::shipped::text("cpu").unwrap();
    std::fs::write(&machine, text.replace("\"name\": \"cpu\"", "\"name\": \"mine\"")).unwrap();
    let asked =
        ["--machine", &machine, "--devices", "2", "--mode", "generate", "--context", "32", "--batch", "2"];
    works(&[&["plan", past, "-o", &plan, "--html", &page][..], &asked].concat());
    let shown = said(&page);
    assert_eq!(again(&shown["again"][0]["command"], &folder), std::fs::read(&plan).unwrap());
    works(&["explain", &plan, "--html", &page]);
    assert_eq!(said(&page)["again"], Value::Array(Vec::new()));
}

//! What is asked for and cannot be, or would be passed over without a word.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file of the repository's tests.
fn corpus(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name).to_str().unwrap().to_owned()
}

/// Plans a model of the repository; the plan is thrown away.
fn planned(model: &str, how: &str) -> Output {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let plan = std::env::temp_dir().join(format!("shardloom-options-{}-{number}.json", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardloom"));
    command.args(["plan", &corpus(&format!("models/{model}")), "-o", plan.to_str().unwrap()]);
    let done = command.args(["--in-time", "never"]).args(how.split(' ')).output().unwrap();
    let _ = std::fs::remove_file(plan);
    done
}

fn refused(model: &str, how: &str, expected: &[&str]) {
    let done = planned(model, how);
    let words = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{how}: {words}");
    assert!(words.starts_with("error: ") && words.lines().count() == 1, "{words}");
    for expected in expected {
        assert!(words.contains(expected), "{words}");
    }
}

const GPT: &str = "gpt2-bytes.onnx";
const PAST: &str = "gpt2-past-dynamo2.9-op18-dyn/model.onnx";

#[test]
fn outputs_without_elements_are_refused() {
    for (sizes, expected) in [
        ("--dim batch=0 --dim sequence=8", "no output has elements, such as `logits`"),
        ("--dim batch=2 --dim sequence=0", "operand 0 is f32[0,192], expected 73728 elements"),
    ] {
        refused(GPT, &format!("--machine cpu-2x --mesh 2 {sizes}"), &[expected]);
    }
}

#[test]
fn sequences_are_no_longer_than_a_model_has_positions() {
    let sizes = |length: u64| format!("--machine cpu-2x --mesh 2 --dim batch=2 --dim sequence={length}");
    refused(GPT, &sizes(65), &["looks up row 64 of `wpe`, which has 64"]);
    assert!(planned(GPT, &sizes(64)).status.success());
    // Nor are sequences that grow.
    let grows = |length: u64| format!("--machine cpu-2x --mesh 2 --mode generate --context {length}");
    refused(PAST, &grows(65), &["looks up row 64 of `model.transformer.wpe.weight`, which has 64"]);
    assert!(planned(PAST, &grows(64)).status.success());
}

/// What no attribute of attention says is said to be an array, and how large.
#[test]
fn masks_of_queries_by_keys_are_said() {
    let words = |model: &str| {
        let sizes = "--machine cpu-2x --mesh 2 --dim b=2 --dim s=8";
        let done = planned(&format!("../cases/faults/{model}/model.onnx"), sizes);
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let expected = "masked     attention: 1 causal after a prefix, with a mask for each pair: bool[2,1,8,8], 128 B whole\n";
    assert!(words("prefix").contains(expected), "{}", words("prefix"));
    // Those of documents are told by attention.
    assert!(!words("documents").contains("masked"), "{}", words("documents"));
    assert!(
        !String::from_utf8_lossy(
            &planned(GPT, "--machine cpu-2x --mesh 2 --dim batch=2 --dim sequence=8").stdout
        )
        .contains("masked")
    );
}

/// Each of both would fit.
#[test]
fn steps_of_prompts_and_of_single_tokens_fit_beside_each_other() {
    let model = "llama-past-dynamo2.9-op18-dyn/model.onnx";
    let how = |memory: &str| {
        format!(
            "--machine cpu-2x --mesh 2 --mode generate --batch 2 --context 16 --prompt 4 --memory {memory}"
        )
    };
    refused(model, &how("90000"), &["do not fit beside each other", "bytes are missing", "`--prompt`"]);
    // What each takes less leaves room for both.
    for memory in ["93000", "105000", "132000", "160000"] {
        let done = planned(model, &how(memory));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn of_one_example_the_sequence_is_split() {
    let words = |sizes: &str| {
        let done = planned(GPT, &format!("--machine cpu-4x --mesh 4 {sizes}"));
        String::from_utf8_lossy(&done.stdout)
            .lines()
            .find(|it| it.starts_with("strategy"))
            .unwrap()
            .to_owned()
    };
    assert!(words("--dim batch=4 --dim sequence=64").contains("data parallel"));
    let one = words("--dim batch=1 --dim sequence=64");
    assert!(one.contains("context parallel") && !one.contains("data parallel"), "{one}");
}

#[test]
fn setups_say_what_they_assume() {
    let folder = std::env::temp_dir().join(format!("shardloom-options-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("run.toml");
    let setup = "machine = \"h100-80g\"\nnum_layers = 4\nhidden_size = 256\nnum_attention_heads = 4\n\
                 seq_length = 128\nworld_size = 2\nglobal_batch_size = 4\n";
    let said = |setup: String| {
        std::fs::write(&path, setup).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardloom"));
        let done = command.args(["predict", "--config", path.to_str().unwrap()]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert!(said(setup.to_owned()).contains("vocab_size = 51200"));
    assert!(!said(format!("{setup}vocab_size = 1000\n")).contains("vocab_size"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What is printed is in colour where that is asked for, and where it goes to no terminal not otherwise; JSON never is.
#[test]
fn colour_is_for_terminals_and_for_who_asks() {
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardloom"));
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        let done = command.args(arguments).envs(variables.iter().copied()).output().unwrap();
        [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap())
    };
    let plain = |[out, err]: &[String; 2]| !out.contains('\x1b') && !err.contains('\x1b');
    let missing = ["explain", "no such plan.json"];
    let with = |wish: &'static str| [&missing[..], &["--color", wish]].concat();
    let said = run(&missing, &[]);
    assert!(said[1].starts_with("error: ") && plain(&said), "{said:?}");
    let red = "\x1b[1m\x1b[31merror:\x1b[0m ";
    assert!(run(&with("always"), &[])[1].starts_with(red));
    assert!(run(&with("always"), &[("NO_COLOR", "1")])[1].starts_with(red));
    assert!(run(&missing, &[("CLICOLOR_FORCE", "1")])[1].starts_with(red));
    assert!(plain(&run(&missing, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")])));
    assert!(plain(&run(&with("never"), &[("CLICOLOR_FORCE", "1")])));
    // Of what no argument is, too.
    assert!(run(&["--color=always", "explian"], &[])[1].starts_with(red));
    assert!(run(&["explain", "--color", "blue"], &[])[1].contains("'blue'"));
    let schedule = ["schedule", "1f1b", "--stages", "2", "--micro-batches", "4", "--color", "always"];
    assert!(!plain(&run(&schedule, &[])));
    assert!(plain(&run(&[&schedule[..], &["--json"]].concat(), &[])));
}

/// What `plan` warns of a sweep warns of too, once for all that it plans; and it writes over no weights.
#[test]
fn a_sweep_warns_once_and_spares_what_it_reads() {
    let run = |arguments: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_shardloom")).args(arguments).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let model = corpus("cases/faults/mask_of_a_weight/model.onnx");
    let train = ["--machine", "cpu-2x", "--mode", "train", "--loss", "cross-entropy:logits,labels"];
    let sweep = [&["sweep", &model, "--over", "batch=2,4"][..], &train].concat();
    let (code, words) = run(&sweep);
    assert_eq!(code, Some(0), "{words}");
    let expected = "warning: attention `attention` has a mask of which it is not known which keys it hides";
    assert!(words.starts_with(expected) && words.lines().count() == 1, "{words}");
    let (code, words) = run(&[&sweep[..], &["--quiet"]].concat());
    assert_eq!((code, words.as_str()), (Some(0), ""));
    let folder = std::env::temp_dir().join(format!("shardloom-sweep-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (model, data) = (place("model.onnx"), place("data"));
    std::fs::copy(corpus("cases/faults/external/model.onnx"), &model).unwrap();
    std::fs::write(&data, [0; 64]).unwrap();
    for output in ["--csv", "--svg"] {
        let sweep = ["sweep", &model, "--over", "batch=2,4", output, &data];
        let (code, words) = run(&[&sweep[..], &train].concat());
        assert_eq!(code, Some(1), "{words}");
        assert!(words.contains("data") && words.lines().count() == 1, "{words}");
        assert_eq!(std::fs::read(&data).unwrap(), [0; 64]);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

//! The command line, described for shells and for `man`, and names that are nearly right.

use std::fs;

use super::{Folder, as_it_is, shardloom, works};

#[test]
fn shells_complete_commands_and_options() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = works(&["completions", shell]);
        assert!(script.contains("simulate") && script.contains("global-batch"), "{shell}");
    }
    assert_eq!(shardloom(&["completions", "cmd"]).code, 1);
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = Folder::new("manual");
    let to = folder.path("man1");
    works(&["man", "-o", &to]);
    let page = |name: &str| fs::read_to_string(format!("{to}/{name}.1")).unwrap();
    assert!(page("shardloom").contains(".TH SHARDLOOM 1"));
    for command in ["plan", "export", "score", "machines", "man"] {
        assert!(page(&format!("shardloom-{command}")).contains("OPTIONS"), "{command}");
    }
    assert!(page("shardloom-plan").contains("\\-\\-global\\-batch"));
    let again = as_it_is(&["man", "-o", &to]);
    assert_eq!(again.code, 1, "{}", again.err);
    assert!(again.err.contains("is there already"), "{}", again.err);
    works(&["man", "-o", &to, "--force"]);
}

/// Options that look into stages stand by themselves, behind those that most need.
#[test]
fn options_for_debugging_have_a_heading_of_their_own() {
    for command in ["plan", "machines", "export"] {
        let help = works(&[command, "--help"]);
        let (before, behind) = help.split_once("\nDebugging:\n").unwrap();
        for option in ["--dump-after", "--dump-dir", "--stop-after"] {
            assert!(
                !before.contains(&format!("{option} <")) && behind.contains(option),
                "{command} {option}"
            );
        }
    }
}

#[test]
fn names_that_are_nearly_right_are_told() {
    let config = "tests/cases/models/llama/config.json";
    let config = crate::tidy::root().join(config);
    let model = config.to_str().unwrap();
    for (more, expected) in [
        (["--dim", "sequnce=8", "--machine", "h100-80g-8x"], "`sequnce`, did you mean `sequence`?"),
        (["--dim", "sequence=8", "--machine", "h100-80-8x"], "`h100-80`, did you mean `h100-80g`?"),
        (
            ["--machine", "h100-80g-8x", "--for", "megatorn"],
            "`megatorn` is no target, did you mean `megatron`?",
        ),
    ] {
        let fixed = ["plan", model, "--dim", "batch=2", "-o", "p.json"];
        let left = shardloom(&[&fixed[..], &more].concat());
        assert!(left.code > 0 && left.err.contains(expected), "{}", left.err);
    }
    let left = shardloom(&["export", "plan.json", "--to", "memoryviz", "-o", "p"]);
    assert!(left.err.contains("did you mean `memory-viz`?"), "{}", left.err);
    // A file, the type of a model, and an axis of a mesh.
    let folder = Folder::new("near");
    let near = |arguments: &[&str], expected: &str| {
        let left = shardloom(arguments);
        assert!(left.code > 0 && left.err.contains(expected), "{arguments:?}: {}", left.err);
    };
    std::fs::write(folder.path("model.onnx"), "").unwrap();
    near(&["import", &folder.path("modle.onnx")], "did you mean `model.onnx`?");
    let text = std::fs::read_to_string(model).unwrap().replace("\"llama\"", "\"gpt_os\"");
    std::fs::write(folder.path("config.json"), text).unwrap();
    near(&["import", &folder.path("config.json")], "did you mean `gpt_oss`?");
    let mesh = ["--machine", "h100-80g-8x", "--mesh", "data=2,model=4", "--pin", "*=[-,modle,-]"];
    let sizes = ["--dim", "batch=2", "--dim", "sequence=8", "-o", &folder.path("p.json")];
    near(&[&["plan", model], &mesh[..], &sizes].concat(), "did you mean `model`?");
}

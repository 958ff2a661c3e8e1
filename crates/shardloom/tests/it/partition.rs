//! Tests of `partition` and `explain --diagram`: what is drawn of a partition, and what is refused.

use std::fs;
use std::path::PathBuf;

fn shardloom(arguments: &[&str]) -> (u8, String, String) {
    said_by(&[&["partition"], arguments].concat())
}

/// What a command prints that has to work.
fn done(arguments: &[&str]) -> String {
    let (code, out, err) = said_by(arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    out
}

fn said_by(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["shardloom"].into_iter().chain(arguments.iter().copied());
    let code = shardloom::main_with(all, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

#[test]
fn a_rotation_is_drawn_as_text_and_as_a_picture() {
    let path = std::env::temp_dir().join(format!("shardloom-partition-{}.svg", std::process::id()));
    let picture = path.to_str().unwrap();
    let rotated = ["3 steps [a,-,(a-@t:3)]", "--mesh", "3", "--svg", picture];
    let (code, out, err) = shardloom(&rotated);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("W  [-,a]  rotates, the next from a-1; all receive 2 W"), "{out}");
    assert!(out.contains("W[-,2] from 2"), "{out}");
    let svg = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    let (_, out, _) = shardloom(&["3 steps [a,-,(a-@t:3)]", "--mesh", "3", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["things"][1]["received_bytes"], serde_json::json!(2 * (2 * 6 * 4)));
    assert_eq!(json["ranks"].as_array().map(Vec::len), Some(3));
}

#[test]
fn what_is_no_partition_is_refused() {
    for (text, mesh, part) in [
        ("[a,-]", "2", "2 loops, expected 3"),
        ("[a,-,a]", "2", "no device computes"),
        ("[b,-,-]", "2", "one of the axes `a`"),
        ("2 steps [a,-,-]", "2", "2 steps do not suit"),
        ("[a,-,-", "2", "found the end"),
        ("4096 steps [-,(@t:4096),-]", "8", "too many to draw"),
    ] {
        let (code, out, err) = shardloom(&[text, "--mesh", mesh]);
        assert_eq!((code, out.as_str()), (1, ""), "{text}: {err}");
        assert!(err.contains(part), "{text}: {err}");
    }
}

/// The diagram of a plan's operation is that of its partition: printed, as a picture, and as JSON.
#[test]
fn an_operation_of_a_plan_is_drawn_as_text_and_as_a_picture() {
    let folder = std::env::temp_dir().join(format!("shardloom-diagram-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (plan, picture) = (path("plan.json"), path("picture.svg"));
    let models = [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "models"].iter().collect::<PathBuf>();
    let model = models.join("gpt2-eager-legacy2.9-op17-static/model.onnx");
    let pin = "*/h.1/mlp/c_fc/*=4 steps [-,a,(a+@t:4),-]";
    let model = model.to_str().unwrap();
    done(&["plan", model, "--machine", "cpu-4x", "--mesh", "4", "--pin", pin, "-o", &plan]);

    // How an operation is called is said by what explains the plan.
    let told = done(&["explain", &plan]);
    let hint = told.lines().find_map(|line| line.strip_prefix("in steps    `--diagram ")).unwrap();
    let name = hint.split('`').next().unwrap();
    assert!(name.contains("h.1.mlp.c_fc"), "{name}");
    let drawn = done(&["explain", &plan, "--diagram", name, "--svg", &picture]);
    // Rows of X go around, and each rank has its columns of W: at each step three quarters come.
    let (text, said) = drawn.rsplit_once("\npicture    ").unwrap();
    assert_eq!(said.trim_end(), picture);
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("rank ")).skip(1).collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(text.starts_with("4 steps [-,a,(a+@t:4),-] on a=4\n"), "{text}");
    assert_eq!(text.matches(" from ").count(), 4 * 3 + 1, "{text}");
    for (rank, row) in rows.iter().enumerate() {
        assert_eq!(row.matches(&format!(" from {}", (rank + 1) % 4)).count(), 3, "{row}");
    }
    let svg = fs::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("marker-end").count(), 4 * 3);
    let json: serde_json::Value =
        serde_json::from_str(&done(&["explain", &plan, "--diagram", name, "--json"])).unwrap();
    assert_eq!(json["ranks"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["partition"], "4 steps [-,a,(a+@t:4),-] on a=4");

    let (code, out, err) = said_by(&["explain", &plan, "--diagram", "nothing"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("no operation is called `nothing`"), "{err}");
    fs::remove_dir_all(&folder).unwrap();
}

//! Tests of `partition`: what is drawn of a partition, and what is refused.

use std::fs;

fn shardloom(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["shardloom", "partition"].into_iter().chain(arguments.iter().copied());
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

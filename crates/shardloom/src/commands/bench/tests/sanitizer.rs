//! `bench gpu` under a program in the place of compute-sanitizer.

use std::os::unix::fs::PermissionsExt as _;

use files::folder::Folder;

use super::{ledger_of, shardloom};
use crate::emulated::emulated;

/// The tools, in the order in which they are asked.
const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// In the place of compute-sanitizer: one tool finds nothing, one finds something, under one the command fails,
/// one does not start.
const FAKE: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then printf 'NVIDIA (R) Compute Sanitizer\nVersion 2025.3.0.0\n'; exit 0; fi
echo "$@" >> "$(dirname "$0")/asked"
case "$2" in
memcheck) echo '========= ERROR SUMMARY: 0 errors' ;;
racecheck) printf '========= COMPUTE-SANITIZER\n========= Error: Race reported\n'
    echo '========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)' ;;
initcheck) echo '========= ERROR SUMMARY: 0 errors'; echo 'error: not right: sum' >&2; exit 2 ;;
*) echo 'no such tool' >&2; exit 1 ;;
esac
"#;

#[test]
fn each_tool_looks_at_what_is_compared() {
    let folder = Folder::new("gpu-sanitizer", None).unwrap();
    let program = folder.path.join("compute-sanitizer");
    std::fs::write(&program, FAKE).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ledger = folder.path.join("gpu.jsonl");
    let gpu = emulated();
    let [libraries, cache, program, ledger_name] =
        [&gpu.libraries, &gpu.cache, &program, &ledger].map(|it| it.display().to_string());
    let on = ["bench", "gpu", "--quick", "--only", "sanitizer", "--like", "h100-80g"];
    let places = ["--libraries", &libraries, "--cache", &cache, "--ledger", &ledger_name];
    let (code, _, err) = shardloom(&[&on[..], &places, &["--sanitizer", &program]].concat());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("not right: racecheck; initcheck; synccheck\n"), "{err}");
    let lines = ledger_of(&ledger);
    let figure = |line: usize, name: &str| lines[line]["figures"][name].clone();
    assert_eq!(
        lines.iter().map(|it| it["verdict"].as_str().unwrap()).collect::<Vec<_>>(),
        ["right", "wrong", "failed", "failed"]
    );
    assert_eq!((figure(0, "faults").as_u64(), figure(1, "faults").as_u64()), (Some(0), Some(1)));
    assert_eq!(figure(1, "first"), "Error: Race reported");
    assert_eq!(figure(2, "failed"), "error: not right: sum");
    assert_eq!(figure(3, "failed"), "it says no summary: no such tool");
    assert_eq!(figure(0, "version"), "Version 2025.3.0.0");
    let asked = std::fs::read_to_string(folder.path.join("asked")).unwrap();
    let own = std::env::current_exe().unwrap().display().to_string();
    assert_eq!(asked.lines().count(), 4);
    for (line, tool) in asked.lines().zip(TOOLS) {
        let command = format!("{own} bench gpu --quick --only equal,ranks --like h100-80g");
        let expected = format!("--tool {tool} --print-limit 20 {command}");
        assert!(line.starts_with(&expected) && line.contains(&libraries), "{line}");
        assert!(!line.contains("--ledger"), "{line}");
    }
    let (code, out, err) = shardloom(&[&on[..], &places, &["--sanitizer", "no-such-program"]].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines = ledger_of(&ledger);
    assert_eq!(lines.len(), 5);
    assert!(lines[4]["verdict"].is_null() && lines[4]["figures"]["left_out"].is_string(), "{}", lines[4]);
}

//! What is built with has licences that let it be shipped under ours.

use std::process::Command;

use serde_json::Value;

use super::{nothing, root};

/// Licences under which a package may be used, each alone.
const ALLOWED: [&str; 9] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unlicense",
    "Zlib",
];
/// Those of data within packages, besides one of the others.
const BESIDES: [&str; 1] = ["Unicode-3.0"];

/// Whether a licence expression can be met: one of several by `OR` (or `/`, as it was written once), all by `AND`.
fn is_met(expression: &str) -> bool {
    let part = |it: &str| {
        let it = it.trim().trim_matches(['(', ')']);
        BESIDES.contains(&it)
            || it.replace('/', " OR ").split(" OR ").any(|one| ALLOWED.contains(&one.trim()))
    };
    expression.split(" AND ").all(part)
}

#[test]
fn licences_of_what_is_built_with_are_allowed() {
    assert!(
        is_met("MIT OR GPL-3.0")
            && is_met("(MIT OR Apache-2.0) AND Unicode-3.0")
            && is_met("Apache-2.0 / MIT")
    );
    assert!(!is_met("GPL-3.0") && !is_met("MIT AND GPL-3.0") && !is_met(""));
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let said = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let packages = said["packages"].as_array().unwrap();
    let wrong = |it: &&Value| !is_met(it["license"].as_str().unwrap_or_default());
    let words = |it: &Value| {
        format!("{} {}: licence {}, expected one of {ALLOWED:?}", it["name"], it["version"], it["license"])
    };
    assert!(packages.len() > 100, "{} packages", packages.len());
    nothing(&packages.iter().filter(wrong).map(words).collect::<Vec<_>>());
}

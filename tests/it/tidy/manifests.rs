//! Manifests of packages say what a registry of packages wants to know, and packages are whole without the rest of
//! the repository.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{files, nothing, read, root};

/// What is no library or program for others: the tests, and what is shipped as a wheel.
const APART: [&str; 2] = ["tests", "python"];

/// Categories of crates.io that packages here are of.
const CATEGORIES: [&str; 4] = ["science", "simulation", "compilers", "command-line-utilities"];

/// What cargo says of the packages of the workspace.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let said = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    said["packages"].as_array().unwrap().clone()
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

/// What a manifest lacks of what a registry takes, and how it takes it.
fn lacks(package: &Value) -> Vec<String> {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let folder = Path::new(text("manifest_path")).parent().unwrap();
    let (keywords, categories) = (words(&package["keywords"]), words(&package["categories"]));
    let is_keyword = |it: &&str| {
        it.len() <= 20
            && it.starts_with(|it: char| it.is_ascii_alphanumeric())
            && it.chars().all(|it| it.is_ascii_alphanumeric() || "_-+".contains(it))
    };
    let versions = package["dependencies"].as_array().unwrap().iter();
    let mut versions = versions.filter(|it| it["path"].is_string()).map(|it| it["req"].as_str().unwrap());
    let own = format!("^{}", text("version"));
    let checks = [
        ("a description of one line", !text("description").is_empty() && !text("description").contains('\n')),
        ("the licence of the workspace", text("license") == "MIT OR Apache-2.0"),
        ("the version of Rust", !text("rust_version").is_empty()),
        ("a README that is there", folder.join(text("readme")).is_file()),
        ("one to five keywords", (1..=5).contains(&keywords.len()) && keywords.iter().all(is_keyword)),
        ("known categories", !categories.is_empty() && categories.iter().all(|it| CATEGORIES.contains(it))),
        ("this version of every package of the workspace", versions.all(|it| it == own)),
        ("no address, as there is none", package["repository"].is_null() && package["homepage"].is_null()),
    ];
    let missing = checks.into_iter().filter(|it| !it.1);
    missing.map(|(what, _)| format!("{}: its manifest lacks {what}", text("name"))).collect()
}

#[test]
fn manifests_say_what_registries_ask_for() {
    let all = packages();
    assert!(all.len() > 25, "{} packages", all.len());
    let published = all.iter().filter(|it| !APART.contains(&it["name"].as_str().unwrap()));
    nothing(&published.flat_map(lacks).collect::<Vec<_>>());
}

/// A package is the files of its folder. Tests may read what is outside of it.
#[test]
fn what_code_includes_lies_in_its_package() {
    let mut wrong = Vec::new();
    for package in packages() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if APART.contains(&package["name"].as_str().unwrap()) {
            continue;
        }
        let code = files(&format!("{folder}/src"), ".rs");
        for path in code.iter().filter(|it| !it.ends_with("tests.rs") && !it.contains("/tests/")) {
            for part in read(path).split("include_").skip(1) {
                let Some((_, rest)) = part.split_once("!(\"").filter(|it| it.0 == "str" || it.0 == "bytes")
                else {
                    continue;
                };
                let named = rest.split('"').next().unwrap();
                let ups = named.matches("../").count();
                let deep = path[folder.len()..].matches('/').count() - 1;
                if ups > deep {
                    wrong.push(format!("{path}: `{named}` is outside of the package in {folder}"));
                }
            }
        }
    }
    nothing(&wrong);
}

//! What the pages about launchers have: environments say what the pages say, commands are ones of this
//! program, names are ones that it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::Parser;
use launch::contract::Launched;
use launch::nodes::Node;

use crate::arguments::{Arguments, Command};

/// The pages, by name.
fn pages() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster");
    let all = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let page = |path: std::path::PathBuf| {
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
    };
    all.map(page).collect()
}

/// What stands between fences: what is said of it, and its lines.
fn blocks(page: &str) -> Vec<(String, Vec<String>)> {
    let mut blocks: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(said) if !inside => blocks.push((said.to_owned(), Vec::new())),
            None if inside => blocks.last_mut().unwrap().1.push(line.to_owned()),
            _ => {}
        }
        inside ^= line.starts_with("```");
    }
    blocks
}

/// Words with `=` between their parts.
fn named<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    words.filter_map(|it| it.split_once('=')).map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

fn check_environment(page: &str, said: &str, environment: &BTreeMap<String, String>) {
    let variable = |name: &str| environment.get(name).cloned();
    let expected = named(said.split_whitespace());
    let number = |name: &str| expected.get(name).map(|it| it.parse::<u64>().unwrap());
    let at = |place: Option<(String, u16)>| place.map(|(host, port)| format!("{host}:{port}"));
    if let Some(node) = number("node") {
        let found = Node::of(&variable).unwrap();
        assert_eq!((Some(found.nodes), found.node), (number("of"), node), "{page}: {said}");
        assert_eq!((found.ranks, at(found.place)), (number("ranks"), expected.get("at").cloned()), "{page}");
        // It starts ranks, and is none.
        assert_eq!(Launched::of(&variable), Ok(None), "{page}: {said}");
        return;
    }
    let found = Launched::of(&variable).unwrap();
    if said == "env alone" {
        assert_eq!(found, None, "{page}");
        return;
    }
    let found = found.unwrap();
    assert_eq!((Some(found.rank), Some(found.size)), (number("rank"), number("of")), "{page}: {said}");
    assert_eq!(at(found.place), expected.get("at").cloned(), "{page}: {said}");
    assert_eq!(found.attempt, number("attempt").unwrap_or(0), "{page}: {said}");
}

#[test]
fn environments_of_pages_say_what_the_pages_say() {
    for (page, text) in pages() {
        let blocks = blocks(&text);
        let environments: Vec<_> = blocks.iter().filter(|it| it.0.starts_with("env")).collect();
        assert!(!environments.is_empty(), "{page}");
        for (said, lines) in environments {
            check_environment(&page, said, &named(lines.iter().map(String::as_str)));
        }
    }
}

/// The commands of this program in a line of a shell, and in a list of a manifest.
fn commands(line: &str) -> Option<Vec<String>> {
    if let Some((_, list)) = line.split_once("command: [") {
        return Some(serde_json::from_str(&format!("[{list}")).unwrap());
    }
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let start = words.iter().position(|it| it == "shardloom")?;
    Some(words[start..].to_vec())
}

#[test]
fn commands_of_pages_are_ones_of_this_program() {
    let mut count = 0;
    for (page, text) in pages().into_iter().chain([index()]) {
        for (kind, lines) in blocks(&text) {
            let all = lines.iter().filter(|line| !line.starts_with("cargo") && !line.starts_with("kubectl"));
            let ours =
                all.filter(|_| ["sh", "yaml", "text"].contains(&kind.as_str())).filter_map(|it| commands(it));
            for command in ours.filter(|it| it.len() > 1) {
                let parsed = Arguments::try_parse_from(&command);
                let mut parsed = parsed.unwrap_or_else(|error| panic!("{page}: {command:?}: {error}"));
                if let Command::Launch(launch) = &parsed.command {
                    let inner = std::iter::once("shardloom".into()).chain(launch.command.iter().cloned());
                    parsed = Arguments::try_parse_from(inner).unwrap();
                }
                assert!(matches!(parsed.command, Command::Train(_) | Command::Run(_)), "{page}: {command:?}");
                count += 1;
            }
        }
    }
    assert!(count >= 10, "only {count} commands are looked at");
}

fn index() -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md");
    ("cluster".to_owned(), fs::read_to_string(path).unwrap())
}

#[test]
fn manifests_set_what_their_pods_have() {
    let text = &pages()["kubernetes"];
    let all = blocks(text);
    let manifests: Vec<&Vec<String>> = all.iter().filter(|it| it.0 == "yaml").map(|it| &it.1).collect();
    let [set, trainer] = manifests[..] else { panic!("expected two manifests") };
    // The names that are set, and those with their values.
    let mut values = BTreeMap::new();
    let mut name = String::new();
    for line in set {
        if let Some(it) = line.trim().strip_prefix("- name: ") {
            name = it.to_owned();
        } else if let Some(it) = line.trim().strip_prefix("value: ") {
            values.insert(name.clone(), it.trim_matches('"').to_owned());
        }
    }
    for index in 0..2 {
        let mut environment = values.clone();
        environment.insert("JOB_COMPLETION_INDEX".to_owned(), index.to_string());
        let said = format!("env node={index} of=2 at=shardloom-ranks-0-0.shardloom:29500");
        check_environment("kubernetes", &said, &environment);
    }
    let has = |lines: &[String], text: &str| lines.iter().any(|it| it.trim() == text);
    // As many pods as are said, and the first of them is where the others look for it.
    for line in
        ["parallelism: 2", "completions: 2", "name: shardloom", "- name: ranks", "- name: SHARDLOOM_TOKEN"]
    {
        assert!(has(set, line), "{line}");
    }
    for line in ["numNodes: 2", "numProcPerNode: 4", "- name: SHARDLOOM_TOKEN"] {
        assert!(has(trainer, line), "{line}");
    }
}

#[test]
fn names_on_pages_are_ones_that_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../launch/src");
    let read = ["contract.rs", "nodes.rs"].map(|it| fs::read_to_string(folder.join(it)).unwrap()).concat();
    let mut names = BTreeSet::new();
    for (_, text) in pages().into_iter().chain([index()]) {
        let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_').map(str::to_owned);
        names.extend(words.filter(|it| it.starts_with("SHARDLOOM_")));
    }
    assert!(names.len() > 8);
    for name in names {
        assert!(read.contains(&format!("\"{name}\"")), "{name}");
    }
}

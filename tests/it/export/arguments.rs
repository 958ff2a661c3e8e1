//! What runtimes are told, held against the arguments that they have, and the kinds of these: `arguments.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::serving::SERVERS;
use crate::tidy::root;

/// Of each target the names, and of which kind their values are.
fn table() -> BTreeMap<(String, String), String> {
    let text = fs::read_to_string(root().join("tests/cases/export/arguments.txt")).unwrap();
    let of_line = |line: &str| {
        let [target, name, kind, _] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        ((target.to_owned(), name.to_owned()), kind.to_owned())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(of_line).collect()
}

/// Whether a value is of a kind.
fn is(kind: &str, value: &[&str]) -> bool {
    let number = |after: &str, value: &str| {
        let Ok(number) = value.parse::<f64>() else { return false };
        let whole = kind.starts_with("float") || value.chars().all(|c| c.is_ascii_digit() || c == '-');
        let mut rest = after;
        while let Some(start) = rest.find(['<', '>']) {
            let sign: &str = if rest[start + 1..].starts_with('=') {
                &rest[start..start + 2]
            } else {
                &rest[start..=start]
            };
            let bound = &rest[start + sign.len()..];
            let end = bound.find(['<', '>']).unwrap_or(bound.len());
            let limit: f64 = bound[..end].parse().unwrap();
            let holds = match sign {
                ">=" => number >= limit,
                ">" => number > limit,
                "<=" => number <= limit,
                _ => number < limit,
            };
            if !holds {
                return false;
            }
            rest = &bound[end..];
        }
        whole
    };
    match (kind, value) {
        ("switch", []) => true,
        ("word", [it]) => !it.is_empty(),
        ("bool", [it]) => matches!(*it, "true" | "false"),
        ("map", []) => true,
        ("layout", [it]) => {
            it.chars().all(|c| "Etm L|*0123456789".contains(c)) && it.starts_with('E') && it.ends_with('L')
        }
        ("pattern", [it]) => {
            it.starts_with(['[', '(']) && it.chars().all(|c| "()[]+*,0123456789".contains(c))
        }
        ("pair", [it]) => it.split(',').filter(|it| it.parse::<u64>().is_ok()).count() == 2,
        (kind, [it]) if kind.starts_with("int") => number(&kind[3..], it),
        (kind, [it]) if kind.starts_with("float") => number(&kind[5..], it),
        (kind, [it]) if kind.starts_with("one-of:") => {
            kind["one-of:".len()..].split(',').any(|word| word == *it)
        }
        (kind, all) if kind.starts_with("some-of:") && !all.is_empty() => {
            let words: Vec<&str> = kind["some-of:".len()..].split(',').collect();
            all.iter().all(|it| words.contains(it))
        }
        _ => false,
    }
}

/// The words of a line of a shell: what is between quotes is one.
fn words(line: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut open = None;
    for letter in line.chars() {
        match open {
            Some(quote) if letter == quote => open = None,
            None if letter == '\'' || letter == '"' => open = Some(letter),
            None if letter == ' ' => found.push(String::new()),
            _ => found.last_mut().unwrap().push(letter),
        }
    }
    found.retain(|it| !it.is_empty());
    found
}

/// The arguments of a script or a configuration, each with its values.
fn told(target: &str, text: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut yaml = false;
    for line in text.lines().map(|line| line.trim_end_matches('\\').trim()) {
        if line.starts_with("---- ") {
            yaml = line.ends_with(".yaml");
        }
        if yaml && target == "trtllm" {
            found.extend(
                line.split_once(':').map(|(key, value)| {
                    (key.to_owned(), value.split_whitespace().map(str::to_owned).collect())
                }),
            );
        } else if line.starts_with("--") && !line.starts_with("---- ") {
            for word in words(line) {
                match found.last_mut() {
                    _ if word.starts_with("--") => found.push((word, Vec::new())),
                    Some((_, values)) => values.push(word),
                    None => panic!("{line} begins with no argument"),
                }
            }
        }
    }
    found
}

/// Every argument of a script is one that the runtime has, with a value of its kind.
pub(super) fn held(target: &str, text: &str) -> BTreeSet<String> {
    let table = table();
    let mut names = BTreeSet::new();
    for (name, values) in told(target, text) {
        let kind = table.get(&(target.to_owned(), name.clone()));
        let kind = kind.unwrap_or_else(|| panic!("{target} has no {name}: expected one of arguments.txt"));
        // What a shell puts in is a number of a node, or an address.
        let values: Vec<&str> = values.iter().map(|it| if it == "$NODE" { "1" } else { it }).collect();
        assert!(is(kind, &values), "{target}: {name} {values:?} is no {kind}");
        names.insert(name);
    }
    names
}

#[test]
fn kinds_are_told_apart() {
    for (kind, good, bad) in [
        ("int>=1", "4", "0"),
        ("int", "-1", "1.5"),
        ("float>0<=1", "0.5", "1.01"),
        ("one-of:fp32,fp64", "fp32", "fp16"),
        ("pair", "3,0", "3"),
        ("pattern", "([0]*3+[1]*58)", "full"),
        ("layout", "Et*7|t*9L", "t*7|L"),
    ] {
        assert!(is(kind, &[good]) && !is(kind, &[bad]) && !is(kind, &[]), "{kind}");
    }
    assert!(is("switch", &[]) && !is("switch", &["true"]));
    assert!(is("some-of:a,b", &["b", "a"]) && !is("some-of:a,b", &["c"]));
}

/// Every argument of scripts that were looked at is of its kind.
#[test]
fn scripts_have_arguments_of_their_kinds() {
    let mut read = 0;
    for entry in fs::read_dir(root().join("tests/cases/export")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let target = name.rsplit('-').next().unwrap();
        let is_of_dynamo = name.contains("-dynamo");
        if ["megatron", "vllm", "sglang", "trtllm"].contains(&target) && !is_of_dynamo {
            held(target, &fs::read_to_string(path).unwrap());
            read += 1;
        }
    }
    assert!(read > 12, "{read}");
}

/// The names that stand in what a server is given: arguments, keys, and words of Python.
fn names(target: &str, text: &str) -> BTreeSet<String> {
    let python = |line: &str| -> Vec<String> {
        let named = line.split(['(', ',', ' ', ')']).filter_map(|it| it.split_once('='));
        let named = named.map(|it| it.0.to_owned()).filter(|it| *it == it.to_lowercase() && !it.is_empty());
        let styles = line.trim().strip_suffix("\",").and_then(|it| it.rsplit_once('"'));
        named.chain(styles.map(|it| it.1.to_owned())).collect()
    };
    let of_line = |line: &str| match line.trim() {
        it if it.starts_with('#') || it.starts_with("from ") => Vec::new(),
        _ if target == "hf" => python(line),
        it => {
            let words = it.split([' ', '(', ')']).filter(|word| word.starts_with("--") && word.len() > 2);
            let key = it
                .split_once(':')
                .map(|it| it.0)
                .filter(|it| it.chars().all(|c| c.is_lowercase() || c == '_'));
            words.chain(key).map(str::to_owned).collect()
        }
    };
    text.lines()
        .skip_while(|line| !line.starts_with("---- "))
        .filter(|line| !line.starts_with("---- "))
        .flat_map(of_line)
        .collect()
}

/// Every name that is written is one that the runtime has, and no other is listed.
#[test]
fn names_of_servers_are_known() {
    let known = fs::read_to_string(root().join("tests/cases/export/arguments.txt")).unwrap();
    for target in SERVERS {
        let rows = known.lines().filter_map(|line| line.strip_prefix(target)?.split(' ').nth(1));
        let known: BTreeSet<String> = rows.map(str::to_owned).collect();
        let mut used = BTreeSet::new();
        for case in ["heads", "experts", "groups", "units"] {
            let path = format!("tests/cases/export/served-{case}-{target}.txt");
            used.extend(names(target, &fs::read_to_string(root().join(path)).unwrap()));
        }
        assert_eq!(used, known, "{target}");
    }
}

/// The same of what trains with transformers.
#[test]
fn names_of_trainers_are_known() {
    let known = fs::read_to_string(root().join("tests/cases/export/arguments.txt")).unwrap();
    let rows = known.lines().filter_map(|line| line.strip_prefix("trainer ")?.split(' ').next());
    let known: BTreeSet<String> = rows.map(str::to_owned).collect();
    let mut used = BTreeSet::new();
    for case in ["tensor", "sharded", "experts"] {
        let path = root().join(format!("tests/cases/export/{case}-hf.txt"));
        used.extend(names("hf", &fs::read_to_string(path).unwrap()));
    }
    assert_eq!(used, known);
}

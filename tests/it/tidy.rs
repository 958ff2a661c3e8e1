//! The rules that the repository itself obeys.

mod circles; // which modules use each other
mod licences; // of what is built with
mod manifests; // what packages say of themselves
mod wildcards; // where operations are told apart
mod words; // that must not come back

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of a file of code.
const LONGEST_FILE: usize = 500;

/// The most lines of the architecture page.
const LONGEST_ARCHITECTURE: usize = 300;

/// The folders at the top of the repository, as paths in pages begin.
const TOP: [&str; 7] = ["planner-ir/", "cost-models/", "kernels/", "crates/", "tests/", "docs/", ".ci/"];

/// The headings of a decision record.
const RECORD: [&str; 4] = ["## Context", "## Decision", "## Rejected", "## What would change our mind"];

/// The repository.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below a folder whose name ends so, as paths from the root; build outputs aside.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !name.starts_with("target") && name != ".git" {
                folders.push(path);
            } else if path.is_file() && name.ends_with(ending) {
                found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort_unstable();
    found
}

/// Fails with everything that is wrong.
fn nothing(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The folders of all packages, by the names of the packages.
fn packages() -> BTreeMap<String, String> {
    let manifest = read("Cargo.toml");
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let name = |folder: &str| folder.rsplit('/').next().unwrap().to_owned();
    members.split('"').skip(1).step_by(2).map(|folder| (name(folder), folder.to_owned())).collect()
}

/// The keys of one section of a manifest.
fn dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    let lines = manifest.lines().map(str::trim).skip_while(|line| *line != section).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let key = |line: &str| line.split(['.', '=', ' ']).next().unwrap().to_owned();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(key).collect()
}

/// What each package depends on, in one section of the manifests.
fn edges(section: &str) -> BTreeMap<String, BTreeSet<String>> {
    let of = |folder: &String| dependencies(&read(&format!("{folder}/Cargo.toml")), section);
    packages().iter().map(|(name, folder)| (name.clone(), of(folder))).collect()
}

/// The cells of the rows of a page's table, below its head; the table is the one with this head.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let rows = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows: Vec<_> = rows.take_while(|line| line.starts_with('|')).map(cells).collect();
    assert!(!rows.is_empty(), "no table `{head}`");
    rows
}

/// Each name with everything that it leads to.
fn closure(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    let mut reached = edges.clone();
    loop {
        let further =
            |to: &BTreeSet<String>| to.iter().flat_map(|it| reached[it].clone()).collect::<Vec<_>>();
        let next: BTreeMap<String, BTreeSet<String>> = reached
            .iter()
            .map(|(from, to)| (from.clone(), to.iter().cloned().chain(further(to)).collect()))
            .collect();
        if next == reached {
            return reached;
        }
        reached = next;
    }
}

#[test]
fn packages_depend_on_each_other_as_the_architecture_says() {
    let packages = packages();
    let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in table(&read("docs/architecture.md"), "| path | what it holds |") {
        let name = row[0].trim_matches(['`', '/']).rsplit('/').next().unwrap().to_owned();
        if packages.contains_key(&name) {
            let to = match row[2].as_str() {
                "nothing" => BTreeSet::new(),
                "all of these" => said.keys().cloned().collect(),
                list => list.split(", ").map(str::to_owned).collect(),
            };
            said.insert(name, to);
        }
    }
    let inside = |section: &str| {
        let mut edges = edges(section);
        edges.values_mut().for_each(|to| to.retain(|it| packages.contains_key(it)));
        edges
    };
    let mut found = inside("[dependencies]");
    found.insert("tests".to_owned(), inside("[dev-dependencies]")["tests"].clone());
    assert_eq!(closure(&found), closure(&said));

    let mut for_tests = inside("[dev-dependencies]");
    for_tests.remove("tests");
    for_tests.retain(|_, to| !to.is_empty());
    let exception = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|&it| it.to_owned()).collect());
    // Rules are evaluated on numbers and tried on real models; programs come from plans, or are written
    // down with blocks that lie somewhere; stages are simulated; messages are told by their strategies.
    let exceptions = [
        exception("rewrite", &["import", "kernels"]),
        exception("search", &["train"]),
        exception("run", &["plan"]),
        exception("simulate", &["kernels"]),
        exception("autoparallel", &["model-zoo", "simulate"]),
        exception("shardloom", &["reshard"]),
    ];
    assert_eq!(for_tests, BTreeMap::from(exceptions));
}

#[test]
fn outside_packages_appear_only_in_their_homes() {
    let inside = packages();
    let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in table(&read("docs/architecture.md"), "| outside package |") {
        for package in row[0].split(", ") {
            let homes = row[1].split(", ").map(str::to_owned).collect();
            said.insert(package.trim_matches('`').to_owned(), homes);
        }
    }
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (home, to) in edges("[dependencies]") {
        for package in to.into_iter().filter(|it| !inside.contains_key(it)) {
            found.entry(package).or_default().insert(home.clone());
        }
    }
    assert_eq!(found, said);
}

#[test]
fn files_of_code_are_short_and_say_what_they_are() {
    let mut wrong = Vec::new();
    for path in files("", ".rs") {
        let text = read(&path);
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            wrong.push(format!("{path} has {lines} lines, expected {LONGEST_FILE} at most"));
        }
        if !text.starts_with("//! ") {
            wrong.push(format!("{path} does not begin with `//!`"));
        }
    }
    let lines = read("docs/architecture.md").lines().count();
    if lines > LONGEST_ARCHITECTURE {
        wrong
            .push(format!("docs/architecture.md has {lines} lines, expected {LONGEST_ARCHITECTURE} at most"));
    }
    nothing(&wrong);
}

#[test]
fn decisions_are_numbered_indexed_and_complete() {
    let index = read("docs/decisions/README.md");
    let records: Vec<String> =
        files("docs/decisions", ".md").into_iter().filter(|it| !it.ends_with("README.md")).collect();
    let mut wrong = Vec::new();
    for (number, path) in (1..).zip(&records) {
        let (name, text) = (path.rsplit('/').next().unwrap(), read(path));
        if !name.starts_with(&format!("{number:04}-")) {
            wrong.push(format!("{path}: expected number {number:04}"));
        }
        if !text.starts_with(&format!("# {number:04}: ")) {
            wrong.push(format!("{path} does not begin with its number"));
        }
        if !index.contains(&format!("- [{number:04}]({name}): ")) {
            wrong.push(format!("{path} is not in the index"));
        }
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        if headings != RECORD {
            wrong.push(format!("{path} has the headings {headings:?}, expected {RECORD:?}"));
        }
    }
    nothing(&wrong);
    assert!(!records.is_empty());
}

/// Whoever opens or writes files otherwise waits for pipes, or leaves halves of files.
#[test]
fn the_program_opens_and_writes_files_in_one_place_each() {
    let (ways, homes) = (
        ["File::open(", "fs::read(", "fs::read_to_string(", "File::create(", "fs::write(", "Mmap::map("],
        ["readable.rs", "written.rs", "mapped.rs"],
    );
    let mut wrong = Vec::new();
    let of_program = ["files", "launch", "autoparallel", "driver", "calibrate", "shardloom"]
        .map(|it| files(&format!("crates/{it}/src"), ".rs"))
        .concat();
    // Benchmarks write models for themselves.
    let is_other = |path: &String| path.contains("/bench") || path.contains("tests");
    for path in of_program.iter().filter(|path| !is_other(path)) {
        let home = homes.iter().any(|home| path.ends_with(&format!("/src/{home}")));
        let text = read(path);
        let lines = text.lines().filter(|line| ways.iter().any(|way| line.contains(way)));
        // Where random numbers come from is a device, and what the system says of itself is no file.
        wrong.extend(
            lines
                .filter(|it| !home && !it.contains("(RANDOM)") && !it.contains("(\"/proc/"))
                .map(|it| format!("{path}: {it}")),
        );
    }
    nothing(&wrong);
}

/// The pages of the repository.
fn pages() -> Vec<String> {
    files("docs", ".md").into_iter().chain(["README.md".to_owned()]).collect()
}

#[test]
fn paths_that_pages_name_exist() {
    let mut wrong = Vec::new();
    let mut named = 0;
    for page in pages() {
        let text = read(&page);
        let ends = |it: char| it.is_whitespace() || "`()[]\"',;|".contains(it);
        for word in text.split(ends).filter(|word| TOP.iter().any(|top| word.starts_with(top))) {
            named += 1;
            let path = word.trim_end_matches(['.', ':']);
            if !path.contains(['*', '<']) && !root().join(path).exists() {
                wrong.push(format!("{page} names {path}, which does not exist"));
            }
        }
    }
    nothing(&wrong);
    assert!(named > 20, "only {named} paths are named");
}

#[test]
fn links_of_pages_resolve() {
    let mut wrong = Vec::new();
    for page in pages() {
        let folder = Path::new(&page).parent().unwrap().to_owned();
        for target in read(&page).split("](").skip(1).filter_map(|it| it.split(')').next()) {
            let path = target.split('#').next().unwrap();
            let outside = target.starts_with("https://");
            if !outside && !path.is_empty() && !root().join(&folder).join(path).exists() {
                wrong.push(format!("{page} links to {target}, which does not exist"));
            }
        }
    }
    nothing(&wrong);
}

#[test]
fn the_table_of_contents_has_every_page_once_by_its_title() {
    let contents = read("docs/SUMMARY.md");
    let pages = files("docs", ".md").into_iter().filter(|it| it != "docs/SUMMARY.md");
    let line = |path: String| {
        let title = read(&path).lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
        format!("- [{title}]({})", path.trim_start_matches("docs/"))
    };
    let expected: BTreeSet<String> = pages.map(line).collect();
    let found: Vec<String> =
        contents.lines().map(|it| it.trim().to_owned()).filter(|it| it.starts_with("- ")).collect();
    let wrong = found.iter().filter(|it| !expected.contains(*it)).map(|it| format!("no such page: {it}"));
    let missing = expected.iter().filter(|it| found.iter().filter(|found| found == it).count() != 1);
    let missing = missing.map(|it| format!("docs/SUMMARY.md has not once: {it}"));
    nothing(&wrong.chain(missing).collect::<Vec<_>>());
}

/// What lies beside the repository may be tested with when it is there, and is needed for nothing.
#[test]
fn nothing_outside_the_repository_is_needed() {
    let (beside, absolute) = (concat!("../sha", "red"), concat!("/wo", "rk/"));
    let endings = [".rs", ".md", ".toml", ".json", ".jsonl", ".txt", ".ci/run"];
    let mut wrong = Vec::new();
    for path in endings.iter().flat_map(|ending| files("", ending)) {
        let text = read(&path);
        let is_test = path.starts_with("tests/") || path.contains("/tests");
        if text.contains(absolute) {
            wrong.push(format!("{path} names a path of one machine"));
        }
        if !is_test && text.contains(beside) {
            wrong.push(format!("{path} names what lies outside the repository"));
        }
    }
    nothing(&wrong);
}

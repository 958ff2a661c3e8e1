//! What NVRTC made of kernels of every family, in files: run where NVRTC is not there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use kernels::cuda::FAMILIES;

use super::cases::TRIALS;
use super::emulation::{ARCHITECTURES, compiler, parsed};
use super::trial::Trial;
use crate::corpus::expect_none;
use crate::cuda::known;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cases/ptx")
}

/// How to go on where a file is not what it should be.
const HOW: &str = "with NVRTC, which `.ci/run` gets, BLESS=1 cargo test -p tests ptx:: writes it";

/// For each family the trial with the shortest sources, each once, by the first family that it is for.
fn packed() -> BTreeMap<&'static str, &'static Trial> {
    let has = |trial: &Trial, family: &str| trial.work.launches.iter().any(|it| it.kernel.family() == family);
    let size = |trial: &&Trial| trial.work.launches.iter().map(|it| it.kernel.source.len()).sum::<usize>();
    let mut packed: BTreeMap<&'static str, &'static Trial> = BTreeMap::new();
    for family in FAMILIES {
        let trial = TRIALS.iter().filter(|it| has(it, family)).min_by_key(size);
        let trial = trial.unwrap_or_else(|| panic!("no case launches {family}"));
        if !packed.values().any(|it| std::ptr::eq(*it, trial)) {
            packed.insert(family, trial);
        }
    }
    packed
}

/// A text without comments and empty lines.
fn plain(text: &str) -> String {
    let lines = text.lines().map(|it| it.split("//").next().unwrap_or_default().trim_end());
    lines.filter(|it| !it.is_empty()).fold(String::new(), |mut all, line| {
        // Writing to a string does not fail.
        let _ = writeln!(all, "{line}");
        all
    })
}

/// What stands before each kernel of a file.
const HEAD: &str = ".version ";

/// The kernels of a file, by name.
fn read(text: &str) -> BTreeMap<String, String> {
    let parts = text.split(HEAD).filter(|it| !it.is_empty());
    let named = parts.map(|part| {
        let name = part.split_once(".visible .entry ").and_then(|it| it.1.split_once('('));
        (name.map(|it| it.0.to_owned()).unwrap_or_default(), format!("{HEAD}{part}"))
    });
    named.collect()
}

#[test]
fn kernels_of_every_family_compute_what_processors_do() {
    let (mut faults, mut count) = (Vec::new(), 0);
    for (family, trial) in packed() {
        let path = folder().join(format!("{family}.ptx"));
        let texts = read(&fs::read_to_string(&path).unwrap_or_default());
        if !trial.kernels().keys().eq(texts.keys()) {
            faults.push(format!("{} is not of today's kernels; {HOW}", path.display()));
            continue;
        }
        match trial.check(&parsed(&texts)) {
            Ok(instructions) => count += instructions,
            Err(fault) => faults.push(format!("{family}: {}: {fault}", trial.title)),
        }
    }
    println!("{count} instructions of warps");
    expect_none(&faults);
}

#[test]
fn files_are_what_the_compiler_makes() {
    let Some(nvrtc) = compiler() else { return };
    let mut faults = Vec::new();
    for (family, trial) in packed() {
        let path = folder().join(format!("{family}.ptx"));
        let kernels = trial.kernels();
        let texts = known::compiled(&nvrtc, ARCHITECTURES[0], &kernels.values().collect::<Vec<_>>());
        let text: String = texts.values().map(|it| plain(it)).collect();
        if std::env::var_os("BLESS").is_some() {
            fs::create_dir_all(folder()).unwrap();
            fs::write(&path, &text).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != text {
            faults.push(format!("{} is not what NVRTC makes; {HOW}", path.display()));
        }
    }
    expect_none(&faults);
}

//! Recipes of Megatron-Bridge as they are published, scored: a row of `docs/score.md` for each, beside what they took.

use std::fs;
use std::path::PathBuf;

use cost_models::machine::shipped;
use predict::kinds;
use predict::setup::Setup;

use crate::errors;
use crate::read::{self, Beside};
use crate::space::Runner;
use crate::told::priced;

const HEAD: &str = "| recipe | published | scored | with the version's year | error | memory | what is taken as something else |\n\
                    |---|---:|---:|---:|---:|---:|---|\n";

/// What stands after the table and what is said of bars.
const END: &str = "`score` prices the version";

/// Why a recipe is farther from what was published than runs of the framework are in the mean.
const WHY: [(&str, &str); 3] = [
    (
        "llama3_70b_64gpu_gb200_nvfp4",
        "releases of one year have published it with 7.35, 7.19, 6.69 and 6.74 s, as products of 4 bits became faster, and \
         their rate beside those of 8 bits, 1.29, is fitted to some of these: 60 % of the step are products, and with a \
         rate of 1.63 it would be as published; no host is waited for",
    ),
    (
        "qwen3_30b_a3b_16gpu_h100_fp8cs",
        "the time of a host to start experts is fitted to published runs that do not say what of them ran as graphs, and \
         some of it did: what graphs take off is taken off twice. A third of the step is waited for the host; \
         without graphs it would be priced 15.3 % too long",
    ),
    (
        "qwen3_30b_a3b_8gpu_b200_fp8mx",
        "the same; without graphs it would be priced 0.8 % too long, which two errors made",
    ),
];

fn at(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Which machine the name of a recipe is of.
fn machine(name: &str) -> String {
    let mut parts = name.rsplit('_').skip(1);
    let (gpu, count) = (parts.next().unwrap(), parts.next().unwrap());
    let gpu = match gpu {
        "h100" => "h100-80g",
        "b200" => "b200-180g",
        "gb200" => "gb200-186g",
        other => panic!("{name} is of {other}"),
    };
    format!("{gpu}-{}x", count.trim_end_matches("gpu"))
}

/// The row of a recipe, and its error (percent).
fn row(name: &str) -> (String, f64) {
    let text = fs::read_to_string(at("tests/cases/score/bridge").join(format!("{name}.yaml"))).unwrap();
    let words = text.split("# published: ").nth(1).unwrap();
    let published: f64 = words.split(' ').next().unwrap().parse().unwrap();
    // A release is called by its year and month.
    let year: u64 = words.split('(').nth(1).unwrap().split('.').next().unwrap().parse().unwrap();
    let machine = shipped::named(&machine(name)).unwrap();
    let devices = machine.devices();
    let beside = Beside { devices: Some(devices), ..Beside::default() };
    let read = read::read(Runner::Bridge, &text, &beside).unwrap();
    assert!(read.strange.is_empty(), "{name}: {:?}", read.strange);
    let there = priced(Runner::Bridge, &text, &beside, vec![(machine, devices)]).unwrap();
    let seconds = there.time.total().0;
    let setup = Setup { year: Some(2000 + year), ..there.setup.clone() };
    let of_year = kinds::answer(&setup, &there.kinds).unwrap().time.total().0;
    let error = 100.0 * (of_year / published - 1.0);
    let fits = if there.fits { "" } else { ", does not fit" };
    let taken: Vec<String> =
        read.taken.iter().map(|it| format!("`{}`", it.0.replace("model.", "").replace('"', ""))).collect();
    let row = format!(
        "| {name} | {published:.2} s | {seconds:.2} s | {of_year:.2} s | {error:+.1} % | {:.1} GB{fits} | {} |\n",
        there.held / 1e9,
        taken.join(", ")
    );
    (row, error)
}

/// The table of the page is made of the files, half of the recipes are within 10 %, and of those beyond what `score`
/// gives or takes the page says why.
#[test]
fn recipes_are_scored_as_the_page_says() {
    let mut names: Vec<String> = fs::read_dir(at("tests/cases/score/bridge"))
        .unwrap()
        .map(|it| it.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort_unstable();
    let rows: Vec<(String, f64)> = names.iter().map(|name| row(name)).collect();
    let mut errors: Vec<f64> = rows.iter().map(|it| it.1.abs()).collect();
    errors.sort_unstable_by(f64::total_cmp);
    assert!(errors[errors.len() / 2] < 10.0, "{errors:?}");
    let page = fs::read_to_string(at("docs/score.md")).unwrap();
    let (before, rest) = page.split_once(HEAD).unwrap();
    let after = &rest[rest.find(END).unwrap()..];
    let bar = errors::together(&errors::of_steps(Runner::Bridge)).unwrap();
    let beyond: Vec<&str> =
        names.iter().zip(&rows).filter(|it| it.1.1.abs() > bar).map(|it| it.0.as_str()).collect();
    let told: Vec<&str> = WHY.iter().map(|it| it.0).collect();
    assert_eq!(beyond, told, "recipes beyond {bar:.1} %, and those of which it is said why");
    let why: String = WHY.iter().map(|(name, why)| format!("- {name}: {why}.\n")).collect();
    let within = rows.len() - beyond.len();
    let bars = format!(
        "{within} of {} recipes are within {bar:.1} %, the mean error of published runs that `score` gives or takes. The \
         others are not:\n\n{why}",
        rows.len()
    );
    let table: String = rows.into_iter().map(|it| it.0).collect();
    let expected = format!("{before}{HEAD}{table}\n{bars}\n{after}");
    if page != expected && std::env::var_os("BLESS").is_some() {
        return fs::write(at("docs/score.md"), expected).unwrap();
    }
    assert!(page == expected, "docs/score.md has another table (BLESS=1 rewrites it), expected\n{table}");
}

//! Recipes of Megatron-Bridge as they are published, scored: a row of `docs/score.md` for each, beside what they took.

use std::fs;
use std::path::PathBuf;

use cost_models::machine::shipped;
use predict::kinds;
use predict::setup::Setup;

use crate::read::{self, Beside};
use crate::space::Runner;
use crate::told::priced;

const HEAD: &str = "| recipe | published | scored | with the version's year | error | memory | what is taken as something else |\n\
                    |---|---:|---:|---:|---:|---:|---|\n";

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

/// The table of the page is made of the files, and half of the recipes are within 10 %.
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
    let old: usize = rest.lines().take_while(|it| it.starts_with('|')).map(|it| it.len() + 1).sum();
    let after = &rest[old..];
    let table: String = rows.into_iter().map(|it| it.0).collect();
    let expected = format!("{before}{HEAD}{table}{after}");
    if page != expected && std::env::var_os("BLESS").is_some() {
        return fs::write(at("docs/score.md"), expected).unwrap();
    }
    assert!(page == expected, "docs/score.md has another table (BLESS=1 rewrites it), expected\n{table}");
}

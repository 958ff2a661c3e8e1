//! Files of measured operations: what is read, priced, fitted and refused.

use std::io::Read as _;
use std::path::Path;

use cost_models::machine::shipped;

use super::*;
use crate::outside::{outside, root};

const HEAD: &str = "gpu,gemm_dtype,m,n,k,ms_median,ms_min,measurements\n";

fn gemm(rows: &str) -> Result<Vec<Line>, String> {
    lines("gemm.csv", &format!("{HEAD}{rows}")).map(Option::unwrap).map_err(|error| error.to_string())
}

#[test]
fn a_line_is_priced_or_says_why_not() {
    let lines = gemm(
        "h100_sxm,bfloat16,4096,4096,4096,0.2,0.2,1\nh100_sxm,fp3,1,32,32,0.1,0.1,1\nb60,bfloat16,1,32,32,0.1,0.1,1\n",
    );
    let lines = lines.unwrap();
    let machines = Machines::shipped();
    let priced = machines.price(&lines[0]).unwrap();
    // 137 billion operations at 740 trillion a second.
    assert!(
        (1.5e-4..2.5e-4).contains(&priced.predicted) && (priced.measured - 2e-4).abs() < 1e-12,
        "{priced:?}"
    );
    assert_eq!((lines[0].row, lines[1].row, lines[0].format.as_str()), (0, 1, "bfloat16"));
    assert_eq!(machines.price(&lines[1]).unwrap_err(), "no format `fp3` is known");
    assert_eq!(machines.price(&lines[2]).unwrap_err(), "no machine file for device `b60`");
}

#[test]
fn what_is_wrong_with_a_file_is_said_in_one_line() {
    assert_eq!(
        gemm("h100_sxm,bfloat16,-1,32,32,0.1,0.1,1\n").unwrap_err(),
        "gemm.csv, line 2, column `m`: `-1`, expected a whole number"
    );
    assert_eq!(
        gemm("h100_sxm,bfloat16,0,32,32,0.1,0.1,1\n").unwrap_err(),
        "gemm.csv, line 2, column `m`: `0`, expected a whole number above 0"
    );
    for time in ["fast", "nan", "", "0", "-1", "inf"] {
        let message = gemm(&format!("h100_sxm,bfloat16,1,32,32,{time},0.1,1\n")).unwrap_err();
        assert!(message.starts_with("gemm.csv, line 2, column `ms_median`"), "{message}");
    }
    assert!(gemm("h100_sxm,bfloat16,1\n").unwrap_err().starts_with("gemm.csv: "));
    let message = lines("moe.csv", HEAD).unwrap_err().to_string();
    assert_eq!(message, "moe.csv: no column `moe_dtype`");
    assert_eq!(lines("other.csv", HEAD), Ok(None));
}

/// Lines of products whose times are by a law that has to be found again.
#[test]
fn a_planted_law_is_found() {
    let machines = Machines::shipped();
    let (mut rows, sizes) = (String::new(), [64_u64, 128, 256, 512, 1024, 2048, 4096, 8192]);
    for m in sizes {
        for n in sizes {
            for k in sizes {
                let [work, bytes] =
                    [2 * m * n * k, 2 * (m * k + k * n + m * n)].map(cost_models::units::exact);
                let slow = if n < 512 { 1.3 } else { 1.0 };
                let time = (5e-3 + (work / 5e11).max(bytes / 2e9)) * slow;
                rows.push_str(&format!("h100_sxm,bfloat16,{m},{n},{k},{time},1,1\n"));
            }
        }
    }
    let lines = gemm(&rows).unwrap();
    let found = fits(&lines, &machines, "a test");
    assert_eq!((found.len(), found[0].name.as_str()), (1, "gemm bfloat16"));
    let judged = found[0].judged.unwrap();
    assert!(judged.rows > 90 && judged.median < 0.02 && judged.tenth < 0.06, "{judged:?}");
    let again = fits(&lines, &machines, "a test");
    assert_eq!(found[0].law, again[0].law);
    // The law goes into a file, which says the same afterwards, and out again for another one.
    let text = shipped::text("h100-80g").unwrap();
    let laws = [("gemm bfloat16".to_owned(), found[0].law.clone())];
    let made = with_laws("h100-80g", text, &laws).unwrap();
    let read = cost_models::machine::json::read("made", &made).unwrap();
    assert_eq!(read.device.operations["gemm bfloat16"], found[0].law);
    let before = shipped::named("h100-80g-1x").unwrap();
    assert_eq!(read.device.operations.len(), before.device.operations.len());
    let old = [("gemm bfloat16".to_owned(), before.device.operations["gemm bfloat16"].clone())];
    assert_eq!(with_laws("h100-80g", &made, &old).unwrap(), text);
}

#[test]
fn the_sample_of_each_kind_of_file_is_priced_near_enough() {
    let (folder, machines) = (root().join("tests/cases/operations"), Machines::shipped());
    for kind in &KINDS {
        let name = format!("{}.csv", kind.name);
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        let lines = read(&name, kind, &text).unwrap();
        let off = lines.iter().map(|line| machines.price(line).map(|it| it.predicted / it.measured - 1.0));
        let off: Vec<f64> = off.collect::<Result<_, _>>().unwrap();
        let found = errors::errors(off.into_iter()).unwrap();
        assert!(found.rows >= 20 && found.median < 0.15, "{name}: {found:?}");
    }
}

/// Compares a file with what it should be, or writes it where `BLESS` is set.
fn compare(path: &Path, expected: &str) {
    if std::fs::read_to_string(path).is_ok_and(|found| found == expected) {
        return;
    }
    let blessed = std::env::var_os("BLESS").is_some();
    assert!(blessed, "{} is not what laws give now (BLESS=1 writes it)", path.display());
    std::fs::write(path, expected).unwrap();
}

#[test]
fn the_page_is_what_laws_give() {
    let Some(data) = outside("reference/data/silicon") else { return };
    let machines = Machines::shipped();
    let mut priced = Vec::new();
    let mut names: Vec<String> = KINDS.iter().map(|kind| format!("{}.csv.gz", kind.name)).collect();
    names.push("serving.csv.gz".to_owned());
    for name in names {
        let (packed, mut text) = (std::fs::read(data.join(&name)).unwrap(), String::new());
        flate2::read::MultiGzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        for line in lines(&name, &text).unwrap().unwrap() {
            let answer = machines.price(&line);
            priced.push((line, answer));
        }
    }
    compare(&root().join("docs/operation-validation.md"), &page(&groups(&priced)));
}

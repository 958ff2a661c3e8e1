//! Errors and pages of made-up rows.

use super::{Line, Times, page, sources, table};

fn line(row: &str, source: &str, answer: Result<(f64, Result<f64, String>, f64), String>) -> Line {
    let times = |(planned, simulated, predicted)| Times {
        planned,
        simulated,
        predicted,
        measured: 10.0,
        devices: 8,
        planned_terms: vec![("matrix products".to_owned(), planned)],
        framework_terms: vec![("attention".to_owned(), 1.0), ("step overhead".to_owned(), -0.5)],
        predicted_terms: vec![("products".to_owned(), predicted)],
    };
    Line {
        file: "training_throughput.csv".to_owned(),
        row: row.to_owned(),
        source: source.to_owned(),
        gpu: "H100-SXM5-80GB".to_owned(),
        answer: answer.map(times),
    }
}

fn lines() -> Vec<Line> {
    vec![
        line("t1", "mine", Ok((9.0, Ok(9.9), 10.5))),
        line("t2", "mine", Ok((12.0, Err("too large".to_owned()), 10.0))),
        line("t3", "other", Ok((10.0, Ok(10.0), 8.0))),
        line("t4", "other", Err("adapters | are not planned".to_owned())),
    ]
}

#[test]
fn errors_are_of_each_source_and_of_all() {
    let found = sources(&lines());
    let of = |number: usize, sayer: usize| {
        found[number].errors[sayer].as_ref().map(|it| (it.rows, it.median, it.bias))
    };
    let near = |found: Option<(usize, f64, f64)>, rows: usize, median: f64, bias: f64| {
        let it = found.unwrap();
        assert!(it.0 == rows && (it.1 - median).abs() < 1e-9 && (it.2 - bias).abs() < 1e-9, "{it:?}");
    };
    assert_eq!(found.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["mine", "other", "all"]);
    near(of(0, 0), 2, 0.15, 0.05);
    near(of(0, 1), 1, 0.01, -0.01);
    near(of(0, 2), 2, 0.15, 0.1);
    near(of(0, 3), 2, 0.025, 0.025);
    near(of(2, 0), 3, 0.1, 0.1 / 3.0);
    near(of(2, 1), 2, 0.005, -0.005);
    assert!((found[0].apart.unwrap() - 0.1).abs() < 1e-9 && found[1].apart.unwrap() < 1e-9);
}

#[test]
fn rows_without_times_are_said_with_the_reason() {
    assert!(table(&lines()).contains("skipped    1  adapters | are not planned"), "{}", table(&lines()));
    let page = page(&lines());
    assert!(page.contains("| 1 | adapters \\| are not planned |"), "{page}");
    assert!(page.contains(
        "| t2 | mine | 8 x H100-SXM5-80GB | 12.000 s | too large | 12.500 s | 10.000 s | 10.000 s | +20.0 % | +25.0 % |"
    ));
    assert!(!page.contains("| t4 |"), "{page}");
}

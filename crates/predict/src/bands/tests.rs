//! Times that do not shrink, against all of them; bands of rows.

use arbtest::arbtest;

use super::*;
use crate::rows::Answer;

fn error(times: &[f64], curve: &[(u64, f64)]) -> f64 {
    times.iter().zip(curve).map(|(time, (_, measured))| (time / measured - 1.0).abs()).sum()
}

/// The least error of times that do not shrink, by trying all measured times everywhere.
fn least(curve: &[(u64, f64)], from: f64) -> f64 {
    let Some(&(size, _)) = curve.first() else { return 0.0 };
    let same = curve.iter().take_while(|row| row.0 == size).count();
    let (now, later) = curve.split_at(same);
    let times = curve.iter().map(|row| row.1).chain([from]).filter(|time| *time >= from);
    times.map(|time| error(&vec![time; same], now) + least(later, time)).fold(f64::INFINITY, f64::min)
}

#[test]
fn no_times_that_do_not_shrink_are_nearer() {
    arbtest(|u| {
        let count = u.int_in_range(1..=6)?;
        let mut curve = Vec::new();
        for _ in 0..count {
            curve.push((u.int_in_range(1..=4)?, f64::from(u.int_in_range(1..=9)?)));
        }
        curve.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let found = nearest(&curve);
        assert_eq!(found.len(), curve.len());
        for (rows, times) in curve.windows(2).zip(found.windows(2)) {
            assert!(times[0] < times[1] || times[0].total_cmp(&times[1]).is_eq(), "{curve:?} {found:?}");
            assert!(rows[0].0 != rows[1].0 || times[0].total_cmp(&times[1]).is_eq(), "{curve:?} {found:?}");
        }
        let expected = least(&curve, 0.0);
        assert!((error(&found, &curve) - expected).abs() < 1e-9, "{curve:?} {found:?} {expected}");
        Ok(())
    });
}

fn outcome(bytes: u64, predicted: f64, measured: f64, curve: Option<&str>) -> Outcome {
    let exchange = Some(Exchange { bytes, curve: curve.map(str::to_owned) });
    let answer = Answer::Priced(Priced { exchange, ..Priced::new(predicted, measured) });
    Outcome { file: String::new(), row_id: String::new(), source: String::new(), answer }
}

#[test]
fn rows_are_in_the_band_of_their_size() {
    let rows = [
        outcome(1024, 3.0, 2.0, Some("a")),
        // Smaller than what is before, and on another curve: alone, it is met.
        outcome(1025, 1.0, 1.0, Some("b")),
        outcome(1 << 16, 1.0, 1.0, Some("a")),
        outcome(1 << 33, 1.0, 2.0, None),
    ];
    let found = bands(&rows);
    let names: Vec<(&str, usize)> = found.iter().map(|it| (it.name, it.errors.rows)).collect();
    assert_eq!(names, [("8 B to 1 KiB", 1), ("to 64 KiB", 2), ("above", 1)]);
    // Of 2 and then 1, both are taken as 1: half of the first is missing.
    assert_eq!(found.iter().map(|it| it.least).collect::<Vec<_>>(), [Some(0.5), Some(0.0), None]);
    assert!((found[0].errors.mean - 0.5).abs() < 1e-12);
    assert_eq!(bands(&[]), []);
}

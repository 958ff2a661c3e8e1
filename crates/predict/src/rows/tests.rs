//! Errors on the two halves of published rows: prices are fitted on one and judged on the other.

mod goals; // goals of prices on published rows
#[path = "../../../../tests/outside.rs"]
#[expect(dead_code, reason = "models are for other packages")]
mod outside; // what may lie outside the repository

use std::collections::BTreeMap;

use outside::outside;

use super::{Answer, Kind, Priced, comparable, outcomes};

/// Which half a row is in.
///
/// FNV-1a of its id, times 2⁶⁴/φ: the topmost bit.
fn half(row_id: &str) -> usize {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = row_id.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    usize::from(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1)
}

/// What comes of the only row of a text.
pub(super) fn answer(kind: &dyn Kind, text: &str) -> Answer {
    outcomes(kind, text).unwrap().into_iter().next().unwrap().answer
}

/// The price of a row that has one.
pub(super) fn predicted(answer: Answer) -> f64 {
    match answer {
        Answer::Priced(priced) => priced.predicted,
        other => panic!("{other:?}"),
    }
}

/// What is held against what was measured is a number that can be; nothing beside nothing is right.
#[test]
fn prices_and_measurements_of_nothing_are_not_compared() {
    let skipped =
        |predicted: f64, measured: f64| match comparable(Answer::Priced(Priced::new(predicted, measured))) {
            Answer::Skipped(why) => Some(why),
            _ => None,
        };
    assert_eq!(skipped(1.0, 2.0), None);
    assert_eq!(skipped(0.0, 2.0).unwrap(), "the price of what is stated is 0");
    assert_eq!(skipped(f64::INFINITY, 2.0).unwrap(), "the price of what is stated is inf");
    assert_eq!(skipped(1.0, 0.0).unwrap(), "0 was measured, expected more than nothing");
    assert!(skipped(1.0, f64::NAN).is_some() && skipped(f64::NAN, 1.0).is_some());
    assert_eq!((skipped(0.0, 0.0), Priced::new(0.0, 0.0).error()), (None, 0.0));
}

/// The mean errors on both halves, with the number of rows, by source; `None` where no data are outside.
pub(super) fn errors(kind: &dyn Kind) -> Option<BTreeMap<String, [(f64, usize); 2]>> {
    let path = outside(&format!("reference/data/validation/{}", kind.file()))?;
    let text = std::fs::read_to_string(path).unwrap();
    let mut sums: BTreeMap<String, [(f64, usize); 2]> = BTreeMap::new();
    let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in outcomes(kind, &text).unwrap() {
        if let Answer::Skipped(why) = &outcome.answer {
            *skipped.entry(format!("{}: {why}", outcome.source)).or_default() += 1;
        }
        let Answer::Priced(priced) = &outcome.answer else { continue };
        let (sum, count) = &mut sums.entry(outcome.source).or_default()[half(&outcome.row_id)];
        *sum += priced.error();
        *count += 1;
    }
    for (source, halves) in &mut sums {
        for (sum, count) in &mut *halves {
            *sum /= f64::from(u32::try_from((*count).max(1)).unwrap());
        }
        let [fitted, kept] = halves.map(|(mean, count)| format!("{:.1} % of {count}", 100.0 * mean));
        println!("{source:28} fitted half {fitted:14} other half {kept}");
    }
    for (why, count) in skipped {
        println!("{count} rows of {why}");
    }
    Some(sums)
}

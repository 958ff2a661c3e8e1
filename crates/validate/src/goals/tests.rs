//! Goals are met or not by what rows say.

use predict::rows::Failed;

use super::*;

fn outcome(file: &str, answer: Answer) -> Outcome {
    Outcome { file: file.to_owned(), row_id: "r".to_owned(), source: "mtnlg_530b".to_owned(), answer }
}

fn priced(file: &str, predicted: f64, fits: Option<bool>) -> Outcome {
    outcome(file, Answer::Priced(Priced { fits, ..Priced::new(predicted, 1.0) }))
}

fn failed(fits: bool) -> Outcome {
    outcome(STEPS, Answer::Failed(Failed { predicted: 1.0, fits, why: String::new() }))
}

#[test]
fn goals_are_met_by_what_is_near_enough() {
    let near = [
        priced(STEPS, 1.05, Some(true)),
        priced("memory_rows.csv", 1.07, None),
        priced("collective_rows.csv", 0.9, None),
        failed(false),
    ];
    let text = table(&near);
    assert_eq!((text.matches("| met |").count(), text.matches("| not met |").count()), (6, 0), "{text}");
    assert!(text.contains("| mtnlg_530b | 5.0 % | 29.7 % | 8.5 % |"), "{text}");
    let far = [
        priced(STEPS, 1.2, Some(false)),
        priced("memory_rows.csv", 1.09, None),
        priced("collective_rows.csv", 0.8, None),
        failed(true),
    ];
    let text = table(&far);
    assert_eq!((text.matches("| met |").count(), text.matches("| not met |").count()), (0, 6), "{text}");
    assert_eq!(verdicts(&far), [(1, 1), (0, 1)]);
    assert_eq!(table(&[]), "");
}

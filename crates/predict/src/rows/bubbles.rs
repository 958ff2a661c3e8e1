//! `simulator_bubble_unit_tests.csv`: bubbles of pipelines whose times of passes are given.
//!
//! The bubble's part of a step is that of what is not work in the longest time of a stage.

use ::schedule::{Kind, StageTimes, bubble};

use super::{Answer, Priced};
use crate::schedule::{real, waiting};
use crate::table::{Row, TableError};

/// Bubbles of pipelines.
pub struct Bubbles;

/// Layers of the models that rows name, embedding and logits counted as layers: each is a part of
/// an interleaved stage.
///
/// Source: Qi et al., ICLR 2024, table 3.
const LAYERS: [(&str, u64); 4] = [("1.5B", 24), ("6.2B", 32), ("14.6B", 48), ("28.3B", 64)];

impl super::Kind for Bubbles {
    fn file(&self) -> &'static str {
        "simulator_bubble_unit_tests.csv"
    }

    fn columns(&self) -> &'static [&'static str] {
        &["model", "p", "m", "TF", "TB", "TW", "Tcomm", "schedule", "bubble_rate"]
    }

    fn price(&self, row: &Row<'_>) -> Result<Answer, TableError> {
        let columns = ["TF", "TB", "TW", "Tcomm", "bubble_rate"];
        let mut found = [0.0; 5];
        for (place, column) in columns.into_iter().enumerate() {
            match row.number(column)? {
                Some(number) => found[place] = number,
                None => return Ok(unstated(column)),
            }
        }
        let [forward, backward, weight, message, measured] = found;
        let Some(groups) = row.count("p")? else { return Ok(unstated("p")) };
        let Some(micro_batches) = row.count("m")? else { return Ok(unstated("m")) };
        let layers = LAYERS.iter().find(|(model, _)| *model == row.text("model"));
        let (kind, chunks) = match row.text("schedule") {
            "1F1B" => (Kind::OneForwardOneBackward, 1),
            "1F1B-I" => match layers.and_then(|(_, layers)| layers.checked_div(groups)) {
                Some(chunks) => (Kind::Interleaved, chunks),
                None => return Ok(Answer::Skipped("how many parts a stage has is not known".to_owned())),
            },
            "ZB-H1" | "ZB-1p" => (Kind::ZeroBubbleH1, 1),
            "ZB-H2" => (Kind::ZeroBubbleH2, 1),
            other => {
                return Ok(Answer::Skipped(format!("`{other}` is found by a search: it has no closed form")));
            }
        };
        let sizes = [groups, chunks, micro_batches].map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let [forward, backward, weight] = [forward, backward, weight].map(|time| time / real(sizes[1]));
        let times = StageTimes { forward, backward, weight };
        let idle = bubble(kind, sizes[0], &times) + waiting(kind, sizes, &times, message);
        let work = real(sizes[1]) * real(sizes[2]) * times.total();
        Ok(Answer::Priced(Priced::new(idle / (work + idle), measured)))
    }
}

fn unstated(column: &str) -> Answer {
    Answer::Skipped(format!("`{column}` is not stated"))
}

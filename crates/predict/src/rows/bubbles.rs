//! `simulator_bubble_unit_tests.csv`: bubbles of pipelines whose times of passes are given.
//!
//! The bubble's part of a step is `1 − m T / makespan`.

use super::{Answer, Kind, Priced};
use crate::schedule::{Order, Stage, makespan};
use crate::table::{Row, TableError};

/// Bubbles of pipelines.
pub struct Bubbles;

/// Layers of the models that rows name, embedding and logits counted as layers: each is a part of
/// an interleaved stage.
///
/// Source: Qi et al., ICLR 2024, table 3.
const LAYERS: [(&str, f64); 4] = [("1.5B", 24.0), ("6.2B", 32.0), ("14.6B", 48.0), ("28.3B", 64.0)];

impl Kind for Bubbles {
    fn file(&self) -> &'static str {
        "simulator_bubble_unit_tests.csv"
    }

    fn columns(&self) -> &'static [&'static str] {
        &["model", "p", "m", "TF", "TB", "TW", "Tcomm", "schedule", "bubble_rate"]
    }

    fn price(&self, row: &Row<'_>) -> Result<Answer, TableError> {
        let columns = ["p", "m", "TF", "TB", "TW", "Tcomm", "bubble_rate"];
        let numbers = columns.map(|column| row.number(column));
        let mut found = [0.0; 7];
        for (place, number) in numbers.into_iter().enumerate() {
            match number? {
                Some(number) => found[place] = number,
                None => return Ok(Answer::Skipped(format!("`{}` is not stated", columns[place]))),
            }
        }
        let [p, m, forward, input, weight, message, measured] = found;
        let layers = LAYERS.iter().find(|(model, _)| *model == row.text("model"));
        let order = match row.text("schedule") {
            "1F1B" => Order::OneForwardOneBackward,
            "1F1B-I" => match layers {
                Some((_, layers)) => Order::Interleaved(layers / p),
                None => return Ok(Answer::Skipped("how many parts a stage has is not known".to_owned())),
            },
            "ZB-H1" | "ZB-1p" => Order::ZeroBubbleH1,
            "ZB-H2" => Order::ZeroBubbleH2,
            other => {
                return Ok(Answer::Skipped(format!("`{other}` is found by a search: it has no closed form")));
            }
        };
        let stage = Stage { forward, input, weight, message };
        let bubble = 1.0 - m * stage.whole() / makespan(order, &stage, p, m);
        Ok(Answer::Priced(Priced::new(bubble, measured)))
    }
}

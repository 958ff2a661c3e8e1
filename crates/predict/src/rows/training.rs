//! `training_throughput.csv`: times of steps (seconds).

use super::case::{Case, Told};
use super::{Answer, Failed, Kind, Priced};
use crate::memory::words;
use crate::stated::Unstated;
use crate::table::{Row, TableError};

/// Times of steps.
pub struct Training;

impl Kind for Training {
    fn file(&self) -> &'static str {
        "training_throughput.csv"
    }

    fn columns(&self) -> &'static [&'static str] {
        &[
            "row_id",
            "source",
            "gpu",
            "n_gpus",
            "framework",
            "layers",
            "hidden",
            "heads",
            "seq",
            "gbs",
            "mbs",
            "tp",
            "pp",
            "vpp",
            "dp",
            "step_time_s",
        ]
    }

    fn price(&self, row: &Row<'_>) -> Result<Answer, TableError> {
        let measured = row.number("step_time_s")?.filter(|it| it.is_finite() && *it > 0.0);
        let failed = row.text("split").contains("oom") || row.text("metric_name") == "failed";
        if measured.is_none() && !failed {
            return Ok(Answer::Skipped("no step time was measured".to_owned()));
        }
        let told = match Case::of(row).and_then(|case| case.told()) {
            Ok(told) => told,
            Err(Unstated::Field(error)) => return Err(error),
            Err(Unstated::Why(why)) => return Ok(Answer::Skipped(why)),
        };
        Ok(match measured {
            Some(measured) => Answer::Priced(Priced {
                fits: Some(told.fits),
                sweep: Some(sweep(row)),
                apart: apart(row),
                ..Priced::new(told.time.total().0, measured)
            }),
            None => Answer::Failed(refused(&told, told.time.total().0)),
        })
    }
}

/// What we say of a run that failed, in numbers and in words.
pub(super) fn refused(told: &Told, predicted: f64) -> Failed {
    let (needs, room) = (words(told.held.total()), words(told.room));
    let verdict = if told.fits { "fits" } else { "does not fit" };
    Failed {
        predicted,
        fits: told.fits,
        why: format!("the run failed; {needs} of {room} a device: {verdict}"),
    }
}

/// Rows of one sweep: the same model by the same people on the same device.
fn sweep(row: &Row<'_>) -> String {
    ["source", "gpu", "model"].map(|column| row.text(column)).join(", ")
}

/// Why a row is reported apart: it is noisy, or of one of two sweeps that would outweigh all else.
#[must_use]
pub fn apart(row: &Row<'_>) -> Option<String> {
    let (source, quality) = (row.text("source"), row.text("quality"));
    if row.text("split") == "reference" || quality == "C" {
        Some("incomplete or noisy".to_owned())
    } else if source.starts_with("amp_t4") || row.text("gpu").starts_with("T4") {
        Some("T4".to_owned())
    } else if source.starts_with("vtrain_single") {
        Some("single node".to_owned())
    } else {
        None
    }
}

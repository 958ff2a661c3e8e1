//! `memory_rows.csv`: bytes that ranks held, in the row's unit, and setups that ran out of memory.

use cost_models::units::exact;

use super::case::Case;
use super::training::{apart, refused};
use super::{Answer, Kind, Priced};
use crate::memory::{in_flight, layer_activations};
use crate::setup::{Attention, Recompute, Setup};
use crate::stated::{self, Unstated};
use crate::table::{Row, TableError};

/// Peaks of memory.
pub struct MemoryRows;

impl Kind for MemoryRows {
    fn file(&self) -> &'static str {
        "memory_rows.csv"
    }

    fn columns(&self) -> &'static [&'static str] {
        &[
            "row_id",
            "source",
            "gpu",
            "layers",
            "hidden",
            "heads",
            "seq",
            "tp",
            "pp",
            "mem_value",
            "unit",
            "mem_kind",
        ]
    }

    fn price(&self, row: &Row<'_>) -> Result<Answer, TableError> {
        match priced(row) {
            Ok(answer) => Ok(answer),
            Err(Unstated::Field(error)) => Err(error),
            Err(Unstated::Why(why)) => Ok(Answer::Skipped(why)),
        }
    }
}

fn priced(row: &Row<'_>) -> Result<Answer, Unstated> {
    let measured = row.number("mem_value")?.filter(|it| it.is_finite());
    let failed = row.text("fits") == "0";
    let kind = row.text("mem_kind");
    if kind.contains("formula") {
        let measured = measured.ok_or_else(|| Unstated::Why("`mem_value` is blank".to_owned()))?;
        return formula(row, kind, measured);
    }
    if measured.is_none() && !failed {
        return Err(Unstated::Why("no memory was measured".to_owned()));
    }
    let told = Case::of(row)?.told()?;
    let held = told.held.total() / unit(row)?;
    Ok(match measured {
        Some(measured) => {
            Answer::Priced(Priced { fits: Some(told.fits), apart: apart(row), ..Priced::new(held, measured) })
        }
        None => Answer::Failed(refused(&told, held)),
    })
}

/// Bytes of the row's unit.
fn unit(row: &Row<'_>) -> Result<f64, Unstated> {
    match row.text("unit") {
        "GB" => Ok(1e9),
        "GiB" => Ok(exact(1 << 30)),
        "MB" => Ok(1e6),
        "MiB" => Ok(exact(1 << 20)),
        other => Err(Unstated::Why(format!("unit `{other}`, expected GB, GiB, MB or MiB"))),
    }
}

/// Rows that are values of a paper's formulas: of layers alone, in 18 bytes a parameter, or what
/// they keep; or that in parts of what they keep where nothing is recomputed or split.
fn formula(row: &Row<'_>, kind: &str, measured: f64) -> Result<Answer, Unstated> {
    /// 16-bit weight, 32-bit gradient, master weight and two moments.
    const STATE_BYTES: f64 = 18.0;
    // The paper is of the times when scores were in memory.
    let setup = Setup { attention: Attention::Unfused, ..stated::setup(row)?.setup };
    let kept = |setup: &Setup| layer_activations(setup) * exact(setup.stages[0]) * in_flight(setup, 0);
    let predicted = if kind.starts_with("activation memory relative") {
        let base = Setup { recompute: Recompute::None, seq_parallel: false, ..setup.clone() };
        100.0 * kept(&setup) / kept(&base)
    } else if kind.starts_with("activations") {
        kept(&setup) / unit(row)?
    } else if kind.starts_with("params+grads+optimizer") {
        // The paper counts 12 h² for a layer.
        let layer = 12 * setup.model.hidden * setup.model.hidden;
        STATE_BYTES * exact(setup.model.layers * layer) / exact(setup.tp * setup.pp) / unit(row)?
    } else {
        return Err(Unstated::Why(format!("`{kind}` is no kind of memory that is known")));
    };
    Ok(Answer::Priced(Priced::new(predicted, measured)))
}

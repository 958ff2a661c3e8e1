//! `training_throughput.csv`: times of steps.

use cost_models::units::Seconds;

use super::{Answer, Kind, Priced};
use crate::cluster::Cluster;
use crate::device::machine_of;
use crate::framework::Framework;
use crate::pieces::Job;
use crate::setup::Setup;
use crate::stated::{self, Blank, Stated, Unstated};
use crate::step::step;
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
        let Some(measured) = row.number("step_time_s")?.filter(|it| it.is_finite()) else {
            return Ok(Answer::Skipped("no step time was measured".to_owned()));
        };
        match priced(row, &Framework::clone) {
            Ok(time) => Ok(Answer::Priced(Priced {
                sweep: Some(sweep(row)),
                apart: apart(row),
                ..Priced::new(time.0, measured)
            })),
            Err(Unstated::Field(error)) => Err(error),
            Err(Unstated::Why(why)) => Ok(Answer::Skipped(why)),
        }
    }
}

/// The time that a row's setup takes, in a framework that `with` may have changed.
pub fn priced(row: &Row<'_>, with: &dyn Fn(&Framework) -> Framework) -> Result<Seconds, Unstated> {
    let Stated { setup, mbs, vpp, links } = stated::setup(row)?;
    let machine = machine_of(row.text("gpu")).map_err(Unstated::Why)?;
    let source = format!("{}, {}", row.text("source"), row.text("row_id"));
    let cluster = Cluster::new(machine, &links, &source).map_err(|error| Unstated::Why(error.to_string()))?;
    let framework = stated::framework(row).map_err(|error| Unstated::Why(error.to_string()))?;
    let framework = with(&framework);
    let mut best: Option<Seconds> = None;
    for setup in filled(setup, mbs, vpp) {
        let job = Job::new(&setup, &framework, &cluster).map_err(|error| Unstated::Why(error.to_string()))?;
        let time = step(&job).total();
        best = Some(best.map_or(time, |best| best.min(time)));
    }
    best.ok_or_else(|| Unstated::Why("no micro-batch divides the batch".to_owned()))
}

/// The setups that open numbers leave.
fn filled(setup: Setup, mbs: Blank, vpp: Blank) -> Vec<Setup> {
    let sizes = if mbs == Blank::Open { vec![1, 2, 4, 8, 16] } else { vec![setup.mbs] };
    let each = setup.stages.iter().copied().max().unwrap_or(1);
    let parts: Vec<u64> = if vpp == Blank::Open {
        (1..=each).filter(|it| each.is_multiple_of(*it)).collect()
    } else {
        vec![setup.vpp]
    };
    let all = sizes.iter().flat_map(|&mbs| parts.iter().map(move |&vpp| (mbs, vpp)));
    let all = all.map(|(mbs, vpp)| Setup { mbs, vpp, ..setup.clone() });
    all.filter(|it| it.check().is_ok()).collect()
}

/// Rows of one sweep: the same model by the same people on the same device.
fn sweep(row: &Row<'_>) -> String {
    ["source", "gpu", "model"].map(|column| row.text(column)).join(", ")
}

/// Why a row counts for no goal.
fn apart(row: &Row<'_>) -> Option<String> {
    if row.text("split") == "reference" || row.text("quality") == "C" {
        Some("incomplete or noisy".to_owned())
    } else {
        None
    }
}

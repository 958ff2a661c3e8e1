//! `layer_times.csv`: times of a layer, or of a pipeline's stage, for one micro-batch
//! (milliseconds).

use cost_models::estimate::Estimate;
use cost_models::units::Bytes;

use super::{Answer, Kind, Priced};
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::framework::Framework;
use crate::layer;
use crate::model::even_stages;
use crate::pieces::{ELEMENT, Job};
use crate::setup::{Recompute, Setup};
use crate::stated::Unstated;
use crate::step::{assembled, stages};
use crate::table::{MOST, Row, TableError};

/// Times of layers.
pub struct Layers;

impl Kind for Layers {
    fn file(&self) -> &'static str {
        "layer_times.csv"
    }

    fn columns(&self) -> &'static [&'static str] {
        &["row_id", "gpu", "hidden", "heads", "seq", "mbs", "tp", "pp", "layers_per_unit", "op", "value_ms"]
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
    /// Milliseconds in a second.
    const MILLI: f64 = 1e3;
    let measured = row.number("value_ms")?;
    let measured = measured.ok_or_else(|| Unstated::Why("`value_ms` is blank".to_owned()))?;
    let why = |error: &dyn std::error::Error| Unstated::Why(error.to_string());
    let setup = setup(row)?;
    setup.check().map_err(|error| why(&error))?;
    let machine = machine_of(row.text("gpu")).map_err(Unstated::Why)?;
    let cluster =
        Cluster::new(machine, &Links::default(), row.text("source")).map_err(|error| why(&error))?;
    let framework = Framework::shipped("megatron-lm").map_err(|error| why(&error))?.on(&cluster.machine.name);
    let job = Job::new(&setup, &framework, &cluster).map_err(|error| why(&error))?;
    let times = if setup.pp > 1 {
        // A stage between the first and the last.
        stages(&job).swap_remove(1)
    } else {
        assembled(&job, &[(1.0, &layer::layer(&job))])
    };
    let op = row.text("op");
    let time: Estimate = if op.starts_with("layer_forward") || op.starts_with("T_F") {
        times.forward
    } else if op.starts_with("layer_backward") {
        times.input + times.weight
    } else if op.starts_with("T_B") {
        times.input
    } else if op.starts_with("T_W") {
        times.weight
    } else if op.starts_with("T_comm") {
        let value = Bytes(ELEMENT * setup.tokens() * setup.model.hidden / setup.tp);
        let time = cost_models::collective::send(&cluster.machine, &job.stage, value);
        Estimate::term("message", time)
    } else {
        return Err(Unstated::Why(format!("`{op}` is no part of a layer that is known")));
    };
    Ok(Answer::Priced(Priced::new(MILLI * time.total().0, measured)))
}

/// A Megatron GPT with the row's sizes.
fn setup(row: &Row<'_>) -> Result<Setup, Unstated> {
    let need = |column: &str| {
        let found = row.count(column)?.filter(|it| *it > 0);
        found.ok_or_else(|| Unstated::Why(format!("`{column}` is not stated")))
    };
    let pp = need("pp")?;
    // `24/8 (embedding & head counted as layers)`: so many on so many stages.
    let unit = row.text("layers_per_unit").split(' ').next().unwrap_or("");
    let (layers, parts) = unit.split_once('/').unwrap_or((unit, "1"));
    let each = layers.parse().ok().zip(parts.parse().ok());
    let each = each.filter(|&(layers, parts)| layers <= MOST && (1..=MOST).contains(&parts));
    let (layers, parts): (u64, u64) =
        each.ok_or_else(|| row.wrong("layers_per_unit", "layers, as `1` or `24/8`"))?;
    let all = if parts > 1 { layers.saturating_sub(2) } else { layers.saturating_mul(pp) };
    let again = match row.text("recompute") {
        "full" => Recompute::Full,
        "selective" => Recompute::Selective,
        _ => Recompute::None,
    };
    let gpt = crate::stated::gpt(all, need("hidden")?, need("heads")?, need("seq")?);
    Ok(Setup {
        tp: need("tp")?,
        pp,
        stages: even_stages(all, pp),
        mbs: need("mbs")?,
        gbs: need("mbs")?,
        seq_parallel: row.text("seq_parallel") == "1",
        recompute: again,
        ..gpt
    })
}

//! A row as setups on a cluster: more than one if the row leaves numbers open.

use cost_models::estimate::Estimate;

use crate::cluster::Cluster;
use crate::device::machine_of;
use crate::framework::{Figure, Framework};
use crate::memory::{self, Held};
use crate::pieces::Job;
use crate::setup::{Recompute, Setup};
use crate::stated::{self, Blank, Stated, Unstated};
use crate::step::step;
use crate::table::Row;

/// Sizes of micro-batches that are tried where none is stated.
const SIZES: [u64; 5] = [1, 2, 4, 8, 16];

/// What a row states.
#[derive(Clone, Debug)]
pub struct Case {
    /// The setups that it may mean.
    pub setups: Vec<Setup>,
    /// Whether what is computed again is left open.
    pub recompute: Blank,
    /// The framework.
    pub framework: Framework,
    /// The cluster.
    pub cluster: Cluster,
}

/// The setup that a row means, with its price.
#[derive(Clone, Debug)]
pub struct Told {
    /// The time of a step.
    pub time: Estimate,
    /// What a rank holds.
    pub held: Held,
    /// Whether that fits.
    pub fits: bool,
    /// What there is room for (bytes).
    pub room: f64,
    /// The setup.
    pub setup: Setup,
}

impl Case {
    /// What a row states.
    pub fn of(row: &Row<'_>) -> Result<Self, Unstated> {
        let Stated { setup, mbs, vpp, recompute, links } = stated::setup(row)?;
        let mut machine = machine_of(row.text("gpu")).map_err(Unstated::Why)?;
        let source = format!("{}, {}", row.text("source"), row.text("row_id"));
        let why = |error: &dyn std::error::Error| Unstated::Why(error.to_string());
        stated::chip::chip(row, &machine)?.set(&mut machine, &source).map_err(|error| why(&error))?;
        let cluster = Cluster::new(machine, &links, &source).map_err(|error| why(&error))?;
        let framework = stated::framework(row).map_err(|error| why(&error))?.on(&cluster.machine.name);
        let vpp = if framework.at(Figure::Interleaves) > 0.0 { vpp } else { Blank::Stated };
        Ok(Self { setups: filled(&setup, mbs, vpp), recompute, framework, cluster })
    }

    /// Of the setups that it may mean, the fastest of those that fit; of all, if none does.
    pub fn told(&self) -> Result<Told, Unstated> {
        let why = |error: &dyn std::error::Error| Unstated::Why(error.to_string());
        let mut best: Option<Told> = None;
        for setup in &self.setups {
            let job = Job::new(setup, &self.framework, &self.cluster).map_err(|error| why(&error))?;
            let held = memory::peak(&job);
            let told = Told {
                time: step(&job),
                fits: memory::fits(&job, &held) || self.fits_at_least(setup)?,
                room: cost_models::units::exact(memory::room(&job).0),
                held,
                setup: setup.clone(),
            };
            let better = best.as_ref().is_none_or(|best| {
                (told.fits && !best.fits)
                    || (told.fits == best.fits && told.time.total().0 < best.time.total().0)
            });
            if better {
                best = Some(told);
            }
        }
        best.ok_or_else(|| Unstated::Why("no size of micro-batches divides the batch".to_owned()))
    }
}

impl Case {
    /// Whether a setup that leaves open what is computed again fits if everything is.
    fn fits_at_least(&self, setup: &Setup) -> Result<bool, Unstated> {
        if self.recompute == Blank::Stated {
            return Ok(false);
        }
        let setup = Setup { recompute: Recompute::Full, ..setup.clone() };
        let job = Job::new(&setup, &self.framework, &self.cluster);
        let job = job.map_err(|error| Unstated::Why(error.to_string()))?;
        Ok(memory::fits(&job, &memory::peak(&job)))
    }
}

/// The setups that open numbers leave.
fn filled(setup: &Setup, mbs: Blank, vpp: Blank) -> Vec<Setup> {
    let sizes = if mbs == Blank::Open { SIZES.to_vec() } else { vec![setup.mbs] };
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

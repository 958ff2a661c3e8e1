//! A row as setups on a cluster: more than one if the row leaves numbers open.

use cost_models::estimate::Estimate;
use cost_models::machine::Machine;

use crate::device::machine_of;
use crate::framework::Figure;
use crate::kinds::{Answer, Kind, answer, kinds};
use crate::memory::Held;
use crate::setup::{Recompute, Setup};
use crate::stated::{self, Blank, Stated, Unstated};
use crate::table::Row;

/// Sizes of micro-batches that are tried where none is stated.
const SIZES: [u64; 5] = [1, 2, 4, 8, 16];

/// What a row states.
#[derive(Clone, Debug)]
pub struct Case {
    /// The setups that it may mean.
    pub setups: Vec<Setup>,
    /// Whether recomputation is left open.
    pub recompute: Blank,
    /// The kinds of nodes, and the framework as it is on each.
    pub kinds: Vec<Kind>,
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
        let source = format!("{}, {}", row.text("source"), row.text("row_id"));
        let why = |error: &dyn std::error::Error| Unstated::Why(error.to_string());
        let mut machines = devices(row.text("gpu"), setup.devices()).map_err(Unstated::Why)?;
        for (machine, _) in &mut machines {
            stated::chip::chip(row, machine)?.set(machine, &source).map_err(|error| why(&error))?;
        }
        let framework = stated::framework(row).map_err(|error| why(&error))?;
        let kinds = kinds(machines, &framework, &links, &source).map_err(|error| why(&error))?;
        let vpp = if framework.at(Figure::Interleaves) > 0.0 { vpp } else { Blank::Stated };
        Ok(Self { setups: filled(&setup, mbs, vpp), recompute, kinds })
    }

    /// Of the setups that it may mean, the fastest of those that fit; of all, if none does.
    pub fn told(&self) -> Result<Told, Unstated> {
        let mut best: Option<Told> = None;
        for setup in &self.setups {
            let Answer { time, held, room, fits } = self.answer(setup)?;
            let fits = fits || self.fits_at_least(setup)?;
            let told = Told { time, held, fits, room, setup: setup.clone() };
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
    /// Whether a setup that leaves recomputation open fits if everything is.
    fn fits_at_least(&self, setup: &Setup) -> Result<bool, Unstated> {
        if self.recompute == Blank::Stated {
            return Ok(false);
        }
        let setup = Setup { recompute: Recompute::Full, ..setup.clone() };
        Ok(self.answer(&setup)?.fits)
    }

    fn answer(&self, setup: &Setup) -> Result<Answer, Unstated> {
        answer(setup, &self.kinds).map_err(|error| Unstated::Why(error.to_string()))
    }
}

/// The machines of a row, each with its ranks: `8x A100-SXM4-40GB + 8x V100-SXM2-16GB`; equal parts of all
/// devices where no numbers are said.
fn devices(text: &str, all: u64) -> Result<Vec<(Machine, u64)>, String> {
    let names: Vec<&str> = text.split(" + ").map(str::trim).collect();
    let parts = u64::try_from(names.len()).unwrap_or(1);
    let device = |name: &&str| {
        let count = name.split_once('x').and_then(|(count, rest)| Some((count.trim().parse().ok()?, rest)));
        let (ranks, name) = count.unwrap_or((all / parts, *name));
        machine_of(name).map(|machine| (machine, ranks))
    };
    let found: Vec<(Machine, u64)> = names.iter().map(device).collect::<Result<_, _>>()?;
    match found.iter().map(|(_, ranks)| ranks).sum::<u64>() {
        sum if sum == all => Ok(found),
        sum => Err(format!("`{text}` are {sum} devices, expected {all}")),
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

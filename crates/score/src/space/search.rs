//! The cheapest setup of a space, with the proof that none is cheaper, and the changes that help most.

use cost_models::units::Seconds;
use predict::cluster::ClusterError;
use predict::config::even;
use predict::kinds::{Answer, Kind, answer, fullest, time};
use predict::pieces::Job;
use predict::setup::Setup;
use predict::step::{floor, layer_floors};

use super::Space;
use super::choice::{self, Choice, Key, LAYERS, STAGES, choices, layouts, shapes};

/// How many keys a change has at most.
const KEYS: usize = 2;

/// How many changes are told.
const TOLD: usize = 3;

/// How many times as long takes hardly longer.
const HARDLY: f64 = 1.005;

/// Where setups are priced.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// The setup as it is.
    pub base: &'a Setup,
    /// The kinds of nodes.
    pub kinds: &'a [Kind],
}

/// A setup that was priced.
#[derive(Clone, Debug)]
pub struct Priced {
    /// What was chosen.
    pub choice: Choice,
    /// The time of its step.
    pub seconds: f64,
    /// What its fullest rank holds (bytes).
    pub held: f64,
    /// How much it may hold (bytes).
    pub room: f64,
    /// Whether it fits.
    pub fits: bool,
}

/// The cheapest setup of a space.
#[derive(Clone, Debug)]
pub struct Best {
    /// It; none if none fits.
    pub found: Option<Priced>,
    /// Of those that were tried and do not fit the one that comes nearest.
    pub nearest: Option<Nearest>,
    /// How many setups there are.
    pub setups: u64,
    /// How many of them were priced; the others take longer than the best at least.
    pub priced: u64,
}

/// A setup that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Nearest {
    /// What was chosen.
    pub choice: Choice,
    /// What its fullest rank holds (bytes).
    pub held: f64,
    /// How much a program may hold there (bytes).
    pub room: f64,
}

/// A change of few keys.
#[derive(Clone, Debug)]
pub struct Change {
    /// The keys.
    pub keys: Vec<Key>,
    /// The setup after it.
    pub after: Priced,
}

impl Search<'_> {
    /// The setup of a choice; none if it is not one.
    fn setup(&self, choice: Choice) -> Option<Setup> {
        let setup = choice.setup(self.base);
        (setup.check().is_ok() && even(&setup).is_ok()).then_some(setup)
    }

    /// What a choice takes; none if it is not a setup.
    fn priced(&self, choice: Choice) -> Result<Option<Priced>, ClusterError> {
        let Some(setup) = self.setup(choice) else { return Ok(None) };
        let Answer { time, held, room, fits } = answer(&setup, self.kinds)?;
        Ok(Some(Priced { choice, seconds: time.total().0, held: held.total(), room, fits }))
    }

    /// What a layer of each kind takes at least for a micro-batch of such a setup.
    fn layer_floors(&self, setup: &Setup) -> Result<[Seconds; 2], ClusterError> {
        let mut least: Option<[Seconds; 2]> = None;
        for Kind { cluster, framework, .. } in self.kinds {
            let [one, other] = layer_floors(&Job::new(setup, framework, cluster)?);
            least = Some(least.map_or([one, other], |it| [it[0].min(one), it[1].min(other)]));
        }
        Ok(least.unwrap_or_default())
    }

    /// The shapes of a space, each with the floor of its setups.
    fn floors(&self, space: &Space) -> Result<Vec<(f64, Choice)>, ClusterError> {
        let mut all: Vec<(f64, Choice)> = Vec::new();
        for layout in layouts(self.base, space.cuts) {
            let mut last: Option<(Choice, [Seconds; 2])> = None;
            for shape in shapes(&layout, self.base, space) {
                let Some(setup) = self.setup(shape) else { continue };
                // Parts do not change what a layer takes, nor orders that do not split the backward part.
                let of_layer =
                    |it: &Choice| (it.sequence, it.tp_overlap, it.dispatch, it.schedule.splits_backward());
                let alike = |it: &Choice| of_layer(it) == of_layer(&shape);
                let layers = match &last {
                    Some((before, layers)) if alike(before) => *layers,
                    _ => self.layer_floors(&setup)?,
                };
                last = Some((shape, layers));
                all.push((floor(&setup, layers).0, shape));
            }
        }
        // Shapes keep their order where floors are equal.
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(all)
    }

    /// The cheapest setup of a space, of those choices that are allowed: those with the lowest floors are priced
    /// first, until floors are above the best. Ranks hold no more than there is, nor than `most` (bytes).
    pub fn best(
        &self,
        space: &Space,
        (allowed, most): (&dyn Fn(&Choice) -> bool, f64),
    ) -> Result<Best, ClusterError> {
        let others = choice::others(space);
        let mut best = Best { found: None, nearest: None, setups: 0, priced: 0 };
        if runs(space, self.base) {
            best.found = Some(self.now()?).filter(|it| it.fits && it.held <= most && allowed(&it.choice));
        }
        for (floor, shape) in self.floors(space)? {
            let rest = others[usize::from(shape.pp > 1)].iter();
            let choices = rest.map(|&(zero, recompute)| Choice { zero, recompute, ..shape });
            let rest: Vec<Choice> = choices.filter(allowed).collect();
            best.setups += 2 * u64::try_from(rest.len()).unwrap_or(u64::MAX);
            if best.found.as_ref().is_some_and(|found| floor >= found.seconds) {
                continue;
            }
            for choice in rest {
                best.priced += 2;
                let (held, room, fits) = fullest(&choice.setup(self.base), self.kinds)?;
                let held = held.total();
                if !fits || held > most {
                    if best.nearest.is_none_or(|it| held / room < it.held / it.room) {
                        best.nearest = Some(Nearest { choice, held, room });
                    }
                    continue;
                }
                // Whether exchanges overlap is nothing to what is held.
                for dp_overlap in [false, true] {
                    let choice = Choice { dp_overlap, ..choice };
                    let Some(setup) = self.setup(choice) else { continue };
                    let seconds = time(&setup, self.kinds)?.total().0;
                    if best.found.as_ref().is_none_or(|found| seconds < found.seconds) {
                        best.found = Some(Priced { choice, seconds, held, room, fits });
                    }
                }
            }
        }
        Ok(best)
    }

    /// The same setup in as few parts of stages as take hardly longer, which is less than figures can tell: of those that
    /// are allowed, and hold no more than `most` (bytes).
    pub fn in_fewer_parts(
        &self,
        found: Priced,
        (allowed, most): (&dyn Fn(&Choice) -> bool, f64),
    ) -> Result<Priced, ClusterError> {
        for vpp in 2..found.choice.vpp {
            let choice = Choice { vpp, ..found.choice };
            if allowed(&choice)
                && let Some(fewer) = self.priced(choice)?
                && fewer.fits
                && fewer.held <= most
                && fewer.seconds <= found.seconds * HARDLY
            {
                return Ok(fewer);
            }
        }
        Ok(found)
    }

    /// The changes of one key or two that help most: those that make the step shortest, and where it does not fit,
    /// make it fit. No two of them are about the same keys, and none is a part of another.
    pub fn changes(&self, space: &Space, now: &Priced) -> Result<Vec<Change>, ClusterError> {
        let mut all: Vec<Change> = Vec::new();
        for layout in layouts(self.base, space.cuts) {
            if now.choice.degrees_apart(&layout) > KEYS {
                continue;
            }
            for choice in choices(&layout, self.base, space) {
                let keys = now.choice.changes(&choice, self.base);
                if keys.is_empty() || own(&keys).len() > KEYS {
                    continue;
                }
                let Some(after) = self.priced(choice)? else { continue };
                if after.fits && (!now.fits || after.seconds < now.seconds) {
                    all.push(Change { keys, after });
                }
            }
        }
        all.sort_by(|a, b| {
            let (one, other) = (a.after.seconds, b.after.seconds);
            one.total_cmp(&other).then(a.keys.len().cmp(&b.keys.len()))
        });
        let mut told: Vec<Change> = Vec::new();
        for change in all {
            if told.len() == TOLD {
                break;
            }
            let part = |a: &Change, b: &Change| own(&a.keys).iter().all(|it| own(&b.keys).contains(it));
            if !told.iter().any(|it| part(it, &change) || part(&change, it)) {
                told.push(change);
            }
        }
        Ok(told)
    }

    /// What the setup takes as it is.
    pub fn now(&self) -> Result<Priced, ClusterError> {
        let Answer { time, held, room, fits } = answer(self.base, self.kinds)?;
        Ok(Priced { choice: Choice::of(self.base), seconds: time.total().0, held: held.total(), room, fits })
    }
}

/// Whether a setup is of a space.
fn runs(space: &Space, setup: &Setup) -> bool {
    let Setup { pp, cp, tp, zero, recompute, schedule, vpp, .. } = setup;
    space.zero[usize::from(*pp > 1)].contains(zero)
        && space.recompute.contains(recompute)
        && space.schedules.contains(schedule)
        && (*vpp == 1 || space.parts)
        && (space.tensor_beside || *tp == 1 || (*pp, *cp) == (1, 1))
        && (!setup.seq_parallel || space.sequence || super::must_split(setup, *tp))
}

/// What is changed for its own sake: the layers of stages follow from how many stages there are.
fn own(keys: &[Key]) -> Vec<&'static str> {
    let has_stages = keys.iter().any(|key| key.name == STAGES);
    keys.iter().map(|key| key.name).filter(|name| *name != LAYERS || !has_stages).collect()
}

#[cfg(test)]
mod tests;

//! Plans for a framework: by its own figures, which differ from the prices of our programs.

use ::export::{Job, Strategy};
use ::plan::{Masters, Recompute};
use ::schedule::Kind;
use ::score::space::{Best, Choice};
use ::score::told::Expected;
use autoparallel::cluster::{Answer, Pins};
use cost_models::cluster::Cluster;
use cost_models::quantity;
use cost_models::units::exact;
use driver::stated;
use files::Failure;
use predict::schedule;
use predict::setup::Recompute as Again;

use crate::arguments::PlanArguments;
use crate::commands::export::expected_there;

/// How often a cluster is planned with less memory, where a framework holds more of a device than there is.
const ROUNDS: usize = 3;

/// So many setups of a framework are planned at most, the fastest first, where no plan is such a setup. After one in
/// which our programs do not fit, they hold so much of what that does, by the framework's figures, at most.
const TRIED: usize = 6;
const LESS: f64 = 0.95;

/// Where programs do not fit in so many setups, and none that holds less fits there, there is no plan.
const SEVERAL: usize = 2;

/// What a framework is told of a plan is the setup that the plan was made for where its figures say the same of both,
/// but for so much (relative).
const NEAR: f64 = 0.05;

/// An answer, and what is said of how a framework runs it.
pub(in crate::commands) struct Settled {
    /// The answer.
    pub(in crate::commands) answer: Answer,
    /// Where it is a setup of the framework, which one: in words.
    pub(in crate::commands) led: Option<String>,
}

/// A search among all with such pins and so much memory of a device.
type Search<'a> = dyn Fn(&Pins, Option<u64>) -> Result<Answer, Failure> + 'a;

/// What is asked, and how plans are made.
pub(super) struct Asked<'a> {
    pub(super) arguments: &'a PlanArguments,
    pub(super) cluster: &'a Cluster,
    pub(super) pins: Pins,
    /// What a device may hold (bytes); without it, what each machine says.
    pub(super) memory: Option<u64>,
    /// How many examples a step has.
    pub(super) examples: u64,
    /// The cheapest by our prices.
    pub(super) search: &'a Search<'a>,
    /// The cheapest that is this strategy.
    pub(super) pinned: &'a dyn Fn(&Strategy) -> Result<Answer, Failure>,
}

/// An answer, and what a framework takes for it.
struct There {
    settled: Settled,
    expected: Expected,
}

impl There {
    /// Of two the better one: what fits is better than what does not, then what takes less.
    fn better(self, other: Self) -> Self {
        let rank = |it: &Self| (it.expected.fits, -it.expected.time.total().0);
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl Asked<'_> {
    /// The cheapest answer for where it runs: of our programs by their prices; of a framework whose figures are known
    /// the fastest of the setups that it runs, by these, in which our programs fit. Where there is none, it is the one
    /// that our prices choose, with less memory where that does not fit there.
    pub(super) fn settled(&self) -> Result<Settled, Failure> {
        let examples = self.examples;
        // The framework's figures need a plan of the model, of any setup: a search of ours may take many times as long.
        let first = match self.arguments.runtime {
            Some(_) => {
                let pins = any(&self.pins, self.cluster.devices(), examples);
                unless_refused((self.search)(&pins, Some(ENDLESS)))?
            }
            None => None,
        };
        let first = first.and_then(|answer| self.expected(&answer));
        // The same setups are not planned twice.
        let were_planned = first.is_some();
        let mut led = match first {
            Some((told, expected)) => {
                self.pins.has_experts(expected.setup.model.experts.is_some())?;
                self.led((&told, &expected), (&|_| true, true))?
            }
            None => None,
        };
        if let Some((led, true)) = led {
            return Ok(led.settled);
        }
        let answer = (self.search)(&self.pins, self.memory)?;
        let Some((told, expected)) = self.expected(&answer) else {
            return Ok(Settled { answer, led: None });
        };
        if !were_planned {
            led = self.led((&told, &expected), (&|found| is_below(found, &expected), false))?;
        }
        let ours = There { settled: Settled { answer, led: None }, expected };
        match led {
            Some((led, true)) => Ok(ours.better(led).settled),
            Some((led, false)) => Ok(self.fitting(ours)?.better(led).settled),
            None => Ok(self.fitting(ours)?.settled),
        }
    }

    /// What the framework is told of an answer and takes for it, if that is known.
    fn expected(&self, answer: &Answer) -> Option<(Strategy, Expected)> {
        let job = Job::of_pipeline(&answer.pipeline);
        expected_there(job, self.arguments.runtime?, self.cluster, self.arguments.model())
    }

    /// With as much less memory as the framework holds more of it, until it fits there.
    fn fitting(&self, mut best: There) -> Result<There, Failure> {
        for _ in 0..ROUNDS {
            let There { expected: Expected { fits, held, room, .. }, settled } = &best;
            if *fits {
                break;
            }
            let less = quantity::whole_bytes(exact(settled.answer.pipeline.held()) * room / held).0;
            let Some(answer) = unless_refused((self.search)(&self.pins, Some(less)))? else { break };
            let Some((_, expected)) = self.expected(&answer) else { break };
            best = best.better(There { settled: Settled { answer, led: None }, expected });
        }
        Ok(best)
    }

    /// The plan of what is fastest there of all setups that take so much less (seconds), and in which our programs fit;
    /// and whether the framework is told of that setup. Where our programs fit in none of several that were tried, and
    /// no other that holds less fits there, that is refused, if there is no other plan.
    fn led(
        &self,
        (told, expected): (&Strategy, &Expected),
        (takes_less, is_all): (&dyn Fn(f64) -> bool, bool),
    ) -> Result<Option<(There, bool)>, Failure> {
        let mut refused: Vec<Strategy> = Vec::new();
        let mut best: Option<There> = None;
        let mut most = f64::INFINITY;
        let mut too_large: Vec<String> = Vec::new();
        while refused.len() < TRIED {
            let Some(Led { strategy, seconds, held, setups }) =
                self.fastest((told, expected), (&refused, most))?
            else {
                if !is_all || too_large.len() < refused.len() || refused.len() < SEVERAL {
                    break;
                }
                let why = none_fits(expected.runner.title(), &too_large);
                return Err(Failure::no_room("no pipeline", why, None));
            };
            if !takes_less(seconds) {
                break;
            }
            let answer = self.planned(&strategy);
            let is_too_large = answer.as_ref().is_err_and(Failure::is_too_large);
            if let Some(why) = answer.as_ref().err().filter(|_| is_too_large) {
                let held = predict::memory::words(held);
                too_large.push(format!("{}, which holds {held} there: {why}", strategy.in_words()));
            }
            if let Some(answer) = unless_refused(answer)?
                && let Some((_, there)) = self.expected(&answer)
            {
                let near = there.fits && (there.time.total().0 - seconds).abs() <= NEAR * seconds;
                let mut faster = match refused.len() {
                    0 => String::new(),
                    more => format!(" but for {more} that no plan is"),
                };
                if most.is_finite() {
                    faster += &format!(" and what holds more than {}", predict::memory::words(most));
                }
                let words = format!(
                    "the fastest{faster} of {setups} setups that {} runs and a plan can be, by its figures",
                    expected.runner.title()
                );
                let there = There { settled: Settled { answer, led: Some(words) }, expected: there };
                if near {
                    return Ok(Some((there, true)));
                }
                best = Some(match best {
                    Some(best) => best.better(there),
                    None => there,
                });
            }
            if is_too_large {
                most = held * LESS;
            }
            refused.push(strategy);
        }
        Ok(best.map(|it| (it, false)))
    }

    /// The plan of a setup, with parameters in f32 where the framework has them for what is made of it: a plan may have
    /// less of ZeRO than its setup allows.
    fn planned(&self, strategy: &Strategy) -> Result<Answer, Failure> {
        let answer = (self.pinned)(strategy)?;
        let there = self.expected(&answer).map(|(told, _)| self.masters(told.zero));
        match (strategy.masters, there) {
            (Some(planned), Some(there)) if planned != there => {
                let again =
                    unless_refused((self.pinned)(&Strategy { masters: Some(there), ..strategy.clone() }))?;
                Ok(again.unwrap_or(answer))
            }
            _ => Ok(answer),
        }
    }

    /// Where parameters are in f32 there with this stage of ZeRO.
    fn masters(&self, zero: u8) -> Masters {
        self.arguments.recipe.masters(self.arguments.runtime, zero)
    }

    /// What is fastest of the setups that a framework runs, by its figures, but for some, and that hold no more than so
    /// much (bytes); nothing where none is allowed. A cluster on which none fits is refused.
    fn fastest(
        &self,
        (told, expected): (&Strategy, &Expected),
        (but, most): (&[Strategy], f64),
    ) -> Result<Option<Led>, Failure> {
        let strategy = |it: &Choice| {
            let own = stated::strategy(&it.setup(&expected.setup), self.cluster).ok()?;
            // Setups say nothing of this.
            let Strategy { prefix, element, scaling, masters, optimizer, clip, .. } = told.clone();
            let masters = masters.map(|_| self.masters(own.zero));
            Some(Strategy { prefix, element, scaling, masters, optimizer, clip, ..own })
        };
        let pinned = |it: &Choice| keep(&self.pins, it, expected);
        let is_new = |it: &Choice| strategy(it).is_some_and(|it| !but.contains(&it));
        let Ok(all) = expected.fastest((&|it| pinned(it) && (but.is_empty() || is_new(it)), most)) else {
            return Ok(None);
        };
        let led = |best: &Best| {
            let found = best.found.as_ref()?;
            Some(Led {
                strategy: strategy(&found.choice)?,
                seconds: found.seconds,
                held: found.held,
                setups: all.setups,
            })
        };
        match (&all.found, &all.nearest) {
            // What is fastest may be what no plan is, such as layers that are no equal parts of a group's.
            (Some(_), _) => Ok(led(&all).or_else(|| {
                let planned = expected.fastest((&|it| pinned(it) && is_new(it), most)).ok()?;
                led(&planned)
            })),
            (None, Some(nearest)) if but.is_empty() => {
                let told =
                    strategy(&nearest.choice).map_or_else(String::new, |it| format!(", {},", it.in_words()));
                let message = format!(
                    "none of {} setups that {} runs fits, by its figures: what comes nearest{told} holds {} of \
                     {} of a device; more devices, or devices with more memory, would help",
                    all.setups,
                    expected.runner.title(),
                    predict::memory::words(nearest.held),
                    predict::memory::words(nearest.room),
                );
                Err(Failure::input("no pipeline", message))
            }
            (None, _) => Ok(None),
        }
    }
}

/// Whether a setup takes less than what there is (seconds), by more than what these figures are off by.
fn is_below(seconds: f64, there: &Expected) -> bool {
    let (now, off) = (there.time.total().0, there.error.unwrap_or(0.0) / 100.0);
    !there.fits || seconds <= now * (1.0 - off)
}

/// What is said where our programs fit in none of the setups that were tried of those that fit there.
fn none_fits(title: &str, tried: &[String]) -> String {
    format!(
        "setups fit by the figures of {title}, and programs of ours, which hold more, do not in the {} that were tried: \
         what holds nearly as much was passed by, and nothing that holds less fits there; the last is {}",
        tried.len(),
        tried.last().map_or("", String::as_str)
    )
}

/// More memory than any device has (bytes).
const ENDLESS: u64 = 1 << 50;

/// How many devices share the examples of a micro-batch at most, where any setup will do: graphs of more examples have
/// more numbers than can be counted.
const SHARING: u64 = 256;

/// One setup that a model is planned with quickly: each device has the whole model, and an example of a micro-batch or
/// a part of one.
fn any(pins: &Pins, devices: u64, examples: u64) -> Pins {
    let context = devices.div_ceil(SHARING);
    let data = devices / context;
    Pins {
        groups: Some(1),
        tensor: Some(1),
        context: Some(context),
        data: Some(data),
        micro_batches: Some((examples / data).max(1)),
        recompute: Some(Recompute::Full),
        schedule: Some(Kind::OneForwardOneBackward),
        chunks: Some(1),
        limits: pins.limits.clone(),
        ..Pins::default()
    }
}

/// An answer; nothing where there is none with what is asked, or that is no setup of ours. What a user asks for wrongly
/// is said where our own search is asked.
fn unless_refused(answer: Result<Answer, Failure>) -> Result<Option<Answer>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.is_refusal() || matches!(failure, Failure::Usage(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What leads to a plan.
struct Led {
    strategy: Strategy,
    /// What the framework takes for it (seconds).
    seconds: f64,
    /// What a device holds, by the framework's figures (bytes).
    held: f64,
    /// Of how many it is the fastest.
    setups: u64,
}

/// Whether a choice is what is pinned.
fn keep(pins: &Pins, it: &Choice, expected: &Expected) -> bool {
    let data = expected.setup.devices() / (it.tp * it.pp * it.cp);
    let recompute = match it.recompute {
        Again::None => Recompute::Nothing,
        Again::Selective | Again::HalfOfProducts | Again::HalfOfLayers => Recompute::Selective,
        Again::Full => Recompute::Full,
    };
    let micro_batches = expected.setup.gbs / (data * it.mbs);
    pins.meshes.is_none()
        && keeps(pins.groups, usize::try_from(it.pp).unwrap_or(usize::MAX))
        && keeps(pins.tensor, it.tp)
        && keeps(pins.context, it.cp)
        && keeps(pins.data, data)
        && keeps(pins.experts, if expected.setup.model.experts.is_some() { it.ep } else { 1 })
        && keeps(pins.zero, it.zero.stage())
        && keeps(pins.micro_batches, micro_batches)
        && keeps(pins.recompute.as_ref(), &recompute)
        && keeps(pins.schedule, schedule::kind(&it.setup(&expected.setup)))
        && keeps(pins.chunks, usize::try_from(it.vpp).unwrap_or(usize::MAX))
}

/// Whether a choice is what is pinned, if anything is.
fn keeps<T: PartialEq>(pinned: Option<T>, own: T) -> bool {
    pinned.is_none_or(|it| it == own)
}

//! Plans for a framework: by its own figures, which differ from the prices of our programs.

use ::export::Job;
use ::plan::Recompute;
use ::schedule::Kind;
use ::score::space::Choice;
use ::score::told::Expected;
use autoparallel::cluster::{Answer, Pins};
use cost_models::cluster::Cluster;
use cost_models::quantity;
use cost_models::units::exact;
use files::Failure;
use predict::schedule;
use predict::setup::Recompute as Again;

use crate::arguments::PlanArguments;
use crate::commands::export::expected_there;

/// How often a cluster is planned with less memory, where a framework holds more of a device than there is.
const ROUNDS: usize = 3;

/// A plan is as fast as the setup that it is pinned to where it takes so much more, relative to it: its stages are its
/// own.
const NEAR: f64 = 0.05;

/// An answer, and what is said of how a framework runs it.
pub(in crate::commands) struct Settled {
    /// The answer.
    pub(in crate::commands) answer: Answer,
    /// What it was pinned to, in a line: the fastest setup of those that the framework runs.
    pub(in crate::commands) led: Option<String>,
}

/// What is asked, with pins and so much memory of a device.
type Ask<'a> = dyn Fn(&Pins, Option<u64>) -> Result<Answer, Failure> + 'a;

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

/// The cheapest answer for where it runs: of our programs by their prices; of a framework by its figures, if they are
/// known. It is the one that our prices choose, or one that is pinned to what is fastest of the setups that the
/// framework runs, or one with less memory, where neither fits there.
pub(super) fn settled(
    (pins, memory): (Pins, Option<u64>),
    (arguments, cluster, examples): (&PlanArguments, &Cluster, u64),
    ask: &Ask<'_>,
) -> Result<Settled, Failure> {
    let there = |answer: Answer, led: Option<&String>| {
        let of =
            |target| expected_there(Job::of_pipeline(&answer.pipeline), target, cluster, arguments.model());
        let expected = arguments.runtime.and_then(of);
        (Settled { answer, led: led.cloned() }, expected)
    };
    // Until it fits, with as much less memory as the framework holds more of it.
    let fitting = |mut best: There, pins: &Pins| -> Result<There, Failure> {
        for _ in 0..ROUNDS {
            let There { expected: Expected { fits, held, room, .. }, settled } = &best;
            if *fits {
                break;
            }
            let less = quantity::whole_bytes(exact(settled.answer.pipeline.held()) * room / held).0;
            let Some(answer) = unless_refused(ask(pins, Some(less)))? else { break };
            let (settled, Some(expected)) = there(answer, settled.led.as_ref()) else { break };
            best = best.better(There { settled, expected });
        }
        Ok(best)
    };
    // The plan of what is fastest there of all setups, and whether it is as fast as that.
    let led = |found: Option<Led>| -> Result<Option<(There, bool)>, Failure> {
        if let Some(Led { pins, seconds, words }) = found
            && let Some(answer) = unless_refused(ask(&pins, memory))?
            && let (settled, Some(expected)) = there(answer, Some(&words))
        {
            let led = fitting(There { settled, expected }, &pins)?;
            let near = led.expected.fits && led.expected.time.total().0 <= (1.0 + NEAR) * seconds;
            return Ok(Some((led, near)));
        }
        Ok(None)
    };
    // The framework's figures need a plan of the model, of any setup: a search of ours may take many times as long.
    let first = match arguments.runtime {
        Some(_) => unless_refused(ask(&any(&pins, cluster.devices(), examples), Some(ENDLESS)))?,
        None => None,
    };
    let mut best = match first.and_then(|answer| there(answer, None).1) {
        Some(expected) => led(fastest(&expected, &pins, examples))?,
        None => None,
    };
    if let Some((led, true)) = best {
        return Ok(led.settled);
    }
    let (settled, expected) = there(ask(&pins, memory)?, None);
    let Some(expected) = expected else { return Ok(settled) };
    if best.is_none() {
        best = led(fastest(&expected, &pins, examples).filter(|it| it.is_below(&expected)))?;
    }
    let ours = There { settled, expected };
    match best {
        Some((led, true)) => Ok(ours.better(led).settled),
        Some((led, false)) => Ok(fitting(ours, &pins)?.better(led).settled),
        None => Ok(fitting(ours, &pins)?.settled),
    }
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
        Err(Failure::Input(_) | Failure::Usage(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What leads to a plan.
struct Led {
    pins: Pins,
    /// What the framework takes for the setup (seconds).
    seconds: f64,
    /// What is said of it.
    words: String,
}

impl Led {
    /// Whether it takes less than what there is, by more than what these figures are off by.
    fn is_below(&self, there: &Expected) -> bool {
        let (now, off) = (there.time.total().0, there.error.unwrap_or(0.0) / 100.0);
        !there.fits || self.seconds <= now * (1.0 - off)
    }
}

/// Pins to what is fastest of the setups that a framework runs, by its figures; nothing where nothing fits that is
/// allowed.
fn fastest(expected: &Expected, pins: &Pins, examples: u64) -> Option<Led> {
    let devices = expected.setup.devices();
    let decisions = |it: &Choice| {
        let data = devices / (it.tp * it.pp * it.cp);
        let recompute = match it.recompute {
            Again::None => Recompute::Nothing,
            Again::Selective | Again::HalfOfProducts | Again::HalfOfLayers => Recompute::Selective,
            Again::Full => Recompute::Full,
        };
        Pins {
            groups: usize::try_from(it.pp).ok(),
            tensor: Some(it.tp),
            context: Some(it.cp),
            data: Some(data),
            experts: expected.setup.model.experts.map(|_| it.ep),
            zero: Some(it.zero.stage()),
            micro_batches: Some(examples / (data * it.mbs)),
            recompute: Some(recompute),
            schedule: Some(schedule::kind(&it.setup(&expected.setup))),
            chunks: usize::try_from(it.vpp).ok(),
            ..pins.clone()
        }
    };
    // What is pinned already stays so.
    let allowed = |it: &Choice| {
        let own = decisions(it);
        pins.meshes.is_none()
            && keeps(pins.groups, own.groups)
            && keeps(pins.tensor, own.tensor)
            && keeps(pins.context, own.context)
            && keeps(pins.data, own.data)
            && keeps(pins.experts, own.experts)
            && keeps(pins.zero, own.zero)
            && keeps(pins.micro_batches, own.micro_batches)
            && keeps(pins.recompute.as_ref(), own.recompute.as_ref())
            && keeps(pins.schedule, own.schedule)
            && keeps(pins.chunks, own.chunks)
    };
    let best = expected.fastest(&allowed).ok()?;
    let found = best.found?;
    let words = format!(
        "of {} setups that {} runs, by its figures ({} with equal stages)",
        best.setups,
        expected.runner.title(),
        quantity::seconds(found.seconds)
    );
    Some(Led { pins: decisions(&found.choice), seconds: found.seconds, words })
}

/// Whether a choice is what is pinned, if anything is.
fn keeps<T: PartialEq>(pinned: Option<T>, own: Option<T>) -> bool {
    pinned.is_none() || pinned == own
}

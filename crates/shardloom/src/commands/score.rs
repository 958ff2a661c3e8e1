//! `score`: a configuration of a training framework, what it takes, and how far that is from the best.

use std::fmt::{self, Write as _};

use ::export::torchtitan::SCHEDULE;
use ::score::errors::{self, Source};
use ::score::load::Worst;
use ::score::read::{self, Beside, Read};
use ::score::space::{Best, Change, Choice, Priced, Runner, Search, Space};
use cost_models::machine::{setting, shipped};
use cost_models::quantity;
use cost_models::throughput::Throughput;
use files::{Failure, readable, written};
use predict::cluster::ClusterError;
use predict::config::{self, Config};
use predict::framework::Figure;
use predict::kinds::{self, Kind};
use predict::memory::{self, Held};
use predict::pieces::Job;
use predict::setup::Setup;
use report::throughput;
use serde_json::{Value, json};

use super::predict::{kinds_of, machine_lines, prices};
use super::{Context, Said};
use crate::arguments::{ScoreArguments, Where};

/// Everything that is said of a configuration.
struct Score {
    runner: Runner,
    read: Read,
    assumed: Vec<(&'static str, &'static str)>,
    setup: Setup,
    kinds: Vec<Kind>,
    stages: Vec<(String, Held, f64)>,
    now: Priced,
    worst: Option<Uneven>,
    /// Within the framework, and overall.
    best: [Best; 2],
    changes: Vec<Change>,
    sources: Vec<Source>,
}

/// The setup with the worst load of its experts.
struct Uneven {
    load: Worst,
    stages: Vec<(String, Held, f64)>,
    now: Priced,
    /// What makes it fit, if it fits where the load is even and not at worst.
    changes: Vec<Change>,
}

/// The version of a framework whose costs are told.
struct Version {
    /// Its year; none where nobody says.
    year: Option<u64>,
    /// The year of the version that the figures are of.
    figures: f64,
    /// How many times as long a step takes as with that.
    factor: f64,
}

impl Version {
    fn json(&self) -> Value {
        json!({ "year": self.year, "figures_of": self.figures, "factor": self.factor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, figures, factor } = self;
        let Some(year) = year else {
            return write!(f, "that of {figures:.0}, as the figures are; `--framework-year` says another");
        };
        write!(f, "that of {year}: {factor:.3} times the step of {figures:.0}, which the figures are of")
    }
}

/// Scores a configuration.
pub(crate) fn score(arguments: &ScoreArguments, context: &Context<'_, '_>) -> Result<Said, Failure> {
    let Some((runner, place)) = arguments.of.stated() else {
        return Err(Failure::Usage("expected the configuration of one framework".to_owned()));
    };
    let (name, text) = match &place {
        Where::File(path) => (path.display().to_string(), readable::text(path)?),
        Where::Here(text) => ("--megatron".to_owned(), text.clone()),
    };
    let failed = |error: &dyn std::fmt::Display| Failure::Input(format!("{name}: {error}"));
    let model = arguments.config.as_deref().map(readable::text).transpose()?.map(|it| models::json(&it));
    let (machine, devices) = machine(&arguments.set.of(&arguments.machine))?;
    let schedule = match &place {
        Where::File(path) if text.contains(SCHEDULE) => readable::text(&path.with_file_name(SCHEDULE)).ok(),
        _ => None,
    };
    let beside = Beside { model, sequence: arguments.sequence, devices, schedule };
    let mut read = read::read(runner, &text, &beside).map_err(|error| failed(&error))?;
    read.keys.insert("machine".to_owned(), machine.into());
    if let Some(year) = arguments.framework_year.and_then(|it| i64::try_from(it).ok()) {
        read.keys.insert("framework_year".to_owned(), year.into());
    }
    let stated = read.keys.to_string();
    let config = config::of(read.keys.clone()).map_err(|error| failed(&error))?;
    let kinds = kinds_of(&config, None).map_err(|error| failed(&error))?;
    let Config { setup, assumed, .. } = config;
    let wrong = |error: ClusterError| failed(&error);
    let stages = stages(&setup, &kinds).map_err(wrong)?;
    let search = Search { base: &setup, kinds: &kinds };
    let now = search.now().map_err(wrong)?;
    let space = Space::of(runner);
    context.progress.say("pricing every setup that the framework runs");
    let within = search.best(&space, (&|_| true, f64::INFINITY)).map_err(wrong)?;
    context.progress.say("pricing every setup");
    let overall = search.best(&Space::whole(), (&|_| true, f64::INFINITY)).map_err(wrong)?;
    let changes = search.changes(&space, &now).map_err(wrong)?;
    let worst = Worst::of(&setup, arguments.imbalance, read.held.as_ref());
    let worst = worst.map(|load| uneven(load, &kinds, &space, now.fits)).transpose().map_err(wrong)?;
    if let Some(path) = &arguments.output {
        written::write(path, stated.as_bytes())?;
    }
    let sources = errors::of_steps(runner);
    let best = [within, overall];
    let score = Score { runner, read, assumed, setup, kinds, stages, now, worst, best, changes, sources };
    score.said()
}

/// What a setup takes with the worst load of its experts.
fn uneven(load: Worst, kinds: &[Kind], space: &Space, fits: bool) -> Result<Uneven, ClusterError> {
    let search = Search { base: &load.setup, kinds };
    let now = search.now()?;
    let changes = if fits && !now.fits { search.changes(space, &now)? } else { Vec::new() };
    Ok(Uneven { stages: stages(&load.setup, kinds)?, now, changes, load })
}

/// The machine as stated setups name it, and how many devices that says.
fn machine(name: &str) -> Result<(String, Option<u64>), Failure> {
    let (file, settings) = setting::parts(name);
    if file.ends_with(".json") {
        let cluster = files::machine::cluster(name, None)?;
        return Ok((name.to_owned(), Some(cluster.devices())));
    }
    if shipped::text(file).is_some() {
        return Ok((name.to_owned(), None));
    }
    let machine = shipped::named(name).map_err(|error| Failure::Input(error.to_string()))?;
    let device = file.rsplit_once('-').map_or(file, |it| it.0);
    let settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
    Ok((setting::named(device, &settings), Some(machine.devices())))
}

/// What a rank of each stage holds, of the kind of node that it fills most, and the room there.
fn stages(setup: &Setup, kinds: &[Kind]) -> Result<Vec<(String, Held, f64)>, ClusterError> {
    let ranks = setup.stage_ranks();
    let mut all: Vec<(String, Held, f64)> = Vec::new();
    for stage in 0..setup.stages.len() {
        let first = u64::try_from(stage).unwrap_or(u64::MAX).saturating_mul(ranks);
        let mut fullest: Option<(Held, f64)> = None;
        for kind in kinds.iter().filter(|it| it.ranks.start < first + ranks && first < it.ranks.end) {
            let job = Job::new(setup, &kind.framework, &kind.cluster)?;
            let room = cost_models::units::exact(memory::room(&job).0);
            let Some(held) = memory::stages(&job).get(stage).copied() else { continue };
            let fuller = |it: &(Held, f64)| it.0.total() / it.1 < held.total() / room;
            if fullest.as_ref().is_none_or(fuller) {
                fullest = Some((held, room));
            }
        }
        if let Some((held, room)) = fullest {
            all.push((format!("{stage}"), held, room));
        }
    }
    Ok(all)
}

impl Score {
    fn said(&self) -> Result<Said, Failure> {
        let answer =
            kinds::answer(&self.setup, &self.kinds).map_err(|error| Failure::Input(error.to_string()))?;
        let mut json = prices(&self.setup, &self.kinds, &answer);
        let error = errors::together(&self.sources);
        let rate = Throughput::of(
            &self.setup.work(),
            answer.time.total(),
            self.setup.devices(),
            &machine_lines(&self.kinds),
        );
        json["framework"] = json!(self.runner.name());
        json["error_percent"] = json!(error);
        json["errors"] = self.sources.iter().map(source).collect();
        json["stages"] =
            self.stages.iter().zip(&self.setup.stages).map(|(it, layers)| stage(it, *layers)).collect();
        json["worst_load"] = self.worst.as_ref().map_or(Value::Null, |it| self.uneven_json(it));
        json["best"] = self.best_json(0);
        json["overall"] = self.best_json(1);
        json["changes"] = self.changes.iter().map(|it| self.change_json(it)).collect();
        json["setup"] =
            Value::Object(self.read.keys.iter().map(|(key, it)| (key.clone(), plain(it))).collect());
        json["taken"] =
            self.read.taken.iter().map(|(said, taken)| json!({ "said": said, "taken": taken })).collect();
        json["no_effect"] = json!(self.read.harmless);
        json["not_understood"] = json!(self.read.strange);
        json["assumed"] =
            Value::Object(self.assumed.iter().map(|(key, it)| ((*key).to_owned(), json!(it))).collect());
        let mut text = super::predict::titled(&self.setup, &self.kinds) + "\n";
        if let Some(version) = self.version() {
            json["framework_year"] = version.json();
            line_of(&mut text, format_args!("version       {version}"));
        }
        self.memory(&mut text);
        self.step(&mut text, &answer, error);
        for line in throughput::lines(rate.as_ref(), 14) {
            line_of(&mut text, format_args!("{line}"));
        }
        self.bests(&mut text);
        self.told_changes(&mut text);
        self.words(&mut text);
        Ok(Said { text, json })
    }

    /// The version that is priced, of a framework whose figures have a trend by its year.
    fn version(&self) -> Option<Version> {
        let framework = &self.kinds[0].framework;
        let factor = self.setup.year.map_or(1.0, |year| framework.drift(year));
        let figures = framework.at(Figure::Year);
        framework.has_trend().then_some(Version { year: self.setup.year, figures, factor })
    }

    /// What a setup holds, and whether that fits where it is news: the one that is asked about does not, or this one may
    /// not.
    fn held(&self, it: &Priced) -> String {
        let held = memory::words(it.held);
        let is_news = !self.now.fits || it.held > it.room;
        if is_news { format!("{held} a device: {}", self.verdict(it)) } else { format!("{held} a device") }
    }

    /// Whether a setup fits, in words.
    fn verdict(&self, it: &Priced) -> String {
        memory::verdict(it.fits, [it.held, it.room], &self.kinds[0].framework)
    }

    fn memory(&self, text: &mut String) {
        let verdict = self.verdict(&self.now);
        let (held, room) = (memory::words(self.now.held), memory::words(self.now.room));
        line_of(text, format_args!("memory        {held} of {room} on the fullest device: {verdict}"));
        let uneven = self.worst.as_ref().filter(|it| it.load.imbalance > 1.0);
        let mut rows = vec![(
            "stage".to_owned(),
            "layers".to_owned(),
            Held::default().by_kind().map(|it| it.0.to_owned()),
            "all".to_owned(),
            if uneven.is_some() { "worst load".to_owned() } else { String::new() },
        )];
        let mut before: Option<(Held, u64)> = None;
        for (number, ((name, held, _), layers)) in self.stages.iter().zip(&self.setup.stages).enumerate() {
            if before == Some((*held, *layers)) {
                // Stages that hold the same are one line.
                if let Some((first, ..)) = rows.last_mut() {
                    let start = first.split_once(" to ").map_or(first.as_str(), |it| it.0);
                    *first = format!("{start} to {name}");
                }
                continue;
            }
            before = Some((*held, *layers));
            let kinds = held.by_kind().map(|(_, bytes)| memory::words(bytes));
            let worst = uneven.and_then(|it| it.stages.get(number));
            let worst = worst.map_or_else(String::new, |(_, held, _)| memory::words(held.total()));
            rows.push((name.clone(), layers.to_string(), kinds, memory::words(held.total()), worst));
        }
        for (name, layers, kinds, all, worst) in rows {
            let cells: String = kinds.iter().map(|it| format!("{it:>18}")).collect();
            line_of(text, format_args!("  {name:<10}{layers:>6}{cells}{all:>14}{worst:>14}"));
        }
        if let Some(uneven) = &self.worst {
            self.uneven(text, uneven);
        }
    }

    /// What the worst load of experts takes, beside the even one.
    fn uneven(&self, text: &mut String, Uneven { load, now, changes, .. }: &Uneven) {
        if load.imbalance <= 1.0 {
            let all = "every rank has all experts".to_owned();
            let why = if self.setup.ep == 1 { all } else { load.source.to_string() };
            return line_of(text, format_args!("worst load    the even one: {why}"));
        }
        let longer = |seconds: f64| 100.0 * (seconds / self.now.seconds - 1.0);
        let verdict = self.verdict(now);
        let (held, time) = (memory::words(now.held), quantity::seconds(now.seconds));
        line_of(
            text,
            format_args!(
                "worst load    {held}: {verdict}; {time} ({:+.1} %) if the busiest rank of experts has {:.2} times its \
                 even share of tokens",
                longer(now.seconds),
                load.imbalance
            ),
        );
        line_of(text, format_args!("  by          {}", load.source));
        for Change { after, .. } in changes {
            let (held, time) = (self.held(after), quantity::seconds(after.seconds));
            let keys = self.words_of(&after.choice);
            let longer = longer(after.seconds);
            line_of(text, format_args!("  fits with   {keys}: {time} ({longer:+.1} %), {held}"));
        }
    }

    fn step(&self, text: &mut String, answer: &kinds::Answer, error: Option<f64>) {
        let bars = error.map_or_else(String::new, |it| format!(", give or take {it:.1} %"));
        line_of(text, format_args!("step          {}{bars}", quantity::seconds(answer.time.total().0)));
        for term in answer.time.terms().iter().filter(|it| it.time.0 > 0.0) {
            line_of(text, format_args!("  {:<24}{}", term.name, quantity::seconds(term.time.0)));
        }
        for Source { name, rows, median, mean, worst } in &self.sources {
            line_of(
                text,
                format_args!(
                    "  off from {rows} runs of {name}: median {median:.1} %, mean {mean:.1} %, at most {worst:.1} %"
                ),
            );
        }
    }

    fn bests(&self, text: &mut String) {
        let titles =
            [("best", format!("within {}", self.runner.title())), ("overall", "of all setups".to_owned())];
        for ((word, title), best) in titles.into_iter().zip(&self.best) {
            let Best { found, setups, priced, nearest: _ } = best;
            let Some(found) = found else {
                line_of(text, format_args!("{word:<14}nothing fits {title}: {setups} setups looked at"));
                continue;
            };
            let time = quantity::seconds(found.seconds);
            let gap = 100.0 * (found.seconds / self.now.seconds - 1.0);
            line_of(
                text,
                format_args!(
                    "{word:<14}{time} ({gap:+.1} %) {title}, {}; proven on {setups} setups, {priced} of them \
                     priced",
                    self.held(found)
                ),
            );
            let keys = self.words_of(&found.choice);
            line_of(text, format_args!("  {}", if keys.is_empty() { "the setup as it is" } else { &keys }));
        }
    }

    fn words_of(&self, choice: &Choice) -> String {
        let keys = self.now.choice.changes(choice, &self.setup);
        let words: Vec<String> =
            keys.iter().map(|it| format!("{} {} -> {}", it.name, it.from, it.to)).collect();
        words.join(", ")
    }

    fn told_changes(&self, text: &mut String) {
        for change in &self.changes {
            let gain = 100.0 * (change.after.seconds / self.now.seconds - 1.0);
            line_of(
                text,
                format_args!(
                    "change        {}: {} ({gain:+.1} %), {}",
                    self.words_of(&change.after.choice),
                    quantity::seconds(change.after.seconds),
                    self.held(&change.after),
                ),
            );
        }
        if self.changes.is_empty() {
            let what = if self.now.fits { "helps" } else { "makes it fit" };
            line_of(text, format_args!("change        no change of one key or two {what}"));
        }
    }

    fn words(&self, text: &mut String) {
        for said in &self.read.strange {
            line_of(text, format_args!("NOT UNDERSTOOD {said}: it is as if it were left out"));
        }
        for (said, taken) in &self.read.taken {
            line_of(text, format_args!("taken         {said}: {taken}"));
        }
        if !self.read.harmless.is_empty() {
            line_of(text, format_args!("no effect     {}", self.read.harmless.join("; ")));
        }
    }

    fn uneven_json(&self, Uneven { load, stages, now, changes }: &Uneven) -> Value {
        json!({
            "imbalance": load.imbalance,
            "source": load.source.to_string(),
            "seconds": now.seconds,
            "memory_bytes": now.held,
            "fits": now.fits,
            "stages": stages.iter().zip(&self.setup.stages).map(|(it, layers)| stage(it, *layers)).collect::<Vec<_>>(),
            "changes": changes.iter().map(|it| self.change_json(it)).collect::<Vec<_>>(),
        })
    }

    fn best_json(&self, place: usize) -> Value {
        let Best { found, setups, priced, nearest: _ } = &self.best[place];
        let mut json = found.as_ref().map_or(json!({}), |it| self.priced_json(it));
        json["setups"] = json!(setups);
        json["priced"] = json!(priced);
        json
    }

    fn change_json(&self, change: &Change) -> Value {
        self.priced_json(&change.after)
    }

    fn priced_json(&self, priced: &Priced) -> Value {
        let keys = self.now.choice.changes(&priced.choice, &self.setup);
        json!({
            "seconds": priced.seconds,
            "gain": 1.0 - priced.seconds / self.now.seconds,
            "memory_bytes": priced.held,
            "changes": keys.iter().map(|it| json!({ "key": it.name, "from": it.from, "to": it.to })).collect::<Vec<_>>(),
        })
    }
}

fn source(it: &Source) -> Value {
    json!({ "source": it.name, "rows": it.rows, "median_percent": it.median, "mean_percent": it.mean, "worst_percent": it.worst })
}

fn stage((name, held, room): &(String, Held, f64), layers: u64) -> Value {
    let kinds: serde_json::Map<String, Value> =
        held.by_kind().into_iter().map(|(kind, bytes)| (kind.to_owned(), json!(bytes))).collect();
    json!({ "stage": name, "layers": layers, "memory": kinds, "memory_bytes": held.total(), "room_bytes": room })
}

/// A value of TOML as one of JSON.
fn plain(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn line_of(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}", line.to_string().trim_end());
}

//! Tokens made one after another on the GPU: how much of the memory's bandwidth a step of one token takes.

use std::time::Instant;

use cost_models::units::exact;
use device::Device;
use driver::generation::bound::{Decoder, Wanted as Sizes};
use driver::generation::choose::{self, Manner, Place};
use driver::generation::planned::{Step, Wanted, planned};
use driver::generation::roles::{Told, roles};
use driver::generation::sequences::Sequences;
use driver::pipeline;
use files::folder::Folder;
use files::model_file::{self, ModelFile};
use files::{Doing, Failure, Of};
use launch::gpu;
use lower::Program;
use model_zoo::folder::Writer;
use model_zoo::llama::{self, Size, Use};
use plan::Generation;
use planner_ir::{Graph, Mesh};
use rewrite::Steps;
use run::Session;

use super::goal::Bound;
use super::{Given, Row, Section};
use crate::median;

const SECTION: Section = Section {
    name: "tokens one after another",
    beside: "the bandwidth of the memory that the machine says, by the least that has to be read for a token: all \
             weights and the whole cache, once",
};

/// How many sequences grow at once.
const BATCHES: [u64; 2] = [1, 8];

/// Tokens before those that are measured, and how many are measured.
const TOKENS: [usize; 2] = [4, 32];

/// How many tokens there is room for: a step reads the whole cache.
const ROOM: u64 = 1024;
const LITTLE_ROOM: u64 = 40;

/// What part of the bandwidth is wanted where one sequence grows.
const WANTED: f64 = 0.55;

/// How a token is chosen: the likeliest one.
const LIKELIEST: Manner = Manner { temperature: 0.0, most: None, mass: 1.0, seed: 0 };

/// A row for each number of sequences.
pub(super) fn rows(given: &Given<'_>) -> Result<Vec<Row>, Failure> {
    let (name, size, room) = if given.options.quick {
        ("a Llama of 1 layer", Size::LITTLE, LITTLE_ROOM)
    } else {
        ("a Llama of 1.24e9 parameters", Size::BILLION, ROOM)
    };
    let folder = Folder::new("gpu-decode", None)?;
    (given.say)(format!("writing {name}").into());
    let path = Writer::large(&folder.path)
        .and_then(|writer| {
            let writer = writer.of_elements(Use::Generation.element());
            llama::write(writer, size, Use::Generation, 0)
        })
        .map_err(|error| Failure::unwritten(&folder.path, &error))?;
    let file = model_file::open(&path)?;
    Ok(BATCHES
        .map(|batch| {
            let sequences = if batch == 1 { "sequence" } else { "sequences" };
            let row = Row::new(&SECTION, format!("{name} in bf16, {batch} {sequences} of {room}"));
            let token = Token { file: &file, size, batch, room };
            (given.say)(format!("planning a token of {batch} {sequences}").into());
            match token.planned(given) {
                // What does not fit is no fault.
                Err(error) => row.left_out(error),
                Ok(generation) => match token.measured(given, &generation) {
                    Ok(seconds) => token.row(given, row, seconds, generation.decode.seconds()),
                    Err(error) => row.failed(error),
                },
            }
        })
        .into())
}

/// A step of one token of each sequence.
struct Token<'a> {
    file: &'a ModelFile,
    size: Size,
    batch: u64,
    room: u64,
}

impl Token<'_> {
    /// With what a token takes, and by the prices of the machine (seconds).
    fn row(&self, given: &Given<'_>, row: Row, seconds: f64, predicted: f64) -> Row {
        let bytes = exact(self.bytes());
        let part = bytes / seconds / given.machine.device.memory_bandwidth.value.0;
        let row = row
            .taking("took", seconds)
            .with("reads", format!("{:.2} GB", bytes / 1e9), bytes)
            .with("of the bandwidth", format!("{:.1} %", 100.0 * part), part)
            .priced(predicted, seconds);
        // With several sequences there is more to compute for what is read.
        if self.batch > 1 {
            return row;
        }
        row.wanting("part of the memory's bandwidth", part, Bound::Least(WANTED))
    }

    /// The least that has to be read for a token (bytes): each weight, which the embedding is too since it
    /// makes the logits, and the keys and values of all places.
    fn bytes(&self) -> u64 {
        let Size { layers, hidden, heads, groups, .. } = self.size;
        let narrow = 2;
        let kept = 2 * self.batch * layers * groups * (hidden / heads) * self.room;
        narrow * (self.size.parameters() + kept)
    }

    /// The median time of a token (seconds).
    fn measured(&self, given: &Given<'_>, generation: &Generation) -> Result<f64, Failure> {
        let programs = pipeline::lower(&generation.decode, &mut |_, _| {})?;
        (given.say)("making kernels ready".into());
        let plans: [&[Program]; 1] = [&programs];
        let device = Device::in_turns(&gpu::settings(&given.options.cuda), &plans)
            .map_err(|error| Failure::Input(error.to_string()))?;
        let failed = |error| Failure::input("run", error);
        let session = Session::on(Box::new(device), None, programs, self.file).map_err(failed)?;
        let prompts = (0..self.batch).map(|it| vec![i64::try_from(it).unwrap_or(0)]).collect();
        let mut sequences = Sequences::new(generation, None, session, prompts).map_err(failed)?;
        let mut seconds = Vec::new();
        for number in 0..TOKENS[0] + TOKENS[1] {
            (given.say)(Doing::one("token", number + 1, Of::All(TOKENS[0] + TOKENS[1])));
            let start = Instant::now();
            let logits = sequences.logits().map_err(failed)?;
            if number >= TOKENS[0] {
                seconds.push(start.elapsed().as_secs_f64());
            }
            let next = logits.iter().map(|logits| {
                let token = choose::next(logits.as_ref()?, &LIKELIEST, Place { sequence: 0, position: 0 });
                i64::try_from(token).ok()
            });
            let next: Vec<Option<i64>> = next.collect();
            if logits.iter().flatten().flatten().any(|it| !it.is_finite()) {
                return Err(Failure::Input("what the model says of a token is no number".to_owned()));
            }
            sequences.push(&next);
        }
        Ok(median(&seconds))
    }

    /// The plan of a token on one device.
    fn planned(&self, given: &Given<'_>) -> Result<Generation, Failure> {
        let roles = roles(&self.file.model, &Told::default())
            .map_err(|error| Failure::file(&self.file.path, error))?;
        let wanted =
            Sizes { batch: Some(self.batch), prompt: Some(1), context: Some(self.room), dims: Vec::new() };
        let decoder = Decoder::of(self.file, roles, &wanted)?;
        let graph: Graph = decoder.step(1)?;
        let prepared = pipeline::prepare(&graph, &mut |_, _| {})?;
        let header = decoder.header(&graph, 1)?;
        let machine =
            given.machine.clone().with_devices(1).map_err(|error| Failure::internal("bench gpu", error))?;
        let wanted = Wanted {
            machine: &machine,
            ways: vec![(Mesh::of_sizes(&[1]), None)],
            capacity: machine.usable_memory().0,
            steps: Steps::Auto,
            layout: None,
        };
        planned(&decoder.cache(), None, Step { prepared, header }, &wanted, &|_| {}).map(|it| it.0)
    }
}

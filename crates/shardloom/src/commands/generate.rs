//! `generate`: prompts to tokens, and plans for it.

mod planned; // `plan --mode generate`

use std::time::Instant;

use ::plan::{Generation, Growth};
use ::run::RunError;
use cost_models::quantity;
use driver::generation::choose::{self, Manner, Place};
use driver::generation::sequences::{Logits, Sequences};
use driver::generation::together::fit_together;
use driver::pipeline;
use files::Failure;
use files::model_file::ModelFile;
use files::readable::hexadecimal;
use files::{plan_file, readable};
use launch::cluster::{self, Facts};
use launch::gpu;
use lower::Program;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Context, Form, Said};
use crate::arguments::{GenerateArguments, ids};

pub(super) use planned::plan;

/// What is ready.
struct Ready {
    generation: Generation,
    file: ModelFile,
    prompts: Vec<Vec<i64>>,
    prefill: Option<Vec<Program>>,
    decode: Vec<Program>,
    /// What the files of weights are compared by with those of other ranks.
    prints: Facts,
}

/// Makes tokens.
pub(crate) fn generate(
    arguments: &GenerateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let ready = ready(arguments, context);
    let Ready { generation, file, prompts, prefill, decode, prints: _ } =
        context.agree(ready, |ready| facts(arguments, ready))?;
    context.progress.say("reading weights");
    let failed = |error: RunError| Failure::of_run("generate", &file.path, &error);
    let sessions = gpu::sessions(&arguments.on, context.cluster, context.progress, decode, prefill, &file);
    let (decode, prefill) = sessions.map_err(failed)?;
    let sequences = Sequences::new(&generation, prefill, decode, prompts).map_err(failed)?;
    let mut run = Run::new(arguments, &generation, sequences);
    let steps = run.steps(context, &failed)?;
    if !context.leads() {
        return Ok(Said { text: String::new(), json: Value::Null });
    }
    Ok(run.said(&steps, context))
}

/// Everything before a rank starts.
fn ready(arguments: &GenerateArguments, context: &mut Context<'_, '_>) -> Result<Ready, Failure> {
    gpu::expect(&arguments.on, context.cluster)?;
    let path = &arguments.plan;
    context.progress.say(format!("reading {}", path.display()));
    let generation = plan_file::generation(path)?;
    let prompts = prompts(arguments)?;
    fit(&generation, arguments, &prompts)?;
    fit_together(&generation).map_err(|error| Failure::file(path, error))?;
    let file = plan_file::named_model(path, generation.model(), arguments.model.as_deref())?;
    file.expect_weights()?;
    context.progress.say("lowering");
    let stages = &mut *context.stages;
    let mut lowered = |plan| pipeline::lower(plan, &mut |stage, made| stages.observe(stage, made));
    let prefill = generation.prefill.as_ref().map(&mut lowered).transpose()?;
    let decode = lowered(&generation.decode)?;
    let prints = context.prints(&file)?;
    Ok(Ready { generation, file, prompts, prefill, decode, prints })
}

/// How many ranks there are, and what all of them have to do alike.
fn facts(arguments: &GenerateArguments, ready: &Ready) -> (Option<u64>, Facts) {
    let plan = hexadecimal(Sha256::digest(::plan::json::write_generation(&ready.generation)));
    let manner = format!("{:?} {:?} {}", manner(arguments), arguments.stop, arguments.max_new_tokens);
    let facts = cluster::facts([
        ("the plan", format!("{} (SHA-256 {plan:.12}..)", arguments.plan.display())),
        ("the prompts", format!("{:?}", ready.prompts)),
        ("how tokens are chosen", manner),
    ]);
    (u64::try_from(ready.decode.len()).ok(), [facts, ready.prints.clone()].concat())
}

fn prompts(arguments: &GenerateArguments) -> Result<Vec<Vec<i64>>, Failure> {
    let Some(path) = &arguments.prompts else {
        return Ok(arguments.prompt_ids.iter().map(|prompt| prompt.0.clone()).collect());
    };
    let text = readable::text(path)?;
    let line = |(number, line): (usize, &str)| {
        let prompt = ids(line).map_err(|error| Failure::file(path, format!("line {}: {error}", number + 1)));
        Ok(prompt?.0)
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}

/// Refuses prompts that the plan is not for.
fn fit(generation: &Generation, arguments: &GenerateArguments, prompts: &[Vec<i64>]) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::file(&arguments.plan, why));
    let (batch, found) = (generation.batch(), prompts.len());
    if u64::try_from(found) != Ok(batch) {
        return refused(format!(
            "it is for {batch} sequences at once, there are {found} prompts: give {batch}, or plan again with \
             `--batch {found}`"
        ));
    }
    let vocabulary = generation.vocabulary();
    let known = |token: &i64| u64::try_from(*token).is_ok_and(|token| token < vocabulary);
    let capacity = generation.cache.capacity;
    // Where prompts are taken in one step, they have to fit it.
    let at_once = generation.cache.growth == Growth::AtLength;
    let most = if at_once { generation.width().min(capacity) } else { capacity };
    for (number, prompt) in (1..).zip(prompts) {
        if let Some(token) = prompt.iter().find(|token| !known(token)) {
            return refused(format!(
                "prompt {number} has token {token}, the model knows tokens from 0 to {}",
                vocabulary.saturating_sub(1)
            ));
        }
        let length = prompt.len();
        if u64::try_from(length).is_ok_and(|length| length > most) {
            let flag = if most < capacity { "--prompt" } else { "--context" };
            return refused(format!(
                "prompt {number} has {length} tokens, there is room for {most}: plan again with `{flag}`"
            ));
        }
    }
    Ok(())
}

fn manner(arguments: &GenerateArguments) -> Manner {
    Manner {
        temperature: arguments.temperature,
        most: arguments.top_k.map(|it| usize::try_from(it).unwrap_or(usize::MAX)),
        mass: arguments.top_p,
        seed: arguments.seed,
    }
}

/// Tokens on their way.
struct Run<'a> {
    arguments: &'a GenerateArguments,
    sequences: Sequences<'a>,
    manner: Manner,
    /// For each sequence how long its prompt is, and how many tokens it may have.
    bounds: Vec<(usize, usize)>,
    /// For each sequence, whether it has ended.
    over: Vec<bool>,
}

/// What steps took.
struct Steps {
    /// Until there was a first token (seconds).
    first: f64,
    /// All after that (seconds).
    others: f64,
    /// How many those were.
    count: u64,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a GenerateArguments, generation: &Generation, sequences: Sequences<'a>) -> Self {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (room, new) = (size(generation.cache.capacity), size(arguments.max_new_tokens));
        // The last token of all needs no place: nothing comes after it.
        let bound =
            |tokens: &Vec<i64>| (tokens.len(), tokens.len().saturating_add(new).min(room.saturating_add(1)));
        let bounds: Vec<(usize, usize)> = sequences.tokens().iter().map(bound).collect();
        let over = vec![false; bounds.len()];
        Self { arguments, sequences, manner: manner(arguments), bounds, over }
    }

    /// Steps until all sequences have ended.
    fn steps(
        &mut self,
        context: &mut Context<'_, '_>,
        failed: &dyn Fn(RunError) -> Failure,
    ) -> Result<Steps, Failure> {
        context.progress.say("generating");
        let mut steps = Steps { first: 0.0, others: 0.0, count: 0 };
        let mut number = 0_u64;
        while self.over.iter().any(|over| !over) {
            let start = Instant::now();
            let logits = self.sequences.logits().map_err(failed)?;
            let next = shared(self.chosen(&logits), context)?;
            let seconds = start.elapsed().as_secs_f64();
            if number == 0 {
                steps.first = seconds;
            } else {
                steps.others += seconds;
                steps.count += 1;
            }
            self.print(number, &next, context);
            self.sequences.push(&next);
            for (sequence, tokens) in self.sequences.tokens().iter().enumerate() {
                let ended = next[sequence].is_some_and(|token| self.arguments.stop.contains(&token));
                self.over[sequence] |= ended || tokens.len() >= self.bounds[sequence].1;
            }
            number += 1;
        }
        Ok(steps)
    }

    /// The next token of each sequence that has not ended and whose prompt is over.
    fn chosen(&self, logits: &Logits) -> Vec<Option<i64>> {
        let choice = |(sequence, logits): (usize, &Option<Vec<f64>>)| {
            let logits = logits.as_ref().filter(|_| !self.over[sequence])?;
            let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
            let position = self.sequences.tokens()[sequence].len();
            let place = Place { sequence: number(sequence), position: number(position) };
            i64::try_from(choose::next(logits, &self.manner, place)).ok()
        };
        logits.iter().enumerate().map(choice).collect()
    }

    fn print(&self, number: u64, next: &[Option<i64>], context: &mut Context<'_, '_>) {
        let line = match context.lines.form {
            Form::Nothing => return,
            Form::Json => format!("{}\n", json!({ "step": number, "tokens": next })),
            Form::Text => {
                let word = |token: &Option<i64>| token.map_or("-".to_owned(), |token| token.to_string());
                let words: Vec<String> = next.iter().map(word).collect();
                format!("{}\n", words.join(" "))
            }
        };
        let lines = &mut context.lines;
        // Where nobody reads, the exit code still says it.
        let _ =
            context.progress.without(|| lines.to.write_all(line.as_bytes()).and_then(|()| lines.to.flush()));
    }

    fn said(&self, steps: &Steps, context: &Context<'_, '_>) -> Said {
        let tokens = self.sequences.tokens();
        let new = || tokens.iter().zip(&self.bounds).map(|(tokens, (prompt, _))| &tokens[*prompt..]);
        let made: usize = new().map(<[i64]>::len).sum();
        let all = steps.first + steps.others;
        let a_second = |count: u64, seconds: f64| if seconds > 0.0 { real(count) / seconds } else { 0.0 };
        let made = u64::try_from(made).unwrap_or(u64::MAX);
        let rate = a_second(steps.count, steps.others);
        let text = format!(
            "{made} tokens in {}, the first after {}; then {rate:.1} steps a second",
            quantity::seconds(all),
            quantity::seconds(steps.first)
        );
        if context.lines.form == Form::Text {
            context.progress.without(|| eprintln!("{text}"));
        }
        let json = json!({
            "sequences": new().collect::<Vec<_>>(),
            "tokens": made,
            "seconds": all,
            "seconds_to_first_token": steps.first,
            "steps_per_second": rate,
            "tokens_per_second": a_second(made, all),
            "held_bytes": self.sequences.held(),
        });
        Said { text: String::new(), json }
    }
}

/// What the first process has chosen, in all of them.
fn shared(own: Vec<Option<i64>>, context: &Context<'_, '_>) -> Result<Vec<Option<i64>>, Failure> {
    let Some(cluster) = context.cluster else { return Ok(own) };
    let internal = |error: serde_json::Error| Failure::internal("cluster", error);
    let said = cluster.processes.said(&serde_json::to_vec(&own).map_err(internal)?);
    let first = said.first().map_or(&[][..], Vec::as_slice);
    serde_json::from_slice(first).map_err(internal)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn real(number: u64) -> f64 {
    number as f64
}

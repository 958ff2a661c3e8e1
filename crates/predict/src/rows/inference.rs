//! `inference_rows.csv`: tokens a second, and times to the first and from token to token.
//!
//! Where a batch is stated its examples are read together and written together. Where requests come
//! without end, as many are written together as have room, and each is read when another has
//! ended. Where they come at a rate, those are written together that come while one is written.

use cost_models::units::exact;

use super::training::apart;
use super::{Answer, Kind, Priced};
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::framework::Framework;
use crate::inference::{keys_and_values, pass, room};
use crate::model::even_stages;
use crate::pieces::Job;
use crate::setup::{Arithmetic, Attention, Setup};
use crate::shapes;
use crate::stated::{Unstated, gpt};
use crate::table::{Row, TableError};

/// Times of answers.
pub struct Inference;

/// The most requests that engines write together.
const MOST: f64 = 2048.0;

impl Kind for Inference {
    fn file(&self) -> &'static str {
        "inference_rows.csv"
    }

    fn columns(&self) -> &'static [&'static str] {
        &["row_id", "source", "gpu", "model", "tp", "precision", "in_len", "out_len", "metric", "value"]
    }

    fn price(&self, row: &Row<'_>) -> Result<Answer, TableError> {
        match priced(row) {
            Ok(answer) => Ok(answer),
            Err(Unstated::Field(error)) => Err(error),
            Err(Unstated::Why(why)) => Ok(Answer::Skipped(why)),
        }
    }
}

/// A row's requests.
struct Requests<'a> {
    row: &'a Row<'a>,
    framework: Framework,
    cluster: Cluster,
    tp: u64,
    read: f64,
    written: f64,
}

fn priced(row: &Row<'_>) -> Result<Answer, Unstated> {
    let why = |text: &str| Unstated::Why(text.to_owned());
    let measured = row.number("value")?.ok_or_else(|| why("`value` is blank"))?;
    let need = |column: &str| {
        let count = row.count(column)?.filter(|it| *it > 0);
        count.ok_or_else(|| Unstated::Why(format!("`{column}` is not stated")))
    };
    let failed = |error: &dyn std::error::Error| Unstated::Why(error.to_string());
    let machine = machine_of(row.text("gpu")).map_err(Unstated::Why)?;
    let cluster = Cluster::new(machine, &Links::default(), row.text("source")).map_err(|it| failed(&it))?;
    let framework = Framework::shipped("serving").map_err(|it| failed(&it))?.on(&cluster.machine.name);
    let requests = Requests {
        row,
        framework,
        cluster,
        tp: need("tp")?,
        read: exact(need("in_len")?),
        written: exact(need("out_len")?),
    };
    let batch = row.count("batch")?.map(exact);
    let given = row.text("concurrency_or_qps");
    let rate = given.strip_prefix("qps=").and_then(|it| it.parse::<f64>().ok()).filter(|it| it.is_finite());
    let together = given.strip_prefix("conc=").and_then(|it| it.parse::<f64>().ok());
    let metric = row.text("metric");
    let found = match metric {
        "first_token_latency" => 1e3 * requests.reading(batch.unwrap_or(1.0))?,
        "e2e_latency" => 1e3 * requests.whole(batch.unwrap_or(1.0))?,
        "output_tok_s_per_gpu" | "output_tok_s_total" => {
            let devices = if metric.ends_with("per_gpu") { exact(requests.tp) } else { 1.0 };
            let tokens = match (batch, rate, together) {
                (Some(batch), ..) => batch * requests.written / requests.whole(batch)?,
                (_, Some(rate), _) => (rate * requests.written).min(requests.most()?),
                (_, _, Some(count)) => requests.steady(count)?.1,
                _ => requests.most()?,
            };
            tokens / devices
        }
        "mean_itl" | "mean_tpot" => match (rate, together) {
            (Some(rate), _) => 1e3 * requests.at_rate(rate)?,
            (_, Some(count)) => 1e3 * requests.steady(count)?.0,
            _ => return Err(why("how many requests are written together is not stated")),
        },
        "mean_ttft" => match rate {
            Some(rate) => 1e3 * (requests.reading(1.0)? + requests.at_rate(rate)? / 2.0),
            None => return Err(why("the wait before a request is read is not modelled")),
        },
        other => return Err(Unstated::Why(format!("`{other}` is no measure that is known"))),
    };
    Ok(Answer::Priced(Priced { apart: apart(row), ..Priced::new(found, measured) }))
}

impl Requests<'_> {
    /// What `of` is for examples of so many tokens (of which those before count for attention).
    fn with<T>(&self, examples: f64, tokens: f64, of: impl Fn(&Job<'_>) -> T) -> Result<T, Unstated> {
        let model = shapes::named(self.row.text("model"), whole(tokens));
        let why = || Unstated::Why(format!("the shape of `{}` is not known", self.row.text("model")));
        let model = model.ok_or_else(why)?;
        let precision = match self.row.text("precision") {
            text if text.contains("fp8") => Arithmetic::F8,
            text if text.contains("fp4") => Arithmetic::F4,
            text if text.contains("bf16") => Arithmetic::Bf16,
            _ => Arithmetic::F16,
        };
        let mbs = whole(examples);
        let setup = Setup {
            tp: self.tp,
            stages: even_stages(model.layers, 1),
            mbs,
            gbs: mbs,
            attention: Attention::Fused,
            precision,
            model,
            ..gpt(1, 1, 1, 1)
        };
        setup.check().map_err(|error| Unstated::Why(error.to_string()))?;
        let job = Job::new(&setup, &self.framework, &self.cluster);
        Ok(of(&job.map_err(|error| Unstated::Why(error.to_string()))?))
    }

    /// Time to read so many prompts together (seconds).
    fn reading(&self, examples: f64) -> Result<f64, Unstated> {
        self.with(examples, self.read, |job| pass(job).0)
    }

    /// Time of a token of so many examples together (seconds).
    fn token(&self, examples: f64) -> Result<f64, Unstated> {
        let before = examples * (self.read + self.written / 2.0);
        self.with(examples, 1.0, |job| pass(job).0 + keys_and_values(job, before).0)
    }

    /// Time to read and to answer so many prompts together (seconds).
    fn whole(&self, examples: f64) -> Result<f64, Unstated> {
        Ok(self.reading(examples)? + (self.written - 1.0).max(0.0) * self.token(examples)?)
    }

    /// Time from token to token with so many requests at a time, and tokens a second.
    fn steady(&self, examples: f64) -> Result<(f64, f64), Unstated> {
        // While one is written, each of the others is read once.
        let between = self.token(examples)? + examples * self.reading(1.0)? / self.written;
        Ok((between, examples / between))
    }

    /// Tokens a second with as many requests as have room.
    fn most(&self) -> Result<f64, Unstated> {
        let tokens = self.read + self.written;
        let count = self.with(1.0, 1.0, |job| room(job, tokens))?.clamp(1.0, MOST);
        Ok(self.steady(count)?.1)
    }

    /// Time from token to token with so many requests a second.
    fn at_rate(&self, rate: f64) -> Result<f64, Unstated> {
        let mut between = self.token(1.0)?;
        for _ in 0..8 {
            let count = (rate * self.written * between).clamp(1.0, MOST);
            between = self.steady(count)?.0;
        }
        Ok(between)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive counts of tokens")]
fn whole(count: f64) -> u64 {
    count.max(1.0).round() as u64
}

//! What a configuration says, in the words of stated setups: every argument of it sets a key of such a setup, or
//! is said to change nothing, to be taken as something else, or not to be understood.

mod bridge; // Megatron-Bridge
mod deepspeed; // DeepSpeed
mod given; // what is stated, by name
mod megatron; // Megatron-LM
mod script; // words of a script
mod shape; // a model's sizes from its configuration
mod torchtitan; // torchtitan

use std::fmt;

use toml::{Table, Value};

use crate::space::Runner;
use given::Given;

/// What a configuration says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    /// The keys of a stated setup.
    pub keys: Table,
    /// What changes neither time nor memory.
    pub harmless: Vec<String>,
    /// What prices do not know, and what it is taken to be.
    pub taken: Vec<(String, String)>,
    /// What is not understood.
    pub strange: Vec<String>,
    /// To how many times its even share of tokens the busiest expert is held, and by which argument.
    pub held: Option<(f64, String)>,
    /// How many layers that predict further tokens the configuration of the model has.
    further: u64,
}

/// How the configuration of a model calls layers that predict further tokens.
const FURTHER: &str = "num_nextn_predict_layers";

/// What is known besides the configuration.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// The `config.json` of the model.
    pub model: Option<String>,
    /// Tokens of an example.
    pub sequence: Option<u64>,
    /// Devices of the run.
    pub devices: Option<u64>,
    /// The order of a pipeline's work, as the file beside the configuration has it that torchtitan reads.
    pub schedule: Option<String>,
}

/// Why a configuration is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It is not in the language that it should be in.
    Language(String),
    /// An argument that must be stated.
    Missing(&'static str, &'static str),
    /// An argument with a value that it does not take.
    Value {
        /// The argument.
        name: String,
        /// Its value.
        found: String,
        /// What it takes.
        expected: String,
    },
    /// Two things that do not say the same.
    Contradiction {
        /// Of which key.
        key: String,
        /// What the first says.
        one: String,
        /// What the second says.
        other: String,
    },
    /// What the `config.json` says is not priced.
    Model(String),
}

/// The setup that the configuration of a framework states.
pub fn read(runner: Runner, text: &str, beside: &Beside) -> Result<Read, ReadError> {
    let mut read = Read::default();
    let given = match runner {
        Runner::Megatron => Given::of_words(&script::words(text)?),
        Runner::Bridge => bridge::given(text)?,
        Runner::Torchtitan => torchtitan::given(text)?,
        Runner::Deepspeed => deepspeed::given(text)?,
    };
    if let Some(model) = &beside.model {
        shape::model(&mut read, model)?;
    }
    if let Some(tokens) = beside.sequence {
        read.set("seq_length", integer(tokens))?;
    }
    let stated = beside.devices;
    match runner {
        Runner::Megatron | Runner::Bridge => megatron::read(&mut read, given, stated, runner),
        Runner::Torchtitan => torchtitan::read(&mut read, given, stated, beside.schedule.as_deref()),
        Runner::Deepspeed => deepspeed::read(&mut read, given, stated),
    }?;
    read.keys.insert("framework".to_owned(), Value::from(runner.figures()));
    Ok(read)
}

/// The keys that a `config.json` sets.
pub fn sizes(model: &str) -> Result<Read, ReadError> {
    let mut read = Read::default();
    shape::model(&mut read, model)?;
    Ok(read)
}

/// Which layers have experts.
const FREQUENCY: &str = "moe_layer_freq";

impl Read {
    /// Sets a key; what says it twice must say the same.
    fn set(&mut self, key: &'static str, value: impl Into<Value>) -> Result<(), ReadError> {
        let value = value.into();
        match self.keys.get(key) {
            Some(before) if *before != value => Err(ReadError::Contradiction {
                key: key.to_owned(),
                one: before.to_string(),
                other: value.to_string(),
            }),
            _ => {
                self.keys.insert(key.to_owned(), value);
                Ok(())
            }
        }
    }

    /// Sets a count.
    fn count(&mut self, key: &'static str, count: Option<u64>) -> Result<(), ReadError> {
        let Some(count) = count else { return Ok(()) };
        self.set(key, integer(count))
    }

    /// A count that is set.
    fn known(&self, key: &str) -> Option<u64> {
        self.keys.get(key).and_then(Value::as_integer).and_then(|it| u64::try_from(it).ok())
    }

    /// States whether each layer has experts, where some have.
    fn experts_in(&mut self, layers: &[bool]) -> Result<(), ReadError> {
        if layers.contains(&false) {
            self.set(FREQUENCY, layers.iter().map(|it| i64::from(*it)).collect::<Vec<i64>>())
        } else {
            self.set(FREQUENCY, 1)
        }
    }

    /// Whether layers without experts are stated among others.
    fn has_dense_layers(&self) -> bool {
        self.keys.get(FREQUENCY).is_some_and(Value::is_array)
    }

    /// So many layers that predict further tokens are trained.
    fn trains_further(&mut self, count: u64) -> Result<(), ReadError> {
        self.taken.retain(|(said, _)| !said.starts_with(FURTHER));
        self.set("mtp_num_layers", integer(count))
    }

    /// Notes what is taken to be something else.
    fn take(&mut self, said: impl Into<String>, taken: &str) {
        self.taken.push((said.into(), taken.to_owned()));
    }

    /// The number of devices: what the configuration says and what is said beside it agree.
    fn world(&mut self, stated: Option<u64>, found: Option<u64>) -> Result<u64, ReadError> {
        match (stated, found) {
            (Some(one), Some(other)) if one != other => Err(ReadError::Contradiction {
                key: "world_size".to_owned(),
                one: format!("{one} (the machine)"),
                other: format!("{other} (the configuration)"),
            }),
            (Some(count), _) | (None, Some(count)) => {
                self.set("world_size", integer(count))?;
                Ok(count)
            }
            (None, None) => {
                Err(ReadError::Missing("the number of devices", "say it with the machine: h100-80g-64x"))
            }
        }
    }

    /// What of the configuration nobody has asked for: harmless, known and taken otherwise, or strange.
    fn rest(&mut self, given: Given, harmless: &[&str], taken: &[(&str, &str)]) {
        for (name, shown) in given.left() {
            let is = |it: &str| it.strip_suffix('*').map_or(it == name, |start| name.starts_with(start));
            if let Some((_, as_what)) = taken.iter().find(|(it, _)| is(it)) {
                self.take(shown, as_what);
            } else if harmless.iter().any(|it| is(it)) {
                self.harmless.push(shown);
            } else {
                self.strange.push(shown);
            }
        }
    }
}

/// A count as TOML has it.
fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Nothing where a product of degrees does not fit.
fn product(parts: &[u64]) -> u64 {
    parts.iter().fold(1_u64, |all, part| all.saturating_mul(*part)).max(1)
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Language(message) | Self::Model(message) => f.write_str(message),
            Self::Missing(what, how) => write!(f, "does not state {what}; {how}"),
            Self::Value { name, found, expected } => write!(f, "`{name}` is {found}, expected {expected}"),
            Self::Contradiction { key, one, other } => {
                write!(f, "`{key}` is said twice: {one}, and {other}; leave one out")
            }
        }
    }
}

impl std::error::Error for ReadError {}

#[cfg(test)]
mod tests;

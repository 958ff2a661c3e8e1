//! A configuration: keys that are read once each, and none that is passed over.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

/// Keys that change nothing that is computed: how a model is loaded, trained, initialised and made to speak.
const HARMLESS: [&str; 59] = [
    "_attn_implementation_autoset",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "auto_map",
    "aux_loss_alpha",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "dtype",
    "embd_pdrop",
    "embedding_dropout",
    "eos_token_id",
    "ep_size",
    "experts_per_token",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "initial_context_length",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "max_position_embeddings",
    "model_type",
    "n_ctx",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "resid_pdrop",
    "return_dict",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "seq_aux",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_cache",
];

/// Why a configuration is no model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// Not a JSON object.
    Json(String),
    /// A key that is needed and not there: its name, and what is expected.
    Missing(String, &'static str),
    /// A value that is another than expected: the key, what was found, what was expected.
    Wrong(String, String, String),
    /// A key that nothing here reads: its name, its value, the type of the model.
    Unknown(String, String, String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(to, "not a JSON object: {error}"),
            Self::Missing(key, expected) => write!(to, "`{key}` is missing, expected {expected}"),
            Self::Wrong(key, found, expected) => write!(to, "`{key}` is {found}, expected {expected}"),
            Self::Unknown(key, found, model) => write!(
                to,
                "`{key}` is {found}: what that changes in a model of type `{model}` is not known; take the key out if \
                 it changes nothing that is computed"
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

/// What reading a configuration gives.
pub(crate) type Result<T> = std::result::Result<T, ConfigError>;

/// An object of a configuration, and which of its keys have been read.
pub(crate) struct Config {
    object: Map<String, Value>,
    read: RefCell<BTreeSet<String>>,
    /// How its keys are called in messages.
    prefix: String,
}

/// The most layers of a model.
const MOST_LAYERS: u64 = 10_000;

/// The text of a configuration as JSON: Python writes numbers without bound as no JSON has them.
pub fn json(text: &str) -> String {
    text.replace("[0.0, Infinity]", "[0.0, \"Infinity\"]")
}

impl Config {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(&json(text)).map_err(|error| ConfigError::Json(error.to_string()))?;
        match value {
            Value::Object(object) => Ok(Self::of(object, "")),
            other => Err(ConfigError::Json(format!("found {}", shown(&other)))),
        }
    }

    fn of(object: Map<String, Value>, prefix: &str) -> Self {
        Self { object, read: RefCell::default(), prefix: prefix.to_owned() }
    }

    fn named(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// What is refused: a key, and what was expected of it.
    pub(crate) fn wrong(&self, key: &str, expected: impl Into<String>) -> ConfigError {
        let found = self.object.get(key).map_or_else(|| "not there".to_owned(), shown);
        ConfigError::Wrong(self.named(key), found, expected.into())
    }

    pub(crate) fn missing(&self, key: &str, expected: &'static str) -> ConfigError {
        ConfigError::Missing(self.named(key), expected)
    }

    /// Whether a key is there, be it null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.object.contains_key(key)
    }

    /// A value that is not null.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(key.to_owned());
        self.object.get(key).filter(|it| !it.is_null())
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &'static str,
        of: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.value(key).map(|it| of(it).ok_or_else(|| self.wrong(key, expected))).transpose()
    }

    pub(crate) fn number_if(&self, key: &str) -> Result<Option<u64>> {
        self.read(key, "a whole number that is not negative", Value::as_u64)
    }

    pub(crate) fn number_or(&self, key: &str, default: u64) -> Result<u64> {
        Ok(self.number_if(key)?.unwrap_or(default))
    }

    /// How many there are of something: one at least.
    pub(crate) fn count(&self, key: &str) -> Result<u64> {
        let expected = "a whole number above 0";
        let found = self.read(key, expected, |it| it.as_u64().filter(|&it| it > 0))?;
        found.ok_or_else(|| self.missing(key, expected))
    }

    /// The same, if it is there.
    pub(crate) fn count_if(&self, key: &str) -> Result<Option<u64>> {
        if self.value(key).is_some() { self.count(key).map(Some) } else { Ok(None) }
    }

    pub(crate) fn count_or(&self, key: &str, default: u64) -> Result<u64> {
        Ok(self.count_if(key)?.unwrap_or(default))
    }

    /// How many layers a model has: so many that a graph of it can be written.
    pub(crate) fn layers(&self) -> Result<u64> {
        const KEY: &str = "num_hidden_layers";
        match self.count(KEY)? {
            count if count > MOST_LAYERS => {
                Err(self.wrong(KEY, format!("a whole number from 1 to {MOST_LAYERS}")))
            }
            count => Ok(count),
        }
    }

    /// A number above 0.
    pub(crate) fn positive_or(&self, key: &str, default: f64) -> Result<f64> {
        let found = self.real_or(key, default)?;
        if found > 0.0 { Ok(found) } else { Err(self.wrong(key, "a number above 0")) }
    }

    pub(crate) fn positive(&self, key: &str) -> Result<f64> {
        let found = self.real(key)?;
        if found > 0.0 { Ok(found) } else { Err(self.wrong(key, "a number above 0")) }
    }

    pub(crate) fn real_if(&self, key: &str) -> Result<Option<f64>> {
        self.read(key, "a number", Value::as_f64)
    }

    pub(crate) fn real_or(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.real_if(key)?.unwrap_or(default))
    }

    pub(crate) fn real(&self, key: &str) -> Result<f64> {
        self.real_if(key)?.ok_or_else(|| self.missing(key, "a number"))
    }

    pub(crate) fn flag_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    pub(crate) fn text_if(&self, key: &str) -> Result<Option<String>> {
        self.read(key, "a text", |it| it.as_str().map(str::to_owned))
    }

    pub(crate) fn texts_if(&self, key: &str) -> Result<Option<Vec<String>>> {
        let text = |it: &Value| it.as_str().map(str::to_owned);
        self.read(key, "a list of texts", |it| it.as_array()?.iter().map(text).collect())
    }

    pub(crate) fn reals_if(&self, key: &str) -> Result<Option<Vec<f64>>> {
        self.read(key, "a list of numbers", |it| it.as_array()?.iter().map(Value::as_f64).collect())
    }

    pub(crate) fn numbers_if(&self, key: &str) -> Result<Option<Vec<u64>>> {
        self.read(key, "a list of whole numbers", |it| it.as_array()?.iter().map(Value::as_u64).collect())
    }

    /// An object inside.
    pub(crate) fn inner(&self, key: &str) -> Result<Option<Self>> {
        let inner = self.read(key, "an object", |it| it.as_object().cloned())?;
        Ok(inner.map(|it| Self::of(it, &format!("{}{key}.", self.prefix))))
    }

    /// A flag of which only one value is known.
    pub(crate) fn only(&self, key: &str, known: bool, default: bool) -> Result<()> {
        match self.flag_or(key, default)? {
            found if found == known => Ok(()),
            _ => Err(self.wrong(key, known.to_string())),
        }
    }

    /// Keys that are known not to matter to a model of this type.
    pub(crate) fn pass_over(&self, keys: &[&str]) {
        self.read.borrow_mut().extend(keys.iter().map(|&it| it.to_owned()));
    }

    /// Refuses what has not been read.
    pub(crate) fn done(&self, model: &str) -> Result<()> {
        let read = self.read.borrow();
        let mut left = self.object.iter().filter(|(key, value)| {
            let is_harmless = self.prefix.is_empty() && HARMLESS.contains(&key.as_str());
            !value.is_null() && !is_harmless && !read.contains(*key)
        });
        match left.next() {
            Some((key, value)) => Err(ConfigError::Unknown(self.named(key), shown(value), model.to_owned())),
            None => Ok(()),
        }
    }
}

/// The most characters of a value that a message has.
const SHOWN: usize = 60;

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

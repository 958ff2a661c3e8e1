//! Configurations of Hugging Face to graphs in ONNX.
//!
//! `written` takes the text of a `config.json` and gives the bytes of an ONNX model whose weights have the names,
//! types and places that they have in a checkpoint, and no data.

pub mod onnx; // ONNX models, written
mod config; // a configuration, every key of which is read
mod decoder; // what a decoder is made of
mod rotary; // the angles of rotary embeddings
mod families; // from configurations to decoders
mod graph; // from decoders to graphs

pub use config::{ConfigError, json};

use config::Config;
use onnx::{Data, Element, Parameter, Writer};

/// What a graph is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Input `input_ids: [batch, sequence]`, output `logits: [batch, sequence, vocabulary]`.
    Forward,
    /// Besides, input `labels: [batch, sequence]` and output `loss`, which is of the next tokens' labels; of
    /// those that are −100 there is none. What predicts tokens after the next (multi-token prediction) adds to it.
    Loss,
    /// The same without what predicts tokens after the next.
    NextLoss,
    /// The outputs of `Forward`, and the cache that these tokens leave: `present.N.key` and `present.N.value`.
    Prefill,
    /// New tokens behind a cache: inputs `input_ids`, `attention_mask: [batch, total_length]`, `position_ids`
    /// and `past_key_values.N.key` and `.value`, outputs as those of `Prefill`.
    Decode,
}

impl Use {
    /// Every use.
    pub const ALL: [Self; 5] = [Self::Forward, Self::Loss, Self::NextLoss, Self::Prefill, Self::Decode];

    /// Whether it is for training.
    pub fn is_trained(self) -> bool {
        matches!(self, Self::Loss | Self::NextLoss)
    }
}

/// How the weights of a layer's experts are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertWeights {
    /// Each expert has its own, as checkpoints have them: `experts.N.NAME.weight: [out, in]`.
    Apart,
    /// All experts have one, as what trains them has it: `experts.NAME.weight: [experts, out, in]`.
    Together,
}

/// Which graph of a configuration is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it is for.
    pub of: Use,
    /// The numbers of weights; those that the configuration says if nothing is said.
    pub element: Option<Element>,
    /// How many layers, if fewer than the configuration has.
    pub layers: Option<u64>,
    /// The extents of dimensions that have names otherwise.
    pub batch: Option<u64>,
    /// The same of sequences.
    pub sequence: Option<u64>,
    /// How the weights of experts are held.
    pub experts: ExpertWeights,
}

impl Wanted {
    /// The whole model with named dimensions; experts that are trained have one weight together, which can be
    /// split among devices by experts.
    pub fn of(of: Use) -> Self {
        let experts = if of.is_trained() { ExpertWeights::Together } else { ExpertWeights::Apart };
        Self { of, element: None, layers: None, batch: None, sequence: None, experts }
    }
}

/// A model that was written.
#[derive(Clone, Debug)]
pub struct Model {
    /// The ONNX file.
    pub bytes: Vec<u8>,
    /// Its weights.
    pub parameters: Vec<Parameter>,
    /// What of the configuration is not in the graph, in words.
    pub left_out: Vec<String>,
}

impl Model {
    /// How many numbers its weights have.
    pub fn count(&self) -> u64 {
        self.parameters.iter().map(Parameter::count).sum()
    }
}

/// Whether a file is a configuration: a JSON object that says the type of its model.
pub fn is_config(bytes: &[u8]) -> bool {
    let begins = bytes.iter().find(|it| !it.is_ascii_whitespace()) == Some(&b'{');
    let text = if begins { std::str::from_utf8(bytes).ok() } else { None };
    text.and_then(|it| Config::parse(it).ok()).is_some_and(|it| it.has("model_type"))
}

/// The ONNX model of a configuration; `data` says where its weights are.
pub fn written(config: &str, wanted: &Wanted, data: Data<'_>) -> Result<Model, ConfigError> {
    let config = Config::parse(config)?;
    let said = families::element(&config)?;
    let (mut decoder, mut left_out) = families::decoder(&config)?;
    if let Some(layers) = wanted.layers.and_then(|it| usize::try_from(it).ok())
        && layers < decoder.layers.len()
    {
        decoder.layers.truncate(layers);
        decoder.further.clear();
    }
    if wanted.of != Use::Loss && !decoder.further.is_empty() {
        let only = if wanted.of == Use::NextLoss { "not in a loss of next tokens" } else { "in a loss only" };
        left_out.push(format!(
            "`num_nextn_predict_layers`: what predicts {} tokens after the next is {only}",
            decoder.further.len()
        ));
        decoder.further.clear();
    }
    let written = graph::write(&decoder, wanted, wanted.element.unwrap_or(said), Writer::new(data));
    Ok(Model { bytes: written.bytes, parameters: written.parameters, left_out })
}

#[cfg(test)]
mod tests;

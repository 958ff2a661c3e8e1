//! A decoder as a graph of ONNX operators, as exporters write it.

mod ends; // tokens to vectors, vectors to logits and a loss
mod angles; // cosines and sines of positions
mod attention; // attention
mod latent; // attention by latent vectors
mod recurrent; // states that go from token to token
mod units; // what is computed for each token alone
mod experts; // mixtures of experts

use std::collections::BTreeMap;

use crate::decoder::{Decoder, Layer, Linear, Mixer, Norm, NormKind, Norms, Stored, Units};
use crate::onnx::{Attribute, Element, Writer};
use crate::{Use, Wanted};

/// The version of the operators: the first that has attention and norms by root mean squares.
const OPERATORS: u64 = 23;
/// The first that has states that go from token to token.
const WITH_STATES: u64 = 27;

/// Writes a decoder. Everything it is made of is in memory, but for what a writer of weights does.
pub(crate) fn write(decoder: &Decoder, wanted: &Wanted, element: Element, writer: Writer<'_>) -> Written {
    let recurrent = decoder.layers.iter().any(|it| matches!(it.mixer, Mixer::Recurrent(_)));
    let version = if recurrent { WITH_STATES } else { OPERATORS };
    let writer = writer.of_version(version).of_elements(element).declaring();
    let mut graph = Graph::new(decoder, wanted, writer);
    graph.inputs();
    let angles: Vec<_> = decoder.tables.iter().map(|table| graph.angles(table)).collect();
    let mut x = graph.embedded();
    for (number, layer) in decoder.layers.iter().enumerate() {
        x = graph.layer(number, layer, &angles, &x);
    }
    let x = graph.norm(&decoder.norm, decoder.hidden, &x);
    graph.ends(&angles, &x);
    let parameters = graph.writer.parameters().to_vec();
    // Only a writer to a file fails, and then it is its owner who hears of it.
    Written { bytes: graph.writer.finish().unwrap_or_default(), parameters }
}

/// A model, and its weights.
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    pub(crate) parameters: Vec<crate::onnx::Parameter>,
}

/// A graph that is being written.
struct Graph<'a, 'w> {
    decoder: &'a Decoder,
    wanted: &'a Wanted,
    writer: Writer<'w>,
    /// The names of the dimensions of inputs.
    batch: String,
    sequence: String,
    /// Positions of tokens: `[1 or batch, sequence]`.
    positions: String,
    /// The places that hold something, `[batch, 1, 1, total]`, where there is a cache.
    held: Option<String>,
    /// Which of the new tokens are some, once a layer has asked for it.
    is_token: Option<String>,
    /// How many tables of angles there are.
    tables: usize,
    /// Masks by their windows.
    masks: BTreeMap<Option<u64>, String>,
}

/// Cosines and sines: `[1 or batch, 1, sequence, rotated]`.
struct Angles {
    cosines: String,
    sines: String,
    rotated: u64,
}

impl<'a, 'w> Graph<'a, 'w> {
    fn new(decoder: &'a Decoder, wanted: &'a Wanted, writer: Writer<'w>) -> Self {
        let dim = |said: Option<u64>, name: &str| said.map_or_else(|| name.to_owned(), |it| it.to_string());
        Self {
            decoder,
            wanted,
            writer,
            batch: dim(wanted.batch, "batch"),
            sequence: dim(wanted.sequence, "sequence"),
            positions: String::new(),
            held: None,
            is_token: None,
            tables: 0,
            masks: BTreeMap::new(),
        }
    }

    /// Whether keys and values of before are inputs.
    fn has_past(&self) -> bool {
        self.wanted.of == Use::Decode
    }

    /// Whether keys and values are outputs.
    fn is_cached(&self) -> bool {
        matches!(self.wanted.of, Use::Prefill | Use::Decode)
    }

    fn layer(&mut self, number: usize, layer: &Layer, angles: &[Angles], x: &str) -> String {
        let first = self.before(&layer.mixer_norms, x);
        let mixed = match &layer.mixer {
            Mixer::Attention(attention) => self.attention(number, attention, angles, &first),
            Mixer::Latent(latent) => self.latent(number, latent, angles, &first),
            Mixer::Recurrent(recurrent) => self.recurrent(number, recurrent, &first),
        };
        let mixed = self.after(&layer.mixer_norms, &mixed);
        self.writer.within(&layer.name);
        let mixed = self.scaled(&mixed, layer.residual);
        let sum = (!layer.parallel).then(|| self.op("Add", &[x, &mixed]));
        if layer.units == Units::None {
            return sum.unwrap_or(mixed);
        }
        let second = self.before(&layer.units_norms, sum.as_deref().unwrap_or(x));
        let units = match &layer.units {
            Units::None => second,
            Units::Dense(dense) => self.dense(dense, &second),
            Units::Experts(experts) => self.experts(experts, &second),
        };
        let units = self.after(&layer.units_norms, &units);
        self.writer.within(&layer.name);
        let units = self.scaled(&units, layer.residual);
        match sum {
            Some(sum) => self.op("Add", &[&sum, &units]),
            None => {
                let both = self.op("Add", &[&units, &mixed]);
                self.op("Add", &[&both, x])
            }
        }
    }

    fn before(&mut self, norms: &Norms, x: &str) -> String {
        self.optional_norm(norms.before.as_ref(), x)
    }

    fn after(&mut self, norms: &Norms, x: &str) -> String {
        self.optional_norm(norms.after.as_ref(), x)
    }

    fn optional_norm(&mut self, norm: Option<&Norm>, x: &str) -> String {
        let hidden = self.decoder.hidden;
        norm.map_or_else(|| x.to_owned(), |norm| self.norm(norm, hidden, x))
    }

    /// x normalised along its last dimension.
    fn norm(&mut self, norm: &Norm, width: u64, x: &str) -> String {
        self.writer.within(&norm.name);
        let scale = self.weight(&format!("{}.weight", norm.name), &[width]);
        #[expect(clippy::cast_possible_truncation, reason = "the format has 32 bits for it")]
        let attributes =
            [("axis", Attribute::Integer(-1)), ("epsilon", Attribute::Float(norm.epsilon as f32))];
        match norm.kind {
            NormKind::Rms => self.writer.node("RMSNormalization", &[x, &scale], &attributes),
            NormKind::RmsAroundOne => {
                let one = self.number(1.0);
                let scale = self.op("Add", &[&scale, &one]);
                self.writer.node("RMSNormalization", &[x, &scale], &attributes)
            }
            NormKind::Layer { bias } => {
                let mut operands = vec![x, scale.as_str()];
                let bias = bias.then(|| self.weight(&format!("{}.bias", norm.name), &[width]));
                operands.extend(bias.as_deref());
                self.writer.node("LayerNormalization", &operands, &attributes)
            }
        }
    }

    /// The product with a weight, plus its bias.
    fn linear(&mut self, linear: &Linear, extents: [u64; 2], x: &str) -> String {
        self.writer.within(&linear.name);
        let [from, to] = extents;
        let name = format!("{}.weight", linear.name);
        let weight = match linear.stored {
            Stored::InOut => self.weight(&name, &[from, to]),
            Stored::OutIn => {
                let weight = self.weight(&name, &[to, from]);
                self.transposed(&weight, &[1, 0])
            }
        };
        let product = self.op("MatMul", &[x, &weight]);
        if !linear.bias {
            return product;
        }
        let bias = self.weight(&format!("{}.bias", linear.name), &[to]);
        self.op("Add", &[&product, &bias])
    }

    fn scaled(&mut self, x: &str, factor: Option<f64>) -> String {
        match factor {
            Some(factor) => {
                let factor = self.number(factor);
                self.op("Mul", &[x, &factor])
            }
            None => x.to_owned(),
        }
    }

    /// x between a bound and its negative.
    fn softcapped(&mut self, x: &str, bound: Option<f64>) -> String {
        let Some(bound) = bound else { return x.to_owned() };
        let bound = self.number(bound);
        let small = self.op("Div", &[x, &bound]);
        let small = self.op("Tanh", &[&small]);
        self.op("Mul", &[&small, &bound])
    }

    fn weight(&mut self, name: &str, shape: &[u64]) -> String {
        // Of this model no weights are in memory or written.
        self.writer.weight(name, shape, || 0.0).unwrap_or_else(|_| name.to_owned())
    }

    fn op(&mut self, op: &str, operands: &[&str]) -> String {
        self.writer.node(op, operands, &[])
    }

    fn with_axis(&mut self, op: &str, operands: &[&str], axis: i64) -> String {
        self.writer.node(op, operands, &[("axis", Attribute::Integer(axis))])
    }

    fn transposed(&mut self, x: &str, permutation: &[i64]) -> String {
        self.writer.node("Transpose", &[x], &[("perm", Attribute::Integers(permutation))])
    }

    /// x in another shape; 0 is an extent of x at the same place, −1 what is left.
    fn reshaped(&mut self, x: &str, shape: &[i64]) -> String {
        let shape = self.integers(shape);
        self.op("Reshape", &[x, &shape])
    }

    fn unsqueezed(&mut self, x: &str, axes: &[i64]) -> String {
        let axes = self.integers(axes);
        self.op("Unsqueeze", &[x, &axes])
    }

    /// Parts along the last dimension.
    fn split<const N: usize>(&mut self, x: &str, axis: i64, sizes: [u64; N]) -> [String; N] {
        let sizes = self.integers(&sizes.map(signed));
        self.writer.nodes("Split", &[x, &sizes], &[("axis", Attribute::Integer(axis))])
    }

    fn cast(&mut self, x: &str, element: Element) -> String {
        self.writer.node("Cast", &[x], &[("to", Attribute::Integer(signed(element.number())))])
    }

    /// x with other numbers, if the model's are not these.
    fn widened(&mut self, x: &str) -> String {
        if self.writer.element() == Element::F32 { x.to_owned() } else { self.cast(x, Element::F32) }
    }

    fn narrowed(&mut self, x: &str) -> String {
        let element = self.writer.element();
        if element == Element::F32 { x.to_owned() } else { self.cast(x, element) }
    }

    /// Heads `[batch, sequence, heads * size]` as `[batch, heads, sequence, size]`.
    fn heads_first(&mut self, x: &str, heads: u64, size: u64) -> String {
        let apart = self.reshaped(x, &[0, 0, signed(heads), signed(size)]);
        self.transposed(&apart, &[0, 2, 1, 3])
    }

    /// The way back.
    fn heads_last(&mut self, x: &str, heads: u64, size: u64) -> String {
        let turned = self.transposed(x, &[0, 2, 1, 3]);
        self.reshaped(&turned, &[0, 0, signed(heads * size)])
    }

    /// A list of integers.
    fn integers(&mut self, numbers: &[i64]) -> String {
        let words: Vec<String> = numbers.iter().map(i64::to_string).collect();
        let count = u64::try_from(numbers.len()).unwrap_or(0);
        self.writer.integers(&format!("integers_{}", words.join("_")), &[count], numbers)
    }

    /// One integer.
    fn integer(&mut self, number: i64) -> String {
        self.writer.integers(&format!("integer_{number}"), &[], &[number])
    }

    /// One number of the model's kind.
    fn number(&mut self, number: f64) -> String {
        self.number_of(self.writer.element(), number)
    }

    /// One number.
    fn number_of(&mut self, element: Element, number: f64) -> String {
        let name = format!("{}_{number}", element.name());
        self.writer.floats_of(element, &name, &[], &[single(number)])
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn single(number: f64) -> f32 {
    number as f32
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

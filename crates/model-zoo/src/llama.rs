//! A Llama as an ONNX file, in standard operators, with weights from a seed: to be trained, or with a cache to
//! make tokens.

use std::io;
use std::path::PathBuf;

use files::inputs::Random;

use crate::folder::{Attribute, Element, Writer};

/// Added to the mean square in norms, and what angles of positions are powers of.
///
/// Source: the file `config.json` of Llama 3.2 1B, which has the sizes of [`Size::BILLION`] too.
const EPSILON: f32 = 1e-5;
const THETA: f64 = 500_000.0;
/// The standard deviation of weights.
///
/// Source: `initializer_range` in the same file.
const SPREAD: f64 = 0.02;
/// The version of the standard operators for attention, rotations and root mean squares.
pub const OPERATORS: u64 = 23;

/// How large a model is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Blocks.
    pub layers: u64,
    /// The length of a token's vector.
    pub hidden: u64,
    /// The length inside of gated units.
    pub units: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub groups: u64,
    /// Tokens that there are.
    pub vocabulary: u64,
    /// Positions that there are angles of.
    pub positions: u64,
    /// Whether the embedding of tokens makes the logits too, or a weight of its own.
    pub tied: bool,
}

impl Size {
    /// As Llama 3.2 1B, but for scaled angles: with 1.24e9 parameters.
    pub const BILLION: Self = Self {
        layers: 16,
        hidden: 2048,
        units: 8192,
        heads: 32,
        groups: 8,
        vocabulary: 128_256,
        positions: 4096,
        tied: true,
    };

    /// One that is soon done.
    pub const LITTLE: Self = Self {
        layers: 1,
        hidden: 32,
        units: 64,
        heads: 4,
        groups: 2,
        vocabulary: 64,
        positions: 64,
        tied: true,
    };

    /// How many weights the model has.
    pub fn parameters(&self) -> u64 {
        let Self { layers, hidden, units, heads, groups, vocabulary, .. } = *self;
        let attention = hidden * (2 * hidden + 2 * groups * (hidden / heads));
        let ends = if self.tied { 1 } else { 2 };
        ends * vocabulary * hidden + layers * (attention + 3 * hidden * units + 2 * hidden) + hidden
    }
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Input `input_ids: [batch, sequence]`.
    Training,
    /// New tokens behind a cache: besides, `attention_mask: [batch, total_length]`, `position_ids` and the
    /// parts of the cache, which grow.
    Generation,
}

/// Writes the model; where it is. Output `logits: [batch, sequence, vocabulary]`.
pub fn write(writer: Writer, size: Size, use_: Use, seed: u64) -> io::Result<PathBuf> {
    let mut model = Model { writer: writer.of_version(OPERATORS), size, seed };
    model.writer.input("input_ids", &["batch", "sequence"]);
    let tokens = model.weight("embed_tokens", &[size.vocabulary, size.hidden])?;
    let angles = model.angles();
    let (positions, mask) = match use_ {
        Use::Training => (model.counted(), None),
        Use::Generation => {
            model.writer.input("attention_mask", &["batch", "total_length"]);
            model.writer.input("position_ids", &["batch", "sequence"]);
            ("position_ids".to_owned(), Some(model.mask()))
        }
    };
    let mut x = model.op("Gather", &[&tokens, "input_ids"]);
    for layer in 0..size.layers {
        let place = Place { layer, positions: &positions, angles: &angles, mask: mask.as_deref() };
        x = model.attention(&place, &x)?;
        x = model.units(layer, &x)?;
    }
    let x = model.norm("norm", &x)?;
    let head = match size.tied {
        true => model.writer.node("Transpose", &[&tokens], &[("perm", Attribute::Integers(&[1, 0]))]),
        false => model.weight("lm_head", &[size.hidden, size.vocabulary])?,
    };
    let logits = model.op("MatMul", &[&x, &head]);
    model.writer.output("logits", &logits, &["batch", "sequence", &size.vocabulary.to_string()]);
    model.writer.finish()
}

struct Model {
    writer: Writer,
    size: Size,
    seed: u64,
}

/// Where attention is: the layer, the positions of tokens, their cosines and sines, and with a cache which
/// places hold something.
struct Place<'a> {
    layer: u64,
    positions: &'a str,
    angles: &'a [String; 2],
    mask: Option<&'a str>,
}

impl Model {
    /// Cosines and sines by position and frequency: `[positions, size / 2]` each.
    fn angles(&mut self) -> [String; 2] {
        let Size { hidden, heads, positions, .. } = self.size;
        let half = hidden / heads / 2;
        let angle = |number: u64| {
            let [place, turn] = [number / half, number % half].map(real);
            place * THETA.powf(-turn / real(half))
        };
        let element = self.writer.element();
        let mut table = |name: &str, of: fn(f64) -> f64| {
            let numbers: Vec<f32> = (0..positions * half).map(|it| narrowed(of(angle(it)))).collect();
            self.writer.floats_of(element, name, &[positions, half], &numbers)
        };
        [table("cosines", f64::cos), table("sines", f64::sin)]
    }

    /// The positions of tokens that begin a sequence.
    fn counted(&mut self) -> String {
        self.writer.integers("zero", &[], &[0]);
        self.writer.integers("one", &[], &[1]);
        self.writer.integers("first", &[1], &[0]);
        let shape = self.op("Shape", &["input_ids"]);
        let sequence = self.op("Gather", &[&shape, "one"]);
        let range = self.op("Range", &["zero", &sequence, "one"]);
        let row = self.op("Unsqueeze", &[&range, "first"]);
        self.op("Expand", &[&row, &shape])
    }

    /// Which places of the cache hold something, for all heads and queries alike.
    fn mask(&mut self) -> String {
        self.writer.integers("inner", &[2], &[1, 2]);
        let holds = self.writer.node("Cast", &["attention_mask"], &[("to", Attribute::Integer(BOOL))]);
        self.op("Unsqueeze", &[&holds, "inner"])
    }

    fn attention(&mut self, place: &Place<'_>, x: &str) -> io::Result<String> {
        let Size { hidden, heads, groups, .. } = self.size;
        let of_groups = groups * (hidden / heads);
        let layer = place.layer;
        let h = self.norm(&format!("layers.{layer}.input_norm"), x)?;
        let mut projected = |name: &str, width: u64| -> io::Result<String> {
            let weight = self.weight(&format!("layers.{layer}.{name}"), &[hidden, width])?;
            Ok(self.op("MatMul", &[&h, &weight]))
        };
        let [q, k, v] = [projected("q", hidden)?, projected("k", of_groups)?, projected("v", of_groups)?];
        let [q, k] = [(q, heads), (k, groups)].map(|(of, heads)| {
            let operands = [&of, &place.angles[0], &place.angles[1], place.positions];
            let heads = [("num_heads", Attribute::Integer(signed(heads)))];
            self.writer.node("RotaryEmbedding", &operands.map(AsRef::as_ref), &heads)
        });
        let attributes = [
            ("is_causal", Attribute::Integer(1)),
            ("q_num_heads", Attribute::Integer(signed(heads))),
            ("kv_num_heads", Attribute::Integer(signed(groups))),
        ];
        let seen = match place.mask {
            None => self.writer.node("Attention", &[&q, &k, &v], &attributes),
            Some(mask) => {
                let size = (hidden / heads).to_string();
                let part = |when: &str, what: &str| format!("{when}.{layer}.{what}");
                let pasts = ["key", "value"].map(|it| part("past_key_values", it));
                let presents = ["key", "value"].map(|it| part("present", it));
                let dims = |length| ["batch", &groups.to_string(), length, &size].map(str::to_owned);
                for past in &pasts {
                    self.writer.numbers(past, &dims("past_length").each_ref().map(String::as_str));
                }
                let operands = [&q, &k, &v, mask, &pasts[0], &pasts[1]];
                let [seen, keys, values] = self.writer.nodes("Attention", &operands, &attributes);
                for (present, kept) in presents.iter().zip([keys, values]) {
                    let dims = dims("total_length");
                    self.writer.output(present, &kept, &dims.each_ref().map(String::as_str));
                }
                seen
            }
        };
        let weight = self.weight(&format!("layers.{layer}.o"), &[hidden, hidden])?;
        let out = self.op("MatMul", &[&seen, &weight]);
        Ok(self.op("Add", &[x, &out]))
    }

    fn units(&mut self, layer: u64, x: &str) -> io::Result<String> {
        let Size { hidden, units, .. } = self.size;
        let h = self.norm(&format!("layers.{layer}.units_norm"), x)?;
        let [gate, up] =
            ["gate", "up"].map(|name| self.weight(&format!("layers.{layer}.{name}"), &[hidden, units]));
        let gate = self.op("MatMul", &[&h, &gate?]);
        let up = self.op("MatMul", &[&h, &up?]);
        let open = self.op("Sigmoid", &[&gate]);
        let gate = self.op("Mul", &[&gate, &open]);
        let inner = self.op("Mul", &[&gate, &up]);
        let down = self.weight(&format!("layers.{layer}.down"), &[units, hidden])?;
        let out = self.op("MatMul", &[&inner, &down]);
        Ok(self.op("Add", &[x, &out]))
    }

    fn norm(&mut self, name: &str, x: &str) -> io::Result<String> {
        let scale = self.writer.weight(name, &[self.size.hidden], || 1.0)?;
        let attributes = [("axis", Attribute::Integer(-1)), ("epsilon", Attribute::Float(EPSILON))];
        Ok(self.writer.node("RMSNormalization", &[x, &scale], &attributes))
    }

    fn op(&mut self, op: &str, operands: &[&str]) -> String {
        self.writer.node(op, operands, &[])
    }

    /// Uniform numbers, of which there are too many here for nearly normal ones: their variance is that of
    /// (−√3, √3) times the spread.
    fn weight(&mut self, name: &str, shape: &[u64]) -> io::Result<String> {
        let mut random = Random::new(self.seed, name);
        let width = SPREAD * 3.0_f64.sqrt();
        self.writer.weight(name, shape, || narrowed(random.number() * width))
    }
}

/// The number of truth values among ONNX's types.
const BOOL: i64 = 9;

/// Weights of 16 bits, as models that make tokens have them; of 32 to be trained.
impl Use {
    /// What numbers weights are.
    pub fn element(self) -> Element {
        match self {
            Self::Training => Element::F32,
            Self::Generation => Element::Bf16,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn narrowed(number: f64) -> f32 {
    number as f32
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn real(number: u64) -> f64 {
    number as f64
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

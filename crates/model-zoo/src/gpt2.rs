//! GPT-2 as an ONNX file: the operators that exporters write, with weights from a seed.

use std::io;
use std::path::PathBuf;

use files::inputs::Random;

use crate::folder::{Attribute, Writer};

/// Added to the variance in norms.
const EPSILON: f32 = 1e-5;
/// The standard deviation of weights.
///
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, whose code
/// and weights have it; section 2.3 has the scale of the layers that end in a residual.
const SPREAD: f64 = 0.02;
/// How many uniform numbers are summed for one that is nearly normal: the variance of a uniform
/// number in (−1, 1) is 1/3, that of so many is 4.
const UNIFORM: usize = 12;

/// How large a model is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Blocks.
    pub layers: u64,
    /// The length of a token's vector.
    pub hidden: u64,
    /// Heads of attention.
    pub heads: u64,
    /// Tokens that there are.
    pub vocabulary: u64,
    /// Positions that have an embedding: a sequence has no more tokens.
    pub positions: u64,
}

impl Size {
    /// How many weights the model has.
    pub fn parameters(&self) -> u64 {
        let Self { layers, hidden, vocabulary, positions, .. } = *self;
        // Products with biases: of queries, keys and values, back, to four times the length, and back.
        let (products, biases, norms) = (12 * hidden * hidden, 9 * hidden, 4 * hidden);
        (vocabulary + positions) * hidden + layers * (products + biases + norms) + 2 * hidden
    }
}

/// What weights are before anything is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All alike, biases too: each of them shows in the outputs.
    Alike,
    /// As GPT-2 begins to be trained: biases are 0, and what a block adds to its input is scaled
    /// down by the root of how often something is added.
    Untrained,
}

/// Writes the model; where it is.
///
/// Input `input_ids: [batch, sequence]`, output `logits: [batch, sequence, vocabulary]`.
pub fn write(writer: Writer, size: Size, start: Start, seed: u64) -> io::Result<PathBuf> {
    let mut model = Model { writer, size, start, seed };
    model.constants();
    let tokens = model.weight("wte", &[size.vocabulary, size.hidden])?;
    let places = model.weight("wpe", &[size.positions, size.hidden])?;
    model.writer.input("input_ids", &["batch", "sequence"]);
    let (positions, mask) = model.positions();
    let embedded = model.op("Gather", &[&tokens, "input_ids"]);
    let placed = model.op("Gather", &[&places, &positions]);
    let mut x = model.op("Add", &[&embedded, &placed]);
    for layer in 0..size.layers {
        x = model.attention(layer, &x, &mask)?;
        x = model.units(layer, &x)?;
    }
    let x = model.norm("ln_f", &x)?;
    let head = model.permuted(&tokens, &[1, 0]);
    let logits = model.op("MatMul", &[&x, &head]);
    model.writer.output("logits", &logits, &["batch", "sequence", &size.vocabulary.to_string()]);
    model.writer.finish()
}

struct Model {
    writer: Writer,
    size: Size,
    start: Start,
    seed: u64,
}

impl Model {
    /// The numbers that several operations use.
    fn constants(&mut self) {
        let [hidden, heads, packed, units] =
            [self.size.hidden, self.size.heads, 3 * self.size.hidden, 4 * self.size.hidden].map(signed);
        let writer = &mut self.writer;
        writer.integers("zero", &[], &[0]);
        writer.integers("one", &[], &[1]);
        writer.integers("first", &[1], &[0]);
        writer.integers("second", &[1], &[1]);
        writer.integers("rows", &[2], &[-1, hidden]);
        writer.integers("unit_rows", &[2], &[-1, units]);
        writer.integers("split", &[4], &[0, 0, heads, hidden / heads]);
        writer.integers("joined", &[3], &[0, 0, hidden]);
        writer.integers("hidden", &[1], &[hidden]);
        writer.integers("packed", &[1], &[packed]);
        writer.integers("units", &[1], &[units]);
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a small number")]
        let scale = ((hidden / heads) as f64).sqrt() as f32;
        writer.float("scale", scale);
        writer.float("hidden_key", f32::MIN);
        writer.float("cubed", 3.0);
        writer.float("cubic", 0.044_715);
        writer.float("slope", 0.797_884_6);
        writer.float("half", 0.5);
        writer.float("whole", 1.0);
    }

    /// The positions of tokens, and which keys each query sees.
    fn positions(&mut self) -> (String, String) {
        let shape = self.op("Shape", &["input_ids"]);
        let sequence = self.op("Gather", &[&shape, "one"]);
        let range = self.op("Range", &["zero", &sequence, "one"]);
        let keys = self.op("Unsqueeze", &[&range, "first"]);
        let queries = self.op("Unsqueeze", &[&range, "second"]);
        let mask = self.op("LessOrEqual", &[&keys, &queries]);
        (keys, mask)
    }

    fn attention(&mut self, layer: u64, x: &str, mask: &str) -> io::Result<String> {
        let hidden = self.size.hidden;
        let h = self.norm(&format!("h.{layer}.ln_1"), x)?;
        let packed =
            self.linear(&format!("h.{layer}.attn.c_attn"), &h, "rows", "packed", [hidden, 3 * hidden])?;
        let axis = [("axis", Attribute::Integer(2))];
        let [q, k, v] = self.writer.nodes("Split", &[&packed], &axis);
        let [q, k, v] = [q, k, v].map(|it| self.op("Reshape", &[&it, "split"]));
        let q = self.permuted(&q, &[0, 2, 1, 3]);
        let k = self.permuted(&k, &[0, 2, 3, 1]);
        let v = self.permuted(&v, &[0, 2, 1, 3]);
        let scores = self.op("MatMul", &[&q, &k]);
        let scores = self.op("Div", &[&scores, "scale"]);
        let scores = self.op("Where", &[mask, &scores, "hidden_key"]);
        let weights = self.writer.node("Softmax", &[&scores], &[("axis", Attribute::Integer(-1))]);
        let seen = self.op("MatMul", &[&weights, &v]);
        let seen = self.permuted(&seen, &[0, 2, 1, 3]);
        let seen = self.op("Reshape", &[&seen, "joined"]);
        let out =
            self.linear(&format!("h.{layer}.attn.c_proj"), &seen, "rows", "hidden", [hidden, hidden])?;
        Ok(self.op("Add", &[&out, x]))
    }

    fn units(&mut self, layer: u64, x: &str) -> io::Result<String> {
        let (hidden, units) = (self.size.hidden, 4 * self.size.hidden);
        let h = self.norm(&format!("h.{layer}.ln_2"), x)?;
        let h = self.linear(&format!("h.{layer}.mlp.c_fc"), &h, "rows", "units", [hidden, units])?;
        let h = self.gelu(&h);
        let h = self.linear(&format!("h.{layer}.mlp.c_proj"), &h, "unit_rows", "hidden", [units, hidden])?;
        Ok(self.op("Add", &[x, &h]))
    }

    /// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    fn gelu(&mut self, x: &str) -> String {
        let half = self.op("Mul", &[x, "half"]);
        let cube = self.op("Pow", &[x, "cubed"]);
        let cube = self.op("Mul", &[&cube, "cubic"]);
        let sum = self.op("Add", &[x, &cube]);
        let inner = self.op("Mul", &[&sum, "slope"]);
        let tanh = self.op("Tanh", &[&inner]);
        let gate = self.op("Add", &[&tanh, "whole"]);
        self.op("Mul", &[&half, &gate])
    }

    /// A product with a weight, plus a bias, of rows that are flattened before and unflattened
    /// after.
    fn linear(
        &mut self,
        name: &str,
        x: &str,
        rows: &str,
        last: &str,
        extents: [u64; 2],
    ) -> io::Result<String> {
        let weight = self.weight(&format!("{name}.weight"), &extents)?;
        let bias = self.bias(&format!("{name}.bias"), &extents[1..])?;
        let shape = self.op("Shape", &["input_ids"]);
        let shape = self.writer.node("Concat", &[&shape, last], &[("axis", Attribute::Integer(0))]);
        let flat = self.op("Reshape", &[x, rows]);
        let y = self.op("Gemm", &[&flat, &weight, &bias]);
        Ok(self.op("Reshape", &[&y, &shape]))
    }

    fn norm(&mut self, name: &str, x: &str) -> io::Result<String> {
        let shape = [self.size.hidden];
        let scale = self.writer.weight(&format!("{name}.weight"), &shape, || 1.0)?;
        let bias = self.bias(&format!("{name}.bias"), &shape)?;
        let attributes = [("axis", Attribute::Integer(-1)), ("epsilon", Attribute::Float(EPSILON))];
        Ok(self.writer.node("LayerNormalization", &[x, &scale, &bias], &attributes))
    }

    fn permuted(&mut self, x: &str, permutation: &[i64]) -> String {
        self.writer.node("Transpose", &[x], &[("perm", Attribute::Integers(permutation))])
    }

    fn op(&mut self, op: &str, operands: &[&str]) -> String {
        self.writer.node(op, operands, &[])
    }

    fn weight(&mut self, name: &str, shape: &[u64]) -> io::Result<String> {
        let mut random = Random::new(self.seed, name);
        let ends_block = name.ends_with("c_proj.weight");
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let added = match self.start {
            Start::Untrained if ends_block => (2 * self.size.layers) as f64,
            _ => 1.0,
        };
        let scale = SPREAD / (2.0 * added.sqrt());
        let mut number = || (0..UNIFORM).map(|_| random.number()).sum::<f64>() * scale;
        #[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
        self.writer.weight(name, shape, || number() as f32)
    }

    fn bias(&mut self, name: &str, shape: &[u64]) -> io::Result<String> {
        match self.start {
            Start::Alike => self.weight(name, shape),
            Start::Untrained => self.writer.weight(name, shape, || 0.0),
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

//! A U-shaped transformer as an ONNX file: residual blocks and attention on images, whose size is
//! halved on the way down and doubled on the way up, with skip connections across.
//!
//! Source: the model of Zhuang et al., "On Optimizing the Communication of Model Parallelism", MLSys 2023,
//! which is the U-Net of diffusion models (Hugging Face, diffusers) with one layer in a block.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use cost_models::units::exact;
use files::inputs::Random;

use crate::folder::{Attribute, Writer};

/// Added to the variance in norms.
const EPSILON: f32 = 1e-5;
/// Groups of channels in the norms of residual blocks.
const GROUPS: u64 = 4;
/// Groups of channels in the norm before attention.
const ATTENTION_GROUPS: u64 = 32;
/// Heads of attention.
const HEADS: u64 = 8;
/// Channels of images.
const SEEN: u64 = 3;
/// Channels of what is predicted.
const PREDICTED: u64 = 4;

/// The seed of weights.
const SEED: u64 = 0;

/// How large a model is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Channels of the first block: the next ones have twice as many, the last as many as the one before.
    pub channels: u64,
    /// Blocks on the way down.
    pub blocks: u32,
    /// Pixels of an image, in height and width.
    pub pixels: u64,
    /// Images in a micro-batch.
    pub images: u64,
}

/// Writes the model; where it is.
///
/// Inputs `images: [images, 3, pixels, pixels]`, `time: [1]`, `context: [images, tokens, features]`,
/// `targets: [images, 4, pixels, pixels]`, output `loss: []`, half the mean squared distance.
pub fn write(writer: Writer, size: Size) -> io::Result<PathBuf> {
    let channels: Vec<u64> = (0..size.blocks).map(|it| size.channels << it.min(size.blocks - 2)).collect();
    let smallest = size.pixels >> (size.blocks - 1);
    let features = channels[channels.len() - 1];
    let mut model = Model {
        writer,
        images: size.images,
        features,
        tokens: smallest * smallest,
        time: 4 * size.channels,
        norms: BTreeSet::new(),
    };
    let side = size.pixels;
    model.writer.floats("images", &[size.images, SEEN, side, side]);
    model.writer.floats("time", &[1]);
    model.writer.floats("context", &[size.images, model.tokens, features]);
    model.writer.floats("targets", &[size.images, PREDICTED, side, side]);
    model.writer.float("one_half", 0.5);
    model.writer.float("one", 1.0);
    model.writer.float("root_of_two", std::f32::consts::SQRT_2);
    let time = model.time(size.channels)?;
    let seen = Image { name: "images".to_owned(), channels: SEEN, pixels: side };
    let mut x = model.convolution("conv_in", &seen, size.channels, Window::Three)?;
    let mut skipped = vec![x.clone()];
    for (block, &channels) in channels.iter().enumerate() {
        let name = format!("down.{block}");
        x = model.residual(&format!("{name}.resnet"), &x, &time, channels)?;
        let last = block + 1 == usize::try_from(size.blocks).unwrap_or(usize::MAX);
        if !last {
            x = model.attentive(&format!("{name}.attention"), &x)?;
        }
        skipped.push(x.clone());
        if !last {
            x = model.convolution(&format!("{name}.half"), &x, channels, Window::Halving)?;
            skipped.push(x.clone());
        }
    }
    x = model.residual("mid.resnet.0", &x, &time, features)?;
    x = model.attentive("mid.attention", &x)?;
    x = model.residual("mid.resnet.1", &x, &time, features)?;
    for (block, &channels) in channels.iter().rev().enumerate() {
        let name = format!("up.{block}");
        // Two values were left by each block on the way down: only the last block takes both.
        let (skip, before) = (skipped.pop(), skipped.pop());
        let last = skipped.is_empty();
        for (number, skip) in skip.into_iter().chain(before.filter(|_| last)).enumerate() {
            let joined = model.joined(&x, &skip);
            x = model.residual(&format!("{name}.resnet.{number}"), &joined, &time, channels)?;
        }
        if !last {
            x = model.attentive(&format!("{name}.attention"), &x)?;
            x = model.doubled(&x);
            x = model.convolution(&format!("{name}.double"), &x, channels, Window::Three)?;
        }
    }
    let name = model.group_norm("norm_out", &x, GROUPS)?;
    let name = model.swish(&name);
    let x = model.convolution("conv_out", &Image { name, ..x }, PREDICTED, Window::Three)?;
    let apart = model.op("Sub", &[&x.name, "targets"]);
    let squared = model.op("Mul", &[&apart, &apart]);
    let mean = model.writer.node("ReduceMean", &[&squared], &[("keepdims", Attribute::Integer(0))]);
    let loss = model.op("Mul", &[&mean, "one_half"]);
    model.writer.output("loss", &loss, &[]);
    model.writer.finish()
}

struct Model {
    writer: Writer,
    images: u64,
    /// What is attended to has so many features.
    features: u64,
    /// And so many places.
    tokens: u64,
    /// What is known of the time has so many features.
    time: u64,
    /// The numbers of groups of which norms are there.
    norms: BTreeSet<u64>,
}

/// Images in the middle of the model: `name: [images, channels, pixels, pixels]`.
#[derive(Clone, Debug)]
struct Image {
    name: String,
    channels: u64,
    pixels: u64,
}

/// The window of a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Window {
    /// One pixel.
    One,
    /// Three by three, one result for each pixel.
    Three,
    /// Three by three, one result for two by two pixels.
    Halving,
}

impl Model {
    /// What is known of the time: `[1, 4 channels]`.
    fn time(&mut self, channels: u64) -> io::Result<String> {
        let half = channels / 2;
        self.writer.integers("half_channels", &[], &[signed(half)]);
        self.writer.integers("zero", &[], &[0]);
        self.writer.integers("step", &[], &[1]);
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a small number")]
        let rate = (-(1e4_f64.ln()) / half as f64) as f32;
        self.writer.float("rate_of_frequencies", rate);
        let places = self.op("Range", &["zero", "half_channels", "step"]);
        let places = self.writer.node("Cast", &[&places], &[("to", Attribute::Integer(1))]);
        let exponents = self.op("Mul", &[&places, "rate_of_frequencies"]);
        let frequencies = self.op("Exp", &[&exponents]);
        let angles = self.op("Mul", &["time", &frequencies]);
        let (cos, sin) = (self.op("Cos", &[&angles]), self.op("Sin", &[&angles]));
        let x = self.writer.node("Concat", &[&cos, &sin], &[("axis", Attribute::Integer(0))]);
        let x = self.reshaped(&x, &[1, 2 * half]);
        let x = self.linear("time.linear_1", &x, [2 * half, 4 * channels])?;
        let x = self.swish(&x);
        let x = self.linear("time.linear_2", &x, [4 * channels, 4 * channels])?;
        // Every block starts with it.
        Ok(self.swish(&x))
    }

    fn residual(&mut self, name: &str, x: &Image, time: &str, channels: u64) -> io::Result<Image> {
        let h = self.group_norm(&format!("{name}.norm1"), x, GROUPS)?;
        let h = Image { name: self.swish(&h), ..x.clone() };
        let h = self.convolution(&format!("{name}.conv1"), &h, channels, Window::Three)?;
        let time = self.linear(&format!("{name}.time"), time, [self.time, channels])?;
        let time = self.reshaped(&time, &[1, channels, 1, 1]);
        let h = Image { name: self.op("Add", &[&h.name, &time]), ..h };
        let normed = self.group_norm(&format!("{name}.norm2"), &h, GROUPS)?;
        let h = Image { name: self.swish(&normed), ..h };
        let h = self.convolution(&format!("{name}.conv2"), &h, channels, Window::Three)?;
        let x = if x.channels == channels {
            x.clone()
        } else {
            self.convolution(&format!("{name}.shortcut"), x, channels, Window::One)?
        };
        Ok(Image { name: self.op("Add", &[&h.name, &x.name]), ..h })
    }

    /// Attention of places to each other, and to the context; units.
    fn attentive(&mut self, name: &str, x: &Image) -> io::Result<Image> {
        let (channels, places) = (x.channels, x.pixels * x.pixels);
        let h = self.group_norm(&format!("{name}.norm"), x, ATTENTION_GROUPS)?;
        let h = self.reshaped(&h, &[self.images, channels, places]);
        let h = self.permuted(&h, &[0, 2, 1]);
        let mut h = self.linear(&format!("{name}.proj_in"), &h, [channels, channels])?;
        let all = Rows { name: "context".to_owned(), count: self.tokens, width: self.features };
        for (number, seen) in [None, Some(all)].into_iter().enumerate() {
            let normed = self.layer_norm(&format!("{name}.norm{number}"), &h, channels)?;
            let own = Rows { name: normed, count: places, width: channels };
            let seen = seen.unwrap_or_else(|| own.clone());
            let out = self.attention(&format!("{name}.attn{number}"), &own, &seen)?;
            h = self.op("Add", &[&out, &h]);
        }
        let normed = self.layer_norm(&format!("{name}.norm2"), &h, channels)?;
        let wide = self.linear(&format!("{name}.ff.wide"), &normed, [channels, 8 * channels])?;
        let axis = [("axis", Attribute::Integer(2))];
        let [plain, gate] = self.writer.nodes("Split", &[&wide], &axis);
        let gate = self.gelu(&gate);
        let gated = self.op("Mul", &[&plain, &gate]);
        let out = self.linear(&format!("{name}.ff.narrow"), &gated, [4 * channels, channels])?;
        let h = self.op("Add", &[&out, &h]);
        let h = self.linear(&format!("{name}.proj_out"), &h, [channels, channels])?;
        let h = self.permuted(&h, &[0, 2, 1]);
        let h = self.reshaped(&h, &[self.images, channels, x.pixels, x.pixels]);
        Ok(Image { name: self.op("Add", &[&h, &x.name]), ..x.clone() })
    }

    /// Of queries to keys and values that are made of other rows, or of the same.
    fn attention(&mut self, name: &str, of: &Rows, to: &Rows) -> io::Result<String> {
        let channels = of.width;
        let width = channels / HEADS;
        let mut heads = |part: &str, rows: &Rows, permutation: &[i64]| -> io::Result<String> {
            let weight = self.weight(&format!("{name}.{part}.weight"), &[rows.width, channels])?;
            let made = self.op("MatMul", &[&rows.name, &weight]);
            let made = self.reshaped(&made, &[self.images, rows.count, HEADS, width]);
            Ok(self.permuted(&made, permutation))
        };
        let q = heads("to_q", of, &[0, 2, 1, 3])?;
        let k = heads("to_k", to, &[0, 2, 3, 1])?;
        let v = heads("to_v", to, &[0, 2, 1, 3])?;
        let scores = self.op("MatMul", &[&q, &k]);
        let scale = format!("{name}.scale");
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a small number")]
        self.writer.float(&scale, 1.0 / (width as f64).sqrt() as f32);
        let scores = self.op("Mul", &[&scores, &scale]);
        let weights = self.writer.node("Softmax", &[&scores], &[("axis", Attribute::Integer(-1))]);
        let seen = self.op("MatMul", &[&weights, &v]);
        let seen = self.permuted(&seen, &[0, 2, 1, 3]);
        let seen = self.reshaped(&seen, &[self.images, of.count, channels]);
        self.linear(&format!("{name}.to_out"), &seen, [channels, channels])
    }

    /// `x / 2 (1 + erf(x / sqrt(2)))`.
    fn gelu(&mut self, x: &str) -> String {
        let part = self.op("Div", &[x, "root_of_two"]);
        let erf = self.op("Erf", &[&part]);
        let gate = self.op("Add", &[&erf, "one"]);
        let gated = self.op("Mul", &[x, &gate]);
        self.op("Mul", &[&gated, "one_half"])
    }

    fn swish(&mut self, x: &str) -> String {
        let gate = self.op("Sigmoid", &[x]);
        self.op("Mul", &[x, &gate])
    }

    /// Each pixel four times.
    fn doubled(&mut self, x: &Image) -> Image {
        let [images, channels, side] = [self.images, x.channels, x.pixels];
        let apart = self.reshaped(&x.name, &[images, channels, side, 1, side, 1]);
        let shape = [images, channels, side, 2, side, 2].map(signed);
        let wide = format!("{}.doubled", x.name);
        self.writer.integers(&wide, &[6], &shape);
        let repeated = self.op("Expand", &[&apart, &wide]);
        let name = self.reshaped(&repeated, &[images, channels, 2 * side, 2 * side]);
        Image { name, channels, pixels: 2 * side }
    }

    /// The channels of both.
    fn joined(&mut self, x: &Image, skip: &Image) -> Image {
        let axis = [("axis", Attribute::Integer(1))];
        let name = self.writer.node("Concat", &[&x.name, &skip.name], &axis);
        Image { name, channels: x.channels + skip.channels, pixels: x.pixels }
    }

    fn convolution(&mut self, name: &str, x: &Image, channels: u64, window: Window) -> io::Result<Image> {
        let extent = if window == Window::One { 1 } else { 3 };
        let shape = [channels, x.channels, extent, extent];
        let weight = self.weight(&format!("{name}.weight"), &shape)?;
        let bias = self.weight(&format!("{name}.bias"), &[channels])?;
        let stride = if window == Window::Halving { 2 } else { 1 };
        let pads = [signed(extent / 2); 4];
        let attributes = [
            ("kernel_shape", Attribute::Integers(&[signed(extent); 2])),
            ("pads", Attribute::Integers(&pads)),
            ("strides", Attribute::Integers(&[signed(stride); 2])),
        ];
        let name = self.writer.node("Conv", &[&x.name, &weight, &bias], &attributes);
        Ok(Image { name, channels, pixels: x.pixels / stride })
    }

    /// Of groups of channels, as exporters write it: of each group as if it were a channel.
    fn group_norm(&mut self, name: &str, x: &Image, groups: u64) -> io::Result<String> {
        let [one, zero] = ["ones", "zeros"].map(|it| format!("{it}_of_{groups}"));
        if self.norms.insert(groups) {
            self.writer.constants(&one, groups, 1.0);
            self.writer.constants(&zero, groups, 0.0);
        }
        let rest = x.channels / groups * x.pixels * x.pixels;
        let grouped = self.reshaped(&x.name, &[self.images, groups, rest]);
        let epsilon = [("epsilon", Attribute::Float(EPSILON))];
        let normed = self.writer.node("InstanceNormalization", &[&grouped, &one, &zero], &epsilon);
        let normed = self.reshaped(&normed, &[self.images, x.channels, x.pixels, x.pixels]);
        let scale = self.weight(&format!("{name}.weight"), &[x.channels, 1, 1])?;
        let bias = self.weight(&format!("{name}.bias"), &[x.channels, 1, 1])?;
        let scaled = self.op("Mul", &[&normed, &scale]);
        Ok(self.op("Add", &[&scaled, &bias]))
    }

    fn layer_norm(&mut self, name: &str, x: &str, width: u64) -> io::Result<String> {
        let scale = self.weight(&format!("{name}.weight"), &[width])?;
        let bias = self.weight(&format!("{name}.bias"), &[width])?;
        let attributes = [("axis", Attribute::Integer(-1)), ("epsilon", Attribute::Float(EPSILON))];
        Ok(self.writer.node("LayerNormalization", &[x, &scale, &bias], &attributes))
    }

    fn linear(&mut self, name: &str, x: &str, extents: [u64; 2]) -> io::Result<String> {
        let weight = self.weight(&format!("{name}.weight"), &extents)?;
        let bias = self.weight(&format!("{name}.bias"), &extents[1..])?;
        let product = self.op("MatMul", &[x, &weight]);
        Ok(self.op("Add", &[&product, &bias]))
    }

    fn reshaped(&mut self, x: &str, shape: &[u64]) -> String {
        let name = format!("{x}.shape");
        let rank = u64::try_from(shape.len()).unwrap_or(u64::MAX);
        let extents: Vec<i64> = shape.iter().map(|&it| signed(it)).collect();
        self.writer.integers(&name, &[rank], &extents);
        self.op("Reshape", &[x, &name])
    }

    fn permuted(&mut self, x: &str, permutation: &[i64]) -> String {
        self.writer.node("Transpose", &[x], &[("perm", Attribute::Integers(permutation))])
    }

    /// A weight: scales and biases are near 1, and sums over others are as large as what is summed.
    fn weight(&mut self, name: &str, shape: &[u64]) -> io::Result<String> {
        let mut random = Random::new(SEED, name);
        let results = shape.iter().copied().max().unwrap_or(1);
        let summed = shape.iter().product::<u64>() / results;
        let (middle, spread) = if summed == 1 { (1.0, 0.1) } else { (0.0, exact(summed).sqrt().recip()) };
        #[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
        self.writer.weight(name, shape, || (middle + spread * random.number()) as f32)
    }

    fn op(&mut self, op: &str, operands: &[&str]) -> String {
        self.writer.node(op, operands, &[])
    }
}

/// Rows in the middle of the model: `name: [images, count, width]`.
#[derive(Clone, Debug)]
struct Rows {
    name: String,
    count: u64,
    width: u64,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

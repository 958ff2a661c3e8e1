//! States that go from token to token: Mamba-2's scan, and the gated delta rule of Qwen3-Next.
//!
//! Source: `modeling_mamba2.py` and `modeling_qwen3_next.py` of transformers 5.24.

use super::{Graph, signed, single};
use crate::decoder::{Linear, Norm, NormKind, Recurrent, Rule, Stored};
use crate::onnx::{Attribute, Element};
use crate::rotary::real;

/// What is added to the square of a key's or query's length.
const LEAST: f64 = 1e-6;

impl Graph<'_, '_> {
    /// What a state makes of x: `[batch, sequence, hidden]`.
    pub(super) fn recurrent(&mut self, number: usize, of: &Recurrent, x: &str) -> String {
        match of.rule {
            Rule::SelectiveScan { bias, conv_bias, limit } => {
                let made = self.scanned(number, of, [bias, conv_bias], limit, x);
                self.linear(&of.linear("out_proj", bias), [of.heads * of.value, self.decoder.hidden], &made)
            }
            Rule::GatedDelta => {
                let made = self.replaced(number, of, x);
                self.linear(&of.linear("out_proj", false), [of.heads * of.value, self.decoder.hidden], &made)
            }
        }
    }

    fn scanned(
        &mut self,
        number: usize,
        of: &Recurrent,
        [bias, conv_bias]: [bool; 2],
        limit: Option<[f64; 2]>,
        x: &str,
    ) -> String {
        let Recurrent { heads, groups, key, value, .. } = *of;
        let (inner, keys) = (heads * value, groups * key);
        let channels = inner + 2 * keys;
        let all =
            self.linear(&of.linear("in_proj", bias), [self.decoder.hidden, inner + channels + heads], x);
        self.writer.within(&of.name);
        let [gate, mixed, steps] = self.split(&all, 2, [inner, channels, heads]);
        let mixed = self.convolved(number, of, channels, conv_bias, &mixed);
        let [values, into, out] = self.split(&mixed, 2, [inner, keys, keys]);
        let [values, into, out] = [values, into, out].map(|it| self.widened(&it));
        let mut steps = self.sums_softened(of, &steps);
        if let Some(limit) = limit {
            let [least, most] = limit.map(|it| self.number_of(Element::F32, it));
            steps = self.op("Clip", &[&steps, &least, &most]);
        }
        let decay = self.decays(of, &steps);
        let values = self.reshaped(&values, &[0, 0, signed(heads), signed(value)]);
        let apart = self.unsqueezed(&steps, &[3]);
        let news = self.op("Mul", &[&values, &apart]);
        let news = self.reshaped(&news, &[0, 0, signed(inner)]);
        let [queries, keys] = [out, into].map(|it| self.repeated(of, &it));
        let y = self.carried(number, of, [&queries, &keys, &news, &decay], None, 1.0);
        let y = self.reshaped(&y, &[0, 0, signed(heads), signed(value)]);
        let weight = self.weight(&format!("{}.D", of.name), &[heads]);
        let weight = self.widened(&weight);
        let weight = self.unsqueezed(&weight, &[1]);
        let passed = self.op("Mul", &[&values, &weight]);
        let y = self.op("Add", &[&y, &passed]);
        let y = self.reshaped(&y, &[0, 0, signed(inner)]);
        let gate = self.widened(&gate);
        let open = self.op("Sigmoid", &[&gate]);
        let open = self.op("Mul", &[&gate, &open]);
        let y = self.op("Mul", &[&y, &open]);
        // Each group of heads for itself.
        let apart = self.reshaped(&y, &[0, 0, signed(groups), signed(inner / groups)]);
        let apart = self.normal(of.epsilon, inner / groups, 1.0, &apart);
        let y = self.reshaped(&apart, &[0, 0, signed(inner)]);
        let y = self.narrowed(&y);
        let weight = self.weight(&format!("{}.norm.weight", of.name), &[inner]);
        self.op("Mul", &[&y, &weight])
    }

    fn replaced(&mut self, number: usize, of: &Recurrent, x: &str) -> String {
        let Recurrent { heads, groups, key, value, .. } = *of;
        let (keys, values, times) = (groups * key, heads * value, heads / groups);
        let hidden = self.decoder.hidden;
        let all = self.linear(&of.linear("in_proj_qkvz", false), [hidden, 2 * keys + 2 * values], x);
        let rates = self.linear(&of.linear("in_proj_ba", false), [hidden, 2 * heads], x);
        self.writer.within(&of.name);
        // Each head of keys has its own of everything.
        let all = self.reshaped(&all, &[0, 0, signed(groups), signed(2 * key + 2 * times * value)]);
        let [q, k, v, gate] = self.split(&all, 3, [key, key, times * value, times * value]);
        let rates = self.reshaped(&rates, &[0, 0, signed(groups), signed(2 * times)]);
        let rates = self.split(&rates, 3, [times; 2]);
        let [rate, steps] = rates.map(|it| self.reshaped(&it, &[0, 0, signed(heads)]));
        let [q, k] = [q, k].map(|it| self.reshaped(&it, &[0, 0, signed(keys)]));
        let v = self.reshaped(&v, &[0, 0, signed(values)]);
        let mixed = self.with_axis("Concat", &[&q, &k, &v], 2);
        let mixed = self.convolved(number, of, 2 * keys + values, false, &mixed);
        let [q, k, v] = self.split(&mixed, 2, [keys, keys, values]);
        let [q, k, v] = [q, k, v].map(|it| self.widened(&it));
        let length = 1.0 / real(key).sqrt();
        let [q, k] = [q, k].map(|it| {
            let apart = self.reshaped(&it, &[0, 0, signed(groups), signed(key)]);
            // Of length 1: by the root of the mean square, times the root of how many there are.
            let unit = self.normal(LEAST / real(key), key, length, &apart);
            let unit = self.reshaped(&unit, &[0, 0, signed(keys)]);
            self.repeated(of, &unit)
        });
        let rate = self.op("Sigmoid", &[&rate]);
        let rate = self.widened(&rate);
        let steps = self.sums_softened(of, &steps);
        let decay = self.decays(of, &steps);
        let y = self.carried(number, of, [&q, &k, &v, &decay], Some(&rate), length);
        let y = self.narrowed(&y);
        let y = self.reshaped(&y, &[0, 0, signed(heads), signed(value)]);
        let norm = Norm { name: format!("{}.norm", of.name), kind: NormKind::Rms, epsilon: of.epsilon };
        let y = self.norm(&norm, value, &y);
        self.writer.within(&of.name);
        let gate = self.reshaped(&gate, &[0, 0, signed(heads), signed(value)]);
        let open = self.op("Sigmoid", &[&gate]);
        let open = self.op("Mul", &[&gate, &open]);
        let y = self.op("Mul", &[&y, &open]);
        self.reshaped(&y, &[0, 0, signed(values)])
    }

    /// Channels convolved with what came before, and let through.
    fn convolved(&mut self, number: usize, of: &Recurrent, channels: u64, bias: bool, x: &str) -> String {
        // What is no token leaves no trace: neither what is convolved with it later, nor, by a bias, now.
        let x = self.of_tokens_alone(of, x);
        let x = self.transposed(&x, &[0, 2, 1]);
        let weight = self.weight(&format!("{}.conv1d.weight", of.name), &[channels, 1, of.window]);
        let added = bias.then(|| self.weight(&format!("{}.conv1d.bias", of.name), &[channels]));
        let dims = [self.batch.clone(), channels.to_string(), (of.window - 1).to_string()];
        let past = self.state(number, "conv", &dims);
        let operands = [&x, &weight, added.as_deref().unwrap_or_default(), &past];
        let attributes = [("activation", Attribute::Text("silu"))];
        let [y, last] = self.writer.nodes("CausalConvWithState", &operands, &attributes);
        self.keep(number, "conv", &last, &dims);
        let y = self.transposed(&y, &[0, 2, 1]);
        if bias { self.of_tokens_alone(of, &y) } else { y }
    }

    /// x: `[batch, sequence, ..]` with zeros where the mask says that there is no token.
    fn of_tokens_alone(&mut self, of: &Recurrent, x: &str) -> String {
        let Some(mask) = self.is_token() else { return x.to_owned() };
        self.writer.within(&of.name);
        self.op("Mul", &[x, &mask])
    }

    /// 1 for each new token and 0 for what is none, `[batch, sequence, 1]`, where there is a mask: its last places.
    fn is_token(&mut self) -> Option<String> {
        if !self.has_past() || self.is_token.is_some() {
            return self.is_token.clone();
        }
        self.writer.within("model.mask");
        let [total, new] = ["attention_mask", "input_ids"].map(|it| self.length(it));
        let start = self.op("Sub", &[&total, &new]);
        let start = self.reshaped(&start, &[1]);
        let end = self.reshaped(&total, &[1]);
        let axis = self.integers(&[1]);
        let mask = self.op("Slice", &["attention_mask", &start, &end, &axis]);
        let mask = self.cast(&mask, self.writer.element());
        self.is_token = Some(self.unsqueezed(&mask, &[2]));
        self.is_token.clone()
    }

    /// Queries, keys, values and decays along the sequence: `[batch, sequence, heads * value]`.
    fn carried(
        &mut self,
        number: usize,
        of: &Recurrent,
        [q, k, v, decay]: [&str; 4],
        rate: Option<&str>,
        scale: f64,
    ) -> String {
        let dims = [self.batch.clone(), of.heads.to_string(), of.key.to_string(), of.value.to_string()];
        let past = self.state(number, "state", &dims);
        let heads = Attribute::Integer(signed(of.heads));
        let rule = if rate.is_some() { "gated_delta" } else { "gated" };
        let attributes = [
            ("update_rule", Attribute::Text(rule)),
            ("q_num_heads", heads),
            ("kv_num_heads", heads),
            ("scale", Attribute::Float(single(scale))),
        ];
        let mut operands = vec![q, k, v, &past, decay];
        operands.extend(rate);
        let [y, last] = self.writer.nodes("LinearAttention", &operands, &attributes);
        self.keep(number, "state", &last, &dims);
        y
    }

    /// The input of a state, if there is one.
    fn state(&mut self, number: usize, what: &str, dims: &[String]) -> String {
        if !self.has_past() {
            return String::new();
        }
        let name = format!("past_key_values.{number}.{what}");
        self.writer.numbers(&name, &dims.iter().map(String::as_str).collect::<Vec<_>>());
        name
    }

    /// The output of a state, if there is one.
    fn keep(&mut self, number: usize, what: &str, state: &str, dims: &[String]) {
        if self.is_cached() {
            let name = format!("present.{number}.{what}");
            let state = self.narrowed(state);
            self.writer.output(&name, &state, &dims.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    /// `softplus(x + dt_bias)`, in 32 bits.
    fn sums_softened(&mut self, of: &Recurrent, x: &str) -> String {
        let bias = self.weight(&format!("{}.dt_bias", of.name), &[of.heads]);
        let [x, bias] = [x, &bias].map(|it| self.widened(it));
        let sum = self.op("Add", &[&x, &bias]);
        self.op("Softplus", &[&sum])
    }

    /// `-exp(A_log)` times the time steps.
    fn decays(&mut self, of: &Recurrent, steps: &str) -> String {
        let rates = self.weight(&format!("{}.A_log", of.name), &[of.heads]);
        let rates = self.widened(&rates);
        let rates = self.op("Exp", &[&rates]);
        let rates = self.op("Neg", &[&rates]);
        self.op("Mul", &[steps, &rates])
    }

    /// Keys `[batch, sequence, groups * key]` for each head.
    fn repeated(&mut self, of: &Recurrent, x: &str) -> String {
        if of.heads == of.groups {
            return x.to_owned();
        }
        let apart = self.reshaped(x, &[0, 0, signed(of.groups), 1, signed(of.key)]);
        let times = self.integers(&[1, 1, 1, signed(of.heads / of.groups), 1]);
        let all = self.op("Expand", &[&apart, &times]);
        self.reshaped(&all, &[0, 0, signed(of.heads * of.key)])
    }

    /// Rows over the root of their mean square, times a number, in 32 bits.
    fn normal(&mut self, epsilon: f64, width: u64, scale: f64, x: &str) -> String {
        let count = usize::try_from(width).unwrap_or(0);
        let name = format!("f32_{scale}_{width}");
        let scale = self.writer.floats_of(Element::F32, &name, &[width], &vec![single(scale); count]);
        let attributes = [("axis", Attribute::Integer(-1)), ("epsilon", Attribute::Float(single(epsilon)))];
        self.writer.node("RMSNormalization", &[x, &scale], &attributes)
    }
}

impl Recurrent {
    fn linear(&self, name: &str, bias: bool) -> Linear {
        Linear { name: format!("{}.{name}", self.name), bias, stored: Stored::OutIn }
    }
}

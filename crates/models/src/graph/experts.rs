//! Mixtures of experts: products with the weights that each use of a token takes.

use super::{Graph, signed};
use crate::ExpertWeights;
use crate::decoder::{Experts, Groups, Inside, Linear, Router, Scores, Stored};
use crate::onnx::{Attribute, Element};

/// What gates of gpt-oss are multiplied by in their sigmoid.
///
/// Source: `GptOssExperts.alpha` of `modeling_gpt_oss.py`, transformers 4.57.
const STEEP: f64 = 1.702;

impl Graph<'_, '_> {
    /// The sum of what a token's experts make of it.
    pub(super) fn experts(&mut self, of: &Experts, x: &str) -> String {
        let hidden = signed(self.decoder.hidden);
        self.writer.within(&of.name);
        let rows = self.reshaped(x, &[-1, hidden]);
        let [weights, chosen] = self.routed(of, &rows);
        let active = signed(of.active);
        let each = self.unsqueezed(&rows, &[1]);
        let times = self.integers(&[1, active, 1]);
        let each = self.op("Expand", &[&each, &times]);
        let each = self.reshaped(&each, &[-1, hidden]);
        let each = self.unsqueezed(&each, &[2]);
        let chosen = self.reshaped(&chosen, &[-1, 1]);
        let made = match of.inside {
            Inside::Gated { activation, weights } => {
                let [gate, up, down] = weights.map(|name| self.stacked(of, name, name == weights[2]));
                let [gate, up] = [gate, up].map(|weight| self.by_chosen(&weight, &chosen, &each));
                let inner = self.gated(activation, [&gate, &up]);
                let inner = self.unsqueezed(&inner, &[2]);
                self.by_chosen(&down, &chosen, &inner)
            }
            Inside::Bounded { limit } => self.bounded(of, limit, &chosen, &each),
        };
        let weights = self.reshaped(&weights, &[-1, 1]);
        let made = self.op("Mul", &[&made, &weights]);
        let made = self.reshaped(&made, &[-1, active, hidden]);
        let second = self.integers(&[1]);
        let sum = self.writer.node("ReduceSum", &[&made, &second], &[("keepdims", Attribute::Integer(0))]);
        let shape = self.op("Shape", &[x]);
        let sum = self.op("Reshape", &[&sum, &shape]);
        let Some((shared, gate)) = &of.shared else { return sum };
        let mut all = self.dense(shared, x);
        if let Some(gate) = gate {
            let gate = Linear { name: gate.clone(), bias: false, stored: Stored::OutIn };
            let open = self.linear(&gate, [self.decoder.hidden, 1], x);
            let open = self.op("Sigmoid", &[&open]);
            all = self.op("Mul", &[&open, &all]);
        }
        self.writer.within(&of.name);
        self.op("Add", &[&sum, &all])
    }

    /// What the units of gpt-oss make of each use: gates and the way up are every other column of one weight.
    fn bounded(&mut self, of: &Experts, limit: f64, chosen: &str, each: &str) -> String {
        let (count, hidden, length) = (of.count, self.decoder.hidden, of.length);
        let name = |it: &str| format!("{}.experts.{it}", of.name);
        let both = self.weight(&name("gate_up_proj"), &[count, hidden, 2 * length]);
        let biases = self.weight(&name("gate_up_proj_bias"), &[count, 2 * length]);
        let down = self.weight(&name("down_proj"), &[count, length, hidden]);
        let down_bias = self.weight(&name("down_proj_bias"), &[count, hidden]);
        let [count, hidden, length] = [count, hidden, length].map(signed);
        let both = self.reshaped(&both, &[count, hidden, length, 2]);
        let weights = self.split(&both, 3, [1, 1]).map(|it| {
            let own = self.reshaped(&it, &[count, hidden, length]);
            self.transposed(&own, &[0, 2, 1])
        });
        let biases = self.reshaped(&biases, &[count, length, 2]);
        let biases = self.split(&biases, 2, [1, 1]).map(|it| self.reshaped(&it, &[count, length]));
        let mut parts = weights.iter().zip(&biases);
        let [gate, up] = std::array::from_fn(|_| {
            let (weight, bias) = parts.next().expect("one for each");
            let product = self.by_chosen(weight, chosen, each);
            let bias = self.op("GatherND", &[bias, chosen]);
            self.op("Add", &[&product, &bias])
        });
        let [most, least, one, steep] = [limit, -limit, 1.0, STEEP].map(|it| self.number(it));
        let gate = self.op("Min", &[&gate, &most]);
        let up = self.op("Clip", &[&up, &least, &most]);
        let steeper = self.op("Mul", &[&gate, &steep]);
        let open = self.op("Sigmoid", &[&steeper]);
        let gate = self.op("Mul", &[&gate, &open]);
        let up = self.op("Add", &[&up, &one]);
        let inner = self.op("Mul", &[&up, &gate]);
        let inner = self.unsqueezed(&inner, &[2]);
        let down = self.transposed(&down, &[0, 2, 1]);
        let made = self.by_chosen(&down, chosen, &inner);
        let bias = self.op("GatherND", &[&down_bias, chosen]);
        self.op("Add", &[&made, &bias])
    }

    /// Products of columns, one for each use, with the weights of the chosen experts.
    fn by_chosen(&mut self, weights: &str, chosen: &str, columns: &str) -> String {
        let weight = self.op("GatherND", &[weights, chosen]);
        let product = self.op("MatMul", &[&weight, columns]);
        let last = self.integers(&[2]);
        self.op("Squeeze", &[&product, &last])
    }

    /// The weights of all experts: `[experts, out, in]`.
    fn stacked(&mut self, of: &Experts, name: &str, is_down: bool) -> String {
        let (hidden, length) = (self.decoder.hidden, of.length);
        let shape = if is_down { [hidden, length] } else { [length, hidden] };
        if self.wanted.experts == ExpertWeights::Together {
            let name = format!("{}.experts.{name}.weight", of.name);
            return self.weight(&name, &[of.count, shape[0], shape[1]]);
        }
        let all: Vec<String> = (0..of.count)
            .map(|expert| self.weight(&format!("{}.experts.{expert}.{name}.weight", of.name), &shape))
            .collect();
        let all = self.with_axis("Concat", &all.iter().map(String::as_str).collect::<Vec<_>>(), 0);
        self.reshaped(&all, &[signed(of.count), signed(shape[0]), signed(shape[1])])
    }

    /// The weights of each token's experts, and which they are: `[tokens, active]`.
    fn routed(&mut self, of: &Experts, rows: &str) -> [String; 2] {
        let router = &of.router;
        let scores = self.scores(of, rows);
        let choosing = match &router.bias {
            Some(bias) => {
                let bias = self.weight_f32(bias, &[of.count]);
                self.op("Add", &[&scores, &bias])
            }
            None => scores.clone(),
        };
        let limited = match router.groups {
            Some(groups) => self.of_groups(of, groups, &choosing),
            None => choosing.clone(),
        };
        let active = self.integers(&[signed(of.active)]);
        let [best, chosen] = self.best(&limited, &active);
        // What is chosen by other numbers has the weights of its scores all the same.
        let weights = if choosing == scores && limited == scores {
            best
        } else {
            self.with_axis("GatherElements", &[&scores, &chosen], 1)
        };
        let weights = match router.scores {
            Scores::SoftmaxOfChosen => self.with_axis("Softmax", &[&weights], -1),
            Scores::Softmax | Scores::Sigmoid => weights,
        };
        let weights = self.normalized(router, &weights);
        [self.narrowed(&weights), chosen]
    }

    fn scores(&mut self, of: &Experts, rows: &str) -> String {
        let router = &of.router;
        let weight = self.weight(&router.weight, &[of.count, self.decoder.hidden]);
        let added = router.added.as_ref().map(|added| self.weight(added, &[of.count]));
        let mut given = [Some(rows.to_owned()), Some(weight), added];
        if router.wide {
            given = given.map(|it| it.map(|it| self.widened(&it)));
        }
        let [rows, weight, added] = given.map(Option::unwrap_or_default);
        let weight = self.transposed(&weight, &[1, 0]);
        let mut logits = self.op("MatMul", &[&rows, &weight]);
        if router.added.is_some() {
            logits = self.op("Add", &[&logits, &added]);
        }
        if !router.wide {
            logits = self.widened(&logits);
        }
        match router.scores {
            Scores::Softmax => self.with_axis("Softmax", &[&logits], -1),
            Scores::SoftmaxOfChosen => logits,
            Scores::Sigmoid => self.op("Sigmoid", &[&logits]),
        }
    }

    fn best(&mut self, of: &str, count: &str) -> [String; 2] {
        self.writer.nodes("TopK", &[of, count], &[("axis", Attribute::Integer(-1))])
    }

    /// Scores that are 0 but in the best groups.
    fn of_groups(&mut self, of: &Experts, groups: Groups, scores: &str) -> String {
        let size = signed(of.count / groups.count);
        let apart = self.reshaped(scores, &[-1, signed(groups.count), size]);
        let few = self.integers(&[signed(groups.best)]);
        let [best, _] = self.best(&apart, &few);
        let last = self.integers(&[2]);
        let sums = self.writer.node("ReduceSum", &[&best, &last], &[("keepdims", Attribute::Integer(0))]);
        let active = self.integers(&[signed(groups.active)]);
        let [_, taken] = self.best(&sums, &active);
        let zero = self.number_of(Element::F32, 0.0);
        let none = self.op("Mul", &[&sums, &zero]);
        let shape = self.op("Shape", &[&taken]);
        let one = self.number_of(Element::F32, 1.0);
        let ones = self.op("Expand", &[&one, &shape]);
        let open = self.with_axis("ScatterElements", &[&none, &taken, &ones], 1);
        let open = self.unsqueezed(&open, &[2]);
        let is_open = self.op("Greater", &[&open, &zero]);
        let limited = self.op("Where", &[&is_open, &apart, &zero]);
        self.reshaped(&limited, &[-1, signed(of.count)])
    }

    fn normalized(&mut self, router: &Router, weights: &str) -> String {
        let mut weights = weights.to_owned();
        if let Some(least) = router.normalized {
            let last = self.integers(&[1]);
            let mut sum = self.op("ReduceSum", &[&weights, &last]);
            if least > 0.0 {
                let least = self.number_of(Element::F32, least);
                sum = self.op("Add", &[&sum, &least]);
            }
            weights = self.op("Div", &[&weights, &sum]);
        }
        if (router.factor - 1.0).abs() > f64::EPSILON {
            let factor = self.number_of(Element::F32, router.factor);
            weights = self.op("Mul", &[&weights, &factor]);
        }
        weights
    }

    /// A weight of 32 bits, whatever the model has.
    fn weight_f32(&mut self, name: &str, shape: &[u64]) -> String {
        self.writer.weight_of(Element::F32, name, shape, || 0.0).unwrap_or_else(|_| name.to_owned())
    }
}

//! What is computed for each token alone.

use super::Graph;
use crate::decoder::{Activation, Dense, Up};
use crate::onnx::Attribute;

impl Graph<'_, '_> {
    /// The way up, and back.
    pub(super) fn dense(&mut self, dense: &Dense, x: &str) -> String {
        let (hidden, length) = (self.decoder.hidden, dense.length);
        let inner = match &dense.up {
            Up::Plain(up) => {
                let up = self.linear(up, [hidden, length], x);
                self.writer.within(&dense.name);
                self.activated(dense.activation, &up)
            }
            Up::Gated([gate, up]) => {
                let [gate, up] = [gate, up].map(|linear| self.linear(linear, [hidden, length], x));
                self.writer.within(&dense.name);
                self.gated(dense.activation, [&gate, &up])
            }
            Up::Together(both) => {
                let both = self.linear(both, [hidden, 2 * length], x);
                self.writer.within(&dense.name);
                let [gate, up] = self.split(&both, 2, [length; 2]);
                self.gated(dense.activation, [&gate, &up])
            }
        };
        self.linear(&dense.down, [length, hidden], &inner)
    }

    pub(super) fn gated(&mut self, activation: Activation, [gate, up]: [&str; 2]) -> String {
        let gate = self.activated(activation, gate);
        self.op("Mul", &[&gate, up])
    }

    fn activated(&mut self, activation: Activation, x: &str) -> String {
        let gelu = |approximate| [("approximate", Attribute::Text(approximate))];
        match activation {
            Activation::Silu => {
                let open = self.op("Sigmoid", &[x]);
                self.op("Mul", &[x, &open])
            }
            Activation::Gelu => self.writer.node("Gelu", &[x], &gelu("none")),
            Activation::GeluTanh => self.writer.node("Gelu", &[x], &gelu("tanh")),
            Activation::Relu => self.op("Relu", &[x]),
        }
    }
}

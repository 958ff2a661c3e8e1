//! Tokens to vectors, and vectors to logits and a loss.

use super::{Graph, signed};
use crate::Use;
use crate::onnx::{Attribute, BOOL, Element};

/// The label of what is not predicted.
const IGNORED: i64 = -100;

impl Graph<'_, '_> {
    /// The inputs, and what follows from them for all layers.
    pub(super) fn inputs(&mut self) {
        let (batch, sequence) = (self.batch.clone(), self.sequence.clone());
        self.writer.input("input_ids", &[&batch, &sequence]);
        if self.wanted.of == Use::Loss {
            self.writer.input("labels", &[&batch, &sequence]);
        }
        if self.has_past() {
            self.writer.input("attention_mask", &[&batch, "total_length"]);
            self.writer.input("position_ids", &[&batch, &sequence]);
            "position_ids".clone_into(&mut self.positions);
            let held = self.writer.node("Cast", &["attention_mask"], &[("to", Attribute::Integer(BOOL))]);
            self.held = Some(self.unsqueezed(&held, &[1, 2]));
        } else {
            let positions = self.places("input_ids");
            self.positions = self.unsqueezed(&positions, &[0]);
        }
    }

    /// 0, 1, .. as many as the second dimension of an input has places.
    pub(super) fn places(&mut self, input: &str) -> String {
        let count = self.length(input);
        let (zero, one) = (self.integer(0), self.integer(1));
        self.op("Range", &[&zero, &count, &one])
    }

    /// The extent of the second dimension of an input.
    pub(super) fn length(&mut self, input: &str) -> String {
        let shape = self.op("Shape", &[input]);
        let one = self.integer(1);
        self.with_axis("Gather", &[&shape, &one], 0)
    }

    /// The vectors of tokens and places.
    pub(super) fn embedded(&mut self) -> String {
        let decoder = self.decoder;
        self.writer.within(&decoder.embedding);
        let tokens =
            self.weight(&format!("{}.weight", decoder.embedding), &[decoder.vocabulary, decoder.hidden]);
        let x = self.with_axis("Gather", &[&tokens, "input_ids"], 0);
        let x = self.scaled(&x, decoder.embedding_scale);
        let Some((name, count)) = &decoder.positions else { return x };
        self.writer.within(name);
        let places = self.weight(&format!("{name}.weight"), &[*count, decoder.hidden]);
        let positions = self.positions.clone();
        let placed = self.with_axis("Gather", &[&places, &positions], 0);
        self.op("Add", &[&x, &placed])
    }

    /// The outputs.
    pub(super) fn ends(&mut self, x: &str) {
        let decoder = self.decoder;
        let [hidden, vocabulary] = [decoder.hidden, decoder.vocabulary];
        let logits = match &decoder.head.weight {
            Some(linear) => self.linear(linear, [hidden, vocabulary], x),
            None => {
                self.writer.within("lm_head");
                let tokens = self.weight(&format!("{}.weight", decoder.embedding), &[vocabulary, hidden]);
                let tokens = self.transposed(&tokens, &[1, 0]);
                self.op("MatMul", &[x, &tokens])
            }
        };
        let logits = self.scaled(&logits, decoder.head.scale);
        let logits = self.softcapped(&logits, decoder.head.softcap);
        if self.wanted.of == Use::Loss {
            self.loss(&logits);
        }
        let dims = [self.batch.clone(), self.sequence.clone(), vocabulary.to_string()];
        self.writer.output("logits", &logits, &dims.each_ref().map(String::as_str));
    }

    /// Of each token how unlikely the label of the next one is, averaged over those that have one.
    fn loss(&mut self, logits: &str) {
        self.writer.within("loss");
        let after = self.integers(&[0, 0, 0, 1]);
        let ignored = self.integer(IGNORED);
        let padded = self.op("Pad", &["labels", &after, &ignored]);
        let [one, end] = [self.integers(&[1]), self.integers(&[i64::MAX])];
        let next = self.op("Slice", &[&padded, &one, &end, &one]);
        let next = self.reshaped(&next, &[-1]);
        let logits = self.widened(logits);
        let rows = self.reshaped(&logits, &[-1, signed(self.decoder.vocabulary)]);
        let attributes =
            [("ignore_index", Attribute::Integer(IGNORED)), ("reduction", Attribute::Text("mean"))];
        let loss = self.writer.node("SoftmaxCrossEntropyLoss", &[&rows, &next], &attributes);
        self.writer.output_of(Element::F32, "loss", &loss, &[]);
    }
}

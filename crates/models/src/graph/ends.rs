//! Tokens to vectors, and vectors to logits and a loss.

use super::{Angles, Graph, signed};
use crate::onnx::{Attribute, BOOL, Element};
use crate::rotary::real;

/// The label of what is not predicted.
const IGNORED: i64 = -100;

/// How much of the loss of tokens after the next is part of the loss.
///
/// Source: Megatron-LM, `--mtp-loss-scaling-factor`, where nothing is said; the report of DeepSeek V3, section 4.2,
/// has it for the last 4.8 of 14.8 trillion tokens (0.3 before).
const PART: f64 = 0.1;

impl Graph<'_, '_> {
    /// The inputs, and what follows from them for all layers.
    pub(super) fn inputs(&mut self) {
        let (batch, sequence) = (self.batch.clone(), self.sequence.clone());
        self.writer.input("input_ids", &[&batch, &sequence]);
        if self.wanted.of.is_trained() {
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
        let x = self.of_tokens("input_ids");
        let Some((name, count)) = &self.decoder.positions else { return x };
        self.writer.within(name);
        let places = self.weight(&format!("{name}.weight"), &[*count, self.decoder.hidden]);
        let positions = self.positions.clone();
        let placed = self.with_axis("Gather", &[&places, &positions], 0);
        self.op("Add", &[&x, &placed])
    }

    /// The vectors of tokens.
    fn of_tokens(&mut self, tokens: &str) -> String {
        let decoder = self.decoder;
        self.writer.within(&decoder.embedding);
        let table =
            self.weight(&format!("{}.weight", decoder.embedding), &[decoder.vocabulary, decoder.hidden]);
        let x = self.with_axis("Gather", &[&table, tokens], 0);
        self.scaled(&x, decoder.embedding_scale)
    }

    /// The outputs.
    pub(super) fn ends(&mut self, angles: &[Angles], x: &str) {
        let further = self.further(angles, x);
        let logits = self.logits(x);
        if self.wanted.of.is_trained() {
            self.losses(&logits, &further);
        }
        let dims = [self.batch.clone(), self.sequence.clone(), self.decoder.vocabulary.to_string()];
        self.writer.output("logits", &logits, &dims.each_ref().map(String::as_str));
    }

    fn logits(&mut self, x: &str) -> String {
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
        self.softcapped(&logits, decoder.head.softcap)
    }

    /// What the head takes to predict tokens after the next: that of each block, which the next one takes too.
    fn further(&mut self, angles: &[Angles], x: &str) -> Vec<String> {
        let decoder = self.decoder;
        let (mut x, mut all) = (x.to_owned(), Vec::new());
        for ((ahead, further), number) in (1..).zip(&decoder.further).zip(decoder.layers.len()..) {
            // What a token after the last would be is of no matter: it has no label.
            let tokens = self.ahead("input_ids", ahead, 0);
            let embedded = self.of_tokens(&tokens);
            let [of_tokens, of_before] = &further.norms;
            let embedded = self.norm(of_tokens, decoder.hidden, &embedded);
            let before = self.norm(of_before, decoder.hidden, &x);
            self.writer.within(&further.joined.name);
            let both = self.with_axis("Concat", &[&embedded, &before], 2);
            let joined = self.linear(&further.joined, [2 * decoder.hidden, decoder.hidden], &both);
            let made = self.layer(number, &further.layer, angles, &joined);
            x = self.norm(&further.norm, decoder.hidden, &made);
            all.push(x.clone());
        }
        all
    }

    /// The loss of the next tokens, and a part of the mean of those of tokens after them.
    fn losses(&mut self, logits: &str, further: &[String]) {
        let mut all = self.loss(logits, 1);
        let count = real(u64::try_from(further.len()).unwrap_or(u64::MAX));
        for (places, x) in (2..).zip(further) {
            let logits = self.logits(x);
            let loss = self.loss(&logits, places);
            let part = self.number_of(Element::F32, PART / count);
            let loss = self.op("Mul", &[&loss, &part]);
            all = self.op("Add", &[&all, &loss]);
        }
        self.writer.output_of(Element::F32, "loss", &all, &[]);
    }

    /// Of each place of an input `[batch, sequence]` what so many places later is; behind the last `filling`.
    fn ahead(&mut self, input: &str, places: i64, filling: i64) -> String {
        let after = self.integers(&[0, 0, 0, places]);
        let filling = self.integer(filling);
        let padded = self.op("Pad", &[input, &after, &filling]);
        let [one, start, end] = [1, places, i64::MAX].map(|it| self.integers(&[it]));
        self.op("Slice", &[&padded, &start, &end, &one])
    }

    /// Of each token how unlikely the label so many places later is, averaged over those that have one.
    fn loss(&mut self, logits: &str, places: i64) -> String {
        self.writer.within("loss");
        let next = self.ahead("labels", places, IGNORED);
        let next = self.reshaped(&next, &[-1]);
        let logits = self.widened(logits);
        let rows = self.reshaped(&logits, &[-1, signed(self.decoder.vocabulary)]);
        let attributes =
            [("ignore_index", Attribute::Integer(IGNORED)), ("reduction", Attribute::Text("mean"))];
        self.writer.node("SoftmaxCrossEntropyLoss", &[&rows, &next], &attributes)
    }
}

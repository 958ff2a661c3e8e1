//! Attention.

use super::{Angles, Graph, signed, single};
use crate::decoder::{Attention, Projections};
use crate::onnx::Attribute;

impl Graph<'_, '_> {
    /// What attention makes of x: `[batch, sequence, hidden]`.
    pub(super) fn attention(&mut self, number: usize, of: &Attention, angles: &[Angles], x: &str) -> String {
        let Attention { heads, groups, size, .. } = *of;
        let hidden = self.decoder.hidden;
        let ([mut queries, mut keys, values], gate) = self.projected(of, x);
        if let Some(table) = of.table {
            let pairing = self.decoder.tables[table].pairing;
            self.writer.within(&of.name);
            [queries, keys] = [&queries, &keys].map(|it| self.rotated(it, size, &angles[table], pairing));
        }
        self.writer.within(&of.name);
        let seen = self.seen(number, of, [&queries, &keys, &values]);
        let mut seen = self.heads_last(&seen, heads, size);
        if let Some(gate) = gate {
            let open = self.op("Sigmoid", &[&gate]);
            seen = self.op("Mul", &[&seen, &open]);
        }
        debug_assert!(heads % groups == 0, "heads of queries share keys");
        self.linear(&of.out, [heads * size, hidden], &seen)
    }

    /// Queries, keys and values as heads, and the gate, `[batch, sequence, heads * size]`, if there is one.
    fn projected(&mut self, of: &Attention, x: &str) -> ([String; 3], Option<String>) {
        let Attention { heads, groups, size, .. } = *of;
        let hidden = self.decoder.hidden;
        let counts = [heads, groups, groups];
        let mut widths = counts.map(|it| it * size);
        if of.gated {
            widths[0] *= 2;
        }
        let flat = match &of.projections {
            Projections::Apart(linears) => {
                let mut linears = linears.iter().zip(widths);
                std::array::from_fn(|_| {
                    let (linear, width) = linears.next().expect("one for each");
                    self.linear(linear, [hidden, width], x)
                })
            }
            Projections::Blocks(linear) => {
                let all = self.linear(linear, [hidden, widths.iter().sum()], x);
                self.split(&all, 2, widths)
            }
            Projections::Heads(linear) => {
                let all = self.linear(linear, [hidden, 3 * heads * size], x);
                let all = self.heads_first(&all, heads, 3 * size);
                return (self.split(&all, 3, [size; 3]), None);
            }
        };
        let [mut queries, mut keys, values] = flat;
        self.writer.within(&of.name);
        let gate = of.gated.then(|| {
            let both = self.reshaped(&queries, &[0, 0, signed(heads), signed(2 * size)]);
            let parts = self.split(&both, 3, [size; 2]);
            let [own, gate] = parts.map(|it| self.reshaped(&it, &[0, 0, signed(heads * size)]));
            queries = own;
            gate
        });
        let Some([of_queries, of_keys]) = &of.norms else {
            let mut counts = counts.into_iter();
            let heads = [queries, keys, values]
                .map(|it| self.heads_first(&it, counts.next().unwrap_or(groups), size));
            return (heads, gate);
        };
        if of.norms_whole {
            queries = self.norm(of_queries, heads * size, &queries);
            keys = self.norm(of_keys, groups * size, &keys);
        }
        let mut apart = [(&queries, heads), (&keys, groups)].map(|(it, heads)| {
            self.writer.within(&of.name);
            self.reshaped(it, &[0, 0, signed(heads), signed(size)])
        });
        if !of.norms_whole {
            apart =
                [(of_queries, &apart[0]), (of_keys, &apart[1])].map(|(norm, it)| self.norm(norm, size, it));
        }
        self.writer.within(&of.name);
        let [queries, keys] = apart.each_ref().map(|it| self.transposed(it, &[0, 2, 1, 3]));
        ([queries, keys, self.heads_first(&values, groups, size)], gate)
    }

    /// The values that queries see.
    fn seen(&mut self, number: usize, of: &Attention, [queries, keys, values]: [&str; 3]) -> String {
        if let Some(sinks) = &of.sinks {
            return self.seen_beside(sinks, number, of, [queries, keys, values]);
        }
        let mut attributes =
            vec![("is_causal", Attribute::Integer(1)), ("scale", Attribute::Float(single(of.scale)))];
        if let Some(bound) = of.softcap {
            attributes.push(("softcap", Attribute::Float(single(bound))));
        }
        let mask = self.mask(of.window);
        self.writer.within(&of.name);
        let mut operands = vec![queries, keys, values];
        let dims = [self.batch.clone(), of.groups.to_string(), String::new(), of.size.to_string()];
        if !self.has_past() {
            operands.extend(mask.as_deref());
            let seen = self.writer.node("Attention", &operands, &attributes);
            if self.is_cached() {
                let length = self.sequence.clone();
                for (kept, what) in [(keys, "key"), (values, "value")] {
                    self.present(number, what, kept, &dims, &length);
                }
            }
            return seen;
        }
        let pasts = ["key", "value"].map(|what| self.past(number, what, &dims));
        operands.push(mask.as_deref().unwrap_or_default());
        operands.extend(pasts.iter().map(String::as_str));
        let [seen, keys, values] = self.writer.nodes("Attention", &operands, &attributes);
        for (kept, what) in [(keys, "key"), (values, "value")] {
            self.present(number, what, &kept, &dims, "total_length");
        }
        seen
    }

    /// The same beside a score for each head that is no key's, spelled out: no operator has it.
    fn seen_beside(
        &mut self,
        sinks: &str,
        number: usize,
        of: &Attention,
        [queries, keys, values]: [&str; 3],
    ) -> String {
        let (heads, groups, size) = (of.heads, of.groups, of.size);
        let dims = [self.batch.clone(), groups.to_string(), String::new(), size.to_string()];
        let length = if self.has_past() { "total_length".to_owned() } else { self.sequence.clone() };
        let [keys, values] = [("key", keys), ("value", values)].map(|(what, new)| {
            let mut all = new.to_owned();
            if self.has_past() {
                let past = self.past(number, what, &dims);
                self.writer.within(&of.name);
                all = self.with_axis("Concat", &[&past, new], 2);
            }
            if self.is_cached() {
                self.present(number, what, &all, &dims, &length);
            }
            self.writer.within(&of.name);
            let apart = self.unsqueezed(&all, &[2]);
            let times = self.integers(&[1, 1, signed(heads / groups), 1, 1]);
            let repeated = self.op("Expand", &[&apart, &times]);
            self.reshaped(&repeated, &[0, signed(heads), -1, signed(size)])
        });
        let mask = self.causal(of.window);
        self.writer.within(&of.name);
        let turned = self.transposed(&keys, &[0, 1, 3, 2]);
        let scores = self.op("MatMul", &[queries, &turned]);
        let scores = self.scaled(&scores, Some(of.scale));
        let hidden = self.number(f64::NEG_INFINITY);
        let scores = self.op("Where", &[&mask, &scores, &hidden]);
        let sinks = self.weight(sinks, &[heads]);
        let sinks = self.reshaped(&sinks, &[1, signed(heads), 1, 1]);
        let shape = self.op("Shape", &[queries]);
        let rows = self.integers(&[0, 1, 2]);
        let shape = self.with_axis("Gather", &[&shape, &rows], 0);
        let one = self.integers(&[1]);
        let shape = self.with_axis("Concat", &[&shape, &one], 0);
        let sinks = self.op("Expand", &[&sinks, &shape]);
        let all = self.with_axis("Concat", &[&scores, &sinks], 3);
        let weights = self.with_axis("Softmax", &[&all], 3);
        let [zero, last, keys_dim] = [0, -1, 3].map(|it| self.integers(&[it]));
        let weights = self.op("Slice", &[&weights, &zero, &last, &keys_dim]);
        self.op("MatMul", &[&weights, &values])
    }

    /// The input of a part of the cache; `dims` but for its length, the third.
    pub(super) fn past(&mut self, number: usize, what: &str, dims: &[String; 4]) -> String {
        let name = format!("past_key_values.{number}.{what}");
        self.writer.numbers(&name, &[&dims[0], &dims[1], "past_length", &dims[3]]);
        name
    }

    /// The output of a part of the cache.
    pub(super) fn present(
        &mut self,
        number: usize,
        what: &str,
        kept: &str,
        dims: &[String; 4],
        length: &str,
    ) {
        let name = format!("present.{number}.{what}");
        self.writer.output(&name, kept, &[&dims[0], &dims[1], length, &dims[3]]);
    }

    /// What else than later keys is hidden: places that hold nothing, and keys out of the window.
    fn mask(&mut self, window: Option<u64>) -> Option<String> {
        let Some(width) = window else { return self.held.clone() };
        if let Some(mask) = self.masks.get(&window) {
            return Some(mask.clone());
        }
        self.writer.within("model.mask");
        let places = self.rows_and_columns();
        let near = self.near(width, &places);
        let mask = self.with_held(&near);
        self.masks.insert(window, mask.clone());
        Some(mask)
    }

    /// The mask of keys that are not later, in the window if there is one, and hold something.
    pub(super) fn causal(&mut self, window: Option<u64>) -> String {
        if let Some(mask) = self.masks.get(&window) {
            return mask.clone();
        }
        self.writer.within("model.mask");
        let places = self.rows_and_columns();
        let mut seen = self.op("LessOrEqual", &[&places[1], &places[0]]);
        if let Some(width) = window {
            let near = self.near(width, &places);
            seen = self.op("And", &[&seen, &near]);
        }
        let mask = self.with_held(&seen);
        self.masks.insert(window, mask.clone());
        mask
    }

    /// Which columns are of keys so near to the query of the row, or later.
    fn near(&mut self, width: u64, [rows, columns]: &[String; 2]) -> String {
        let first = self.integer(signed(width));
        let first = self.op("Sub", &[rows, &first]);
        self.op("Greater", &[columns, &first])
    }

    /// What rows and columns see, but for places that hold nothing, for every example and head.
    fn with_held(&mut self, seen: &str) -> String {
        let mask = self.unsqueezed(seen, &[0, 1]);
        match self.held.clone() {
            Some(held) => self.op("And", &[&mask, &held]),
            None => mask,
        }
    }

    /// The places of queries as a column, those of keys as a row.
    fn rows_and_columns(&mut self) -> [String; 2] {
        let columns = self.places(if self.has_past() { "attention_mask" } else { "input_ids" });
        let rows = match self.has_past() {
            false => columns.clone(),
            true => {
                let rows = self.places("input_ids");
                let [total, new] = ["attention_mask", "input_ids"].map(|it| self.length(it));
                let past = self.op("Sub", &[&total, &new]);
                self.op("Add", &[&rows, &past])
            }
        };
        [self.unsqueezed(&rows, &[1]), self.unsqueezed(&columns, &[0])]
    }
}

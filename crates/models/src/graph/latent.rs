//! Attention by latent vectors (MLA).
//!
//! Without a past, keys and values are made of the latent vectors, as exporters write it. With one, the latent
//! vectors and the rotated keys are what is kept: queries are brought to the latent space, in which all heads
//! share keys and values, and what they see is brought back.

use super::{Angles, Graph, signed, single};
use crate::decoder::{Latent, Linear, Norm, NormKind, Stored};
use crate::onnx::Attribute;

impl Graph<'_, '_> {
    /// What attention makes of x.
    pub(super) fn latent(&mut self, number: usize, of: &Latent, angles: &[Angles], x: &str) -> String {
        let Latent { heads, plain, rotated, value, rank, .. } = *of;
        let (hidden, angles) = (self.decoder.hidden, &angles[of.table]);
        let pairing = self.decoder.tables[of.table].pairing;
        let [plain_queries, turned_queries] = self.latent_queries(of, x);
        let all = self.linear(&self.part(of, "kv_a_proj_with_mqa", of.bias), [hidden, rank + rotated], x);
        let [short, turned_keys] = self.split(&all, 2, [rank, rotated]);
        let short = self.norm(&self.inner_norm(of, "kv_a_layernorm"), rank, &short);
        self.writer.within(&of.name);
        let turned_keys = self.unsqueezed(&turned_keys, &[1]);
        let turned_keys = self.rotated(&turned_keys, rotated, angles, pairing);
        let turned_queries = self.rotated(&turned_queries, rotated, angles, pairing);
        let seen = if self.is_cached() {
            let queries = [plain_queries.as_str(), &turned_queries];
            self.seen_in_latent(number, of, queries, [&short, &turned_keys])
        } else {
            let wide =
                self.linear(&self.part(of, "kv_b_proj", false), [rank, heads * (plain + value)], &short);
            let wide = self.heads_first(&wide, heads, plain + value);
            let [plain_keys, values] = self.split(&wide, 3, [plain, value]);
            let shape = self.integers(&[1, signed(heads), 1, 1]);
            let turned_keys = self.op("Expand", &[&turned_keys, &shape]);
            let queries = self.with_axis("Concat", &[&plain_queries, &turned_queries], 3);
            let keys = self.with_axis("Concat", &[&plain_keys, &turned_keys], 3);
            let attributes =
                [("is_causal", Attribute::Integer(1)), ("scale", Attribute::Float(single(of.scale)))];
            self.writer.node("Attention", &[&queries, &keys, &values], &attributes)
        };
        let seen = self.heads_last(&seen, heads, value);
        self.linear(&self.part(of, "o_proj", of.bias), [heads * value, hidden], &seen)
    }

    /// The parts of queries that are not rotated and that are to be, as heads.
    fn latent_queries(&mut self, of: &Latent, x: &str) -> [String; 2] {
        let Latent { heads, plain, rotated, .. } = *of;
        let (hidden, width) = (self.decoder.hidden, heads * (plain + rotated));
        let all = match of.query_rank {
            None => self.linear(&self.part(of, "q_proj", false), [hidden, width], x),
            Some(rank) => {
                let short = self.linear(&self.part(of, "q_a_proj", of.bias), [hidden, rank], x);
                let short = self.norm(&self.inner_norm(of, "q_a_layernorm"), rank, &short);
                self.linear(&self.part(of, "q_b_proj", false), [rank, width], &short)
            }
        };
        self.writer.within(&of.name);
        let all = self.heads_first(&all, heads, plain + rotated);
        self.split(&all, 3, [plain, rotated])
    }

    /// The same values seen by queries in the latent space, of which the past is kept.
    fn seen_in_latent(&mut self, number: usize, of: &Latent, queries: [&str; 2], keys: [&str; 2]) -> String {
        let Latent { heads, plain, rotated, value, rank, .. } = *of;
        self.writer.within(&of.name);
        let weight = self.weight(&format!("{}.kv_b_proj.weight", of.name), &[heads * (plain + value), rank]);
        let weight = self.reshaped(&weight, &[signed(heads), signed(plain + value), signed(rank)]);
        let [to_keys, to_values] = self.split(&weight, 1, [plain, value]);
        let latent_queries = self.op("MatMul", &[queries[0], &to_keys]);
        let queries = self.with_axis("Concat", &[&latent_queries, queries[1]], 3);
        let short = self.unsqueezed(keys[0], &[1]);
        let mut keys = self.with_axis("Concat", &[&short, keys[1]], 3);
        let dims = [self.batch.clone(), "1".to_owned(), String::new(), (rank + rotated).to_string()];
        let mut length = self.sequence.clone();
        if self.has_past() {
            let past = self.past(number, "key", &dims);
            keys = self.with_axis("Concat", &[&past, &keys], 2);
            "total_length".clone_into(&mut length);
        }
        self.present(number, "key", &keys, &dims, &length);
        self.writer.within(&of.name);
        let [values, _] = self.split(&keys, 3, [rank, rotated]);
        let mask = self.causal(None);
        self.writer.within(&of.name);
        let attributes = [("scale", Attribute::Float(single(of.scale)))];
        let seen = self.writer.node("Attention", &[&queries, &keys, &values, &mask], &attributes);
        let to_values = self.transposed(&to_values, &[0, 2, 1]);
        self.op("MatMul", &[&seen, &to_values])
    }

    fn part(&self, of: &Latent, name: &str, bias: bool) -> Linear {
        Linear { name: format!("{}.{name}", of.name), bias, stored: Stored::OutIn }
    }

    fn inner_norm(&self, of: &Latent, name: &str) -> Norm {
        Norm { name: format!("{}.{name}", of.name), kind: NormKind::Rms, epsilon: of.epsilon }
    }
}

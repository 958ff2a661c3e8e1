//! The shape of a decoder-only transformer, and how many parameters it has where.

use cost_models::model_flops::Counted;
use cost_models::units::{Flops, exact};

/// A decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Layers.
    pub layers: u64,
    /// Length of a token's vector.
    pub hidden: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and of values.
    pub kv_heads: u64,
    /// Length of a head's vector; with latent attention, of its part without a position.
    pub head_size: u64,
    /// The vectors that queries, keys and values are made of, where that is latent attention.
    pub latent: Option<Latent>,
    /// Width of the feed-forward part, or of one expert.
    pub ffn_hidden: u64,
    /// How the feed-forward part begins.
    pub mlp: Mlp,
    /// Tokens that there are.
    pub vocab: u64,
    /// Tokens of an example.
    pub seq: u64,
    /// Experts of each layer; `None` if all tokens go the same way.
    pub experts: Option<Experts>,
    /// Whether logits are made with the embedding's weights.
    pub embedding: Embedding,
}

/// How the feed-forward part begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// One product and a function of it.
    Plain,
    /// Two products, of which one lets the other through.
    Gated,
}

/// Where the weights of the logits come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embedding {
    /// They are those of the embedding.
    Tied,
    /// They are weights of their own.
    Untied,
}

/// Experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// How many a token goes to.
    pub top_k: u64,
    /// Width of the expert that all tokens go to; 0 if there is none.
    pub shared: u64,
}

/// Multi-head latent attention: queries are made of one short vector, keys and values of another.
///
/// Source: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Length of the vector that queries are made of.
    pub query_rank: u64,
    /// Length of the vector that keys and values are made of.
    pub rank: u64,
    /// Length of the part of a query and of a key that has the position.
    pub rotary: u64,
    /// Length of a head's value.
    pub value: u64,
}

impl Model {
    /// Length of a head's query and key.
    #[must_use]
    pub fn key_size(&self) -> u64 {
        self.head_size + self.latent.map_or(0, |latent| latent.rotary)
    }

    /// Length of a head's value.
    #[must_use]
    pub fn value_size(&self) -> u64 {
        self.latent.map_or(self.head_size, |latent| latent.value)
    }

    /// Elements of a token's queries, keys and values.
    #[must_use]
    pub fn qkv_columns(&self) -> u64 {
        self.heads * self.key_size() + self.kv_heads * (self.key_size() + self.value_size())
    }

    /// Parameters of the products of attention.
    fn attention_parameters(&self) -> f64 {
        let out = self.hidden * self.heads * self.value_size();
        exact(match self.latent {
            None => self.hidden * self.qkv_columns() + out,
            Some(Latent { query_rank, rank, rotary, value }) => {
                let down = self.hidden * (query_rank + rank + rotary);
                let up = query_rank * self.key_size() + rank * (self.head_size + value);
                down + self.heads * up + out
            }
        })
    }

    /// Products at the beginning of the feed-forward part.
    #[must_use]
    pub fn ups(&self) -> u64 {
        match self.mlp {
            Mlp::Plain => 1,
            Mlp::Gated => 2,
        }
    }

    /// Parameters of a layer outside experts: attention, norms, and the feed-forward part or the
    /// router.
    #[must_use]
    pub fn layer_parameters(&self) -> f64 {
        let every = |experts: Experts| exact(experts.count * self.hidden) + self.shared_parameters();
        let rest = self.experts.map_or_else(|| self.expert_parameters(), every);
        self.attention_parameters() + exact(4 * self.hidden) + rest
    }

    /// Parameters of all experts of a layer; none if there are no experts.
    #[must_use]
    pub fn experts_parameters(&self) -> f64 {
        self.experts.map_or(0.0, |experts| exact(experts.count) * self.expert_parameters())
    }

    /// Parameters of a feed-forward part, or of one expert.
    fn expert_parameters(&self) -> f64 {
        exact((self.ups() + 1) * self.hidden * self.ffn_hidden)
    }

    /// Parameters of the expert that all tokens go to.
    fn shared_parameters(&self) -> f64 {
        exact((self.ups() + 1) * self.hidden * self.experts.map_or(0, |experts| experts.shared))
    }

    /// Parameters of the embedding.
    #[must_use]
    pub fn embedding_parameters(&self) -> f64 {
        exact(self.vocab * self.hidden)
    }

    /// All parameters.
    #[must_use]
    pub fn parameters(&self) -> f64 {
        let tables = match self.embedding {
            Embedding::Tied => 1.0,
            Embedding::Untied => 2.0,
        };
        let layers = exact(self.layers) * (self.layer_parameters() + self.experts_parameters());
        layers + tables * self.embedding_parameters()
    }

    /// Floating-point operations of a forward pass over `tokens`, of the products of layers and of attention and
    /// logits, by the convention of [`model_flops`](cost_models::model_flops): what
    /// [`StepWork`](cost_models::model_flops::StepWork) finds in the program of such a model.
    #[must_use]
    pub fn forward_flops(&self, tokens: f64) -> [Counted; 2] {
        let (active, router) =
            self.experts.map_or((1.0, 0.0), |it| (exact(it.top_k), exact(it.count * self.hidden)));
        let experts = active * self.expert_parameters() + self.shared_parameters();
        let layer = self.attention_parameters() + router + experts;
        let sizes = self.key_size() + self.value_size();
        let scores = exact(self.layers * self.heads * sizes * self.seq);
        let all = |each: f64| Flops(2.0 * tokens * each);
        let layers = Counted { products: all(exact(self.layers) * layer), ..Counted::default() };
        let logits = all(self.embedding_parameters());
        [layers, Counted { products: logits, attention: all(scores), seen: all(scores / 2.0) }]
    }
}

#[cfg(test)]
mod tests;

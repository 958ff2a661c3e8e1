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
    /// Length of a head's vector.
    pub head_size: u64,
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
}

impl Model {
    /// Columns of the product that makes queries, keys and values.
    #[must_use]
    pub fn qkv_columns(&self) -> u64 {
        (self.heads + 2 * self.kv_heads) * self.head_size
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
        let attention = self.hidden * (self.qkv_columns() + self.heads * self.head_size);
        let rest = self.experts.map_or_else(|| self.expert_parameters(), |it| exact(it.count * self.hidden));
        exact(attention) + exact(4 * self.hidden) + rest
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
        let attention = exact(self.hidden * (self.qkv_columns() + self.heads * self.head_size));
        let (active, router) =
            self.experts.map_or((1.0, 0.0), |it| (exact(it.top_k), exact(it.count * self.hidden)));
        let layer = attention + router + active * self.expert_parameters();
        let scores = 2.0 * exact(self.layers * self.heads * self.head_size * self.seq);
        let all = |each: f64| Flops(2.0 * tokens * each);
        let layers = Counted { products: all(exact(self.layers) * layer), ..Counted::default() };
        let logits = all(self.embedding_parameters());
        [layers, Counted { products: logits, attention: all(scores), seen: all(scores / 2.0) }]
    }
}

#[cfg(test)]
mod tests;

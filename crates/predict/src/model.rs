//! The shape of a decoder-only transformer, and how many parameters it has where.

use cost_models::units::exact;

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

    /// Multiplications and additions of a step on `examples`, forward and backward, nothing
    /// computed again, attention in full: the model's, as utilisation is counted.
    ///
    /// ```text
    /// F = 6 · (parameters in products) · tokens + 12 · layers · heads · head size · seq · tokens
    /// ```
    ///
    /// Source: Narayanan et al., SC21, section 5.1, with recomputation left out and the shape of
    /// each product counted.
    #[must_use]
    pub fn step_work(&self, examples: u64) -> f64 {
        let tokens = exact(examples * self.seq);
        let attention = exact(self.hidden * (self.qkv_columns() + self.heads * self.head_size));
        let active = self.experts.map_or(1.0, |experts| exact(experts.top_k));
        let products = exact(self.layers) * (attention + active * self.expert_parameters());
        let scores = 2.0 * exact(self.layers * self.heads * self.head_size * self.seq);
        6.0 * tokens * (products + self.embedding_parameters() + scores)
    }
}

#[cfg(test)]
mod tests;

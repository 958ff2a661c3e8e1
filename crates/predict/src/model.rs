//! The shape of a decoder-only transformer, and how many parameters it has where.

use cost_models::machine::Machine;
use cost_models::model_flops::Counted;
use cost_models::units::{Flops, exact};

/// A decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Layers, those that predict further tokens included.
    pub layers: u64,
    /// The last so many of these predict tokens after the next (multi-token prediction).
    pub further: u64,
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
    /// Which layers have no experts, where others have some.
    pub dense: Option<Dense>,
    /// How the feed-forward part begins.
    pub mlp: Mlp,
    /// Tokens that there are.
    pub vocab: u64,
    /// Tokens of an example.
    pub seq: u64,
    /// Experts of each layer that is not dense; `None` if all tokens go the same way.
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

/// Layers without experts among layers with experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense {
    /// Which they are, from 0, in ascending order.
    pub layers: Vec<u64>,
    /// Width of their feed-forward part.
    pub width: u64,
}

/// Multi-head latent attention: queries are made of one short vector, keys and values of another.
///
/// Source: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Length of the vector that queries are made of; without one they are made of a token's.
    pub query_rank: Option<u64>,
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

    /// How many layers are dense among others with experts.
    #[must_use]
    pub fn dense_layers(&self) -> u64 {
        self.dense.as_ref().map_or(0, |it| u64::try_from(it.layers.len()).unwrap_or(u64::MAX))
    }

    /// The same model with all layers as those are that have no experts; `None` if it has no such layers, or no others.
    #[must_use]
    pub fn as_dense(&self) -> Option<Self> {
        let dense = self.dense.as_ref()?;
        Some(Self { experts: None, dense: None, ffn_hidden: dense.width, ..self.clone() })
    }

    /// Sums what a layer has over all layers.
    fn over_layers(&self, each: impl Fn(&Self) -> f64) -> f64 {
        let dense = self.as_dense().map_or(0.0, |it| exact(self.dense_layers()) * each(&it));
        exact(self.layers - self.dense_layers().min(self.layers)) * each(self) + dense
    }

    /// Parameters of the products of attention.
    fn attention_parameters(&self) -> f64 {
        let out = self.hidden * self.heads * self.value_size();
        exact(match self.latent {
            None => self.hidden * self.qkv_columns() + out,
            Some(Latent { query_rank, rank, rotary, value }) => {
                let down = self.hidden * (query_rank.unwrap_or(0) + rank + rotary);
                let up =
                    query_rank.unwrap_or(self.hidden) * self.key_size() + rank * (self.head_size + value);
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

    /// Parameters of a layer that is not dense, outside experts: attention, norms, and the feed-forward part or the
    /// router.
    #[must_use]
    pub fn layer_parameters(&self) -> f64 {
        let every = |experts: Experts| exact(experts.count * self.hidden) + self.shared_parameters();
        let rest = self.experts.map_or_else(|| self.expert_parameters(), every);
        self.attention_parameters() + exact(4 * self.hidden) + rest
    }

    /// Parameters of all experts of a layer that is not dense; none if there are no experts.
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

    /// Parameters of what joins a token's vector and the one after it, before a layer that predicts a further token.
    #[must_use]
    pub fn joining_parameters(&self) -> f64 {
        exact(2 * self.hidden * self.hidden)
    }

    /// What the logits of one pass through the head take of what a layer takes (1), by their operations.
    fn head_in_layers(&self) -> f64 {
        let [layers, rest] = self.forward_flops(1.0);
        let layer = (layers.products.0 + rest.seen.0) / exact(self.layers);
        rest.products.0 / exact(1 + self.further) / layer
    }

    /// Layers of each of `pp` stages where nobody says otherwise: [even] ones, or where further tokens are predicted
    /// those of which the slowest takes least, if each layer takes the same. The layers that predict further tokens are
    /// in the last stage, and pass through the head as the last layer does.
    ///
    /// [even]: even_stages
    #[must_use]
    pub fn stages(&self, pp: u64) -> Vec<u64> {
        let even = even_stages(self.layers, pp);
        let Some(others) = pp.checked_sub(1).filter(|it| self.further > 0 && *it > 0) else { return even };
        let ends = exact(1 + self.further) * self.head_in_layers();
        let slowest = |last: &u64| exact((self.layers - last).div_ceil(others)).max(exact(*last) + ends);
        // Each of the others has a layer.
        let all = self.further..=self.layers.saturating_sub(others);
        let last = all.min_by(|a, b| slowest(a).total_cmp(&slowest(b)));
        last.map_or(even, |last| [even_stages(self.layers - last, others), vec![last]].concat())
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
        let layers = self.over_layers(|it| it.layer_parameters() + it.experts_parameters());
        layers + exact(self.further) * self.joining_parameters() + tables * self.embedding_parameters()
    }

    /// Floating-point operations of a forward pass over `tokens`, of the products of layers and of attention and
    /// logits, by the convention of [`model_flops`](cost_models::model_flops): what
    /// [`StepWork`](cost_models::model_flops::StepWork) finds in the program of such a model.
    #[must_use]
    pub fn forward_flops(&self, tokens: f64) -> [Counted; 2] {
        let products = self.over_layers(|it| {
            let (active, router) =
                it.experts.map_or((1.0, 0.0), |has| (exact(has.top_k), exact(has.count * it.hidden)));
            it.attention_parameters() + router + active * it.expert_parameters() + it.shared_parameters()
        });
        let sizes = self.key_size() + self.value_size();
        let scores = exact(self.layers * self.heads * sizes * self.seq);
        let all = |each: f64| Flops(2.0 * tokens * each);
        let joined = exact(self.further) * self.joining_parameters();
        let layers = Counted { products: all(products + joined), ..Counted::default() };
        let logits = all(exact(1 + self.further) * self.embedding_parameters());
        [layers, Counted { products: logits, attention: all(scores), seen: all(scores / 2.0) }]
    }
}

/// Layers of each of `pp` stages where nobody says otherwise.
///
/// Equal shares if there are any; else equal shares of the layers, the embedding and the logits,
/// each counted as a layer; else shares that differ by one, the greater ones in the middle. None at
/// all where there are no stages, or more than layers, embedding and logits.
#[must_use]
pub fn even_stages(layers: u64, pp: u64) -> Vec<u64> {
    if pp == 0 || pp > layers.saturating_add(2) || pp > Machine::DEVICE_LIMIT {
        return Vec::new();
    }
    if !layers.is_multiple_of(pp) && (layers + 2).is_multiple_of(pp) {
        let each = (layers + 2) / pp;
        let end = |stage| u64::from(stage == 0) + u64::from(stage + 1 == pp);
        return (0..pp).map(|stage| each - end(stage)).collect();
    }
    let (each, more) = (layers / pp, layers % pp);
    let first = (pp - more) / 2;
    (0..pp).map(|stage| each + u64::from(stage >= first && stage < first + more)).collect()
}

#[cfg(test)]
mod tests;

//! What models have that not every decoder has: a framework has words for some of it.

use std::collections::BTreeSet;

use super::Model;

/// What some decoders have, and others not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trait {
    /// Norms subtract the mean.
    Means,
    /// Norms stand behind attention and units.
    NormsBehind,
    /// Queries and keys are normalised, or the vectors that they are made of.
    QueryNorms,
    /// Those norms are over all heads together.
    NormsOverHeads,
    /// Products that make queries, keys and values have biases.
    QueryBiases,
    /// Other products have biases too.
    Biases,
    /// Attention is latent (MLA).
    Latent,
    /// Queries see a window of keys.
    Windows,
    /// Windows have several lengths.
    SeveralWindows,
    /// The softmax of attention has a learned score beside those of keys.
    Sinks,
    /// Scores of attention are bounded.
    BoundedScores,
    /// They have another factor than the root of a head's size.
    OtherFactor,
    /// Positions have learned vectors.
    Positions,
    /// A part of each head is rotated.
    PartlyRotated,
    /// Queries of some layers are not rotated.
    Unrotated,
    /// Units do not wait for attention.
    Beside,
    /// Hidden units have no gate.
    Ungated,
    /// They are gated by another function than SiLU.
    GatedOtherwise,
    /// Layers have experts.
    Experts,
    /// Beside these some have none.
    Dense,
    /// Every token takes units beside those of its experts.
    Shared,
    /// And weighs them.
    SharedGate,
    /// Experts are chosen by sigmoids, with a bias that the choice alone has.
    RouterBias,
    /// Units of experts have biases and bounds.
    BoundedExperts,
    /// States go from token to token.
    States,
    /// Values are multiplied by numbers of the model.
    Multiplied,
    /// Scores of tokens are bounded.
    BoundedTokens,
    /// They have a bias.
    HeadBias,
    /// The table of embeddings makes them.
    Tied,
    /// Layers predict tokens after the next.
    Further,
}

impl Trait {
    /// Every one, its name in tables, and what it is in words.
    pub(crate) const ALL: [(Self, &'static str, &'static str); 30] = [
        (Self::Means, "means", "norms subtract means"),
        (Self::NormsBehind, "norms-behind", "norms are behind attention and units too, or there alone"),
        (Self::QueryNorms, "query-norms", "queries and keys are normalised"),
        (Self::NormsOverHeads, "norms-over-heads", "queries and keys are normalised over all heads together"),
        (Self::QueryBiases, "query-biases", "products that make queries, keys and values have biases"),
        (Self::Biases, "biases", "products have biases"),
        (Self::Latent, "latent", "attention is latent (MLA)"),
        (Self::Windows, "windows", "queries of some layers see a window of keys"),
        (Self::SeveralWindows, "several-windows", "layers have windows of several lengths"),
        (Self::Sinks, "sinks", "the softmax of attention has sinks"),
        (Self::BoundedScores, "bounded-scores", "scores of attention are bounded"),
        (Self::OtherFactor, "other-factor", "scores of attention have another factor"),
        (Self::Positions, "positions", "positions have learned vectors"),
        (Self::PartlyRotated, "partly-rotated", "a part of each head is rotated"),
        (Self::Unrotated, "unrotated", "some layers have no positions"),
        (Self::Beside, "beside", "units are beside attention, not behind it"),
        (Self::Ungated, "ungated", "hidden units have no gate"),
        (Self::GatedOtherwise, "gated-otherwise", "hidden units are gated by another function than SiLU"),
        (Self::Experts, "experts", "layers have experts"),
        (Self::Dense, "dense", "some layers have no experts"),
        (Self::Shared, "shared", "every token takes units beside those of its experts"),
        (Self::SharedGate, "shared-gate", "what every token takes beside its experts is weighed"),
        (Self::RouterBias, "router-bias", "experts are chosen by sigmoids, with a bias"),
        (Self::BoundedExperts, "bounded-experts", "units of experts have biases and bounds"),
        (Self::States, "states", "layers have states that go from token to token"),
        (Self::Multiplied, "multiplied", "values are multiplied by numbers of the model"),
        (Self::BoundedTokens, "bounded-tokens", "scores of tokens are bounded"),
        (Self::HeadBias, "head-bias", "scores of tokens have a bias"),
        (Self::Tied, "tied", "the table of embeddings makes the scores of tokens"),
        (Self::Further, "further", "layers predict tokens after the next"),
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        Self::ALL.iter().find(|it| it.0 == self).map_or("", |it| it.2)
    }

    /// That of a name in a table.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|it| it.1 == name).map(|it| it.0)
    }
}

/// Adds what the sizes and kinds of a model tell to what its operations and names do.
pub(super) fn complete(model: &mut Model) {
    let one_window = one_window(model);
    let windows = model.windows.iter().any(Option::is_some);
    let partly = model.latent.is_none()
        && model.heads.zip(model.rotated).is_some_and(|([.., size], rotated)| rotated < size);
    let gated = model.gated || model.bounded.is_some() || model.traits.contains(&Trait::GatedOtherwise);
    let dense = model.layers_with_experts.contains(&true) && model.layers_with_experts.contains(&false);
    let found = [
        (Trait::Means, model.root_mean_square.is_none()),
        (Trait::QueryNorms, model.query_norms && model.latent.is_none()),
        (Trait::QueryBiases, model.biases_of_queries && !model.biases),
        (Trait::Biases, model.biases),
        (Trait::Latent, model.latent.is_some()),
        (Trait::Windows, windows),
        (Trait::SeveralWindows, windows && one_window.is_none()),
        (Trait::Sinks, model.sinks),
        (Trait::Positions, model.positions.is_some()),
        (Trait::PartlyRotated, partly),
        (Trait::Unrotated, model.rotary && model.turned.contains(&false)),
        (Trait::Ungated, model.units.is_some() && !gated),
        (Trait::Experts, model.experts.is_some()),
        (Trait::Dense, dense),
        (Trait::Shared, model.shared.is_some()),
        (Trait::SharedGate, model.shared_gate),
        (Trait::RouterBias, model.router_bias),
        (Trait::BoundedExperts, model.bounded.is_some()),
        (Trait::Tied, model.tied),
    ];
    model.traits.extend(found.into_iter().filter(|it| it.1).map(|it| it.0));
}

/// How many keys queries see, in all layers that have a window, if that is one number.
pub(crate) fn one_window(model: &Model) -> Option<u64> {
    let mut all = model.windows.iter().flatten();
    let first = *all.next()?;
    all.all(|it| *it == first).then_some(first)
}

/// A model that a framework has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known<'a> {
    /// What it is called there.
    pub(crate) name: &'a str,
    /// What its layers may have.
    pub(crate) may: BTreeSet<Trait>,
    /// What they always have.
    pub(crate) always: BTreeSet<Trait>,
}

/// The model of a framework that a model is like most, in what ways it is not: what is missing there, and what is
/// there besides. Of models that differ in as much it is the one that has more of the model, of equals the first.
pub(crate) fn nearest<'a, 'b>(
    known: &'b [Known<'a>],
    of: &BTreeSet<Trait>,
) -> Option<(&'b Known<'a>, Vec<Trait>, Vec<Trait>)> {
    let differ = |it: &Known<'a>| {
        let missing: Vec<Trait> = of.difference(&it.may).copied().collect();
        let besides: Vec<Trait> = it.always.difference(of).copied().collect();
        (missing, besides)
    };
    let best = known.iter().min_by_key(|it| {
        let (missing, besides) = differ(it);
        (missing.len() + besides.len(), missing.len())
    })?;
    let (missing, besides) = differ(best);
    Some((best, missing, besides))
}

/// In words, what is missing where a model is run, and what is there besides.
pub(crate) fn differences((missing, besides): (&[Trait], &[Trait]), there: &str) -> Vec<String> {
    let missing = missing.iter().map(|it| format!("{}: not in {there}", it.words()));
    missing.chain(besides.iter().map(|it| format!("{} in {there}", it.words()))).collect()
}

#[cfg(test)]
mod tests {
    use super::{Known, Trait, nearest};

    #[test]
    fn names_are_those_of_one_trait_each() {
        for (place, (it, name, words)) in Trait::ALL.into_iter().enumerate() {
            assert_eq!((Trait::named(name), it.words()), (Some(it), words));
            assert!(Trait::ALL[..place].iter().all(|other| other.0 < it), "{name} is out of order");
        }
    }

    #[test]
    fn the_nearest_has_the_most_of_a_model() {
        let known = |name, may: &[Trait], always: &[Trait]| Known {
            name,
            may: may.iter().copied().collect(),
            always: always.iter().copied().collect(),
        };
        let all = [
            known("plain", &[Trait::Tied], &[]),
            known("experts", &[Trait::Experts, Trait::QueryNorms], &[Trait::QueryNorms]),
        ];
        let of = |traits: &[Trait]| {
            let (it, missing, besides) = nearest(&all, &traits.iter().copied().collect()).unwrap();
            (it.name, missing, besides)
        };
        assert_eq!(of(&[]), ("plain", vec![], vec![]));
        assert_eq!(of(&[Trait::Beside]), ("plain", vec![Trait::Beside], vec![]));
        // As far from both: what is there besides is less than what is missing.
        assert_eq!(of(&[Trait::Experts]), ("experts", vec![], vec![Trait::QueryNorms]));
    }
}

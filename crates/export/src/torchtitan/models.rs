//! The decoders that torchtitan has: which is like a model, and what of the model it does not have.
//!
//! Source: torchtitan 0.3.0, `torchtitan/models/`: `models.txt` is made of the package, and held against it. Models that
//! see pictures are not in it.

use std::collections::BTreeSet;

use crate::model::traits::{Known, nearest};
use crate::model::{Model, Trait};

/// A row for each flavor of each registry.
const TABLE: &str = include_str!("models.txt");

/// What the layers of a registry have whatever sizes they are given.
const BUILT_IN: [Trait; 6] =
    [Trait::QueryNorms, Trait::Biases, Trait::Latent, Trait::Windows, Trait::Sinks, Trait::BoundedExperts];

/// What a flavor is.
struct Flavor {
    registry: &'static str,
    name: &'static str,
    /// Layers, hidden size, heads, heads of keys, hidden units, vocabulary.
    sizes: [u64; 6],
    traits: BTreeSet<Trait>,
}

/// All flavors.
fn flavors() -> Vec<Flavor> {
    let of_line = |line: &'static str| {
        let mut words = line.split(' ');
        let (registry, name) = (words.next()?, words.next()?);
        let mut sizes = [0; 6];
        for size in &mut sizes {
            *size = words.next()?.parse().ok()?;
        }
        let traits = words.next()?.split(',').filter_map(Trait::named).collect();
        Some(Flavor { registry, name, sizes, traits })
    };
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(of_line).collect()
}

/// The model of torchtitan that is like another.
pub(super) struct Like {
    /// Its registry.
    pub(super) registry: &'static str,
    /// Its flavor, where one has these sizes.
    pub(super) flavor: Option<&'static str>,
    /// What it does not have of the model.
    pub(super) missing: Vec<Trait>,
    /// What it has besides.
    pub(super) besides: Vec<Trait>,
    /// Whether its layers may predict tokens after the next.
    pub(super) further: bool,
}

/// That of a model with so many layers.
pub(super) fn like(model: &Model, layers: u64) -> Option<Like> {
    let all = flavors();
    let mut known: Vec<Known<'static>> = Vec::new();
    for it in &all {
        let always = || it.traits.iter().copied().filter(|its| BUILT_IN.contains(its)).collect();
        match known.iter_mut().find(|known| known.name == it.registry) {
            Some(known) => {
                known.may.extend(&it.traits);
                known.always.retain(|its| it.traits.contains(its));
            }
            None => {
                known.push(Known { name: it.registry, may: it.traits.clone(), always: always() });
            }
        }
    }
    let (found, missing, besides) = nearest(&known, &model.traits)?;
    let [heads, keys, _] = model.heads.unwrap_or_default();
    let units = model.units.or(model.experts.map(|it| it.units));
    let sizes =
        [layers, model.hidden.unwrap_or(0), heads, keys, units.unwrap_or(0), model.vocabulary.unwrap_or(0)];
    let same = |it: &&Flavor| {
        let apart = |its: &Trait| *its != Trait::Further;
        let traits = |of: &BTreeSet<Trait>| of.iter().copied().filter(apart).collect::<Vec<_>>();
        it.registry == found.name && it.sizes == sizes && traits(&it.traits) == traits(&model.traits)
    };
    Some(Like {
        registry: found.name,
        flavor: all.iter().find(same).map(|it| it.name),
        missing,
        besides,
        further: found.may.contains(&Trait::Further),
    })
}

#[cfg(test)]
mod tests {
    use super::{TABLE, flavors};
    use crate::model::Trait;

    #[test]
    fn every_row_and_every_name_is_understood() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(flavors().len(), rows.clone().count());
        let names = rows.flat_map(|line| line.rsplit(' ').next().unwrap().split(','));
        let unknown: Vec<&str> = names.filter(|it| *it != "-" && Trait::named(it).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

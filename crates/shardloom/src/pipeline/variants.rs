//! What each block of a program may be: programs that differ in the insides of their blocks.
//!
//! The search takes each block from one of them ([`search::plan_among`]). The program that is
//! planned is then derived for what was chosen, in the same way as each of them.

use plan::{Recipe, Recompute};
use planner_ir::Graph;
use rewrite::Blocks;
use search::{Cut, Derived, Section, fold, sections};
use train::{Step, TrainError};

/// What a block may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its products of one value by several weights.
    pub products: Products,
    /// What is computed again for its gradients; nothing where there are none.
    pub recompute: Recompute,
}

/// What products of one value by several weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// One by one.
    Apart,
    /// One product, of which they are slices.
    Fused,
}

/// A program in which every block is of one variant, and its sections.
pub type Cutting = (Graph, Vec<Section>);

/// The variants of a program's blocks.
#[derive(Debug)]
pub struct Variants {
    /// The program, or the model up to its loss, cut into blocks, all products apart.
    forward: Blocks,
    /// The recipe, if it is trained.
    recipe: Option<Recipe>,
    /// The variants.
    each: Vec<Variant>,
    /// The programs of all but the first of them.
    others: Vec<Cutting>,
}

impl Variants {
    /// The program of the first of the variants that are offered, and the variants: those whose
    /// programs differ. Nothing if none are offered.
    ///
    /// More than the first are there only if every section has operations: [`search::plan_among`]
    /// finds sections again by these.
    pub(super) fn of(
        forward: Blocks,
        recipe: Option<Recipe>,
        offered: &[Variant],
    ) -> Result<Option<(Cutting, Self)>, TrainError> {
        let Some((&first, more)) = offered.split_first() else { return Ok(None) };
        let (graph, sections) = whole(&forward, recipe.as_ref(), first)?;
        let mut variants = Self { forward, recipe, each: vec![first], others: Vec::new() };
        let is_found_again = sections.iter().all(|section| !section.graph.nodes.is_empty());
        for &variant in more.iter().filter(|_| is_found_again) {
            let other = whole(&variants.forward, variants.recipe.as_ref(), variant)?;
            // What changes nothing is no variant.
            if graph != other.0 && variants.others.iter().all(|(known, _)| *known != other.0) {
                variants.each.push(variant);
                variants.others.push(other);
            }
        }
        Ok(Some(((graph, sections), variants)))
    }

    /// The programs of the variants but the first.
    pub fn others(&self) -> &[Cutting] {
        &self.others
    }

    /// The numbers of all variants.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.each.len()).collect()
    }

    /// The numbers of those whose products are apart.
    pub(super) fn apart(&self) -> Vec<usize> {
        self.all().into_iter().filter(|&number| self.each[number].products == Products::Apart).collect()
    }

    /// The program of a variant but the first, for the search.
    pub(super) fn cut(&self, number: usize) -> Cut<'_> {
        let (graph, sections) = &self.others[number - 1];
        Cut { graph, sections }
    }

    /// The recipe by which blocks are the variants of these numbers, one for each block; or one
    /// for all. Nothing if the program is not trained.
    pub(super) fn recipe(&self, chosen: &[usize]) -> Option<Recipe> {
        let recipe = self.recipe.as_ref()?;
        let block = |number: usize| self.variant(chosen, number).recompute;
        let recompute = (0..self.forward.segments.len()).map(block).collect();
        Some(Recipe { recompute, ..recipe.clone() })
    }

    /// The program in which blocks are the variants of these numbers.
    pub(super) fn derived(&self, chosen: &[usize]) -> Derived {
        let fused = |number: usize| self.variant(chosen, number).products == Products::Fused;
        let blocks = rewrite::fused(&self.forward, &fused);
        let (graph, homes) = match self.recipe(chosen) {
            None => {
                let homes = blocks.segments.iter().enumerate();
                let homes = homes.flat_map(|(number, segment)| segment.nodes.clone().map(move |_| number));
                let homes = homes.collect();
                (blocks.graph, homes)
            }
            Some(recipe) => {
                let Step { graph, homes, .. } = train::step(&blocks, &recipe)
                    .unwrap_or_else(|error| unreachable!("steps were derived for each variant: {error}"));
                (graph, homes)
            }
        };
        // A program that could not be cut is one block.
        let homes = if chosen.len() == 1 { vec![0; homes.len()] } else { homes };
        Derived { graph, homes }
    }

    /// The variant of a block.
    fn variant(&self, chosen: &[usize], block: usize) -> Variant {
        self.each[*chosen.get(block).unwrap_or(&chosen[0])]
    }
}

/// The program in which every block is of this variant, cut.
fn whole(forward: &Blocks, recipe: Option<&Recipe>, variant: Variant) -> Result<Cutting, TrainError> {
    let blocks = rewrite::fused(forward, &|_| variant.products == Products::Fused);
    let Some(recipe) = recipe else {
        let sections = sections(&blocks);
        return Ok((blocks.graph, sections));
    };
    let recompute = vec![variant.recompute; blocks.segments.len()];
    let step = train::step(&blocks, &Recipe { recompute, ..recipe.clone() })?;
    let sections = fold(&step.graph, &step.homes, &step.forward);
    Ok((step.graph, sections))
}

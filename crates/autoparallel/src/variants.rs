//! What each block of a program may be: programs that differ in the insides of their blocks.
//!
//! The search takes each block from one of them ([`search::plan_among`]). The program that is
//! planned is then derived for what was chosen, in the same way as each of them.

use plan::{Plan, Recipe, Recompute};
use planner_ir::Graph;
use rewrite::Blocks;
use search::{Cut, Derived, Section, fold, sections};
use train::{Keeping, Step, TrainError};

use crate::keeping::costs;

/// What a model is made a training step by.
#[derive(Clone, Debug)]
pub struct Training {
    /// The recipe, without its decisions about blocks.
    pub recipe: Recipe,
    /// What may be computed again for the gradients of a block.
    pub decisions: Decisions,
    /// Whether gradients are partitioned as what they are of.
    pub phases: Phases,
}

/// What may be computed again for the gradients of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decisions {
    /// This of every block.
    Only(Recompute),
    /// Of each block nothing, the inside of attention, or all but its input.
    Blocks,
    /// One of these, or all but some of its values, where not everything can be kept.
    Values,
}

/// Whether the operations of a gradient have a choice of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// Those of products and of what is between them are partitioned as the forward operation: the
    /// derived map.
    Together,
    /// Each phase of each operation has its own partition.
    Apart,
}

impl Phases {
    /// Sections whose operations are chosen so.
    fn of(self, mut sections: Vec<Section>) -> Vec<Section> {
        if self == Self::Apart {
            sections.iter_mut().for_each(|section| section.forward.fill(None));
        }
        sections
    }
}

/// What the blocks may be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variant {
    /// Their products of one value by several weights.
    products: Products,
    /// Their norms and cross-entropies.
    norms: Norms,
    /// What is computed again for their gradients; nothing where there are none.
    again: Again,
}

/// What is computed again for the gradients of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Again {
    /// This of every block.
    Alike(Recompute),
    /// This of each block, in order.
    Each(Vec<Recompute>),
}

impl Again {
    fn of(&self, block: usize) -> Recompute {
        match self {
            Self::Alike(all) => all.clone(),
            Self::Each(each) => each[block].clone(),
        }
    }
}

/// What products of one value by several weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// One by one.
    Apart,
    /// One product, of which they are slices.
    Fused,
}

/// What norms and cross-entropies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norms {
    /// One operation each, of whole rows.
    Whole,
    /// Spelled out, so that the rows may be split.
    Spelled,
}

/// Which part of a training step a program is.
#[derive(Clone, Debug)]
enum Of {
    /// All of it.
    Whole,
    /// The stage of this number of those that start at these blocks, and the blocks that operations of it belong to,
    /// ascending: what a choice of variants is of, one by one.
    Stage { first: Vec<usize>, number: usize, blocks: Vec<usize> },
}

impl Of {
    /// The step of blocks, or the part of it that is meant.
    fn step(&self, blocks: &Blocks, recipe: &Recipe) -> Result<Step, TrainError> {
        let step = train::step(blocks, recipe)?;
        match self {
            Self::Whole => Ok(step),
            Self::Stage { first, number, .. } => train::stage(&step, first, *number),
        }
    }

    /// Where among the chosen variants that of a block is.
    fn place(&self, block: usize) -> usize {
        match self {
            Self::Whole => block,
            // Of a block that is not there nothing is chosen.
            Self::Stage { blocks, .. } => blocks.binary_search(&block).unwrap_or(0),
        }
    }
}

/// A program in which every block is of one variant, and its sections.
pub type Cutting = (Graph, Vec<Section>);

/// The variants of a program's blocks.
#[derive(Clone, Debug)]
pub struct Variants {
    /// The program, or the model up to its loss, cut into blocks, all products apart.
    forward: Blocks,
    /// The recipe, if it is trained.
    recipe: Option<Recipe>,
    /// Which part of the training step the program is.
    of: Of,
    /// What may be computed again.
    decisions: Decisions,
    /// Whether gradients are partitioned as what they are of.
    phases: Phases,
    /// The variants.
    each: Vec<Variant>,
    /// The programs of all but the first of them.
    others: Vec<Cutting>,
}

impl Variants {
    /// The program whose blocks are of the first form, and the variants: one for each form.
    pub fn of(
        forward: Blocks,
        [first, more @ ..]: [(Products, Norms); 3],
    ) -> Result<(Cutting, Self), TrainError> {
        let variant = |(products, norms)| {
            let again = Again::Alike(Recompute::Nothing);
            Variant { products, norms, again }
        };
        let decisions = Decisions::Only(Recompute::Nothing);
        let more = more.map(variant);
        Self::offered((forward, None, Of::Whole), decisions, Phases::Together, (variant(first), &more))
    }

    /// The training step of the first of the decisions, and the variants: one for each, and one of each
    /// whose norms are spelled out. The recipe of a plan says how its program comes about, and says nothing
    /// of fused products.
    pub fn of_training(forward: Blocks, training: Training) -> Result<(Cutting, Self), TrainError> {
        let Training { recipe, decisions, phases } = training;
        let of = |norms, it| Variant { products: Products::Apart, norms, again: Again::Alike(it) };
        let (first, more) = match &decisions {
            Decisions::Only(only) => (only.clone(), vec![]),
            _ => (Recompute::Nothing, vec![Recompute::Selective, Recompute::Full]),
        };
        let spelled = [&first].into_iter().chain(&more).map(|it| of(Norms::Spelled, it.clone()));
        let more: Vec<Variant> = more.iter().map(|it| of(Norms::Whole, it.clone())).chain(spelled).collect();
        let (norms, recipe) = (Norms::Whole, Some(recipe));
        Self::offered((forward, recipe, Of::Whole), decisions, phases, (of(norms, first), &more))
    }

    /// The training step of one stage, of those that start at these blocks, in which nothing is computed again, and the
    /// variants: one for each of what may be, some values too.
    pub(crate) fn of_stage(
        forward: Blocks,
        recipe: Recipe,
        (first, number): (Vec<usize>, usize),
    ) -> Result<(Cutting, Self), TrainError> {
        let of =
            |again| Variant { products: Products::Apart, norms: Norms::Whole, again: Again::Alike(again) };
        let more = [Recompute::Selective, Recompute::Full].map(of);
        let mut part = Of::Stage { first, number, blocks: Vec::new() };
        let recompute = vec![Recompute::Nothing; forward.segments.len()];
        let step = part.step(&forward, &Recipe { recompute, ..recipe.clone() })?;
        if let Of::Stage { blocks, .. } = &mut part {
            blocks.clone_from(&step.homes);
            blocks.sort_unstable();
            blocks.dedup();
        }
        let program = (forward, Some(recipe), part);
        Self::offered(program, Decisions::Values, Phases::Together, (of(Recompute::Nothing), &more))
    }

    /// The program of a first variant, and the variants: those whose programs differ.
    ///
    /// More than the first are there only if every section has operations: [`search::plan_among`]
    /// finds sections again by these.
    fn offered(
        (forward, recipe, of): (Blocks, Option<Recipe>, Of),
        decisions: Decisions,
        phases: Phases,
        (first, more): (Variant, &[Variant]),
    ) -> Result<(Cutting, Self), TrainError> {
        let (each, others) = (vec![first.clone()], Vec::new());
        let mut variants = Self { forward, recipe, of, decisions, phases, each, others };
        let (graph, sections) = variants.whole(&first)?;
        if sections.iter().all(|section| !section.graph.nodes.is_empty()) {
            variants.offer(&graph, more)?;
        }
        Ok(((graph, sections), variants))
    }

    /// Adds variants to the first one, whose program this is.
    fn offer(&mut self, first: &Graph, offered: &[Variant]) -> Result<(), TrainError> {
        for variant in offered {
            let other = self.whole(variant)?;
            // What changes nothing is no variant.
            if *first != other.0 && self.others.iter().all(|(known, _)| *known != other.0) {
                self.each.push(variant.clone());
                self.others.push(other);
            }
        }
        Ok(())
    }

    /// These variants, and besides what of each block is best kept at some price of memory, as a
    /// plan tells bytes and seconds in which nothing is done again: of a stage, those at the prices at which about so
    /// much less would be held as there is too little (bytes; for one of the micro-batches under way).
    ///
    /// The plan is of the first variant, in which nothing is.
    pub(crate) fn finer(&self, plan: &Plan, missing: u64) -> Self {
        let mut variants = self.clone();
        let Some(recipe) = self.recipe(&[0]) else { return variants };
        let step = self.step(&self.forward, &recipe);
        let blocks = train::keepings(&self.forward, &step, &costs(plan, &step.graph));
        let most = blocks.iter().map(Vec::len).max().unwrap_or(0);
        // What has fewer ways keeps as little as it can.
        fn of(ways: &[Keeping], level: usize) -> Option<&Keeping> {
            ways.get(level).or(ways.last())
        }
        let level = |level: usize| {
            let each = |ways: &Vec<Keeping>| of(ways, level).map_or(Recompute::Full, |it| it.again.clone());
            let again = Again::Each(blocks.iter().map(each).collect());
            Variant { products: Products::Apart, norms: Norms::Whole, again }
        };
        let levels = match self.of {
            Of::Whole => 0..most,
            // Of ways on a convex hull a mixture of two that follow each other is best.
            Of::Stage { .. } => {
                let spares = |level: usize| -> u128 {
                    blocks.iter().filter_map(|ways| of(ways, level)).map(|it| it.spares).sum()
                };
                let enough = (0..most).find(|&it| spares(it) >= u128::from(missing)).unwrap_or(most);
                enough.saturating_sub(1)..(enough + 1).min(most)
            }
        };
        let levels: Vec<Variant> = levels.map(level).collect();
        let offered = variants.offer(&step.graph, &levels);
        offered.unwrap_or_else(|error| unreachable!("a step was derived before: {error}"));
        variants
    }

    /// What may be computed again for gradients.
    pub(crate) fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The sections of the program of a plan whose recipe was chosen among these.
    pub fn sections(&self, recipe: &Recipe, planned: &Graph) -> Vec<Section> {
        let step = self.step(&self.forward, recipe).joined_as(planned);
        self.phases.of(fold(&step.graph, &step.homes, &step.forward))
    }

    /// The programs of the variants but the first.
    pub fn others(&self) -> &[Cutting] {
        &self.others
    }

    /// The numbers of the variants of these forms: products may be fused, norms spelled out.
    pub(crate) fn of_forms(&self, products: Products, norms: Norms) -> Vec<usize> {
        let offered = |it: &Variant| {
            (products == Products::Fused || it.products == Products::Apart)
                && (norms == Norms::Spelled || it.norms == Norms::Whole)
        };
        (0..self.each.len()).filter(|&number| offered(&self.each[number])).collect()
    }

    /// The numbers of those in which nothing is computed again and all products are apart.
    pub(crate) fn keeping_all(&self) -> Vec<usize> {
        let nothing = Again::Alike(Recompute::Nothing);
        let keeps = |it: &Variant| it.again == nothing && it.products == Products::Apart;
        (0..self.each.len()).filter(|&number| keeps(&self.each[number])).collect()
    }

    /// The program of a variant but the first, for the search.
    pub(crate) fn cut(&self, number: usize) -> Cut<'_> {
        let (graph, sections) = &self.others[number - 1];
        Cut { graph, sections }
    }

    /// The recipe by which blocks are the variants of these numbers, one for each block; or one
    /// for all. Nothing if the program is not trained.
    pub(crate) fn recipe(&self, chosen: &[usize]) -> Option<Recipe> {
        let recipe = self.recipe.as_ref()?;
        let block = |number: usize| self.variant(chosen, number);
        let blocks = 0..self.forward.segments.len();
        let recompute = blocks.clone().map(|number| block(number).again.of(number)).collect();
        let spelled = blocks.filter(|&number| block(number).norms == Norms::Spelled).collect();
        Some(Recipe { recompute, spelled, ..recipe.clone() })
    }

    /// The program in which blocks are the variants of these numbers.
    pub(crate) fn derived(&self, chosen: &[usize]) -> Derived {
        let fused = |number: usize| self.variant(chosen, number).products == Products::Fused;
        let blocks = rewrite::fused(&self.forward, &fused);
        let (graph, homes) = match self.recipe(chosen) {
            None => {
                let spelled = |number: usize| self.variant(chosen, number).norms == Norms::Spelled;
                let blocks = rewrite::spelled(&blocks, &spelled);
                let homes = blocks.segments.iter().enumerate();
                let homes = homes.flat_map(|(number, segment)| segment.nodes.clone().map(move |_| number));
                let homes = homes.collect();
                (blocks.graph, homes)
            }
            Some(recipe) => {
                let Step { graph, homes, .. } = self.step(&blocks, &recipe);
                (graph, homes)
            }
        };
        // A program that could not be cut is one block.
        let homes = if chosen.len() == 1 { vec![0; homes.len()] } else { homes };
        Derived { graph, homes }
    }

    /// The variant of a block.
    fn variant(&self, chosen: &[usize], block: usize) -> &Variant {
        &self.each[*chosen.get(self.of.place(block)).unwrap_or(&chosen[0])]
    }

    /// The step of a recipe that differs in what is computed again from one whose step was derived.
    fn step(&self, blocks: &Blocks, recipe: &Recipe) -> Step {
        let step = self.of.step(blocks, recipe);
        step.unwrap_or_else(|error| unreachable!("a step was derived before: {error}"))
    }

    /// The program in which every block is of this variant, cut.
    fn whole(&self, variant: &Variant) -> Result<Cutting, TrainError> {
        let blocks = rewrite::fused(&self.forward, &|_| variant.products == Products::Fused);
        let spelled = variant.norms == Norms::Spelled;
        let Some(recipe) = &self.recipe else {
            let blocks = rewrite::spelled(&blocks, &|_| spelled);
            let sections = sections(&blocks);
            return Ok((blocks.graph, sections));
        };
        let all = 0..blocks.segments.len();
        let recompute = all.clone().map(|block| variant.again.of(block)).collect();
        let spelled = if spelled { all.collect() } else { vec![] };
        let step = self.of.step(&blocks, &Recipe { recompute, spelled, ..recipe.clone() })?;
        let sections = self.phases.of(fold(&step.graph, &step.homes, &step.forward));
        Ok((step.graph, sections))
    }
}

//! A model as the search takes it.

use files::Failure;
use planner_ir::Graph;
use rewrite::RaiseStatistics;
use search::{Fixed, Pinned, Section, sections};

use crate::pins;
use crate::variants::Variants;

/// A model as the search takes it.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The program in named operations.
    pub graph: Graph,
    /// Its blocks.
    pub sections: Vec<Section>,
    /// What raising found.
    pub raised: RaiseStatistics,
    /// What each of its blocks may be, if there is a choice or a recipe.
    pub variants: Option<Variants>,
    /// The inputs and outputs that have their layout already.
    pub pinned: Option<Pinned>,
    /// How operations are computed that a user has fixed.
    pub fixed: Vec<Fixed>,
}

impl Prepared {
    /// The same, where this is fixed.
    pub fn fixing(self, fixed: Vec<Fixed>) -> Result<Self, Failure> {
        let variants = self.variants.iter().flat_map(|it| it.others().iter().map(|(graph, _)| graph));
        pins::known(&fixed, &std::iter::once(&self.graph).chain(variants).collect::<Vec<_>>())?;
        Ok(Self { fixed, ..self })
    }
}

/// A graph that is in named operations already, such as a plan's, cut into blocks.
pub fn cut(graph: &Graph) -> Prepared {
    let blocks = rewrite::blocks(graph);
    let sections = sections(&blocks);
    Prepared {
        graph: blocks.graph,
        sections,
        raised: RaiseStatistics::default(),
        variants: None,
        pinned: None,
        fixed: Vec::new(),
    }
}

//! Generation: plans of the two steps by which a decoder makes tokens, over one cache.

use planner_ir::{Graph, Layout, Op, Source, Type, ValueId};

use crate::plan::{Copy, ModelFile, Plan};

/// How a decoder makes tokens on a machine.
///
/// A step takes new tokens and what is kept of those before them, the cache, and leaves logits and
/// the cache with the new tokens in it. Its sizes are fixed: the cache has places for `capacity`
/// tokens, some of which are empty. A step is planned for many new tokens at once, for prompts, and
/// for one. Both hold the cache in the same layout: between steps each device keeps its blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Which inputs and outputs are what.
    pub cache: Cache,
    /// The step of several new tokens, if there is one: prompts are taken so many tokens at a time.
    pub prefill: Option<Plan>,
    /// The step of one new token.
    pub decode: Plan,
    /// What a device can hold of both steps, which take turns (bytes). A plan whose step may hold less leaves room for
    /// what the other one has at rest.
    pub capacity: u64,
}

/// What the inputs and outputs of a decoder are, by name, and where new entries of its cache come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The new tokens: `[batch, width]`, integers.
    pub tokens: String,
    /// Which places hold something, those of new tokens included: `[batch, places]`, numbers or truth
    /// values.
    pub mask: Option<String>,
    /// Where the new tokens stand in their sequences, counted from 0, if the model is told.
    pub positions: Option<Positions>,
    /// What the model says of the token after each: `[batch, width, vocabulary]`.
    pub logits: String,
    /// What is kept, part by part.
    pub kept: Vec<Kept>,
    /// Which dimension of each part that has entries has a place for each token.
    pub dim: usize,
    /// Where new entries come.
    pub growth: Growth,
    /// How many tokens there is room for, new ones included.
    pub capacity: u64,
    /// The input by which a step of one token is told the place of its entry, which it writes there, over the oldest one,
    /// where other entries come behind all others: an integer, `[1]`. Of all places, which it finds, these are taken in
    /// turn, the first one after a step of several tokens. Where parts have different numbers of places, it is the
    /// number of such steps before, counted anew after each [`Self::period`], and the place is what is left of it by
    /// the number of places of a part.
    pub slot: Option<String>,
}

/// Where new tokens stand, as a model is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The input: integers, `[batch, width]`, or `[width]` where all sequences have the same.
    pub name: String,
    /// The nodes of the model file that take them, where the model has no such input but has them
    /// follow from the length of the past; else none.
    pub nodes: Vec<String>,
}

/// A part of what is kept: keys or values of a layer, such as `[batch, heads, places, size]`, or a state, such as
/// `[batch, heads, key, value]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The input in which a step finds it.
    pub past: String,
    /// The output in which it leaves it.
    pub present: String,
    /// What it has of tokens.
    pub form: Form,
    /// How many tokens back attention sees of it, a query's own included, where these are fewer than the capacity: it has
    /// no more places.
    pub window: Option<u64>,
}

/// What a part of what is kept has of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A place for each of them.
    Entries,
    /// One state of all of them, which is always as large: what a step leaves takes its place. Tokens that are none, as
    /// the mask says, leave it as it is.
    State,
}

/// Where the entries of new tokens come in what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Growth {
    /// Behind all others: the output is the input and behind it the new entries. The next step finds
    /// the last ones of that, so that entries move up; empty places come first.
    Behind,
    /// At the first empty place of each sequence, of which the mask has so many; empty places come
    /// last. Input and output are equally large.
    AtLength,
    /// At the positions that the model is told, the same of all sequences. Input and output are
    /// equally large.
    AtPosition,
}

impl Growth {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Behind, Self::AtLength, Self::AtPosition];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::AtLength => "at-length",
            Self::AtPosition => "at-position",
        }
    }

    /// How many places of a part a step finds, of those of the capacity.
    pub fn found(self, capacity: u64, width: u64) -> u64 {
        match self {
            Self::Behind => capacity.saturating_sub(width),
            Self::AtLength | Self::AtPosition => capacity,
        }
    }
}

impl Cache {
    /// How many places of a part that has entries a step leaves.
    pub fn places(&self, part: &Kept) -> u64 {
        part.window.unwrap_or(self.capacity)
    }

    /// How many places of a part that has entries a step of so many tokens finds: of one with a window those that its
    /// first query sees besides its own.
    pub fn found(&self, part: &Kept, width: u64) -> u64 {
        if self.is_written(width) { self.places(part) } else { self.moved(part, width) }
    }

    /// The same of a step that writes no entries where it is told.
    pub fn moved(&self, part: &Kept, width: u64) -> u64 {
        let found = self.growth.found(self.capacity, width);
        part.window.map_or(found, |window| found.min(window.saturating_sub(1)))
    }

    /// Whether parts have fewer places than there are.
    pub fn has_windows(&self) -> bool {
        self.kept.iter().any(|it| it.window.is_some())
    }

    /// After how many steps of one token all parts are written at the same places again: the least common multiple of
    /// their numbers of places.
    pub fn period(&self) -> u64 {
        let multiple = |period: u64, part: &Kept| {
            let places = self.places(part).max(1);
            (period / common_divisor(period, places)).checked_mul(places).filter(|&it| it <= MOST)
        };
        self.entries().try_fold(1, multiple).unwrap_or(MOST)
    }

    /// Whether a step of so many tokens writes its entry where it is told.
    pub fn is_written(&self, width: u64) -> bool {
        self.slot.is_some() && width == 1
    }

    /// The parts that have a place for each token.
    pub fn entries(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter().filter(|it| it.form == Form::Entries)
    }

    /// The parts that are states.
    pub fn states(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter().filter(|it| it.form == Form::State)
    }
}

impl Generation {
    /// The plans: that of prompts first, if there is one.
    pub fn plans(&self) -> impl Iterator<Item = (&'static str, &Plan)> {
        let prefill = self.prefill.iter().map(|plan| ("prefill", plan));
        prefill.chain([("decode", &self.decode)])
    }

    /// The least of what a device can hold of one of the plans (bytes).
    pub fn least_capacity(&self) -> u64 {
        self.plans().map(|(_, plan)| plan.capacity).min().unwrap_or(0)
    }

    /// The model file.
    pub fn model(&self) -> &ModelFile {
        &self.decode.model
    }

    /// How many sequences grow at once.
    pub fn batch(&self) -> u64 {
        self.tokens(&self.decode).map_or(0, |type_| type_.shape[0])
    }

    /// How many tokens of a prompt are taken at once.
    pub fn width(&self) -> u64 {
        let type_ = self.tokens(self.prefill.as_ref().unwrap_or(&self.decode));
        type_.map_or(0, |type_| type_.shape[1])
    }

    /// How many tokens the model knows: the rows of the tables that they look up, and the logits.
    pub fn vocabulary(&self) -> u64 {
        let graph = &self.decode.graph;
        let tokens = input(graph, &self.cache.tokens);
        let looked_up = graph.nodes.iter().filter_map(|node| match node.op {
            Op::Gather { dim } if Some(node.operands[1]) == tokens => {
                graph.type_of(node.operands[0]).shape.get(dim).copied()
            }
            _ => None,
        });
        let logits = output(&self.decode, &self.cache.logits);
        let last = logits.and_then(|(value, _)| graph.type_of(value).shape.last().copied());
        looked_up.chain(last).min().unwrap_or(0)
    }

    fn tokens(&self, plan: &Plan) -> Option<Type> {
        let type_ = plan.graph.type_of(input(&plan.graph, &self.cache.tokens)?).clone();
        (type_.rank() == 2).then_some(type_)
    }
}

/// As many tokens as an integer counts: nobody takes so many. It is no multiple of numbers of places.
const MOST: u64 = i64::MAX.unsigned_abs();

/// The greatest common divisor.
pub fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

/// The input of that name.
pub(crate) fn input(graph: &Graph, name: &str) -> Option<ValueId> {
    let is_it = |source: &Source| matches!(source, Source::Input(input) if input == name);
    graph.value_ids().find(|&it| is_it(&graph.value(it).source))
}

/// The output of that name, and the layout in which it is returned.
pub(crate) fn output<'a>(plan: &'a Plan, name: &str) -> Option<(ValueId, &'a Layout)> {
    let place = plan.graph.outputs.iter().position(|output| output.name == name)?;
    let value = plan.graph.outputs[place].value;
    let layout = match plan.outputs.get(place)? {
        Copy::Made => plan.layouts.get(value.0)?,
        Copy::Transferred(it) => &plan.transfers.get(*it)?.layout,
    };
    Some((value, layout))
}

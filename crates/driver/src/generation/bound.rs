//! The steps of a decoder as programs of fixed sizes.

mod steps; // as it holds its cache

use std::collections::{BTreeMap, BTreeSet};

use files::Failure;
use files::impossible;
use files::model_file::ModelFile;
use import::{Bindings, Dim, Input, Positions};
use kernels::Array;
use plan::{Cache, Form, Growth};
use planner_ir::{Graph, Source, Type};

use super::places::{dims_of, places};
use super::roles::Roles;
use super::written;
use crate::compile;
use crate::pipeline;
use steps::Steps;

/// The sizes that somebody asks for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// How many sequences grow at once.
    pub batch: Option<u64>,
    /// How many tokens of a prompt are taken at once.
    pub prompt: Option<u64>,
    /// How many tokens there is room for.
    pub context: Option<u64>,
    /// Sizes of other dimensions of the model.
    pub dims: Vec<(String, u64)>,
}

/// A model, what its inputs and outputs are, and its sizes.
#[derive(Debug)]
pub struct Decoder<'a> {
    file: &'a ModelFile,
    roles: Roles,
    dims: Vec<(String, u64)>,
    batch: u64,
    capacity: u64,
    /// How many tokens of prompts are taken at once: 1 if they have no step of their own.
    prompt: u64,
    /// The dimension of the cache's parts that has the places.
    dim: usize,
    growth: Growth,
    positions: Option<plan::Positions>,
    /// The slot of the step of one token that writes its entry in place; or why there is none.
    single: Result<String, String>,
    /// Why parts have all places of which attention sees fewer, if there are any.
    sees_fewer: Option<String>,
    steps: Steps,
}

/// What the input of positions is called that a model does not have.
const POSITIONS: &str = "position_ids";
/// Sizes at which it is looked for where positions are used: several tokens, behind a past of either
/// length. No other constants of a model are so at both.
const PROBE: (u64, [u64; 2]) = (3, [17, 29]);
/// How many tokens of a prompt are taken at once if nothing is said.
const PROMPT: u64 = 64;

impl<'a> Decoder<'a> {
    /// A model whose inputs and outputs are known, with the sizes that are asked for.
    pub fn of(file: &'a ModelFile, roles: Roles, wanted: &Wanted) -> Result<Self, Failure> {
        let refused = |error: String| Failure::file(&file.path, error);
        let tokens = dims_of(input(file, &roles.tokens)?).map_err(refused)?;
        let [batch, width] = tokens else {
            return Err(refused(format!("`{}` has {} dimensions, expected 2", roles.tokens, tokens.len())));
        };
        let entries = roles.kept.iter().find(|part| part.form == Form::Entries);
        let places =
            entries.map(|part| places(input(file, &part.past)?, batch).map_err(refused)).transpose()?;
        let (dim, room) = places.map_or((0, None), |(dim, room)| (dim, Some(room)));
        let batch = fixed(batch, wanted.batch, "--batch").map_err(refused)?.unwrap_or(1);
        let capacity = match room {
            Some(room) => fixed(room, wanted.context, "--context").map_err(refused)?,
            None => wanted.context.filter(|&it| it > 0),
        };
        let capacity = capacity.ok_or_else(|| {
            let message = "generating takes a number of tokens there is room for: `--context 1024`";
            Failure::Usage(message.to_owned())
        })?;
        let mut decoder = Self {
            file,
            roles,
            dims: wanted.dims.clone(),
            batch,
            capacity,
            prompt: 1,
            dim,
            growth: Growth::Behind,
            positions: None,
            single: Err(String::new()),
            sees_fewer: None,
            steps: Steps::default(),
        };
        decoder.growth = decoder.growth_of(room)?;
        decoder.positions = decoder.positions_of()?;
        decoder.prompt = decoder.prompt_of(width, wanted.prompt)?;
        decoder.check()?;
        decoder.settle()?;
        Ok(decoder)
    }

    /// What the plans say of inputs and outputs.
    pub fn cache(&self) -> Cache {
        Cache {
            tokens: self.roles.tokens.clone(),
            mask: self.roles.mask.clone(),
            positions: self.positions.clone(),
            logits: self.roles.logits.clone(),
            kept: self.roles.kept.clone(),
            dim: self.dim,
            growth: self.growth,
            capacity: self.capacity,
            slot: self.single.as_ref().ok().cloned(),
        }
    }

    /// Why a step of one token moves the cache up rather than write its entry in place, if it does.
    pub fn moves_up(&self) -> Option<&str> {
        let is_moved =
            self.growth == Growth::Behind && self.roles.kept.iter().any(|it| it.form == Form::Entries);
        self.single.as_ref().err().filter(|_| is_moved).map(String::as_str)
    }

    /// Why parts of the cache have all places of which attention was found to see fewer, if there are any.
    pub fn sees_fewer(&self) -> Option<&str> {
        self.sees_fewer.as_deref()
    }

    /// How many sequences grow at once.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// How many tokens of a prompt are taken at once, if more than one.
    pub fn prompt(&self) -> Option<u64> {
        (self.prompt > 1).then_some(self.prompt)
    }

    /// The step of so many new tokens, with the places of its cache that it sees; of one token the one that writes its
    /// entry in place, if there is one.
    pub fn step(&self, width: u64) -> Result<Graph, Failure> {
        match self.steps.planned(width) {
            Some(step) => Ok(step.clone()),
            None => self.step_of_model(width),
        }
    }

    /// The step of so many new tokens as the model says it.
    pub fn step_of_model(&self, width: u64) -> Result<Graph, Failure> {
        if let Some(step) = self.steps.of_model(width) {
            return Ok(step.clone());
        }
        let found = self.growth.found(self.capacity, width);
        let mut graph = self.imported(width, found, self.mask(width))?;
        // What prompts leave is handed on: it must not lie where the next step finds its own.
        if self.growth != Growth::Behind && width == 1 {
            graph = written::in_place(&graph, &self.roles.kept);
        }
        let known = |name: &str| {
            let roles = &self.roles;
            let kept = roles.kept.iter().map(|part| &part.past);
            let positions = self.positions.iter().map(|it| &it.name);
            kept.chain(positions).chain(&roles.mask).chain([&roles.tokens]).any(|it| it == name)
        };
        let unknown = graph.values.iter().find_map(|value| match &value.source {
            Source::Input(name) if !known(name) => Some((name, &value.type_)),
            _ => None,
        });
        match unknown {
            None => Ok(graph),
            Some((name, type_)) => Err(self.refused(format!(
                "input `{name}` {type_} is nothing that generating gives: it knows tokens, a mask, positions \
                 and a cache (`--role ROLE=NAME`, `--kept INPUT=OUTPUT`)"
            ))),
        }
    }

    /// How many places the mask of a step has.
    fn mask(&self, width: u64) -> u64 {
        if self.growth == Growth::AtLength && width > 1 { width } else { self.capacity }
    }

    /// What plans of the step of so many new tokens say of the model, whose sizes are those of its own step.
    pub fn header(&self, step: &Graph, width: u64) -> Result<plan::ModelFile, Failure> {
        let bindings = Bindings { dims: self.dims.iter().cloned().collect(), ..Bindings::default() };
        let of_model = self.steps.of_model(width).unwrap_or(step);
        let mut header = compile::header(self.file, &bindings, of_model);
        // A first step may have no use for inputs that have the names.
        let found = self.growth.found(self.capacity, width);
        let of_step = self.bindings(width, found, self.mask(width))?.dims;
        let is_missing = |(name, _): &(String, u64)| {
            !name.contains('[') && header.dims.iter().all(|(known, _)| known != name)
        };
        let missing: Vec<(String, u64)> = of_step.into_iter().filter(is_missing).collect();
        header.dims.extend(missing);
        header.dims.sort();
        Ok(header)
    }

    /// The positions of a step, where all are those of the last token that there is room for.
    pub fn last_positions(&self, graph: &Graph) -> BTreeMap<String, Array> {
        let last = self.positions.iter().filter_map(|it| {
            let type_ = type_of_input(graph, &it.name)?;
            Some((it.name.clone(), impossible::filled(type_, self.capacity.saturating_sub(1))?))
        });
        last.collect()
    }

    /// What a user should know of the names of dimensions, in words: which of the step of one token are others
    /// of the same name.
    pub fn apart(&self) -> Result<Vec<String>, Failure> {
        let bindings = self.bindings(1, self.growth.found(self.capacity, 1), self.capacity)?;
        let of_input = |input: &Input| {
            let dims = input.dims.iter().flatten().enumerate();
            let apart = dims.filter_map(|(index, dim)| {
                let (Dim::Symbol(symbol), place) = (dim, place(&input.name, index)) else { return None };
                let (size, elsewhere) = (bindings.dims.get(&place)?, bindings.dims.get(symbol)?);
                let path = self.file.path.display();
                (size != elsewhere).then(|| {
                    format!(
                        "{path}: {place} is {size}, and `{symbol}`, as the model calls it, is {elsewhere} \
                         elsewhere: taken as a dimension of its own"
                    )
                })
            });
            apart.collect::<Vec<_>>()
        };
        Ok(self.file.model.inputs().iter().flat_map(of_input).collect())
    }

    /// The model with a cache of which so many places are found, and a mask of so many.
    fn imported(&self, width: u64, found: u64, mask: u64) -> Result<Graph, Failure> {
        let mut bindings = self.bindings(width, found, mask)?;
        bindings.positions = self.positions.as_ref().filter(|it| !it.nodes.is_empty()).map(|it| Positions {
            name: it.name.clone(),
            start: found,
            batch: self.batch,
            width,
            nodes: it.nodes.iter().cloned().collect(),
        });
        pipeline::import(self.file, &bindings, &mut |_, _| {})
            .map_err(|error| compile::refusal(self.file, &error))
    }

    fn bindings(&self, width: u64, found: u64, mask: u64) -> Result<Bindings, Failure> {
        let roles = &self.roles;
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        // Names are hints: what has one that is taken is known by its place.
        let mut set = |name: &str, index: usize, dim: &Dim, size: u64| {
            let Dim::Symbol(symbol) = dim else { return };
            if *sizes.entry(symbol.clone()).or_insert(size) != size {
                sizes.insert(place(name, index), size);
            }
        };
        let mut bind = |name: &str, sizes: &[u64]| -> Result<(), Failure> {
            let input = input(self.file, name)?;
            let dims = dims_of(input).map_err(|error| self.refused(error))?;
            if dims.len() != sizes.len() {
                let (found, expected) = (dims.len(), sizes.len());
                return Err(self.refused(format!("`{name}` has {found} dimensions, expected {expected}")));
            }
            dims.iter().zip(sizes).enumerate().for_each(|(index, (dim, &size))| set(name, index, dim, size));
            Ok(())
        };
        bind(&roles.tokens, &[self.batch, width])?;
        if let Some(name) = &roles.mask {
            bind(name, &[self.batch, mask])?;
        }
        if let Some(name) = &roles.positions {
            let all = [self.batch, width];
            bind(name, if self.is_shared(name)? { &all[1..] } else { &all })?;
        }
        let tokens = dims_of(input(self.file, &roles.tokens)?).map_err(|error| self.refused(error))?;
        for part in &roles.kept {
            let dims = dims_of(input(self.file, &part.past)?).map_err(|error| self.refused(error))?;
            for (index, dim) in dims.iter().enumerate() {
                let is_batch = Some(dim) == tokens.first() || index == 0;
                if index == self.dim && part.form == Form::Entries {
                    set(&part.past, index, dim, found);
                } else if is_batch {
                    set(&part.past, index, dim, self.batch);
                }
            }
        }
        for (name, size) in &self.dims {
            if let Some(own) = sizes.insert(name.clone(), *size).filter(|own| own != size) {
                return Err(Failure::Usage(format!(
                    "`--dim {name}={size}` is a dimension that generating gives a size, here {own}: leave it out; \
                     `--batch`, `--prompt` and `--context` say what there is of each"
                )));
            }
        }
        Ok(Bindings { dims: sizes, ..Bindings::default() })
    }

    /// Whether all sequences have the same positions.
    fn is_shared(&self, name: &str) -> Result<bool, Failure> {
        Ok(dims_of(input(self.file, name)?).map_err(|error| self.refused(error))?.len() == 1)
    }

    /// Where new entries come: what has room for all of a mask's places and is not larger afterwards
    /// has them written into it.
    fn growth_of(&self, room: Option<&Dim>) -> Result<Growth, Failure> {
        let Some(room) = room else {
            // Of states alone there is nothing to grow: empty places come first.
            let graph = self.imported(1, self.capacity, self.capacity)?;
            return match self.grows(&graph) {
                Some(_) => Ok(Growth::Behind),
                None => Err(self.refused(format!("its states change: {}", self.left(&graph)))),
            };
        };
        let shared = match &self.roles.positions {
            Some(name) => self.is_shared(name)?,
            None => false,
        };
        let written = if shared { Growth::AtPosition } else { Growth::AtLength };
        let whole = self.imported(1, self.capacity, self.capacity);
        if let Ok(graph) = &whole
            && self.grows(graph) == Some(0)
        {
            return Ok(written);
        }
        if let Dim::Number(_) = room {
            let why = "its cache has a fixed number of places, and is not as large afterwards";
            return Err(whole.err().unwrap_or_else(|| self.refused(why.to_owned())));
        }
        if self.capacity < 2 {
            return Err(Failure::Usage("there is room for one token, expected 2: `--context 2`".to_owned()));
        }
        let graph = self.imported(1, self.capacity - 1, self.capacity)?;
        match self.grows(&graph) {
            Some(1) => Ok(Growth::Behind),
            _ => Err(self.refused(format!(
                "its cache does not grow as expected: with {} places in dimension {} and one new token it \
                     becomes {}, expected {} places or one more",
                self.capacity - 1,
                self.dim,
                self.left(&graph),
                self.capacity - 1
            ))),
        }
    }

    /// What a step leaves, in words.
    fn left(&self, graph: &Graph) -> String {
        let shown = |part: &plan::Kept| {
            let found = type_of_output(graph, &part.present);
            format!("`{}` {}", part.present, found.map_or("absent".to_owned(), ToString::to_string))
        };
        self.roles.kept.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    /// By how many places all entries of the cache are larger after a step, where states are as large as before; 0
    /// where there are no entries.
    fn grows(&self, graph: &Graph) -> Option<u64> {
        let mut by = None;
        for part in &self.roles.kept {
            let present = type_of_output(graph, &part.present)?;
            let past = type_of_input(graph, &part.past)?;
            if part.form == Form::State {
                if past != present {
                    return None;
                }
                continue;
            }
            let (before, after) = (past.shape.get(self.dim)?, present.shape.get(self.dim)?);
            let more = after.checked_sub(*before)?;
            let same = |(index, (a, b)): (usize, (&u64, &u64))| index == self.dim || a == b;
            let pairs = past.shape.iter().zip(&present.shape).enumerate();
            let alike =
                past.rank() == present.rank() && past.dtype == present.dtype && pairs.into_iter().all(same);
            if !alike || *by.get_or_insert(more) != more {
                return None;
            }
        }
        Some(by.unwrap_or(0))
    }

    /// The input of positions: the model's, or one that it is given where positions follow from the
    /// length of the past.
    fn positions_of(&self) -> Result<Option<plan::Positions>, Failure> {
        if let Some(name) = &self.roles.positions {
            return Ok(Some(plan::Positions { name: name.clone(), nodes: Vec::new() }));
        }
        if self.growth != Growth::Behind {
            return Ok(None);
        }
        let (width, pasts) = PROBE;
        let mut nodes: Option<BTreeSet<String>> = None;
        for past in pasts {
            let bindings = self.bindings(width, past, past + width)?;
            let name = POSITIONS.to_owned();
            let wanted = Positions { name, start: past, batch: self.batch, width, nodes: BTreeSet::new() };
            let found = self.file.model.positions(&bindings, &wanted);
            let found = found.map_err(|error| compile::refusal(self.file, &error))?;
            nodes = Some(nodes.map_or(found.clone(), |nodes| nodes.intersection(&found).cloned().collect()));
        }
        let nodes: Vec<String> = nodes.into_iter().flatten().collect();
        Ok((!nodes.is_empty()).then(|| plan::Positions { name: POSITIONS.to_owned(), nodes }))
    }

    /// How many tokens of prompts are taken at once.
    fn prompt_of(&self, width: &Dim, wanted: Option<u64>) -> Result<u64, Failure> {
        if let Dim::Number(number) = width {
            return match (number, wanted) {
                (1, None | Some(1)) => Ok(1),
                (1, Some(_)) => {
                    Err(Failure::Usage("the model takes one token at a time: `--prompt 1`".to_owned()))
                }
                _ => Err(self.refused(format!(
                    "it takes {number} tokens at a time, expected a number that is not fixed, or 1"
                ))),
            };
        }
        let most = match self.growth {
            Growth::Behind => self.capacity - 1,
            Growth::AtLength => self.capacity,
            // All sequences stand at the same place: prompts that are not equally long are taken in step.
            Growth::AtPosition => 1,
        };
        match wanted {
            Some(wanted) if wanted > most || wanted == 0 => Err(Failure::Usage(format!(
                "`--prompt {wanted}` tokens at once, expected 1 to {most}, with room for {}",
                self.capacity
            ))),
            Some(wanted) => Ok(wanted),
            None => Ok(PROMPT.min(most)),
        }
    }

    /// Refuses what cannot hide the empty places of a cache.
    fn check(&self) -> Result<(), Failure> {
        let lacks = match self.growth {
            Growth::Behind | Growth::AtLength => self.roles.mask.is_none(),
            Growth::AtPosition => false,
        };
        if !lacks {
            return Ok(());
        }
        let inputs: Vec<String> =
            self.file.model.inputs().iter().map(|input| format!("`{}`", input.name)).collect();
        Err(self.refused(format!(
            "it has no mask among its inputs {}, so that the empty places of its cache cannot be hidden; export it \
             with `attention_mask`, or name it: `--role mask=NAME`",
            inputs.join(", ")
        )))
    }

    fn refused(&self, error: String) -> Failure {
        Failure::file(&self.file.path, error)
    }
}

fn input<'a>(file: &'a ModelFile, name: &str) -> Result<&'a Input, Failure> {
    let input = file.model.inputs().iter().find(|input| input.name == name);
    input.ok_or_else(|| Failure::file(&file.path, format!("there is no input `{name}`")))
}

/// Where a dimension of an input is, as import calls it.
fn place(name: &str, index: usize) -> String {
    format!("{name}[{index}]")
}

/// A size: what is asked for, unless the model says it.
fn fixed(dim: &Dim, wanted: Option<u64>, flag: &str) -> Result<Option<u64>, String> {
    match (dim, wanted) {
        (Dim::Number(number), Some(wanted)) if *number != wanted => {
            Err(format!("the model is for `{flag} {number}` alone, asked for is {wanted}"))
        }
        (Dim::Number(number), _) => Ok(Some(*number)),
        (Dim::Symbol(_), wanted) => Ok(wanted.filter(|&it| it > 0)),
    }
}

fn type_of_input<'a>(graph: &'a Graph, name: &str) -> Option<&'a Type> {
    let is_it = |source: &Source| matches!(source, Source::Input(input) if input == name);
    graph.values.iter().find(|value| is_it(&value.source)).map(|value| &value.type_)
}

fn type_of_output<'a>(graph: &'a Graph, name: &str) -> Option<&'a Type> {
    graph.outputs.iter().find(|output| output.name == name).map(|output| graph.type_of(output.value))
}

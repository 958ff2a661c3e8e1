//! A plan's program evaluated on its ranks, on one rank, and as its model says.

use std::collections::BTreeMap;
use std::path::Path;

use files::Failure;
use files::given::{self, Given};
use files::inputs;
use files::model_file::ModelFile;
use import::ImportError;
use kernels::Array;
use lower::Program;
use plan::Control;
use planner_ir::{Graph, Source, State, StateKind, Type};
use run::RunError;

use crate::expected::{self, Compared, Expected, allowed, compared};
use crate::generation::turned::Turned;

/// How far outputs may be from each other at least, in parts of the largest number: operations are raised
/// to others that round differently. Where numbers are of 16 bits or fewer it is what these allow.
const TOLERANCE: f64 = 1e-3;

/// What ranks of this machine may hold together to be run by a check (bytes), and how many there may be.
const HELD: u64 = 8_000_000_000;
const RANKS: usize = 256;

/// The size of a step: small, so that a step is one.
const RATE: f32 = 1e-3;

type Arrays = BTreeMap<String, Array>;

/// What is evaluated, and on what.
pub struct Evaluated<'a> {
    /// The file of the plan, which messages name.
    pub path: &'a Path,
    /// The whole program.
    pub graph: &'a Graph,
    /// What is part of the program of the model's inputs.
    pub controls: &'a [Control],
    /// The model.
    pub file: &'a ModelFile,
    /// The programs of all ranks.
    pub programs: &'a [Program],
    /// How the plan's step holds its cache, where that is not as the model does: the model's step is evaluated on all
    /// places in its own order.
    pub turned: Option<Turned<'a>>,
    /// A file of inputs, instead of made ones; not of steps of generation.
    pub inputs: Option<&'a Path>,
}

/// Inputs, and what they are.
struct Set<'a> {
    what: &'static str,
    inputs: Arrays,
    /// How the cache is held.
    turned: Option<Turned<'a>>,
    /// Whether outputs of the model that are no numbers may be anything.
    lenient: bool,
}

impl Evaluated<'_> {
    fn refused(&self, error: impl std::fmt::Display) -> Failure {
        Failure::file(self.path, format!("the plan is rejected: {error}"))
    }

    /// Evaluates the model, imported again, the plan's program on one rank, and its programs on all.
    pub fn outputs(&self, imported: Result<Graph, ImportError>) -> Result<Vec<String>, Failure> {
        let (graph, file) = (self.graph, self.file);
        let imported = match imported {
            Ok(imported) => imported,
            Err(ImportError::DependsOnData { .. }) => {
                let line = "inputs that decide control flow are part of the plan: not evaluated again";
                return Ok(vec![line.to_owned()]);
            }
            Err(error) => return Err(self.refused(format!("the model is not of these sizes: {error}"))),
        };
        let types = |graph: &Graph| -> Vec<(String, Type)> {
            graph.outputs.iter().map(|it| (it.name.clone(), graph.type_of(it.value).clone())).collect()
        };
        if self.left(types(&imported)) != types(graph) {
            return Err(self.refused("its outputs are not those of the model"));
        }
        if !file.missing.is_empty() {
            let line = "the model imports to the same outputs; its weights are not there to evaluate it";
            return Ok(vec![line.to_owned()]);
        }
        let given = self.inputs.map(given::read).transpose()?;
        let expected = expected::read(graph, given.as_ref())?;
        let tolerance = TOLERANCE.max(allowed(&imported)).max(allowed(graph));
        let left_out = self.left_out();
        let mut on_ranks = Vec::new();
        let mut passed = Vec::new();
        let mut sets = 0;
        for set in self.sets(&imported, given.as_ref())? {
            let sources = run::Sources { inputs: &set.inputs, weights: file };
            let of_model = set.turned.map(|it| it.inputs(&set.inputs)).transpose();
            let of_model = of_model.map_err(|error| Failure::internal("turn", error))?;
            let of_model = of_model.as_ref().unwrap_or(&set.inputs);
            let before = match run::reference(&imported, run::Sources { inputs: of_model, weights: file }) {
                Err(error) if given.is_none() && is_of_numbers(&error) => {
                    passed.push(format!(
                        "not evaluated on {}: the model does not take them: {error}",
                        set.what
                    ));
                    continue;
                }
                before => before,
            };
            let evaluated = |outcome: Result<Arrays, RunError>| {
                outcome.map_err(|error| self.refused(format!("it cannot be evaluated: {error}")))
            };
            let (before, after) = (evaluated(before)?, evaluated(run::reference(graph, sources))?);
            sets += 1;
            let turned = set.turned.map(|it| it.outputs(&after)).transpose();
            let turned = turned.map_err(|error| Failure::internal("turn", error))?;
            let after_turned = turned.as_ref().unwrap_or(&after);
            let left = set.turned.map(|it| it.left(&before)).transpose();
            let left = left.map_err(|error| Failure::internal("turn", error))?;
            self.same(
                left.as_ref().unwrap_or(&before),
                after_turned,
                tolerance,
                set.lenient,
                "it does not compute what the model does",
            )?;
            if left_out.is_none() {
                let outcome = run::run(self.programs.to_vec(), sources)
                    .map_err(|error| self.refused(format!("it does not run on its ranks: {error}")))?;
                let what = "its ranks do not compute what one does";
                self.same(&after, &outcome.outputs, allowed(graph), false, what)?;
                self.expected(&expected, &outcome.outputs)?;
                on_ranks.push(set.what);
            } else {
                self.expected(&expected, &after)?;
            }
        }
        if sets == 0 {
            return Ok(passed);
        }
        passed.push(format!(
            "evaluated on one rank it computes what the model does ({} outputs)",
            imported.outputs.len()
        ));
        passed.push(left_out.unwrap_or_else(|| {
            format!(
                "run on its {} ranks it computes what it does on one: on {}",
                self.programs.len(),
                on_ranks.join(", ")
            )
        }));
        if let Some(given) = given.filter(|it| !it.outputs.is_empty()) {
            passed.push(format!("its outputs are the {} that the inputs' file expects", given.outputs.len()));
        }
        Ok(passed)
    }

    /// Makes one step on one rank and on all of them: losses and gradients, or parameters after it.
    pub fn step(&self) -> Result<Vec<String>, Failure> {
        let graph = self.graph;
        let training = graph.training.as_ref();
        let training = training.ok_or_else(|| self.refused("its program is no training step"))?;
        if !self.file.missing.is_empty() {
            return Ok(vec!["the model's weights are not there to make a step".to_owned()]);
        }
        if let Some(line) = self.left_out() {
            return Ok(vec![line]);
        }
        let batches: Vec<Arrays> =
            (0..training.micro_batches).map(|seed| inputs::made(graph, seed)).collect();
        let of_step = of_step(graph).map_err(|error| self.refused(error))?;
        let one = |error| self.refused(format!("a step cannot be made on one rank: {error}"));
        let all = |error| self.refused(format!("its ranks cannot make a step: {error}"));
        let mut device = run::Reference::new(graph, self.file).map_err(one)?;
        let expected = match device.train(&batches, &of_step) {
            Err(error) if is_of_numbers(&error) => {
                let line = format!("no step is made: the model does not take inputs that are made: {error}");
                return Ok(vec![line]);
            }
            expected => expected.map_err(one)?,
        };
        let mut session = run::Session::new(self.programs.to_vec(), self.file).map_err(all)?;
        let found = session.train(&batches, &of_step).map_err(all)?.outputs;
        let tolerance = allowed(graph);
        let what = "a step of its ranks is not that of one";
        self.same(&expected, &found, tolerance, false, what)?;
        let moments = states(graph, StateKind::FirstMoment);
        let compared = if moments.is_empty() { states(graph, StateKind::Parameter) } else { moments };
        let (mut on_one, mut on_all) = (Arrays::new(), Arrays::new());
        for state in &compared {
            let whole =
                device.state(state).ok_or_else(|| self.refused(format!("no state `{}`", state.name)))?;
            on_one.insert(state.name.clone(), whole.clone());
            on_all.insert(state.name.clone(), session.gather(state).map_err(all)?);
        }
        let most = most(on_one.values());
        for (name, expected) in &on_one {
            self.near(name, expected, &on_all, tolerance * most, false, what)?;
        }
        Ok(vec![format!(
            "a step of its {} ranks is that of one: losses and {} states",
            self.programs.len(),
            compared.len()
        )])
    }

    /// What inputs there are to evaluate on: those that are given, or ones that are made.
    fn sets(&self, imported: &Graph, given: Option<&Given>) -> Result<Vec<Set<'_>>, Failure> {
        let graphs = [imported, self.graph];
        // Inputs that nothing uses are gone from the plan.
        let union = |of: &dyn Fn(&Graph) -> Result<Arrays, Failure>| -> Result<Arrays, Failure> {
            let [mut all, more] = [of(graphs[0])?, of(graphs[1])?];
            all.extend(more);
            Ok(all)
        };
        if let Some(given) = given {
            let ignored: Vec<&str> = self.file.model.inputs().iter().map(|it| it.name.as_str()).collect();
            let fitting = |graph: &Graph| given.fitting(graph, self.controls, &ignored);
            return Ok(vec![Set {
                what: "the inputs that are given",
                inputs: union(&fitting)?,
                turned: None,
                lenient: false,
            }]);
        }
        let made = union(&|graph| Ok(inputs::made(graph, 0)))?;
        let padded = inputs::padded(imported, &made).map(|it| self.seeing(&made, it));
        let turned = None;
        let mut sets = vec![Set { what: "inputs that are made", inputs: made, turned, lenient: false }];
        // What a model makes of rows that see nothing may be no number; attention says 0.
        sets.extend(padded.map(|inputs| Set {
            what: "the same with padding",
            inputs,
            turned,
            lenient: true,
        }));
        self.turn(&mut sets)?;
        Ok(sets)
    }

    /// Outputs of the model's step with as many places as the plan's leaves.
    fn left(&self, mut outputs: Vec<(String, Type)>) -> Vec<(String, Type)> {
        for (name, type_) in &mut outputs {
            let part = self.turned.and_then(|it| it.cache.entries().find(|part| part.present == *name));
            if let Some((turned, part)) = self.turned.zip(part)
                && let Some(places) = type_.shape.get_mut(turned.cache.dim)
            {
                *places = turned.cache.places(part);
            }
        }
        outputs
    }

    /// Inputs with padding in which the tokens of the step are none: what a query that sees no key makes of all others,
    /// which nobody reads, it makes of those of its window. In the last sequence half of the smallest window is hidden.
    fn seeing(&self, made: &Arrays, mut padded: Arrays) -> Arrays {
        let Some(turned) = self.turned.filter(|it| it.cache.has_windows()) else { return padded };
        let window = turned.cache.entries().filter_map(|it| it.window).min().unwrap_or(0);
        let mask = turned.cache.mask.as_ref().and_then(|it| Some((padded.get_mut(it)?, made.get(it)?)));
        if let Some((mask, shown)) = mask
            && let [rows, columns] = mask.shape()[..]
        {
            let size = mask.dtype().bytes();
            let range = |row: u64, from: u64, to: u64| {
                let place = |behind: u64| {
                    let column = row * columns + columns - behind.min(columns);
                    usize::try_from(column * size).unwrap_or(usize::MAX)
                };
                place(from)..place(to)
            };
            let half = window.div_ceil(2).max(turned.width);
            if window > half
                && let Some(hidden) = mask.bytes_mut().get_mut(range(rows.saturating_sub(1), window, half))
            {
                hidden.fill(0);
            }
            for row in 0..rows {
                let tokens = range(row, turned.width, 0);
                if let Some(to) = mask.bytes_mut().get_mut(tokens.clone())
                    && let Some(from) = shown.bytes().get(tokens)
                {
                    to.copy_from_slice(from);
                }
            }
        }
        padded
    }

    /// Gives steps that hold their cache in another way one, those that write their entry in place a slot in each set of
    /// inputs another one.
    fn turn<'b>(&'b self, sets: &mut [Set<'b>]) -> Result<(), Failure> {
        let Some(turned) = self.turned else { return Ok(()) };
        let cache = turned.cache;
        // The last set, of which places are hidden, has an order that is not the model's. Where parts have differing
        // numbers of places, slots are counted beyond the largest.
        let period = cache.period();
        let is_turned = |slot: &u64| cache.entries().all(|it| !slot.is_multiple_of(cache.places(it).max(1)));
        let beyond = (cache.capacity + 1..period).find(is_turned);
        let mut slot = beyond.unwrap_or(cache.capacity / 2);
        for set in sets.iter_mut().rev() {
            if let Some(name) = cache.slot.as_ref().filter(|_| cache.is_written(turned.width)) {
                let number = Array::of(vec![1], &[i64::try_from(slot).unwrap_or(0)]);
                let number = number.map_err(|error| Failure::internal("turn", error))?;
                set.inputs.insert(name.clone(), number);
            }
            set.turned = Some(Turned { slot, ..turned });
            slot = period - 1;
        }
        Ok(())
    }

    /// Why ranks are not run, if they are not.
    fn left_out(&self) -> Option<String> {
        let held: u64 =
            self.programs.iter().map(|it| it.resident.saturating_add(it.arena)).fold(0, u64::saturating_add);
        let ranks = self.programs.len();
        (held > HELD || ranks > RANKS).then(|| {
            format!(
                "not run: its {ranks} ranks hold {held} bytes together, expected {RANKS} and {HELD} at most"
            )
        })
    }

    /// Holds outputs against those that the file of the inputs has.
    fn expected(&self, expected: &[Expected], outputs: &Arrays) -> Result<(), Failure> {
        let complaint = compared(self.graph, expected, outputs).iter().find_map(Compared::complaint);
        match (complaint, self.inputs) {
            (Some(complaint), Some(path)) => Err(Failure::file(path, complaint)),
            _ => Ok(()),
        }
    }

    /// Holds outputs against others, each relative to its largest number.
    fn same(
        &self,
        expected: &Arrays,
        found: &Arrays,
        tolerance: f64,
        lenient: bool,
        what: &str,
    ) -> Result<(), Failure> {
        for (name, of_name) in expected {
            let allowed = tolerance * most([of_name].into_iter());
            self.near(name, of_name, found, allowed, lenient, what)?;
        }
        Ok(())
    }

    /// Holds an array against another of its name.
    fn near(
        &self,
        name: &str,
        expected: &Array,
        found: &Arrays,
        allowed: f64,
        lenient: bool,
        what: &str,
    ) -> Result<(), Failure> {
        let numbers = found.get(name).and_then(|it| it.to_floats().ok()).zip(expected.to_floats().ok());
        let numbers = numbers.filter(|(a, b)| a.len() == b.len());
        let (found, expected) =
            numbers.ok_or_else(|| self.refused(format!("`{name}` cannot be compared")))?;
        let near = |(a, b): (&f64, &f64)| {
            (a - b).abs() <= allowed || b.is_nan() && (lenient || a.is_nan()) || a.to_bits() == b.to_bits()
        };
        match found.iter().zip(&expected).enumerate().find(|(_, it)| !near(*it)) {
            None => Ok(()),
            Some((index, (a, b))) => {
                Err(self.refused(format!("{what}: `{name}`, element {index} is {a}, expected {b}")))
            }
        }
    }
}

/// Whether the numbers of inputs are to blame.
fn is_of_numbers(error: &RunError) -> bool {
    match error {
        RunError::Whole(_, error) | RunError::Instruction { error, .. } => error.is_of_numbers(),
        _ => false,
    }
}

/// The largest finite number of arrays, or a very small one.
fn most<'a>(arrays: impl Iterator<Item = &'a Array>) -> f64 {
    let finite = arrays.flat_map(|it| it.to_floats().unwrap_or_default()).filter(|it| it.is_finite());
    finite.fold(1e-6, |most: f64, it| most.max(it.abs()))
}

/// The states of a kind.
fn states(graph: &Graph, kind: StateKind) -> Vec<State> {
    let of_value = |source: &Source| match source {
        Source::State(state) if state.kind == kind => Some(state.clone()),
        _ => None,
    };
    graph.values.iter().filter_map(|value| of_value(&value.source)).collect()
}

/// The inputs of a first step, of those that it has.
fn of_step(graph: &Graph) -> Result<Arrays, kernels::KernelError> {
    let number = |it: f32| Array::of::<f32>(vec![], &[it]);
    let all = [
        (train::RATE, number(RATE)?),
        (train::STEP, number(1.0)?),
        (train::ROUNDING, Array::of::<i64>(vec![], &[0])?),
    ];
    let has = |name: &str| given::expected(graph).iter().any(|it| it.0 == name);
    Ok(all.into_iter().filter(|it| has(it.0)).map(|(name, it)| (name.to_owned(), it)).collect())
}

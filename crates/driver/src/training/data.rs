//! Files of examples, cut into micro-batches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use files::Failure;
use files::{given, readable};
use kernels::Array;
use plan::Recipe;
use planner_ir::{Graph, Source, Type};

use super::input::Input;
use super::job::Width;
use super::tokens::Tokens;

/// Examples for a plan.
#[derive(Debug)]
pub struct Data {
    path: PathBuf,
    inputs: Vec<Input>,
    held: Held,
    /// How many examples there are.
    pub examples: u64,
    /// How many a micro-batch has.
    pub per_micro_batch: u64,
    /// How many tokens, or other integers of the first input of two dimensions that has them, a
    /// micro-batch has; none if no input has.
    pub tokens: Option<u64>,
}

/// Where examples are.
#[derive(Debug)]
enum Held {
    /// For each input, its array.
    Arrays(Vec<Column>),
    /// Windows of a file of tokens.
    Tokens(Tokens),
}

/// An array for an input.
#[derive(Debug)]
struct Column {
    share: Share,
    array: Array,
}

/// What of an array a micro-batch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// A row for each example.
    Rows,
    /// All of it, whatever the examples are.
    Same,
}

impl Data {
    /// The examples of a file, which has to suffice for one step of the plan.
    pub fn open(path: &Path, width: Width, graph: &Graph, recipe: &Recipe) -> Result<Self, Failure> {
        let inputs = inputs(graph);
        let wrong = |error: String| Failure::file(path, error);
        let arrays = path.extension().is_some_and(|it| it == "npz" || it == "safetensors");
        let (held, examples, per_micro_batch) = if arrays {
            let given = given::read(path)?;
            let (shares, examples, batch) = shares(&inputs, &given.inputs).map_err(wrong)?;
            let column =
                |(input, share): (&Input, Share)| Ok(Column { share, array: given.input(&input.name)? });
            let columns = inputs.iter().zip(shares).map(column).collect::<Result<_, Failure>>()?;
            (Held::Arrays(columns), examples, batch)
        } else {
            let tokens = Tokens::open(path, width, &inputs, recipe).map_err(wrong)?;
            let (examples, batch) = (tokens.examples(), tokens.batch);
            (Held::Tokens(tokens), examples, batch)
        };
        let micro_batches = recipe.micro_batches;
        let needed = per_micro_batch.saturating_mul(micro_batches);
        if examples < needed {
            return Err(wrong(format!(
                "has {examples} examples, and one step takes {needed}: {micro_batches} micro-batches of \
                 {per_micro_batch}; give more data, or plan a smaller batch"
            )));
        }
        let tokens = inputs.iter().find(|it| it.type_.rank() == 2 && !it.type_.dtype.is_float());
        let tokens = tokens.map(|it| it.type_.elements());
        Ok(Self { path: path.to_owned(), inputs, held, examples, per_micro_batch, tokens })
    }

    /// Where they are from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What may be wrong where numbers are out of range, to be added to what is said of them.
    pub fn hint(&self) -> String {
        match &self.held {
            Held::Tokens(tokens) => {
                format!(
                    "; tokens are read as u{}: `--tokens` says how wide they are",
                    8 * tokens.width.bytes()
                )
            }
            Held::Arrays(_) => String::new(),
        }
    }

    /// The SHA-256 of the file's content, in hexadecimal.
    pub fn sha256(&self) -> Result<String, Failure> {
        let hash = readable::open(&self.path).and_then(|mut file| readable::sha256(&mut file));
        hash.map_err(|error| readable::failed(&self.path, &error))
    }

    /// What the file is compared by with those of other ranks.
    pub fn fingerprint(&self) -> Result<String, Failure> {
        let print = readable::fingerprint(&self.path, &[]);
        print.map_err(|error| readable::failed(&self.path, &error))
    }

    /// The inputs of a micro-batch of these examples, as many as one has.
    pub fn micro_batch(&self, examples: &[u64]) -> Result<BTreeMap<String, Array>, Failure> {
        let one = |(number, input): (usize, &Input)| {
            let array = match &self.held {
                Held::Tokens(tokens) => tokens.input(number, &input.type_, examples),
                Held::Arrays(columns) => columns[number].of(&input.type_, examples),
            };
            let wrong = |error| Failure::file(&self.path, format!("`{}`: {error}", input.name));
            Ok((input.name.clone(), array.map_err(wrong)?))
        };
        self.inputs.iter().enumerate().map(one).collect()
    }
}

/// The inputs that take examples: all but what training adds.
fn inputs(graph: &Graph) -> Vec<Input> {
    let own = [::train::RATE, ::train::STEP, ::train::SEED, ::train::ROUNDING];
    let of_model = graph.values.iter().filter_map(|value| match &value.source {
        Source::Input(name) if !own.contains(&name.as_str()) => {
            Some(Input { name: name.clone(), type_: value.type_.clone() })
        }
        _ => None,
    });
    of_model.collect()
}

impl Column {
    fn of(&self, type_: &Type, examples: &[u64]) -> Result<Array, String> {
        let all = &self.array;
        let array = match self.share {
            Share::Same => all.clone(),
            Share::Rows => {
                let shape = type_.shape.clone();
                let row = all.bytes().len() / all.shape().first().map_or(1, |&it| size(it)).max(1);
                let mut bytes = Vec::with_capacity(row * examples.len());
                for &example in examples {
                    let start = size(example).saturating_mul(row);
                    let taken = all.bytes().get(start..start.saturating_add(row));
                    bytes.extend_from_slice(taken.ok_or("an example that is not there")?);
                }
                let taken = Type::new(all.dtype(), shape);
                Array::from_bytes(taken, &bytes).map_err(|error| error.to_string())?
            }
        };
        given::converted(array, type_)
    }
}

/// What of the array for each input a micro-batch takes, by the types of the arrays; how many examples there
/// are, and how many in a micro-batch.
fn shares(inputs: &[Input], given: &BTreeMap<String, Type>) -> Result<(Vec<Share>, u64, u64), String> {
    let mut arrays = Vec::new();
    for Input { name, type_ } in inputs {
        let found = given.get(name).ok_or_else(|| format!("has no array for input `{name}` {type_}"))?;
        let row = |type_: &Type| type_.shape.get(1..).map(<[u64]>::to_vec);
        if row(found) != row(type_) || !given::converts(found.dtype, type_.dtype) {
            let rest: String = type_.shape.iter().skip(1).map(|it| format!(",{it}")).collect();
            let shape = if type_.rank() == 0 { String::new() } else { format!("[examples{rest}]") };
            return Err(format!(
                "`{name}` is {found}, expected {}{shape}, for micro-batches {type_}",
                type_.dtype.name()
            ));
        }
        arrays.push(found);
    }
    if let Some(name) = given.keys().find(|name| !inputs.iter().any(|input| input.name == **name)) {
        let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        return Err(format!("`{name}` is not an input, expected `{}`", names.join("`, `")));
    }
    // What has exactly its input's shape may be the same for all examples, such as positions.
    let pairs = || inputs.iter().zip(&arrays);
    let longer = pairs().find(|(input, found)| found.shape != input.type_.shape);
    let (by, all) = longer
        .or_else(|| pairs().find(|(input, _)| input.type_.rank() > 0))
        .ok_or_else(|| "none of the plan's inputs has a dimension of examples".to_owned())?;
    let (batch, examples) = (by.type_.shape[0], all.shape[0]);
    if batch == 0 {
        return Err(format!("input `{}` is {}, which has no examples", by.name, by.type_));
    }
    let share = |(input, found): (&Input, &&Type)| {
        let own = (input.type_.shape.first().copied(), found.shape.first().copied());
        match own {
            (Some(b), Some(n)) if (b, n) == (batch, examples) => Ok(Share::Rows),
            (b, _) if found.shape == input.type_.shape && b != Some(batch) => Ok(Share::Same),
            _ => Err(format!(
                "`{}` is {found}, but `{}` is {all}: expected as many examples in both",
                input.name, by.name
            )),
        }
    };
    let shares = pairs().map(share).collect::<Result<_, _>>()?;
    Ok((shares, examples, batch))
}

/// A number of examples or bytes that are in memory.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;

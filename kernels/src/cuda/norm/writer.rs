//! The text of the passes over a row: what is read, computed and stored of its elements.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use planner_ir::DType;

use crate::cuda::chain::{Body, Chain, Input, Place, Step, handed_on};
use crate::cuda::launch::{Argument, Piece, Uncovered};
use crate::cuda::number::{computed, converted};
use crate::cuda::pointwise;
use crate::cuda::strides::{Arguments, own_strides, repeated_strides, signed};

/// How a thread reads the part of an operand that belongs to its elements. After so many rows come those
/// of the first again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// One for each element of a row.
    Each(u64),
    /// One for a row.
    Row(u64),
}

/// What the passes of a chain are written from.
pub(super) struct Writer<'a> {
    chain: &'a Chain,
    /// Which step is the norm.
    at: usize,
    /// How many rows there are.
    rows: u64,
    accesses: Vec<Access>,
    /// What steps read that no operand has, of each step.
    places: Vec<(usize, Place)>,
    /// How many elements a thread reads at once, and how many threads compute a row.
    pub(super) width: u64,
    pub(super) group: u64,
}

/// Which pass over a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// It stores what is stored of the steps before the norm.
    First,
    Again,
    /// It stores what is stored of the norm and of what follows it.
    Last,
}

/// What a pass reads and computes.
#[derive(Default)]
struct Needed {
    operands: BTreeSet<usize>,
    /// The results that the first pass has stored.
    kept: BTreeSet<usize>,
    steps: BTreeSet<usize>,
}

impl<'a> Writer<'a> {
    /// A writer for rows that begin with a dimension; of instances, factors belong to channels.
    pub(super) fn new(
        chain: &'a Chain,
        at: usize,
        first: usize,
        of_channels: bool,
    ) -> Result<Self, Uncovered> {
        let is_factor = |number: usize| chain.steps[at].inputs[1..].contains(&Input::Operand(number));
        let access = |(number, operand): (usize, &Piece)| {
            let found = match chain.shape.get(1) {
                Some(&channels) if of_channels && is_factor(number) => Some(Access::Row(channels)),
                _ => accessed(&operand.type_.shape, &chain.shape, first),
            };
            found.ok_or_else(|| {
                Uncovered::Missing(format!("rows of {:?} with {}", chain.shape, operand.type_))
            })
        };
        let accesses = chain.operands.iter().enumerate().map(access).collect::<Result<_, _>>()?;
        let places = pointwise::places(chain);
        let rows = chain.shape[..first].iter().product();
        let writer = Self { chain, at, rows, accesses, places, width: 1, group: 1 };
        writer.expect_places()?;
        Ok(writer)
    }

    /// Places count along the rows as they lie in the block; where they do not there is no kernel.
    fn expect_places(&self) -> Result<(), Uncovered> {
        let own = own_strides(&self.chain.shape);
        let whole = own_strides(&pointwise::whole(self.chain));
        let lies = pointwise::is_same(&whole, &own, &self.chain.shape);
        match self.places.iter().find(|(_, it)| !lies || matches!(it, Place::Index(_))) {
            None => Ok(()),
            Some((step, _)) => Err(Uncovered::Missing(format!("rows with {:?}", self.chain.steps[*step].op))),
        }
    }

    pub(super) fn step(&self) -> &Step {
        &self.chain.steps[self.at]
    }

    /// The smallest of what a thread reads or writes neighbours of (bytes).
    pub(super) fn smallest(&self) -> u64 {
        let read = self.chain.operands.iter().zip(&self.accesses);
        let other =
            |access: &Access| *access == Access::Each(self.rows) || matches!(access, Access::Each(2..));
        let read = read.filter(|(_, access)| other(access)).map(|(it, _)| it.type_.dtype);
        let written =
            self.chain.results.iter().map(|&(step, result)| self.chain.dtype(Input::Step(step, result)));
        read.chain(written).map(DType::bytes).min().unwrap_or(1).max(2)
    }

    /// Operands and results as parameters.
    pub(super) fn arguments(&self) -> Arguments {
        let mut arguments = Arguments::default();
        for (number, operand) in self.chain.operands.iter().enumerate() {
            arguments.reads(&format!("x{number}"), operand.type_.dtype, Argument::Operand(number));
        }
        for (number, &(step, result)) in self.chain.results.iter().enumerate() {
            let dtype = self.chain.dtype(Input::Step(step, result));
            arguments.writes(&format!("y{number}"), dtype, Argument::Result(number));
        }
        arguments
    }

    /// What is done before the passes: rows begin, and what is one number for a row is read.
    pub(super) fn once(&self, arguments: &mut Arguments) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for (number, (operand, access)) in self.chain.operands.iter().zip(&self.accesses).enumerate() {
            let every = match *access {
                Access::Each(every) | Access::Row(every) => every,
            };
            let row = match every {
                _ if every == self.rows => "row".to_owned(),
                1 => "0".to_owned(),
                _ => {
                    arguments.integer(&format!("n{number}"), signed(every));
                    format!("(row % n{number})")
                }
            };
            let (type_, name) = (computed(operand.type_.dtype), operand.type_.dtype.name());
            let _ = match access {
                Access::Each(_) if row == "0" => Ok(()),
                Access::Each(_) => writeln!(text, "    x{number} += {row} * length;"),
                Access::Row(_) => {
                    writeln!(text, "    {type_} a{number}; t_load_{name}_1(x{number} + {row}, &a{number});")
                }
            };
        }
        for number in 0..self.chain.results.len() {
            let _ = writeln!(text, "    y{number} += row * length;");
        }
        for (number, (_, place)) in self.places.iter().enumerate() {
            arguments.integer(&format!("p{number}"), pointwise::start(self.chain, *place));
            let row = if *place == Place::Position { " + row * length" } else { "" };
            let _ = writeln!(text, "    const t_i64 o{number} = p{number}{row};");
        }
        text
    }

    /// A pass that reads these inputs of the norm and does something with them.
    pub(super) fn pass(
        &self,
        pass: Pass,
        read: &[Input],
        done: impl Fn(&[String]) -> String,
    ) -> Result<String, Uncovered> {
        let stored = if pass == Pass::First { self.stored(0..self.at) } else { vec![] };
        let needed = self.needed(pass, read, &stored)?;
        let mut body = self.body(&needed, &|_| String::new())?;
        let numbers: Vec<String> = read.iter().map(|&it| self.number(it, &needed).0).collect();
        // Writing to a string does not fail.
        let _ = writeln!(body, "            {}", done(&numbers));
        Ok(self.around(&needed, &body, &stored))
    }

    /// The last pass, in which the norm is a number made of those that it reads.
    pub(super) fn last(&self, norm: impl Fn(&[String]) -> String) -> Result<String, Uncovered> {
        let stored = self.stored(self.at..self.chain.steps.len());
        let needed = self.needed(Pass::Last, &[Input::Step(self.at, 0)], &stored)?;
        let body = self.body(&needed, &norm)?;
        Ok(self.around(&needed, &body, &stored))
    }

    /// Which of the stored results these steps make.
    fn stored(&self, steps: Range<usize>) -> Vec<usize> {
        let results = self.chain.results.iter().enumerate();
        results.filter(|(_, (step, _))| steps.contains(step)).map(|(number, _)| number).collect()
    }

    /// What a pass needs for what it reads and stores.
    fn needed(&self, pass: Pass, read: &[Input], stored: &[usize]) -> Result<Needed, Uncovered> {
        let mut needed = Needed::default();
        let before = self.stored(0..self.at);
        let made = stored.iter().map(|&it| self.chain.results[it]).map(|(step, it)| Input::Step(step, it));
        let mut open: Vec<Input> = read.iter().copied().chain(made).collect();
        while let Some(input) = open.pop() {
            let (step, result) = match input {
                Input::Operand(number) => {
                    needed.operands.insert(number);
                    continue;
                }
                Input::Step(step, result) => (step, result),
            };
            if step < self.at && pass != Pass::First {
                if let Some(&it) = before.iter().find(|&&it| self.chain.results[it] == (step, result)) {
                    needed.kept.insert(it);
                    continue;
                }
                // What it is computed from may have been written over.
                if !before.is_empty() {
                    let op = &self.chain.steps[step].op;
                    return Err(Uncovered::Missing(format!("{op:?} once more, before a norm")));
                }
            }
            if needed.steps.insert(step) {
                open.extend(&self.chain.steps[step].inputs);
            }
        }
        Ok(needed)
    }

    /// An input as a number of the elements' loop, and its type.
    fn number(&self, input: Input, needed: &Needed) -> (String, DType) {
        let number = match input {
            Input::Operand(number) => match self.accesses[number] {
                Access::Each(_) => format!("a{number}[k]"),
                Access::Row(_) => format!("a{number}"),
            },
            Input::Step(step, result) => {
                let kept = needed.kept.iter().find(|&&it| self.chain.results[it] == (step, result));
                kept.map_or_else(|| format!("v{step}_{result}"), |it| format!("r{it}[k]"))
            }
        };
        (number, self.chain.dtype(input))
    }

    /// What is computed for each element.
    fn body(&self, needed: &Needed, norm: &dyn Fn(&[String]) -> String) -> Result<String, Uncovered> {
        let mut text = String::new();
        for &number in &needed.steps {
            let step = &self.chain.steps[number];
            let inputs: Vec<(String, DType)> =
                step.inputs.iter().map(|&it| self.number(it, needed)).collect();
            let body = if number == self.at {
                let numbers: Vec<String> = inputs.iter().map(|it| it.0.clone()).collect();
                let made = converted(inputs[0].1, step.results[0], &norm(&numbers));
                Body { statements: vec![], results: vec![made] }
            } else {
                step.body(&inputs, &self.own_places(number), &format!("v{number}"))?
            };
            for statement in &body.statements {
                let _ = writeln!(text, "            {statement}");
            }
            for (result, (value, dtype)) in body.results.iter().zip(&step.results).enumerate() {
                let handed = handed_on(*dtype, &format!("v{number}_{result}"), value);
                let _ = writeln!(text, "            {handed}");
            }
        }
        Ok(text)
    }

    /// The places of a step, for the element of a thread.
    fn own_places(&self, step: usize) -> Vec<String> {
        let own = self.places.iter().enumerate().filter(|(_, (it, _))| *it == step);
        own.map(|(number, (_, place))| match place {
            Place::Position => format!("(o{number} + j + k)"),
            Place::Index(_) | Place::Seed(_) => format!("o{number}"),
        })
        .collect()
    }

    /// The loop over a row: what is read before a body, and what is stored after it.
    fn around(&self, needed: &Needed, body: &str, stored: &[usize]) -> String {
        let Self { width, group, .. } = self;
        let mut text = format!("    for (t_i64 j = start; j < length; j += {group} * {width}) {{\n");
        for &number in &needed.operands {
            if matches!(self.accesses[number], Access::Each(_)) {
                let dtype = self.chain.operands[number].type_.dtype;
                let (type_, name) = (computed(dtype), dtype.name());
                let _ = writeln!(
                    text,
                    "        {type_} a{number}[{width}]; t_load_{name}_{width}(x{number} + j, a{number});"
                );
            }
        }
        for &number in needed.kept.iter().chain(stored) {
            let _ = writeln!(text, "        {} r{number}[{width}];", computed(self.result(number)));
        }
        for &number in &needed.kept {
            let name = self.result(number).name();
            let _ = writeln!(text, "        t_load_{name}_{width}(y{number} + j, r{number});");
        }
        let _ = write!(text, "        T_UNROLL\n        for (int k = 0; k < {width}; k++) {{\n{body}");
        for &number in stored {
            let (step, result) = self.chain.results[number];
            let _ = writeln!(text, "            r{number}[k] = v{step}_{result};");
        }
        text.push_str("        }\n");
        for &number in stored {
            let name = self.result(number).name();
            let _ = writeln!(text, "        t_store_{name}_{width}(y{number} + j, r{number});");
        }
        text + "    }\n"
    }

    /// The elements of a stored result.
    fn result(&self, number: usize) -> DType {
        let (step, result) = self.chain.results[number];
        self.chain.dtype(Input::Step(step, result))
    }
}

/// How a thread reads a value that is repeated to a shape whose rows begin with a dimension.
fn accessed(shape: &[u64], target: &[u64], first: usize) -> Option<Access> {
    if shape.iter().product::<u64>() == 1 {
        return Some(Access::Row(1));
    }
    let strides = repeated_strides(shape, target)?;
    let (outer, inner) = strides.split_at(first);
    let (rows, row) = target.split_at(first);
    if pointwise::is_same(inner, &vec![0; row.len()], row) && !row.iter().all(|&it| it == 1) {
        return Some(Access::Row(turn(outer, &own_strides(rows), rows)?));
    }
    let is_row = pointwise::is_same(inner, &own_strides(row), row);
    is_row.then(|| turn(outer, &own_strides(target), rows).map(Access::Each))?
}

/// After how many rows of so many along each dimension a value is where it was at the first, if what is
/// left of the dimensions is as the strides of rows that follow each other are.
fn turn(strides: &[i64], own: &[i64], rows: &[u64]) -> Option<u64> {
    let begins = |&dim: &usize| {
        let (outer, inner) = (&strides[..dim], &strides[dim..]);
        pointwise::is_same(outer, &vec![0; dim], rows) && pointwise::is_same(inner, &own[dim..], &rows[dim..])
    };
    (0..=rows.len()).find(begins).map(|dim| rows[dim..].iter().product())
}

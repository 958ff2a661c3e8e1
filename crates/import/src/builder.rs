//! The graph as it grows: values with what is known of them, and operations.
//!
//! An operation on known values is computed at once if its results are small: that is how
//! arithmetic on shapes disappears. Large values of one repeated number are kept as such.

mod partial; // lists of integers some of which are known

use std::rc::Rc;

use kernels::Array;
use planner_ir::{DType, Op, Real, Type, ValueId};

use crate::constant;
use crate::error::{ImportError, Place};
use crate::outline::{self, Outline};
use crate::packed::Packed;
use crate::tensor;
use partial::Partial;

/// The largest result that is computed during import (elements).
pub(crate) const FOLD_LIMIT: u64 = 1024;

/// A graph that is being built. Values are numbered as they are made.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) values: Vec<Entry>,
    pub(crate) steps: Vec<Step>,
    /// The node of the model file that is being translated.
    place: Place,
    /// What its operations are called.
    path: String,
}

/// A value and what is known of it.
pub(crate) struct Entry {
    /// Its type; extents that depend on data are 0 here.
    pub(crate) type_: Type,
    /// Its type with unknown extents, if there are any.
    pub(crate) open: Option<Outline>,
    pub(crate) source: Origin,
    /// Its elements, if they are known and few.
    known: Option<Rc<Array>>,
    /// Its first element with as many dimensions, if all are known to be equal to it.
    uniform: Option<Rc<Array>>,
    /// Its elements as far as they are known, if only some are.
    partial: Option<Partial>,
    /// The elements of a weight that is small enough to be an attribute. Nothing is computed from
    /// them: weights may change.
    attribute: Option<Rc<Array>>,
    /// What its elements are in files, where several share a byte.
    packed: Option<Packed>,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Input(String),
    Weight(String),
    Step,
}

/// An operation.
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) operands: Vec<ValueId>,
    pub(crate) results: Vec<ValueId>,
    pub(crate) origin: String,
}

impl Builder {
    /// Says which node of the model file is translated from now on, and what its operations are called.
    pub(crate) fn set_place(&mut self, place: Place, path: &str) {
        self.place = place;
        path.clone_into(&mut self.path);
    }

    /// The type of a value; extents that depend on data are 0 in it.
    pub(crate) fn type_of(&self, value: ValueId) -> &Type {
        &self.values[value.0].type_
    }

    /// Whether some extent of a value depends on data.
    pub(crate) fn is_open(&self, value: ValueId) -> bool {
        self.values[value.0].open.is_some()
    }

    /// The type of a value, with unknown extents.
    pub(crate) fn outline(&self, value: ValueId) -> Outline {
        let entry = &self.values[value.0];
        entry.open.clone().unwrap_or_else(|| Outline::from(&entry.type_))
    }

    /// The elements of a value, if they are known and few.
    pub(crate) fn known(&self, value: ValueId) -> Option<&Array> {
        self.values[value.0].known.as_deref()
    }

    /// The elements of a list of integers as far as they are known, if only some are.
    pub(crate) fn partial(&self, value: ValueId) -> Option<Partial> {
        self.values[value.0].partial.clone()
    }

    /// Says what is known of the elements of a list of integers.
    pub(crate) fn set_partial(&mut self, value: ValueId, partial: Partial) {
        self.values[value.0].partial = Some(partial);
    }

    /// The elements of a value that says shapes, axes or counts.
    pub(crate) fn integers(&self, value: ValueId) -> Result<Vec<i64>, ImportError> {
        let known = self.known(value).ok_or_else(|| self.unknown(value, "a list of integers"))?;
        known.to_integers().map_err(|error| self.wrong(error.to_string()))
    }

    /// The elements of a value that says attributes.
    pub(crate) fn reals(&self, value: ValueId) -> Result<Vec<f64>, ImportError> {
        let attribute = self.values[value.0].attribute.as_deref();
        let known =
            self.known(value).or(attribute).ok_or_else(|| self.unknown(value, "a list of numbers"))?;
        known.to_floats().map_err(|error| self.wrong(error.to_string()))
    }

    /// The error that the elements of a value are not known: of a weight they could be.
    fn unknown(&self, value: ValueId, what: &str) -> ImportError {
        match &self.values[value.0].source {
            Origin::Weight(name) => {
                let message =
                    format!("{} needs its data, which are large or in a file that is not given", self.place);
                ImportError::Weight { name: name.clone(), message }
            }
            _ => self.depends_on_data(what),
        }
    }

    /// The error that something of the node at hand does not fit.
    pub(crate) fn wrong(&self, message: impl Into<String>) -> ImportError {
        ImportError::Node { place: self.place.clone(), message: message.into() }
    }

    /// The error that something of the node at hand is not known before the run.
    pub(crate) fn depends_on_data(&self, what: impl Into<String>) -> ImportError {
        ImportError::DependsOnData { place: self.place.clone(), what: what.into() }
    }

    /// Adds a value that is given at every run.
    pub(crate) fn input(&mut self, name: &str, type_: Type) -> ValueId {
        self.push(Entry::new(type_, Origin::Input(name.to_owned())))
    }

    /// Adds a value that is read from the model file.
    pub(crate) fn weight(&mut self, name: &str, type_: Type) -> ValueId {
        self.push(Entry::new(type_, Origin::Weight(name.to_owned())))
    }

    /// Adds a value that is an operand of a region that is being made.
    pub(crate) fn placeholder(&mut self, outline: Outline) -> ValueId {
        self.push(Entry::open(outline))
    }

    /// Says what a small weight is when the model is imported, for operators that take it as an
    /// attribute.
    pub(crate) fn set_attribute(&mut self, weight: ValueId, array: Array) {
        self.values[weight.0].attribute = Some(Rc::new(array));
    }

    /// Says that the numbers of a value share bytes in files.
    pub(crate) fn set_packed(&mut self, value: ValueId, packed: Option<Packed>) {
        self.values[value.0].packed = packed;
    }

    /// How the numbers of a value share bytes in files, if they do.
    pub(crate) fn packed(&self, value: ValueId) -> Option<Packed> {
        self.values[value.0].packed
    }

    /// Adds a value that is known now.
    pub(crate) fn constant(&mut self, array: Array) -> ValueId {
        let mut entry = Entry::new(array.type_().clone(), Origin::Step);
        let op = constant::op(&array);
        entry.uniform = constant::first_if_equal(&array).map(Rc::new);
        if array.type_().elements() <= FOLD_LIMIT {
            entry.known = Some(Rc::new(array));
        }
        self.step(op, &[], vec![entry])[0]
    }

    /// Adds an operation and returns its results; what is known already is not computed again.
    pub(crate) fn emit(&mut self, op: Op, operands: &[ValueId]) -> Result<Vec<ValueId>, ImportError> {
        if operands.iter().any(|&operand| self.is_open(operand)) {
            let outlines: Vec<Outline> = operands.iter().map(|&it| self.outline(it)).collect();
            let results = outline::infer(&op, &outlines)
                .ok_or_else(|| self.depends_on_data(format!("the shape of an operand of {op:?}")))?;
            return self.emit_open(op, operands, results);
        }
        let types: Vec<Type> = operands.iter().map(|&operand| self.type_of(operand).clone()).collect();
        let results = op.infer(&types).map_err(|error| self.wrong(error.to_string()))?;
        for result in &results {
            tensor::check_size(&result.shape).map_err(|message| self.wrong(message))?;
        }
        if changes_nothing(&op, &types, &results) {
            return Ok(vec![operands[0]]);
        }
        if let Some(values) = self.fold(&op, operands, &results) {
            return Ok(values);
        }
        let partial = results.first().and_then(|result| partial::infer(self, &op, operands, result));
        if let Some(values) = partial.as_ref().and_then(|partial| self.complete(partial, &results[0])) {
            return Ok(vec![values]);
        }
        let entries = results
            .into_iter()
            .map(|type_| Entry { partial: partial.clone(), ..Entry::new(type_, Origin::Step) });
        let entries = entries.collect();
        Ok(self.step(op, operands, entries))
    }

    /// As `emit`, for an operation with one result.
    pub(crate) fn emit1(&mut self, op: Op, operands: &[ValueId]) -> Result<ValueId, ImportError> {
        let results = self.emit(op, operands)?;
        results.first().copied().ok_or_else(|| self.wrong("an operation without results"))
    }

    /// Adds an operation whose results have these types, as far as they are known.
    pub(crate) fn emit_open(
        &mut self,
        op: Op,
        operands: &[ValueId],
        results: Vec<Outline>,
    ) -> Result<Vec<ValueId>, ImportError> {
        let entries: Vec<Entry> = results.into_iter().map(Entry::open).collect();
        for entry in &entries {
            tensor::check_size(&entry.type_.shape).map_err(|message| self.wrong(message))?;
        }
        Ok(self.step(op, operands, entries))
    }

    /// A number without dimensions.
    pub(crate) fn scalar(&mut self, dtype: DType, value: f64) -> Result<ValueId, ImportError> {
        self.fill(Type::new(dtype, []), value)
    }

    /// One number, repeated.
    pub(crate) fn fill(&mut self, result: Type, value: f64) -> Result<ValueId, ImportError> {
        self.emit1(Op::Fill { result, value: Real(value) }, &[])
    }

    /// A list of integers.
    pub(crate) fn list(&mut self, elements: &[i64]) -> Result<ValueId, ImportError> {
        let length = u64::try_from(elements.len()).map_err(|_| self.wrong("a list that is too long"))?;
        let array = Array::of([length], elements).map_err(|error| self.wrong(error.to_string()))?;
        Ok(self.constant(array))
    }

    /// The same elements in another shape.
    pub(crate) fn reshape(&mut self, value: ValueId, shape: &[u64]) -> Result<ValueId, ImportError> {
        self.emit1(Op::Reshape { shape: shape.to_vec() }, &[value])
    }

    /// The dimensions in another order.
    pub(crate) fn transpose(
        &mut self,
        value: ValueId,
        permutation: &[usize],
    ) -> Result<ValueId, ImportError> {
        self.emit1(Op::Transpose { permutation: permutation.to_vec() }, &[value])
    }

    /// The elements in another type.
    pub(crate) fn cast(&mut self, value: ValueId, dtype: DType) -> Result<ValueId, ImportError> {
        self.emit1(Op::Cast(dtype), &[value])
    }

    /// Repeated up to a shape.
    pub(crate) fn expand(&mut self, value: ValueId, shape: &[u64]) -> Result<ValueId, ImportError> {
        self.emit1(Op::Expand { shape: shape.to_vec() }, &[value])
    }

    /// The results, if they are few and every operand is known, or of one number.
    fn fold(&mut self, op: &Op, operands: &[ValueId], results: &[Type]) -> Option<Vec<ValueId>> {
        if matches!(op, Op::Dropout { .. } | Op::Region(_) | Op::Dynamic(_)) {
            return None;
        }
        if results.iter().all(|type_| type_.elements() <= FOLD_LIMIT) {
            let known: Option<Vec<Rc<Array>>> =
                operands.iter().map(|&operand| self.values[operand.0].known.clone()).collect();
            if let Some(known) = known {
                let arrays: Vec<&Array> = known.iter().map(Rc::as_ref).collect();
                let arrays = kernels::evaluate(op, &arrays).ok()?;
                return Some(arrays.into_iter().map(|array| self.constant(array)).collect());
            }
        }
        let [result] = results else { return None };
        let one = self.uniform_result(op, operands, result)?;
        let value = Real(constant::exact(&one)?);
        let mut entry = Entry::new(result.clone(), Origin::Step);
        if result.elements() <= FOLD_LIMIT {
            entry.known = Some(Rc::new(constant::repeated(&one, result)?));
        }
        entry.uniform = Some(Rc::new(one));
        Some(self.step(Op::Fill { result: result.clone(), value }, &[], vec![entry]))
    }

    /// A list of integers all of which are known after all.
    fn complete(&mut self, partial: &Partial, type_: &Type) -> Option<ValueId> {
        let elements: Vec<i64> = partial.iter().copied().collect::<Option<_>>()?;
        Some(self.constant(Array::of(type_.shape.clone(), &elements).ok()?))
    }

    /// One element of the result, if all are equal because those of each operand are.
    fn uniform_result(&self, op: &Op, operands: &[ValueId], result: &Type) -> Option<Array> {
        let ones = || {
            operands
                .iter()
                .map(|&operand| self.values[operand.0].uniform.as_deref())
                .collect::<Option<Vec<_>>>()
        };
        let shape = vec![1; result.rank()];
        match op {
            Op::Fill { value, .. } => {
                let op = Op::Fill { result: Type::new(result.dtype, shape), value: *value };
                kernels::evaluate(&op, &[]).ok()?.pop()
            }
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) | Op::Gated(_) => {
                kernels::evaluate(op, &ones()?).ok()?.pop()
            }
            Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Slice { .. }
            | Op::Concat { .. } => {
                let ones = ones()?;
                let first = ones.first()?;
                let same = ones.iter().all(|one| one.bytes() == first.bytes());
                let type_ = Type::new(result.dtype, shape);
                same.then(|| (*first).clone().retyped(type_).ok()).flatten()
            }
            Op::Gather { .. } => {
                let data = self.values[operands.first()?.0].uniform.as_deref()?;
                data.clone().retyped(Type::new(result.dtype, shape)).ok()
            }
            _ => None,
        }
    }

    fn step(&mut self, op: Op, operands: &[ValueId], entries: Vec<Entry>) -> Vec<ValueId> {
        let results: Vec<ValueId> = entries.into_iter().map(|entry| self.push(entry)).collect();
        let origin = self.path.clone();
        self.steps.push(Step { op, operands: operands.to_vec(), results: results.clone(), origin });
        results
    }

    fn push(&mut self, entry: Entry) -> ValueId {
        self.values.push(entry);
        ValueId(self.values.len() - 1)
    }
}

impl Entry {
    fn new(type_: Type, source: Origin) -> Self {
        Self {
            type_,
            open: None,
            source,
            known: None,
            uniform: None,
            partial: None,
            attribute: None,
            packed: None,
        }
    }

    fn open(outline: Outline) -> Self {
        let type_ =
            Type::new(outline.dtype, outline.extents.iter().map(|it| it.unwrap_or(0)).collect::<Vec<_>>());
        let open = outline.extents.contains(&None).then_some(outline);
        Self { open, ..Self::new(type_, Origin::Step) }
    }
}

/// Whether the result is the operand.
fn changes_nothing(op: &Op, operands: &[Type], results: &[Type]) -> bool {
    let same = operands.len() == 1 && results.len() == 1 && operands[0] == results[0];
    same && match op {
        Op::Cast(_) | Op::Reshape { .. } | Op::Expand { .. } | Op::Concat { .. } => true,
        Op::Transpose { permutation } => permutation.iter().enumerate().all(|(index, &dim)| index == dim),
        Op::Slice { steps, .. } => steps.iter().all(|&step| step == 1),
        _ => false,
    }
}

//! Parameters that an exporter wrote twice.
//!
//! Models tie parameters: the table of embeddings is the matrix of the scores, too. Some exporters
//! write such a parameter once for each use, often transposed. To train it is to train one; here
//! the copies become uses of the first again.

use planner_ir::{DType, Emit, Graph, Op, Phase, Source, Type, ValueId};

/// A weight that is a copy of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tie {
    /// The name of the copy.
    pub copy: String,
    /// The name of the weight that it is a copy of.
    pub original: String,
    /// Whether rows and columns are exchanged.
    pub transposed: bool,
}

/// The matrices of floating point that are copies of an earlier one, element by element; `weight`
/// gives a weight's bytes, little-endian, if it is there. Matrices that are one number repeated
/// are nobody's copies.
pub fn ties<B: AsRef<[u8]>>(graph: &Graph, weight: &dyn Fn(&str) -> Option<B>) -> Vec<Tie> {
    let mut originals: Vec<Matrix<'_, B>> = Vec::new();
    let mut ties = Vec::new();
    for value in &graph.values {
        let Source::Weight(name) = &value.source else { continue };
        let Some(matrix) = Matrix::of(name, &value.type_, weight) else { continue };
        match originals.iter().find_map(|original| matrix.copy_of(original)) {
            Some(tie) => ties.push(tie),
            None => originals.push(matrix),
        }
    }
    ties
}

/// The program with the copies replaced by what they are copies of.
pub fn tied(graph: &Graph, ties: &[Tie]) -> Graph {
    let mut to = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut map = vec![ValueId(0); graph.values.len()];
    let tie_of = |source: &Source| match source {
        Source::Weight(name) => ties.iter().find(|tie| tie.copy == *name),
        _ => None,
    };
    for (index, value) in graph.values.iter().enumerate() {
        let made = matches!(value.source, Source::Result { .. });
        if !made && tie_of(&value.source).is_none() {
            map[index] = to.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for (index, value) in graph.values.iter().enumerate() {
        let Some(tie) = tie_of(&value.source) else { continue };
        let original = Source::Weight(tie.original.clone());
        let original = to.value_ids().find(|it| to.value(*it).source == original);
        let Some(original) = original else { unreachable!("copies are of weights of the program") };
        let mut emit = Emit { graph: &mut to, phase: Phase::Forward, origin: &tie.copy };
        map[index] = match tie.transposed {
            true => emit.one(Op::Transpose { permutation: vec![1, 0] }, &[original]),
            false => original,
        };
    }
    for node in &graph.nodes {
        let operands = node.operands.iter().map(|operand| map[operand.0]).collect();
        let types = graph.types_of(&node.results);
        let results = to.push_node(node.op.clone(), operands, types, node.origin.clone());
        for (from, result) in node.results.iter().zip(results) {
            map[from.0] = result;
        }
    }
    to.outputs = graph.outputs.clone();
    for output in &mut to.outputs {
        output.value = map[output.value.0];
    }
    to
}

/// A weight of two dimensions.
struct Matrix<'a, B> {
    name: &'a str,
    dtype: DType,
    rows: usize,
    columns: usize,
    /// The bytes of an element.
    size: usize,
    bytes: B,
}

impl<'a, B: AsRef<[u8]>> Matrix<'a, B> {
    fn of(name: &'a str, type_: &Type, weight: &dyn Fn(&str) -> Option<B>) -> Option<Self> {
        let [rows, columns] = type_.shape[..] else { return None };
        let [rows, columns, size] = [rows, columns, type_.dtype.bytes()].map(|it| usize::try_from(it).ok());
        let (rows, columns, size) = (rows?, columns?, size?);
        if !type_.dtype.is_float() || rows < 2 || columns < 2 {
            return None;
        }
        let bytes = weight(name).filter(|bytes| bytes.as_ref().len() == rows * columns * size)?;
        let matrix = Self { name, dtype: type_.dtype, rows, columns, size, bytes };
        let first = matrix.at(0, 0);
        let repeated = matrix.bytes.as_ref().chunks_exact(size).all(|element| element == first);
        (!repeated).then_some(matrix)
    }

    fn at(&self, row: usize, column: usize) -> &[u8] {
        &self.bytes.as_ref()[(row * self.columns + column) * self.size..][..self.size]
    }

    fn copy_of(&self, original: &Matrix<'_, B>) -> Option<Tie> {
        let tie =
            |transposed| Tie { copy: self.name.to_owned(), original: original.name.to_owned(), transposed };
        if self.dtype != original.dtype {
            return None;
        }
        if (self.rows, self.columns) == (original.rows, original.columns)
            && self.bytes.as_ref() == original.bytes.as_ref()
        {
            return Some(tie(false));
        }
        let exchanged = (self.rows, self.columns) == (original.columns, original.rows);
        let mut places = (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (row, column)));
        let equal = exchanged && places.all(|(row, column)| self.at(row, column) == original.at(column, row));
        equal.then(|| tie(true))
    }
}

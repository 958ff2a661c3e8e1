//! Parameters that an exporter wrote twice.
//!
//! Models tie parameters: the table of embeddings is the matrix of the scores, too. Some exporters
//! write such a parameter once for each use, often transposed. To train it is to train one.

use plan::Tie;
use planner_ir::{DType, Graph, Source, Type, ValueId};

use super::{Known, Use, Uses, is_made};

/// The matrices that are copies of an earlier one, element by element, of those that may be.
///
/// Equal numbers do not make two weights one: layers may start alike and part. What does is that an
/// exporter, and no module, gave one of them its name, and that the program uses them as one:
///
/// - one is a table of rows that are looked up, the other the matrix of a product: the embedding, and the
///   head that shares it, transposed;
/// - or both are used alike, and beside both, in their products, stand the same scales and biases: a layer
///   that is used several times.
pub(super) fn ties<B: AsRef<[u8]>>(
    graph: &Graph,
    uses: &Uses<'_>,
    may_tie: &dyn Fn(&str) -> bool,
    known: &Known<'_, B>,
) -> Vec<Tie> {
    let mut originals: Vec<Matrix<'_, B>> = Vec::new();
    let mut ties = Vec::new();
    for id in graph.value_ids() {
        let Source::Weight(name) = &graph.value(id).source else { continue };
        if !may_tie(name) {
            continue;
        }
        let Some(matrix) = Matrix::of(id, name, graph.type_of(id), known) else { continue };
        match originals.iter().find_map(|original| matrix.copy_of(original, uses)) {
            Some(tie) => ties.push(tie),
            None => originals.push(matrix),
        }
    }
    ties
}

/// A weight of two dimensions.
struct Matrix<'a, B> {
    id: ValueId,
    /// Whether an exporter made its name.
    made: bool,
    name: &'a str,
    dtype: DType,
    rows: usize,
    columns: usize,
    /// The bytes of an element.
    size: usize,
    bytes: B,
}

impl<'a, B: AsRef<[u8]>> Matrix<'a, B> {
    fn of(id: ValueId, name: &'a str, type_: &Type, known: &Known<'_, B>) -> Option<Self> {
        let [rows, columns] = type_.shape[..] else { return None };
        let [rows, columns, size] = [rows, columns, type_.dtype.bytes()].map(|it| usize::try_from(it).ok());
        let (rows, columns, size) = (rows?, columns?, size?);
        if !type_.dtype.is_float() || rows < 2 || columns < 2 {
            return None;
        }
        let bytes = (known.bytes)(name).filter(|bytes| bytes.as_ref().len() == rows * columns * size)?;
        let made = is_made((known.declared)(name), name);
        let matrix = Self { id, made, name, dtype: type_.dtype, rows, columns, size, bytes };
        let first = matrix.at(0, 0);
        let repeated = matrix.bytes.as_ref().chunks_exact(size).all(|element| element == first);
        (!repeated).then_some(matrix)
    }

    fn at(&self, row: usize, column: usize) -> &[u8] {
        &self.bytes.as_ref()[(row * self.columns + column) * self.size..][..self.size]
    }

    fn copy_of(&self, original: &Matrix<'_, B>, uses: &Uses<'_>) -> Option<Tie> {
        self.equal_to(original).filter(|_| self.is_one_with(original, uses))
    }

    /// Whether the program uses both as one.
    fn is_one_with(&self, original: &Matrix<'_, B>, uses: &Uses<'_>) -> bool {
        if !self.made && !original.made {
            return false;
        }
        let [own, other] = [self, original].map(|it| uses.of_weight(it.id));
        let looked_up = [&own, &other].map(|it| it.contains(&Use::Lookup));
        let multiplied = [&own, &other].map(|it| it.contains(&Use::Product));
        match (looked_up, multiplied) {
            ([true, false], [_, true]) | ([false, true], [true, _]) => true,
            ([true, true], _) => self.made != original.made,
            _ => {
                let beside = uses.beside(self.id);
                !beside.is_empty() && beside == uses.beside(original.id)
            }
        }
    }

    fn equal_to(&self, original: &Matrix<'_, B>) -> Option<Tie> {
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

//! Patterns: terms with variables, as text, and where they match.
//!
//! `(mul ?x (sigmoid ?x))`: an operation by its kind; `?x` is a class, the same wherever it
//! stands; `#c` is a class that is one known number everywhere, `0.5` that number; `(reduce:r ?x)`
//! names the operation, the same wherever it stands, for its
//! attributes; `?p=(softmax:s ?x)` names the class of a term. Operands
//! of commutative operations match in both orders. Numbers match where they do not broaden what they are
//! put together with: what is left when they are gone has the same type.

use std::fmt;

use egg::{Id, Language};
use planner_ir::{Binary, DType, Op, Unary};

use super::term::{Head, Term, Terms};

/// A pattern.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern {
    pub(super) root: Shape,
    pub(super) classes: Vec<String>,
    pub(super) operations: Vec<String>,
}

/// A part of a pattern; variables by number.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Class(usize),
    Number(usize),
    Literal(f64),
    Term { kind: String, operation: Option<usize>, class: Option<usize>, children: Vec<Self> },
}

/// What a pattern's variables stand for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bound {
    /// The class that matched.
    pub(super) root: Id,
    classes: Vec<Option<Id>>,
    operations: Vec<Option<usize>>,
}

/// A match, by the names of its pattern.
#[derive(Clone, Copy)]
pub(super) struct Match<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) bound: &'a Bound,
}

impl Match<'_> {
    pub(super) fn root(&self) -> Id {
        self.bound.root
    }

    /// The class of that name.
    ///
    /// # Panics
    /// If the pattern does not name it.
    pub(super) fn class(&self, name: &str) -> Id {
        let index = self.pattern.classes.iter().position(|it| it == name);
        index.and_then(|it| self.bound.classes[it]).expect("rules use names of their pattern")
    }

    /// The operation of that name.
    ///
    /// # Panics
    /// If the pattern does not name it.
    pub(super) fn operation(&self, name: &str) -> usize {
        let index = self.pattern.operations.iter().position(|it| it == name);
        index.and_then(|it| self.bound.operations[it]).expect("rules use names of their pattern")
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no pattern: `{}`", self.0)
    }
}

/// The kinds of a head, most special first.
pub(super) fn kinds(head: &Head, children: usize) -> [&'static str; 2] {
    match head {
        Head::Outside(_) => ["outside", ""],
        Head::Project(_) => ["project", ""],
        Head::Scores(_) if children == 2 => ["scores", ""],
        Head::Scores(_) => ["masked", ""],
        Head::Op(op) => match op {
            Op::Unary(unary) => [unary_kind(*unary), "unary"],
            Op::Binary(binary) => [binary_kind(*binary), "binary"],
            Op::Select => ["select", ""],
            Op::Cast(_) => ["cast", ""],
            Op::Gated(_) => ["gated", ""],
            Op::Contract(_) => ["contract", ""],
            Op::Reduce { .. } => ["reduce", ""],
            Op::Softmax { .. } => ["softmax", ""],
            Op::LayerNorm { .. } => ["layernorm", ""],
            Op::RmsNorm { .. } => ["rmsnorm", ""],
            Op::Attention(_) => ["attention", ""],
            Op::Rotary(_) => ["rotary", ""],
            Op::Reshape { .. } => ["reshape", "movement"],
            Op::Transpose { .. } => ["transpose", "movement"],
            Op::Expand { .. } => ["expand", ""],
            Op::Concat { .. } => ["concat", ""],
            Op::Slice { .. } => ["slice", "movement"],
            Op::Gather { .. } => ["gather", ""],
            Op::GatherNd { .. } => ["gathernd", ""],
            Op::TopK { .. } => ["topk", ""],
            _ => ["other", ""],
        },
    }
}

fn unary_kind(unary: Unary) -> &'static str {
    match unary {
        Unary::Sigmoid => "sigmoid",
        Unary::Tanh => "tanh",
        Unary::Erf => "erf",
        Unary::Exp => "exp",
        Unary::Neg => "neg",
        Unary::Sqrt => "sqrt",
        Unary::Reciprocal => "reciprocal",
        Unary::IsNan => "isnan",
        Unary::Silu | Unary::Gelu | Unary::GeluTanh | Unary::GeluQuick | Unary::Relu => "activation",
        _ => "unary",
    }
}

fn binary_kind(binary: Binary) -> &'static str {
    match binary {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
        Binary::Pow => "pow",
        _ => "binary",
    }
}

/// Whether the operands of a kind may change places.
fn commutes(kind: &str) -> bool {
    matches!(kind, "add" | "mul")
}

/// Whether numbers are equal as far as an element type can tell.
fn close(a: f64, b: f64, dtype: DType) -> bool {
    let tolerance = match dtype {
        DType::BF16 => 1e-2,
        DType::F16 => 2e-3,
        _ => 2e-6,
    };
    a.to_bits() == b.to_bits() || (a - b).abs() <= tolerance * b.abs()
}

impl Pattern {
    /// The pattern of that text.
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ");
        let mut words = spaced.split_whitespace();
        let mut pattern = Self { root: Shape::Literal(0.0), classes: Vec::new(), operations: Vec::new() };
        let first = words.next().unwrap_or_default();
        pattern.root = pattern.shape(first, &mut words).ok_or_else(|| PatternError(text.to_owned()))?;
        match (words.next(), &pattern.root) {
            (None, Shape::Term { .. }) => Ok(pattern),
            _ => Err(PatternError(text.to_owned())),
        }
    }

    fn shape<'a>(&mut self, word: &'a str, rest: &mut impl Iterator<Item = &'a str>) -> Option<Shape> {
        if let Some(name) = word.strip_prefix('?') {
            if let Some(name) = name.strip_suffix('=') {
                let index = numbered(&mut self.classes, name);
                return match self.shape(rest.next()?, rest)? {
                    Shape::Term { kind, operation, children, .. } => {
                        Some(Shape::Term { kind, operation, class: Some(index), children })
                    }
                    _ => None,
                };
            }
            return Some(Shape::Class(numbered(&mut self.classes, name)));
        }
        if let Some(name) = word.strip_prefix('#') {
            return Some(Shape::Number(numbered(&mut self.classes, name)));
        }
        if word != "(" {
            return word.parse().ok().map(Shape::Literal);
        }
        let word = rest.next()?;
        let (kind, name) = word.split_once(':').map_or((word, None), |(kind, name)| (kind, Some(name)));
        let operation = name.map(|name| numbered(&mut self.operations, name));
        self.children(kind.to_owned(), operation, rest)
    }

    fn children<'a>(
        &mut self,
        kind: String,
        operation: Option<usize>,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Option<Shape> {
        let mut children = Vec::new();
        loop {
            match rest.next()? {
                ")" => return Some(Shape::Term { kind, operation, class: None, children }),
                word => children.push(self.shape(word, rest)?),
            }
        }
    }

    /// The kind of the root.
    pub(super) fn kind(&self) -> &str {
        match &self.root {
            Shape::Term { kind, .. } => kind,
            _ => "",
        }
    }

    /// Every way in which a term of a class matches.
    pub(super) fn matches(&self, terms: &Terms, root: Id, term: &Term) -> Vec<Bound> {
        let empty = Bound {
            root,
            classes: vec![None; self.classes.len()],
            operations: vec![None; self.operations.len()],
        };
        let mut found = Vec::new();
        match_term(terms, &self.root, root, term, &empty, &mut found);
        found
    }
}

fn numbered(names: &mut Vec<String>, name: &str) -> usize {
    if let Some(index) = names.iter().position(|it| it == name) {
        return index;
    }
    names.push(name.to_owned());
    names.len() - 1
}

fn match_class(terms: &Terms, shape: &Shape, class: Id, bound: &Bound, found: &mut Vec<Bound>) {
    let class = terms.find(class);
    match shape {
        Shape::Class(index) => found.extend(with_class(bound, *index, class)),
        Shape::Number(index) if terms[class].data.number.is_some() => {
            found.extend(with_class(bound, *index, class));
        }
        Shape::Literal(value) => {
            let data = &terms[class].data;
            let dtype = data.types.first().map_or(DType::F32, |it| it.dtype);
            if data.number.is_some_and(|number| close(number.0, *value, dtype)) {
                found.push(bound.clone());
            }
        }
        Shape::Number(_) => {}
        Shape::Term { .. } => {
            for term in &terms[class].nodes {
                match_term(terms, shape, class, term, bound, found);
            }
        }
    }
}

fn with_class(bound: &Bound, index: usize, class: Id) -> Option<Bound> {
    match bound.classes[index] {
        Some(known) if known != class => None,
        Some(_) => Some(bound.clone()),
        None => {
            let mut bound = bound.clone();
            bound.classes[index] = Some(class);
            Some(bound)
        }
    }
}

fn match_term(terms: &Terms, shape: &Shape, id: Id, term: &Term, bound: &Bound, found: &mut Vec<Bound>) {
    let Shape::Term { kind, operation, class, children } = shape else {
        return;
    };
    if term.children().len() != children.len()
        || !kinds(&terms.analysis.heads[term.head], children.len()).contains(&kind.as_str())
    {
        return;
    }
    let mut bound = bound.clone();
    if let Some(index) = operation
        && *bound.operations[*index].get_or_insert(term.head) != term.head
    {
        return;
    }
    if let Some(index) = class {
        let Some(named) = with_class(&bound, *index, id) else {
            return;
        };
        bound = named;
    }
    let mut match_in = |ids: &[Id]| {
        if !broadens(terms, children, ids, id, term) {
            match_children(terms, children.iter().zip(ids), &bound, found);
        }
    };
    match_in(term.children());
    if commutes(kind) && term.children()[0] != term.children()[1] {
        let reversed: Vec<Id> = term.children().iter().rev().copied().collect();
        match_in(&reversed);
    }
}

/// Whether the result of an elementwise operation has its shape from none but numbers.
fn broadens(terms: &Terms, children: &[Shape], ids: &[Id], id: Id, term: &Term) -> bool {
    let is_elementwise = matches!(terms.analysis.heads[term.head], Head::Op(Op::Binary(_) | Op::Select));
    let is_number = |shape: &Shape| matches!(shape, Shape::Number(_) | Shape::Literal(_));
    let shape = |id: Id| terms[terms.find(id)].data.types.first().map(|it| &it.shape);
    let mut others = children.iter().zip(ids).filter(|(child, _)| !is_number(child));
    is_elementwise && children.iter().any(is_number) && others.all(|(_, &it)| shape(it) != shape(id))
}

fn match_children<'a>(
    terms: &Terms,
    mut pairs: impl Iterator<Item = (&'a Shape, &'a Id)> + Clone,
    bound: &Bound,
    found: &mut Vec<Bound>,
) {
    let Some((shape, &child)) = pairs.next() else {
        found.push(bound.clone());
        return;
    };
    let mut first = Vec::new();
    match_class(terms, shape, child, bound, &mut first);
    for bound in first {
        match_children(terms, pairs.clone(), &bound, found);
    }
}

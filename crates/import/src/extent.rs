//! Symbolic dimensions: expressions such as `past + seq` or `2*s53*s72`, and their solution.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What stands for an extent in a model file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Number(i128),
    Symbol(String),
    Apply(Operation, Box<Self>, Box<Self>),
}

/// Arithmetic on extents. Division is toward minus infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Max,
    Min,
}

/// Extents that have been given to symbols.
pub(crate) type Sizes = BTreeMap<String, u64>;

/// The deepest nesting of parentheses that is read.
const DEEPEST: usize = 32;

/// How many operations are read at most: what is longer is one symbol.
const MOST_OPERATIONS: usize = 256;

impl Extent {
    /// The extent that a text stands for: the whole text is one symbol if it is no expression.
    pub(crate) fn parse(text: &str) -> Self {
        let mut reader = Reader { rest: text.trim(), depth: 0, operations: 0 };
        match reader.sum() {
            Some(extent) if reader.rest.is_empty() => extent,
            _ => Self::Symbol(text.to_owned()),
        }
    }

    /// The symbols in it.
    pub(crate) fn symbols(&self) -> BTreeSet<&str> {
        match self {
            Self::Number(_) => BTreeSet::new(),
            Self::Symbol(name) => BTreeSet::from([name.as_str()]),
            Self::Apply(_, a, b) => a.symbols().into_iter().chain(b.symbols()).collect(),
        }
    }

    /// Its size, if all its symbols have one; `None` as well if there is no such number.
    pub(crate) fn size(&self, sizes: &Sizes) -> Option<u64> {
        u64::try_from(self.value(&|name| sizes.get(name).copied().map(i128::from))?).ok()
    }

    /// The size of its one symbol that has none, if it follows from its own size.
    pub(crate) fn solve(&self, size: u64, sizes: &Sizes) -> Option<(String, u64)> {
        let unknown: Vec<&str> =
            self.symbols().into_iter().filter(|name| !sizes.contains_key(*name)).collect();
        let [unknown] = unknown[..] else { return None };
        let at = |x: i128| {
            self.value(&|name| {
                if name == unknown { Some(x) } else { sizes.get(name).copied().map(i128::from) }
            })
        };
        // Linear ones have an inverse. Two points are far apart to tell `n` from `n / 2` or
        // `max(n, 1)`.
        let (zero, one, far) = (at(0)?, at(1)?, at(PROBE)?);
        let slope = one.checked_sub(zero)?;
        if slope == 0 || far != slope.checked_mul(PROBE)?.checked_add(zero)? {
            return None;
        }
        let rest = i128::from(size).checked_sub(zero)?;
        if rest % slope != 0 {
            return None;
        }
        Some((unknown.to_owned(), u64::try_from(rest / slope).ok()?))
    }

    fn value(&self, of: &dyn Fn(&str) -> Option<i128>) -> Option<i128> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Symbol(name) => of(name),
            Self::Apply(operation, a, b) => {
                let (a, b) = (a.value(of)?, b.value(of)?);
                match operation {
                    Operation::Add => a.checked_add(b),
                    Operation::Sub => a.checked_sub(b),
                    Operation::Mul => a.checked_mul(b),
                    Operation::Div => (b > 0).then(|| a.div_euclid(b)),
                    Operation::Mod => (b > 0).then(|| a.rem_euclid(b)),
                    Operation::Max => Some(a.max(b)),
                    Operation::Min => Some(a.min(b)),
                }
            }
        }
    }
}

/// Where linear expressions are probed; odd, and larger than constants that occur.
const PROBE: i128 = 1_000_003;

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Symbol(name) => f.write_str(name),
            Self::Apply(operation, a, b) => match operation {
                Operation::Add => write!(f, "({a} + {b})"),
                Operation::Sub => write!(f, "({a} - {b})"),
                Operation::Mul => write!(f, "{a}*{b}"),
                Operation::Div => write!(f, "{a}//({b})"),
                Operation::Mod => write!(f, "{a}%({b})"),
                Operation::Max => write!(f, "max({a}, {b})"),
                Operation::Min => write!(f, "min({a}, {b})"),
            },
        }
    }
}

/// What is left to read of an expression.
struct Reader<'a> {
    rest: &'a str,
    depth: usize,
    operations: usize,
}

impl Reader<'_> {
    fn sum(&mut self) -> Option<Extent> {
        self.chain(&[("+", Operation::Add), ("-", Operation::Sub)], Self::product)
    }

    fn product(&mut self) -> Option<Extent> {
        let operations =
            [("*", Operation::Mul), ("//", Operation::Div), ("/", Operation::Div), ("%", Operation::Mod)];
        self.chain(&operations, Self::atom)
    }

    fn chain(
        &mut self,
        operations: &[(&str, Operation)],
        part: fn(&mut Self) -> Option<Extent>,
    ) -> Option<Extent> {
        let mut left = part(self)?;
        while let Some((_, operation)) = operations.iter().find(|(text, _)| self.take(text)) {
            left = self.apply(*operation, left, part)?;
        }
        Some(left)
    }

    fn apply(
        &mut self,
        operation: Operation,
        left: Extent,
        part: fn(&mut Self) -> Option<Extent>,
    ) -> Option<Extent> {
        self.operations += 1;
        let right = if self.operations <= MOST_OPERATIONS { part(self)? } else { return None };
        Some(Extent::Apply(operation, Box::new(left), Box::new(right)))
    }

    fn atom(&mut self) -> Option<Extent> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let atom = if self.take("(") {
            let inner = self.sum()?;
            self.take(")").then_some(inner)
        } else {
            self.word()
        };
        self.depth -= 1;
        atom
    }

    fn word(&mut self) -> Option<Extent> {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        let first = word.chars().next()?;
        if first.is_ascii_digit() {
            return word.parse::<u64>().ok().map(|number| Extent::Number(number.into()));
        }
        if !self.take("(") {
            return Some(Extent::Symbol(word.to_owned()));
        }
        self.call(&word.to_lowercase())
    }

    fn call(&mut self, name: &str) -> Option<Extent> {
        let mut left = self.sum()?;
        let operation = match name {
            "floor" => return self.take(")").then_some(left),
            "max" => Operation::Max,
            "min" => Operation::Min,
            _ => return None,
        };
        while self.take(",") {
            left = self.apply(operation, left, Self::sum)?;
        }
        self.take(")").then_some(left)
    }

    /// Whether that comes next; then it is behind.
    fn take(&mut self, text: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(text) else { return false };
        self.rest = rest.trim_start();
        true
    }
}

#[cfg(test)]
mod tests;

//! A product of hinges, and its text form.
//!
//! `0.25 m>7 k<9` is `0.25 · max(0, m − 7) · max(0, 9 − k)`, of the logarithms of sizes.

use std::fmt;

/// A weight, times a product of hinges; a constant if there are none.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What the product is multiplied by.
    pub weight: f64,
    /// The factors.
    pub hinges: Vec<Hinge>,
}

/// `max(0, size − knot)` or `max(0, knot − size)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hinge {
    /// Which size, by its place in [`super::Family::sizes`].
    pub size: usize,
    /// Where the hinge begins (logarithm to base 2).
    pub knot: f64,
    /// Which side of the knot counts.
    pub side: Side,
}

/// One side of a knot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sizes above it.
    Above,
    /// Sizes below it.
    Below,
}

impl Hinge {
    /// How far a size is on the hinge's side of its knot.
    #[must_use]
    pub fn value(&self, size: f64) -> f64 {
        match self.side {
            Side::Above => (size - self.knot).max(0.0),
            Side::Below => (self.knot - size).max(0.0),
        }
    }
}

impl Term {
    /// The term at such sizes.
    #[must_use]
    pub fn value(&self, sizes: &[f64]) -> f64 {
        self.hinges.iter().map(|hinge| hinge.value(sizes[hinge.size])).product::<f64>() * self.weight
    }

    /// The text form, with names for the sizes.
    #[must_use]
    pub fn text(&self, names: &[&str]) -> String {
        let mut text = self.weight.to_string();
        for Hinge { size, knot, side } in &self.hinges {
            let side = if *side == Side::Above { '>' } else { '<' };
            text.push_str(&format!(" {}{side}{knot}", names[*size]));
        }
        text
    }

    /// The term that a text is.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self, TermError> {
        let mut words = text.split_whitespace();
        let weight = number(words.next().unwrap_or_default())?;
        let hinges = words.map(|word| hinge(word, names)).collect::<Result<_, _>>()?;
        Ok(Self { weight, hinges })
    }
}

fn hinge(word: &str, names: &[&str]) -> Result<Hinge, TermError> {
    let (place, side) = word
        .char_indices()
        .find_map(|(place, letter)| match letter {
            '>' => Some((place, Side::Above)),
            '<' => Some((place, Side::Below)),
            _ => None,
        })
        .ok_or_else(|| TermError::Hinge(word.to_owned()))?;
    let name = &word[..place];
    let size = names.iter().position(|it| *it == name);
    let unknown = || TermError::Size { found: name.to_owned(), expected: names.join(", ") };
    Ok(Hinge { size: size.ok_or_else(unknown)?, knot: number(&word[place + 1..])?, side })
}

fn number(text: &str) -> Result<f64, TermError> {
    let number = text.parse::<f64>().ok().filter(|it| it.is_finite());
    number.ok_or_else(|| TermError::Number(text.to_owned()))
}

/// Why a text is not a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermError {
    /// A weight or a knot that is no finite number.
    Number(String),
    /// A hinge without a side.
    Hinge(String),
    /// A size that operations of this kind do not have.
    Size {
        /// What the text says.
        found: String,
        /// The sizes that there are.
        expected: String,
    },
}

impl fmt::Display for TermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(found) => write!(f, "`{found}`, expected a finite number"),
            Self::Hinge(found) => write!(f, "hinge `{found}`, expected such as `m>7` or `m<7`"),
            Self::Size { found, expected } => write!(f, "size `{found}`, expected one of {expected}"),
        }
    }
}

impl std::error::Error for TermError {}

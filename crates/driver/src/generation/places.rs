//! Which dimension of a cache has places for tokens.

use import::{Dim, Input};

/// The dimensions of an input; or that it does not say how many.
pub(super) fn dims_of(input: &Input) -> Result<&[Dim], String> {
    input.dims.as_deref().ok_or_else(|| format!("`{}` does not say how many dimensions it has", input.name))
}

/// Which dimension of a part of a cache has places for tokens, and its size: a symbol that is not the
/// batch's, of several the one that says so, else the last but one.
pub(super) fn places<'a>(input: &'a Input, batch: &Dim) -> Result<(usize, &'a Dim), String> {
    const WORDS: [&str; 5] = ["past", "seq", "len", "total", "context"];
    let dims = dims_of(input)?;
    let is_free = |(index, dim): &(usize, &Dim)| matches!(dim, Dim::Symbol(_)) && *dim != batch && *index > 0;
    let free: Vec<(usize, &Dim)> = dims.iter().enumerate().filter(is_free).collect();
    let says = |(_, dim): &&(usize, &Dim)| match dim {
        Dim::Symbol(symbol) => WORDS.iter().any(|word| symbol.to_lowercase().contains(word)),
        Dim::Number(_) => false,
    };
    let usual = || {
        let index = dims.len().checked_sub(2)?;
        Some((index, &dims[index]))
    };
    let found = match &free[..] {
        [only] => Some(*only),
        [] => usual(),
        several => several.iter().find(says).copied().or_else(usual),
    };
    found.ok_or_else(|| format!("`{}` has no dimension for tokens", input.name))
}

//! Regions that are one expert, of the tokens that a mask marks.

use planner_ir::{Binary, Dynamic, Graph, Op, Real, Region, Scatter, Unary, ValueId};

use super::body::Body;
use super::chosen::{Chosen, chosen};
use super::hits::{Each, Extent, Hits};
use super::origin::unreshaped;

/// What a region computes: `y[t] = shares[t,k] * f(x[t])` where the token's k-th choice is the
/// expert, 0 for the tokens that did not choose it.
#[derive(Clone, Debug)]
pub(super) struct Masked {
    /// Which choices are the expert.
    chosen: Chosen,
    /// The number of tokens: t.
    tokens: u64,
    /// How many experts each chooses: k.
    choices: u64,
    /// What a token is: the number of its elements.
    width: u64,
    /// x, with other extents.
    rows: ValueId,
    /// The weights of each token's choices, with other extents.
    shares: ValueId,
    /// The expert's weights, `[in, out]`: up, perhaps gate, down.
    weights: Vec<ValueId>,
    /// The function of the units.
    activation: Unary,
}

/// A mixture of experts: the sum of what regions compute, one for each expert.
pub(super) struct Mixture {
    /// x, of the elements `[tokens, width]`.
    pub(super) rows: ValueId,
    /// How many rows there are.
    pub(super) tokens: u64,
    /// The elements of a row.
    pub(super) width: u64,
    /// The numbers of the experts that each token chose, `[t, k]`.
    pub(super) chosen: ValueId,
    /// The weights of its choices, of the elements `[t, k]`.
    pub(super) shares: ValueId,
    /// How many experts a token chooses: k.
    pub(super) active: u64,
    /// For each expert its weights, `[in, out]`: up, perhaps gate, down.
    pub(super) weights: Vec<Vec<ValueId>>,
    /// The function of the units.
    pub(super) activation: Unary,
}

impl Mixture {
    /// The same of other values.
    pub(super) fn map(self, mut other: impl FnMut(ValueId) -> ValueId) -> Self {
        Self {
            rows: other(self.rows),
            chosen: other(self.chosen),
            shares: other(self.shares),
            weights: self.weights.iter().map(|of| of.iter().map(|&it| other(it)).collect()).collect(),
            ..self
        }
    }
}

/// The mixture of all experts that regions are, if each expert is one of them.
pub(super) fn mixture(parts: &[Masked]) -> Option<Mixture> {
    let first = parts.first()?;
    let count = usize::try_from(first.chosen.count).ok()?;
    let mut weights: Vec<Option<Vec<ValueId>>> = vec![None; count];
    for part in parts {
        let same = part.rows == first.rows
            && part.shares == first.shares
            && (part.tokens, part.choices, part.width) == (first.tokens, first.choices, first.width)
            && part.activation == first.activation
            && part.weights.len() == first.weights.len()
            && (part.chosen.experts, part.chosen.count) == (first.chosen.experts, first.chosen.count);
        let place = weights.get_mut(usize::try_from(part.chosen.expert).ok()?)?;
        if !same || place.is_some() {
            return None;
        }
        *place = Some(part.weights.clone());
    }
    Some(Mixture {
        rows: first.rows,
        tokens: first.tokens,
        width: first.width,
        chosen: first.chosen.experts,
        shares: first.shares,
        active: first.choices,
        weights: weights.into_iter().collect::<Option<_>>()?,
        activation: first.activation,
    })
}

/// The expert that a region of a graph is.
///
/// A token chooses an expert once at most, so that no row is scattered to the place of another.
/// Conversions to the result's elements are passed over: they convert nothing, since experts are
/// only made of operands that all have the elements of their result.
pub(super) fn masked(graph: &Graph, region: &Region, operands: &[ValueId]) -> Option<Masked> {
    let body = Body::of(region);
    let types = graph.types_of(operands);
    let hits = Hits::of(&body, &types)?;
    let chosen = chosen(graph, operands[hits.mask])?;
    let expert = Expert { body: &body, hits: &hits, tokens: chosen.tokens };
    let &[result] = region.results.as_slice() else {
        return None;
    };
    let scattered = expert.scattered(result)?;
    let dtype = region.types[0].dtype;
    let (rows_out, shares) = expert.weighted(expert.same(scattered, |it| it == dtype))?;
    let (units, down) = body.product(rows_out)?;
    let (activation, mut weights, rows) = expert.units(units)?;
    weights.push(down);
    let rows = expert.token(rows)?;
    let extent = |dim: usize| u64::try_from(hits.extents[dim]).ok();
    let (tokens, choices) = (extent(chosen.tokens)?, extent(1 - chosen.tokens)?);
    let width = types[rows].elements().checked_div(tokens)?;
    let fits = types[shares].elements() == tokens * choices
        && types[rows].elements() == tokens * width
        && region.types[0].shape.first() == Some(&tokens);
    let values = |of: &[usize]| -> Vec<ValueId> { of.iter().map(|&it| operands[it]).collect() };
    fits.then(|| Masked {
        chosen,
        tokens,
        choices,
        width,
        rows: unreshaped(graph, operands[rows]),
        shares: unreshaped(graph, operands[shares]),
        weights: values(&weights),
        activation,
    })
}

/// A region over the tokens that a mask marks.
struct Expert<'a> {
    body: &'a Body<'a>,
    hits: &'a Hits,
    /// Which dimension of the mask is the tokens'.
    tokens: usize,
}

impl Expert<'_> {
    /// For each hit, its token.
    fn by_token(&self) -> [i64; 2] {
        if self.tokens == 0 { [1, 0] } else { [0, 1] }
    }

    /// For each hit, the place of its choice among all of all tokens, token by token.
    fn by_choice(&self) -> [i64; 2] {
        let choices = self.hits.extents[1 - self.tokens];
        if self.tokens == 0 { [choices, 1] } else { [1, choices] }
    }

    /// The rows that are scattered, each to its token, into zeros that a value is made from.
    fn scattered(&self, value: usize) -> Option<usize> {
        let (
            Op::ScatterElements { dim: 0, scatter: Scatter::Replace | Scatter::Add },
            &[zeros, places, rows],
        ) = self.body.made(value)?
        else {
            return None;
        };
        let Op::Fill { result, value: Real(zero) } = self.body.made(zeros)?.0 else {
            return None;
        };
        let &[_, width] = result.shape.as_slice() else {
            return None;
        };
        let shape = [Extent::Hits, Extent::Number(i64::try_from(width).ok()?)];
        let (each, place_shape) = self.hits.rows(places)?;
        let right = zero.to_bits() == 0
            && each == Each::Index(self.by_token())
            && [place_shape, self.hits.rows(rows)?.1] == [&shape; 2];
        right.then_some(rows)
    }

    /// The value of the same elements in the same shape that a value is made from.
    fn same(&self, mut value: usize, is_own: impl Fn(planner_ir::DType) -> bool) -> usize {
        while let Some((op, operands)) = self.body.made(value)
            && let Some(&operand) = operands.first()
            && let is_same = match op {
                Op::Cast(dtype) => is_own(*dtype),
                Op::Dynamic(Dynamic::Expand | Dynamic::Reshape { .. }) => true,
                _ => false,
            }
            && is_same
            && let (Some(before), Some(after)) = (self.hits.rows(operand), self.hits.rows(value))
            && before.1 == after.1
        {
            value = operand;
        }
        value
    }

    /// The rows that are multiplied by their shares, and the operand that the shares are of.
    fn weighted(&self, value: usize) -> Option<(usize, usize)> {
        let [a, b] = self.body.operands(value, &Op::Binary(Binary::Mul))?;
        let share = |value: usize| match self.hits.rows(value)? {
            (Each::Taken { operand, index }, [Extent::Hits, Extent::Number(1)])
                if index == self.by_choice() =>
            {
                Some(operand)
            }
            _ => None,
        };
        share(b).map(|operand| (a, operand)).or_else(|| Some((b, share(a)?)))
    }

    /// The activation, the weights (of what is activated first) and the rows of units.
    fn units(&self, value: usize) -> Option<(Unary, Vec<usize>, usize)> {
        let plain = || {
            let (activation, products) = self.body.activated(value)?;
            let (rows, up) = self.body.product(products)?;
            Some((activation, vec![up], rows))
        };
        let gated = |hidden: usize, gate: usize| {
            let (activation, products) = self.body.activated(hidden)?;
            let (rows, up) = self.body.product(products)?;
            let (also, gate) = self.body.product(gate)?;
            (rows == also).then(|| (activation, vec![up, gate], rows))
        };
        plain().or_else(|| {
            let [a, b] = self.body.operands(value, &Op::Binary(Binary::Mul))?;
            gated(a, b).or_else(|| gated(b, a))
        })
    }

    /// The operand of which a value is the hits' tokens.
    fn token(&self, value: usize) -> Option<usize> {
        match self.hits.rows(value)? {
            (Each::Taken { operand, index }, [Extent::Hits, _]) if index == self.by_token() => Some(operand),
            _ => None,
        }
    }
}

//! The next token, chosen by what a model says of it.

use kernels::random::mixed;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Manner {
    /// What logits are divided by; 0 takes the likeliest token.
    pub temperature: f64,
    /// Among how many of the likeliest tokens, if not among all.
    pub most: Option<usize>,
    /// Among the fewest of the likeliest tokens that are together at least so likely; 1 is all.
    pub mass: f64,
    /// Where random numbers start from.
    pub seed: u64,
}

/// Which choice it is: each has a random number of its own, whoever makes it and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The sequence's number.
    pub sequence: u64,
    /// The token's place in its sequence.
    pub position: u64,
}

/// The next token: its number.
///
/// Of equally likely ones the first. A token is drawn as the largest of `logit / temperature + g`
/// with `g = -ln(-ln u)` and `u` uniform, one for each token.
///
/// Source: Gumbel, "Statistical theory of extreme values and some practical applications", 1954.
pub fn next(logits: &[f64], manner: &Manner, place: Place) -> usize {
    if manner.temperature <= 0.0 {
        return largest(logits.iter().copied().enumerate());
    }
    let scaled: Vec<f64> = logits.iter().map(|it| it / manner.temperature).collect();
    let draw = |&token: &usize| {
        let uniform = uniform([manner.seed, place.sequence, place.position, number(token)]);
        (token, scaled[token] - (-uniform.ln()).ln())
    };
    largest(allowed(&scaled, manner).iter().map(draw))
}

/// The number of the largest, and of equal ones the first.
fn largest(numbers: impl Iterator<Item = (usize, f64)>) -> usize {
    let better = |best: (usize, f64), it: (usize, f64)| if it.1 > best.1 { it } else { best };
    numbers.reduce(better).map_or(0, |it| it.0)
}

/// The tokens among which one is drawn, ascending.
fn allowed(scaled: &[f64], manner: &Manner) -> Vec<usize> {
    let mut tokens: Vec<usize> = (0..scaled.len()).collect();
    let all = manner.most.is_none_or(|most| most >= tokens.len());
    if all && manner.mass >= 1.0 {
        return tokens;
    }
    tokens.sort_by(|&a, &b| scaled[b].total_cmp(&scaled[a]).then(a.cmp(&b)));
    tokens.truncate(manner.most.unwrap_or(usize::MAX).max(1));
    let most = tokens.first().map_or(0.0, |&it| scaled[it]);
    let weight = |token: &usize| (scaled[*token] - most).exp();
    let total: f64 = tokens.iter().map(weight).sum();
    let mut before = 0.0;
    let mut count = 0;
    while count < tokens.len() && (count == 0 || before < manner.mass * total) {
        before += weight(&tokens[count]);
        count += 1;
    }
    tokens.truncate(count);
    tokens.sort_unstable();
    tokens
}

/// A number in (0, 1) made of others, as if at random.
fn uniform(counters: [u64; 4]) -> f64 {
    const START: u64 = 0x9e37_79b9_7f4a_7c15;
    let all = counters.into_iter().fold(START, |state, counter| mixed(state ^ counter));
    let bits = u32::try_from(all >> 32).unwrap_or(0);
    (f64::from(bits) + 0.5) / (f64::from(u32::MAX) + 1.0)
}

fn number(token: usize) -> u64 {
    u64::try_from(token).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

//! How many tokens experts may have.

use super::super::given::{Given, wrong};
use super::super::{Read, ReadError};

/// Notes to what a configuration holds the busiest expert: an even share where a router is made to give one, or
/// a capacity beyond which tokens are dropped. Prices take even shares, whatever is stated.
pub(super) fn read(read: &mut Read, given: &mut Given) -> Result<(), ReadError> {
    const EVEN: &str = "as many tokens for each expert";
    let mut hold = |shown: String, most: Option<f64>| {
        read.take(shown.clone(), EVEN);
        if let Some(most) = most.filter(|most| read.held.as_ref().is_none_or(|(before, _)| most < before)) {
            read.held = Some((most, shown));
        }
    };
    let forced = "moe_router_force_load_balancing";
    let shown = given.shown(forced);
    if given.flag(forced)? == Some(true) {
        hold(shown, Some(1.0));
    }
    // Of an expert, and of all experts of a rank.
    for capacity in ["moe_expert_capacity_factor", "moe_expert_rank_capacity_factor"] {
        let shown = given.shown(capacity);
        let Some(word) = given.word(capacity)? else { continue };
        let factor = word.parse::<f64>().ok().filter(|it| it.is_finite());
        match factor.ok_or_else(|| wrong(capacity, &word, "a number; below 0 for no capacity"))? {
            // Megatron-LM takes less than 0 as none.
            factor if factor < 0.0 => hold(shown, None),
            factor => hold(shown, Some(factor.max(1.0))),
        }
    }
    Ok(())
}

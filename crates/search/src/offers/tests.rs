//! What is offered, and what a refusal says of it.

use super::*;

fn offer(splits: Splits, steps: Steps, striped: Option<u64>) -> Offer {
    Offer { splits, steps, striped }
}

fn too_wide<T>() -> Result<T, PlanError> {
    Err(PlanError::Search(SearchError::TooWide { entries: 2e8, limit: 1e8 }))
}

/// All, without stripes, without skews, without time steps, of one split at a time.
fn offers() -> Offers {
    let all = offer(Splits::All, Steps::Offered, Some(64));
    let turns = [Steps::Offered, Steps::Unskewed, Steps::One].map(|steps| offer(Splits::All, steps, None));
    let turns = [&[all], &turns[..]].concat();
    Offers { wanted: all, turns, last: offer(Splits::AtMost(1), Steps::One, None) }
}

#[test]
fn a_refusal_among_fewer_partitions_says_what_was_too_wide() {
    let offers = offers();
    let refused = |offer: Offer| match offer {
        it if it == offers.wanted => too_wide::<()>(),
        _ => Err(PlanError::Search(SearchError::Contradiction)),
    };
    let error = offers.among(refused).unwrap_err();
    assert!(matches!(error.last(), PlanError::Search(SearchError::Contradiction)));
    assert_eq!(
        error.to_string(),
        "the search among all partitions, in time steps too, is too wide (elimination needs a table of \
         200000000 entries, the limit is 100000000); among fewer: every assignment is forbidden",
    );
    // What is not too wide is the answer, and says nothing of fewer.
    let one = Offers { turns: offers.turns[1..].to_vec(), ..offers.clone() };
    assert_eq!(one.among(refused).unwrap_err().to_string(), "every assignment is forbidden");
    // The first that was too wide is what was asked for.
    let error = offers.among(|_| too_wide::<()>()).unwrap_err();
    assert!(matches!(&error, PlanError::Fewer { offer, .. } if *offer == offers.wanted), "{error}");
}

#[test]
fn no_more_is_left_out_than_is_too_wide() {
    let offers = offers();
    let words = |least: usize| {
        let all = offers.turns.iter().chain([&offers.last]);
        let wide: Vec<Offer> = all.take(least).copied().collect();
        let found = offers.among(|offer| if wide.contains(&offer) { too_wide() } else { Ok(offer) });
        offers.left_out(found.unwrap()).into_iter().map(LeftOut::name).collect::<Vec<_>>()
    };
    assert_eq!(words(0), [""; 0]);
    assert_eq!(words(1), ["stripes"]);
    assert_eq!(words(2), ["stripes", "skews"]);
    assert_eq!(words(3), ["stripes", "steps"]);
    assert_eq!(words(4), ["stripes", "steps", "splits"]);
}

//! What is looked at where all partitions are too wide.

use super::*;

#[test]
fn a_refusal_among_fewer_partitions_says_what_was_too_wide() {
    let offer = |splits, steps| Offer { splits, steps, ..Offer::default() };
    let in_time = offer(Splits::All, Steps::Offered);
    let [all, few] = [Splits::All, Splits::AtMost(1)].map(|splits| offer(splits, Steps::One));
    let too_wide = || PlanError::Search(SearchError::TooWide { entries: 2e8, limit: 1e8 });
    let refused = |offer: Offer| match offer {
        it if it == in_time => Err::<(), _>(too_wide()),
        _ => Err(PlanError::Search(SearchError::Contradiction)),
    };
    let error = among(&[in_time, all], few, refused).unwrap_err();
    assert!(matches!(error.last(), PlanError::Search(SearchError::Contradiction)));
    assert_eq!(
        error.to_string(),
        "the search among all partitions, in time steps too, is too wide (elimination needs a table of \
         200000000 entries, the limit is 100000000); among fewer: every assignment is forbidden",
    );
    // What is not too wide is the answer, and says nothing of fewer.
    let error = among(&[all], few, |_| refused(all)).unwrap_err();
    assert_eq!(error.to_string(), "every assignment is forbidden");
    // The first that was too wide is what was asked for.
    let error = among(&[in_time, all], few, |_| Err::<(), _>(too_wide())).unwrap_err();
    assert!(matches!(&error, PlanError::Fewer { offer, .. } if *offer == in_time), "{error}");
    let found = among(&[in_time, all], few, |offer| if offer == few { Ok(()) } else { Err(too_wide()) });
    assert!(found.is_ok());
}

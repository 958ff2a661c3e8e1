//! Whose word counts for the worst load.

use predict::model::Experts;
use predict::stated::gpt;

use super::*;

/// A model of so many experts, two of them for a token, on so many ranks.
fn setup(count: u64, ep: u64) -> Setup {
    let mut setup = gpt(4, 1024, 16, 2048);
    setup.model.experts = Some(Experts { count, top_k: 2, shared: 0 });
    Setup { ep, dp: ep, gbs: ep, ..setup }
}

#[test]
fn the_configuration_holds_experts_to_less_than_is_asked_for() {
    let held = (1.25, "--moe-expert-capacity-factor 1.25".to_owned());
    let of = |asked, held| Worst::of(&setup(16, 8), asked, held).map(|it| (it.imbalance, it.source)).unwrap();
    assert_eq!(of(None, None), (USUAL, Source::Usual));
    assert_eq!(of(Some(3.0), None), (3.0, Source::Asked));
    assert_eq!(of(Some(3.0), Some(&held)), (1.25, Source::Held(held.1.clone())));
    assert_eq!(of(None, Some(&held)), (1.25, Source::Held(held.1.clone())));
    assert_eq!(of(Some(1.1), Some(&held)), (1.1, Source::Asked));
}

/// A token goes to an expert once: of two experts of a token, a rank with one expert has one at most; one rank has all
/// tokens, which is its even share.
#[test]
fn no_rank_has_more_tokens_than_there_are() {
    let of = |count, ep| Worst::of(&setup(count, ep), Some(100.0), None).unwrap().imbalance;
    assert_eq!(
        [of(16, 1), of(16, 8), of(8, 8), of(16, 16)].map(f64::to_bits),
        [1.0, 8.0, 4.0, 8.0].map(f64::to_bits)
    );
    assert_eq!(Worst::of(&gpt(4, 1024, 16, 2048), None, None), None);
}

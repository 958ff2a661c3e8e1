//! Which of setups that take nearly the same is told.

use cost_models::machine::shipped;
use predict::cluster::Links;
use predict::framework::Framework;
use predict::kinds::kinds;
use predict::stated::gpt;
use schedule::Kind::Interleaved;

use super::*;

/// Many parts of stages take a thousandth less: that is less than figures can tell, and few parts are simpler. What takes
/// noticeably longer, is not allowed or holds more than there may be is passed by.
#[test]
fn stages_have_no_more_parts_than_help() {
    let mut base = Setup { tp: 4, pp: 4, vpp: 20, dp: 4, gbs: 512, mbs: 1, ..gpt(80, 3072, 24, 2048) };
    base.schedule = Interleaved;
    let machine = shipped::named("h100-80g-64x").expect("is shipped");
    let framework = Framework::shipped("megatron-lm").expect("has figures");
    let kinds = kinds(vec![(machine, 64)], &framework, &Links::default(), "here").expect("a cluster");
    let search = Search { base: &base, kinds: &kinds };
    let of =
        |vpp| search.priced(Choice { vpp, even: true, ..Choice::of(&base) }).unwrap().expect("is a setup");
    let told = |allowed: &dyn Fn(&Choice) -> bool, most: f64| {
        search.in_fewer_parts(of(20), (allowed, most)).unwrap().choice.vpp
    };
    let best = of(20).seconds;
    let first = [2, 4, 5, 10].into_iter().find(|&vpp| of(vpp).seconds <= best * HARDLY).unwrap();
    assert!(of(first).seconds > best && first < 20 && of(2).seconds > best * HARDLY, "{first}");
    assert_eq!(told(&|_| true, f64::INFINITY), first);
    assert!(told(&|it| it.vpp > first, f64::INFINITY) > first);
    assert_eq!(told(&|_| true, of(20).held), 20, "all others hold more");
    assert_eq!(search.in_fewer_parts(of(2), (&|_| true, f64::INFINITY)).unwrap().choice.vpp, 2);
}

//! What parts of a step take, against clocks that go from one operation to the next.

use planner_ir::{Meanwhile, NodeId, ValueId};

use super::{Does, Exchange, Happens, Lanes, Way, beside_what_is_waited_for, load};
use crate::clocks::{Beside, Load, Overlap};
use crate::plan::Copy;

/// Numbers from 0 to 9, the same for the same seed.
fn numbers(seed: u32) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from((state >> 16) % 10)
    }
}

fn exchange(at: f64, seconds: f64) -> Exchange {
    let of = (ValueId(0), Copy::Made);
    Exchange { source: of, result: of, at, seconds }
}

/// Operations one after another, each with a weight that is fetched for it or a gradient that it makes.
fn lanes(seed: u32, is: Beside) -> (Lanes, Vec<[f64; 2]>) {
    let mut next = numbers(seed);
    let steps: Vec<[f64; 2]> = (0..8).map(|_| [next(), next()]).collect();
    let mut lanes = Lanes::default();
    for &[computed, exchanged] in &steps {
        if is == Beside::Ahead {
            lanes.ahead.push(exchange(lanes.alone, exchanged));
        }
        lanes.alone += computed;
        if is == Beside::Behind {
            lanes.behind.push(exchange(lanes.alone, exchanged));
        }
    }
    (lanes, steps)
}

/// Where nothing slows anything down, a part takes what two clocks say that go through it.
#[test]
fn parts_take_what_two_clocks_say() {
    let (mut longer, mut all, mut shorter) = (0, 0, 0);
    for seed in 0..200 {
        for is in [Beside::Ahead, Beside::Behind] {
            let (lanes, steps) = lanes(seed, is);
            let (mut computed, mut exchanged) = (0.0_f64, 0.0_f64);
            for [operation, exchange] in steps {
                if is == Beside::Ahead {
                    exchanged += exchange;
                    computed = computed.max(exchanged) + operation;
                } else {
                    computed += operation;
                    exchanged = exchanged.max(computed) + exchange;
                }
            }
            let load = lanes.load();
            let takes = load.alone + load.beside() - lanes.hidden(Some(Overlap::costs(0.0)));
            assert!((takes - computed.max(exchanged)).abs() < 1e-9, "{seed} {is:?}: {takes}, {lanes:?}");
            longer += usize::from(
                lanes.hidden(Some(Overlap::costs(0.0))) < load.hidden(Some(Overlap::costs(0.0))) - 1e-9,
            );
            all += 1;
            // What follows goes on beside the last sum.
            let goes_on = Lanes { goes_on: true, ..lanes };
            let last = goes_on.behind.last().map_or(0.0, |it| it.seconds);
            let takes = load.alone + load.beside() - goes_on.hidden(Some(Overlap::costs(0.0)));
            let least = load.alone.max(load.beside());
            assert!(
                (takes - (computed.max(exchanged) - last).max(least)).abs() < 1e-9,
                "{seed} {is:?}: {takes}"
            );
            shorter += usize::from(takes < computed.max(exchanged) - 1e-9);
        }
    }
    assert!(longer > 100 && longer < all, "{longer} of {all} take longer than their sums say");
    assert!(shorter > 50, "{shorter} of {all} are shorter where what follows goes on");
}

/// No more is hidden than of the sums, whatever a second costs, and nothing where nothing runs beside anything.
#[test]
fn no_more_is_hidden_than_of_the_sums() {
    for seed in 0..200 {
        let (ahead, _) = lanes(seed, Beside::Ahead);
        let (behind, _) = lanes(seed + 1000, Beside::Behind);
        let both = Lanes { ahead: ahead.ahead, ..behind };
        let Load { alone, .. } = both.load();
        for cost in [0.0, 0.126, 0.5, 1.0] {
            let (hidden, most) =
                (both.hidden(Some(Overlap::costs(cost))), both.load().hidden(Some(Overlap::costs(cost))));
            assert!((0.0..=most + 1e-9).contains(&hidden), "{seed} {cost}: {hidden} of {most} and {alone}");
        }
        assert!(both.hidden(None) <= 0.0);
    }
}

/// A part takes no less than links are busy that all exchanges use, and else what it takes without.
#[test]
fn parts_take_no_less_than_links_are_busy() {
    let (mut longer, mut all) = (0, 0);
    for seed in 0..200 {
        let (ahead, _) = lanes(seed, Beside::Ahead);
        // Of odd ones something on links is computed beside what is waited for, and they are busy longer than the rest.
        let odd = if seed % 2 == 1 { 0.4 * ahead.alone } else { 0.0 };
        let (blocking, within) = (ahead.alone / 2.0, odd);
        let links = blocking + within + odd + ahead.load().beside();
        let lanes = Lanes { blocking, links, within, ..ahead };
        let whole = lanes.alone + lanes.within + lanes.load().beside();
        for cost in [0.0, 0.126, 0.5] {
            let apart = Overlap::costs(cost);
            let takes = |overlap: Overlap| whole - lanes.hidden(Some(overlap));
            let least = links + cost * (lanes.alone + within - blocking);
            let expected = takes(apart).max(least).min(whole);
            let found = takes(Overlap { latency: Some(0.0), ..apart });
            assert!((found - expected).abs() < 1e-9, "{seed} {cost}: {found}, expected {expected}");
            longer += usize::from(found > takes(apart) + 1e-9);
            all += 1;
        }
    }
    assert!(longer > 100 && longer < all, "{longer} of {all} take longer for their links");
    let overlap = Overlap { cost: 0.1, latency: Some(2.0) };
    assert!((overlap.on_links(7.0, 2) - 3.0).abs() < 1e-12 && overlap.on_links(3.0, 2) <= 0.0);
    assert!(Overlap::costs(0.1).on_links(7.0, 2) <= 0.0);
}

/// Parts of random plans take no less than any sum of their loads, whatever runs beside what.
#[test]
fn random_plans_take_no_less_than_their_sums() {
    let (mut by_links, mut paired) = (0, 0);
    arbtest::arbtest(|u| {
        let plan = crate::samples::random(u)?;
        let cost = f64::from(u.int_in_range(0..=9_u8)?) / 10.0;
        let overlap = Some(Overlap { cost, latency: Some(0.0) });
        let hidden = plan.hidden_at(overlap);
        let lanes = plan.lanes(overlap);
        for ((load, lanes), hidden) in
            plan.loads(overlap).iter().zip(lanes).zip([hidden.forward, hidden.backward])
        {
            let takes = load.all() - hidden;
            let sums = load.sums(Overlap { cost, latency: plan.graph.training.as_ref().map(|_| 0.0) });
            let longest = sums.into_iter().fold(0.0, f64::max);
            assert!(takes >= longest - 1e-9 * load.all(), "{takes}, {sums:?}: {}", crate::json::write(&plan));
            by_links += usize::from(longest > 0.0 && sums[4] >= longest);
            paired += usize::from(sums[4] >= longest && lanes.within > 0.0);
        }
        Ok(())
    })
    .budget_ms(2_000);
    assert!(
        by_links > 0 && paired > 0,
        "{by_links} by links, {paired} of them with something beside what is waited for"
    );
}

/// Of what is waited for, as much has gradients of parameters beside it as were made before it and are not beside
/// anything else; and of these the last ones first.
#[test]
fn gradients_run_beside_what_is_waited_for_after_them() {
    let mut partly = 0;
    for seed in 0..500 {
        let mut next = numbers(seed);
        let ways = [Way::Alone, Way::Waited, Way::Apart, Way::Apart, Way::Waited];
        let happens: Vec<Happens> = (0..12)
            .map(|_| {
                let drawn = next();
                let way = ways.into_iter().zip([2.0, 4.0, 6.0, 8.0, 10.0]).find(|it| drawn < it.1);
                let (way, _) = way.expect("is below 10");
                Happens { does: Does::Transfer(0), way, seconds: next(), exchanged: 0.0, links: 0.0 }
            })
            .collect();
        let (beside, _) = beside_what_is_waited_for(&happens, &[]);
        let mut left = vec![0.0; happens.len()];
        for (index, it) in happens.iter().enumerate() {
            match it.way {
                Way::Apart => left[index] = it.seconds,
                Way::Waited => {
                    let there: f64 = left.iter().sum();
                    assert!(
                        (beside[index] - it.seconds.min(there)).abs() < 1e-9,
                        "{seed}: {happens:?}, {beside:?}"
                    );
                    let mut wanted = beside[index];
                    for it in left.iter_mut().rev() {
                        let both = it.min(wanted);
                        (*it, wanted) = (*it - both, wanted - both);
                    }
                    partly += usize::from(there > 0.0 && there < it.seconds);
                }
                Way::Alone | Way::Routed | Way::Meanwhile | Way::Beside(_) => assert!(beside[index] <= 0.0),
            }
        }
        for (index, it) in happens.iter().enumerate().filter(|it| it.1.way == Way::Apart) {
            assert!(
                (beside[index] + left[index] - it.seconds).abs() < 1e-9,
                "{seed}: {happens:?}, {beside:?}"
            );
        }
        let load = load(&happens);
        let all: f64 = happens.iter().zip(&beside).filter(|it| it.0.way == Way::Waited).map(|it| it.1).sum();
        assert!(all <= load.hidden(Some(Overlap::costs(0.0))) + 1e-9);
    }
    assert!(partly > 100, "{partly}");
}

/// Rows that are routed have beside them what may be computed meanwhile, wherever it stands and nothing else has, and
/// then gradients that were made before, which are kept for them.
#[test]
fn rows_have_beside_them_what_has_nothing_to_do_with_them() {
    let mut both = [0; 3];
    for seed in 0..500 {
        let mut next = numbers(seed);
        // Of each of three operations rows, gradients before it, and what may be computed meanwhile, before or after.
        let (mut happens, mut meanwhile) = (Vec::new(), Vec::new());
        for routed in [0, 10, 20] {
            let it = |number: usize, way: Way, seconds: f64| {
                let does = Does::Node(NodeId(routed + number));
                Happens { does, way, seconds, exchanged: 0.0, links: 0.0 }
            };
            let mut own =
                vec![it(1, Way::Apart, next()), it(0, Way::Routed, next()), it(0, Way::Alone, next())];
            let free = it(2, Way::Meanwhile, next());
            own.insert(if next() < 5.0 { 0 } else { 3 }, free);
            happens.extend(own);
            meanwhile.push(Meanwhile { routed: NodeId(routed), computed: vec![NodeId(routed + 2)] });
        }
        let (beside, kept) = beside_what_is_waited_for(&happens, &meanwhile);
        let of = |number: usize, way: Way| {
            let found = |it: &Happens| it.way == way && it.node() == Some(NodeId(number));
            let place = happens.iter().position(found).expect("happens");
            (happens[place].seconds, beside[place])
        };
        let mut left = Vec::new();
        for routed in [0, 10, 20] {
            let ((rows, hidden), (free, used)) = (of(routed, Way::Routed), of(routed + 2, Way::Meanwhile));
            assert!((used - rows.min(free)).abs() < 1e-9, "{seed}: {happens:?}, {beside:?}");
            left.push(of(routed + 1, Way::Apart).0);
            let gradients: f64 = left.iter().sum();
            assert!((hidden - used - gradients.min(rows - used)).abs() < 1e-9, "{seed}: {beside:?}");
            let mut wanted = hidden - used;
            let is_kept = wanted > 0.0;
            assert_eq!(kept.iter().any(|it| it.1 == NodeId(routed)), is_kept, "{seed}: {kept:?}");
            for it in left.iter_mut().rev() {
                let taken = it.min(wanted);
                (*it, wanted) = (*it - taken, wanted - taken);
            }
            both[0] += usize::from(used > 0.0 && used < rows);
            both[1] += usize::from(is_kept);
            both[2] += usize::from(hidden < rows);
        }
        let alone: Vec<Happens> = happens.iter().map(|it| it.by_itself()).collect();
        let (beside, kept) = beside_what_is_waited_for(&alone, &meanwhile);
        assert!(kept.is_empty());
        for (it, beside) in alone.iter().zip(beside) {
            assert!(beside <= 0.0 || matches!(it.way, Way::Routed | Way::Meanwhile), "{seed}: {it:?}");
        }
        let all: f64 = [0, 10, 20].map(|it| of(it, Way::Routed).1).iter().sum();
        assert!(all <= load(&happens).hidden(Some(Overlap::costs(0.0))) + 1e-9, "{seed}");
    }
    assert!(both.iter().all(|&it| it > 100), "{both:?}");
}

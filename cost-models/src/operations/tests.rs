//! Laws against times, work and traffic that are counted by hand.

use arbtest::arbtest;

use super::imbalance::{Distribution, load};
use super::operation::Attention;
use super::term::{Side, TermError};
use super::*;
use crate::machine::shipped::{device_names, named};

fn law(terms: Vec<Term>) -> Law {
    let source = "a test";
    Law {
        start: Known::new(Seconds(4e-6), source).unwrap(),
        rate: Some(Known::new(FlopsPerSecond(1e12), source).unwrap()),
        bandwidth: Known::new(BytesPerSecond(1e9), source).unwrap(),
        ranges: vec![[0.0, 10.0], [0.0, 5.0]],
        terms,
    }
}

fn demand(work: f64, traffic: u64, size: f64) -> Demand {
    Demand { work: Flops(work), traffic: Bytes(traffic), sizes: vec![size] }
}

#[test]
fn a_law_without_terms_is_a_roofline() {
    let law = law(Vec::new());
    let time = |work, traffic| law.time(&demand(work, traffic, 3.0)).0;
    assert!((time(1e9, 0) - 1.004e-3).abs() < 1e-12);
    assert!((time(0.0, 1_000_000) - 1.004e-3).abs() < 1e-12);
    // Two things that take as long each take the fourth root of two longer.
    assert!((time(1e9, 1_000_000) - (4e-6 + 1e-3 * 2.0_f64.powf(0.25))).abs() < 1e-12);
}

#[test]
fn a_term_counts_beyond_its_knot_and_ends_where_measurements_end() {
    let hinge = Hinge { size: 0, knot: 7.0, side: Side::Above };
    let law = law(vec![Term { weight: 0.5, hinges: vec![hinge] }]);
    let time = |size| law.time(&demand(1e9, 0, size)).0 / 1.004e-3;
    assert!((time(6.0) - 1.0).abs() < 1e-12);
    assert!((time(9.0) - 1.0_f64.exp()).abs() < 1e-9);
    assert!((time(10.0) - 1.5_f64.exp()).abs() < 1e-9);
    assert!((time(20.0) - 1.5_f64.exp()).abs() < 1e-9);
}

#[test]
fn terms_are_what_their_texts_say() {
    let names = ["m", "n", "k"];
    arbtest(|u| {
        let hinge = |u: &mut arbtest::arbitrary::Unstructured<'_>| {
            let side = if u.arbitrary()? { Side::Above } else { Side::Below };
            let knot = f64::from(u.int_in_range(-9000..=9000)?) / 1e3;
            Ok(Hinge { size: u.int_in_range(0..=2)?, knot, side })
        };
        let hinges = (0..u.int_in_range(0..=3)?).map(|_| hinge(u)).collect::<Result<_, _>>()?;
        let term = Term { weight: f64::from(u.int_in_range(-9999..=9999)?) / 1e7, hinges };
        assert_eq!(Term::parse(&term.text(&names), &names), Ok(term));
        Ok(())
    });
}

#[test]
fn texts_that_are_no_terms_are_refused() {
    let names = ["m", "n"];
    let wrong = |text| Term::parse(text, &names).unwrap_err();
    assert_eq!(wrong("much m>7"), TermError::Number("much".to_owned()));
    assert_eq!(wrong("inf"), TermError::Number("inf".to_owned()));
    assert_eq!(wrong("1 m>"), TermError::Number(String::new()));
    assert_eq!(wrong("1 m"), TermError::Hinge("m".to_owned()));
    assert_eq!(wrong("1 q>7").to_string(), "size `q`, expected one of m, n");
}

#[test]
fn attention_works_on_the_pairs_that_queries_see() {
    let h100 = named("h100-80g-1x").unwrap().device;
    for queries in 1..=6_u64 {
        for before in 0..=5 {
            for window in [None, Some(1), Some(2), Some(4), Some(100)] {
                let attention = Attention {
                    batch: 3,
                    queries,
                    before,
                    heads: 4,
                    kv_heads: 2,
                    head_size: 8,
                    window,
                    windows: true,
                    format: Format::Bfloat16,
                    cache: Format::Fp8,
                };
                let all = queries + before;
                let seen = |query: u64| (before + query + 1).min(window.unwrap_or(all));
                let pairs: u64 = (0..queries).map(seen).sum();
                let work = |operation: Operation| h100.demand(&operation).work.0;
                let expected = crate::units::exact(3 * 4 * 8 * 4 * pairs);
                assert!(
                    (work(Operation::Prefill(attention.clone())) - expected).abs() < 1e-6,
                    "{attention:?}: {pairs} pairs"
                );
                if queries == 1 {
                    assert!((work(Operation::Decode(attention.clone())) - expected).abs() < 1e-6);
                }
            }
        }
    }
}

#[test]
fn balanced_experts_share_all_tokens() {
    for (ranks, experts) in [(1, 8), (2, 8), (8, 8), (4, 64)] {
        let load = load(Distribution::Balanced, 512, 2, experts, ranks);
        let rows = 1024.0 / crate::units::exact(ranks);
        assert!((load.rows - rows).abs() < 1e-9, "{load:?}");
        assert!((load.most - 1024.0 / crate::units::exact(experts)).abs() < 1e-9);
        assert!((load.active - crate::units::exact(experts / ranks)).abs() < 1e-9);
    }
}

#[test]
fn the_busiest_rank_has_more_than_its_share_of_a_power_law() {
    for ranks in [2, 4, 8, 32] {
        let even = load(Distribution::Balanced, 4096, 8, 128, ranks);
        let skewed = load(Distribution::PowerLaw(1.2), 4096, 8, 128, ranks);
        assert!(skewed.rows > even.rows, "{ranks}: {skewed:?}");
        // An expert has a token at most once.
        assert!(skewed.most <= 4096.0 && skewed.active <= even.active + 1e-9);
    }
    // One rank has all that experts can take.
    let all = load(Distribution::PowerLaw(1.01), 4096, 8, 128, 1);
    assert!(all.rows <= 8.0 * 4096.0 && all.rows > 0.9 * 8.0 * 4096.0, "{all:?}");
}

#[test]
fn every_law_of_a_shipped_machine_gives_times_that_are_possible() {
    let mut laws = 0;
    for name in device_names() {
        let device = named(&format!("{name}-1x")).unwrap().device;
        for format in [Format::Bfloat16, Format::Fp8, Format::Fp8Block, Format::Nvfp4] {
            let gemm = format!("gemm {}", format.name());
            let Some(law) = device.operations.get(&gemm) else { continue };
            laws += 1;
            for (m, n, k) in [(1, 128, 128), (1, 8192, 8192), (4096, 4096, 4096), (1 << 18, 1 << 15, 1 << 15)]
            {
                let product = Operation::Product { m, n, k, format };
                let time = device.time(&gemm, &product).unwrap();
                let work = device.demand(&product).work;
                let rate = law.rate.as_ref().unwrap().value;
                let ratio = time.0 / (law.start.value + work / rate).0.max(1e-6);
                assert!((0.3..30.0).contains(&ratio), "{name}, {gemm}, {m} {n} {k}: {time}");
            }
        }
    }
    assert!(laws >= 25, "{laws}");
}

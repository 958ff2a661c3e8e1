//! Sums of estimates and their text.

use arbtest::arbtest;
use expect_test::expect;

use super::*;

const NAMES: [&str; 3] = ["compute", "all-reduce", "bubble"];

#[test]
fn terms_of_the_same_name_are_one_and_keep_their_place() {
    let mut estimate = Estimate::term("compute", Seconds(1.0));
    estimate.add_term("all-reduce", Seconds(0.5));
    let sum = estimate.clone() + Estimate::term("compute", Seconds(2.0));
    let names: Vec<&str> = sum.terms().iter().map(|term| term.name.as_str()).collect();
    assert_eq!(names, ["compute", "all-reduce"]);
    assert_eq!(sum.of("compute"), Seconds(3.0));
    assert_eq!(sum.of("bubble"), Seconds::ZERO);
    assert_eq!(sum.total(), Seconds(3.5));
    assert_eq!(estimate.times(4.0).total(), Seconds(6.0));
}

#[test]
fn the_total_of_a_sum_is_the_sum_of_the_totals() {
    arbtest(|u| {
        let mut parts = Vec::new();
        for _ in 0..u.int_in_range(0..=20)? {
            // Quarters of a second: sums are exact.
            let time = Seconds(f64::from(u.int_in_range(0..=4000_u32)?) / 4.0);
            parts.push(Estimate::term(u.choose(&NAMES)?, time));
        }
        let total: Seconds = parts.iter().map(Estimate::total).sum();
        let sum: Estimate = parts.into_iter().sum();
        assert_eq!(sum.total(), total);
        assert!(sum.terms().len() <= NAMES.len());
        Ok(())
    });
}

#[test]
fn text_is_a_table_of_terms() {
    let mut estimate = Estimate::term("compute", Seconds(0.003));
    estimate.add_term("all-reduce", Seconds(0.001));
    expect![[r#"
        4 ms
          compute        3 ms   75.0 %
          all-reduce     1 ms   25.0 %"#]]
    .assert_eq(&estimate.to_string());
    assert_eq!(Estimate::new().to_string(), "0 s");
}

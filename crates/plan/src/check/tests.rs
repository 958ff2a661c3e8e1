//! Tests of the checker.

use arbtest::arbtest;

use super::check;
use crate::samples;

#[test]
fn right_plans_are_accepted() {
    arbtest(|u| {
        let plan = samples::random(u)?;
        assert_eq!(check(&plan), Ok(()), "{}", crate::json::write(&plan));
        Ok(())
    });
}

//! Tests of the JSON form.

use arbtest::arbtest;
use expect_test::{Expect, expect};

use super::{read, write};
use crate::samples;

/// The one place that knows how an error is shown.
fn check_error(text: &[u8], expected: Expect) {
    expected.assert_eq(&read(text).unwrap_err().to_string());
}

#[test]
fn plans_are_read_as_they_were_written() {
    arbtest(|u| {
        let plan = samples::random(u)?;
        let text = write(&plan);
        assert_eq!(read(text.as_bytes()).as_ref(), Ok(&plan), "{text}");
        assert_eq!(write(&plan), text);
        Ok(())
    });
}

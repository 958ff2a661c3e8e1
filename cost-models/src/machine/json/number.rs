//! A number of a machine file, with its unit and its source.

use serde_json::Value;

use super::Fault;
use super::file::Number;
use crate::known::{Count, Known, Quantity};

/// The quantity that a number of a file states, or what is wrong with it.
pub(in crate::machine) fn known<T: Quantity>(field: &str, number: &Number) -> Result<Known<T>, Fault> {
    let shown = |value: &Value| match value {
        Value::Null => "nothing".to_owned(),
        value => format!("`{value}`"),
    };
    let unit = number.unit.as_str();
    if unit != Some(T::UNIT) {
        let expected = format!("`\"{}\"`: state the value in that unit", T::UNIT);
        return Err(fault(field, "unit", &shown(&number.unit), &expected));
    }
    let value = number.value.as_f64().and_then(T::from_number);
    let Some(value) = value else {
        return Err(fault(field, "value", &shown(&number.value), T::EXPECTED));
    };
    let expected = "where the number was read or how it was measured";
    number
        .source
        .as_str()
        .and_then(|source| Known::new(value, source))
        .ok_or_else(|| fault(field, "source", &shown(&number.source), expected))
}

pub(super) fn number<T: Quantity>(known: &Known<T>) -> Number {
    let value = known.value.number();
    // Whole numbers are written without a fraction.
    let whole = Count::from_number(value).map(|Count(whole)| Value::from(whole));
    Number {
        value: whole.unwrap_or_else(|| Value::from(value)),
        unit: Value::from(T::UNIT),
        source: Value::from(known.source()),
    }
}

/// What is wrong with a part of a number.
pub(super) fn fault(field: &str, part: &'static str, found: &str, expected: &str) -> Fault {
    Fault::Number { field: field.to_owned(), part, found: found.to_owned(), expected: expected.to_owned() }
}

//! One thing that is told, as an argument of Megatron-LM and as keys of Megatron-Bridge.

/// One thing that is told.
pub(crate) struct One {
    /// To Megatron-LM; nothing where it is so if nothing is said.
    pub(crate) argument: Option<String>,
    /// To Megatron-Bridge, over what a recipe has.
    pub(crate) keys: Vec<Key>,
}

/// A section of Megatron-Bridge, a key and its value.
pub(crate) type Key = (&'static str, &'static str, String);

/// What an argument says, and keys.
pub(super) fn said(argument: impl Into<String>, keys: Vec<Key>) -> One {
    One { argument: Some(argument.into()), keys }
}

/// What keys say, and an argument where it is needed.
pub(super) fn perhaps(argument: Option<String>, keys: Vec<Key>) -> One {
    One { argument, keys }
}

/// A key of the model.
pub(super) fn of_model(key: &'static str, value: impl ToString) -> Key {
    ("model", key, value.to_string())
}

/// A switch: an argument where it is on, and a key either way.
pub(super) fn switch(is: bool, argument: &str, section: &'static str, key: &'static str) -> One {
    perhaps(is.then(|| argument.to_owned()), vec![(section, key, is.to_string())])
}

/// A number with an exponent as YAML has it, which without a point is a word.
pub(super) fn number_of(text: &str) -> String {
    match text.split_once('e') {
        Some((number, exponent)) if !number.contains('.') => format!("{number}.0e{exponent}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn numbers_keep_their_digits_and_have_a_point() {
        assert_eq!(["1e-8", "1.25e-8", "-2e3"].map(number_of), ["1.0e-8", "1.25e-8", "-2.0e3"]);
    }
}

//! What a configuration states, by name: each value is asked for once, and what nobody asked for is told.

use std::collections::{BTreeMap, BTreeSet};

use super::ReadError;

/// Arguments by their names, with `_` between words.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    /// Each with its values as they are written, and as it is shown.
    all: BTreeMap<String, (Vec<String>, String)>,
    asked: BTreeSet<String>,
}

impl Given {
    /// `--name value`, `--name=value` and `--name`; the last one counts. Words before the first are not arguments.
    pub(super) fn of_words(words: &[String]) -> Self {
        let mut given = Self::default();
        let mut last: Option<String> = None;
        for word in words {
            if word == "--" {
                last = None;
            } else if let Some(argument) = word.strip_prefix("--") {
                let (name, value) =
                    argument.split_once('=').map_or((argument, None), |it| (it.0, Some(it.1)));
                let key = name.replace('-', "_");
                let values = value.map(str::to_owned).into_iter().collect();
                given.all.insert(key.clone(), (values, word.clone()));
                last = Some(key);
            } else if let Some((values, shown)) = last.as_ref().and_then(|it| given.all.get_mut(it)) {
                values.push(word.clone());
                *shown = format!("{shown} {word}");
            }
        }
        given
    }

    /// States an argument.
    pub(super) fn state(&mut self, name: &str, values: Vec<String>, shown: String) {
        self.all.insert(name.to_owned(), (values, shown));
    }

    fn values(&mut self, name: &str) -> Option<&[String]> {
        let (values, _) = self.all.get(name)?;
        self.asked.insert(name.to_owned());
        Some(values)
    }

    /// Whether it is stated.
    pub(super) fn has(&mut self, name: &str) -> bool {
        self.values(name).is_some()
    }

    /// How it is written.
    pub(super) fn shown(&self, name: &str) -> String {
        self.all.get(name).map(|it| it.1.clone()).unwrap_or_default()
    }

    /// A word.
    pub(super) fn word(&mut self, name: &str) -> Result<Option<String>, ReadError> {
        let shown = self.shown(name);
        match self.values(name) {
            None => Ok(None),
            Some([value, ..]) if value.contains('$') => {
                Err(wrong(name, value, "a value: nothing in the script says what that variable is"))
            }
            Some([value, ..]) => Ok(Some(value.clone())),
            Some([]) => Err(wrong(name, &format!("`{shown}` alone"), "a value after it")),
        }
    }

    /// A count.
    pub(super) fn count(&mut self, name: &str) -> Result<Option<u64>, ReadError> {
        let Some(word) = self.word(name)? else { return Ok(None) };
        word.replace('_', "").parse().map(Some).map_err(|_| wrong(name, &word, "a whole number"))
    }

    /// A count of at least 1.
    pub(super) fn positive(&mut self, name: &str) -> Result<Option<u64>, ReadError> {
        match self.count(name)? {
            Some(0) => Err(wrong(name, "0", "at least 1")),
            count => Ok(count),
        }
    }

    /// Whether a flag is set.
    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, ReadError> {
        match self.values(name) {
            None => Ok(None),
            Some([]) => Ok(Some(true)),
            Some([value, ..]) => match value.to_lowercase().as_str() {
                "true" | "1" => Ok(Some(true)),
                "false" | "0" => Ok(Some(false)),
                _ => Err(wrong(name, &value.clone(), "true or false")),
            },
        }
    }

    /// All words of it.
    pub(super) fn words(&mut self, name: &str) -> Vec<String> {
        self.values(name).map(<[String]>::to_vec).unwrap_or_default()
    }

    /// What nobody has asked for: its name, and how it is written.
    pub(super) fn left(self) -> impl Iterator<Item = (String, String)> {
        let Self { all, asked } = self;
        all.into_iter().filter(move |(name, _)| !asked.contains(name)).map(|(name, (_, shown))| (name, shown))
    }
}

/// An argument with a value that it does not take.
pub(super) fn wrong(name: &str, found: &str, expected: &str) -> ReadError {
    ReadError::Value { name: name.to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}

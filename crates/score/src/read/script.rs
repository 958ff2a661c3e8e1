//! The words of a command line or of a script of bash: quotes, comments, lines that go on, and variables that the
//! script sets itself.

use std::collections::BTreeMap;

use super::ReadError;

/// The words, with the variables that are known put in. Where a `)`, `;`, `|` or `&` ends a command, what follows
/// belongs to no argument before it, which an empty argument `--` says.
pub(super) fn words(text: &str) -> Result<Vec<String>, ReadError> {
    let mut words = Vec::new();
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    let mut letters = text.chars().peekable();
    let mut word: Option<String> = None;
    let mut line = 1;
    loop {
        let letter = letters.next();
        match letter {
            Some('\\') => match letters.next() {
                Some('\n') => line += 1,
                Some('\r') if letters.next_if_eq(&'\n').is_some() => line += 1,
                next => word.get_or_insert_default().extend(next),
            },
            Some(quote @ ('\'' | '"')) => {
                let start = line;
                let inner = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some(next) if next == quote => break,
                        Some('\\') if quote == '"' => match letters.next() {
                            Some('\n') => line += 1,
                            next => inner.extend(next),
                        },
                        Some('$') if quote == '"' => inner.push_str(&variable(&mut letters, &variables)),
                        Some(next) => {
                            line += usize::from(next == '\n');
                            inner.push(next);
                        }
                        None => {
                            let message = format!("line {start}: a quote {quote} that does not end");
                            return Err(ReadError::Language(message));
                        }
                    }
                }
            }
            Some('$') => {
                let value = variable(&mut letters, &variables);
                // What a variable holds without quotes is as many words as it has.
                let mut parts = value.split_whitespace().peekable();
                while let Some(part) = parts.next() {
                    word.get_or_insert_default().push_str(part);
                    if parts.peek().is_some() {
                        ended(&mut word, &mut words, &mut variables);
                    }
                }
            }
            Some('#') if word.is_none() => while letters.next_if(|it| *it != '\n').is_some() {},
            Some('(') if word.as_ref().is_some_and(|it| it.ends_with('=') && is_name(it)) => word = None,
            Some(letter @ (' ' | '\t' | '\r' | '\n' | ';' | '|' | '&' | '(' | ')')) => {
                ended(&mut word, &mut words, &mut variables);
                line += usize::from(letter == '\n');
                if matches!(letter, ';' | '|' | '&' | ')') {
                    words.push("--".to_owned());
                }
            }
            Some(letter) => word.get_or_insert_default().push(letter),
            None => break,
        }
    }
    ended(&mut word, &mut words, &mut variables);
    Ok(words)
}

/// Whether a word is `NAME=` or `NAME+=`.
fn is_name(word: &str) -> bool {
    let name = word.trim_end_matches('=').trim_end_matches('+');
    !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// A word that is over: an assignment before any other word of a line, or a word.
fn ended(word: &mut Option<String>, words: &mut Vec<String>, variables: &mut BTreeMap<String, String>) {
    let Some(word) = word.take() else { return };
    match word.split_once('=') {
        Some((name, value)) if is_name(name) && !word.starts_with('-') => {
            variables.insert(name.to_owned(), value.to_owned());
        }
        _ => words.push(word),
    }
}

/// What a variable holds: `$NAME`, `${NAME}`, `${NAME:-else}`; itself if nobody says. An array is where it is set.
fn variable(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    variables: &BTreeMap<String, String>,
) -> String {
    let mut name = String::new();
    if letters.next_if_eq(&'{').is_some() {
        while let Some(letter) = letters.next_if(|it| *it != '}') {
            name.push(letter);
        }
        letters.next();
        if name.ends_with("[@]") || name.ends_with("[*]") {
            return String::new();
        }
        let (name, otherwise) = name.split_once(":-").map_or((name.as_str(), None), |it| (it.0, Some(it.1)));
        let known = variables.get(name).map(String::as_str).or(otherwise);
        return known.map_or_else(|| format!("${{{name}}}"), str::to_owned);
    }
    if letters.peek() == Some(&'(') {
        // What a command prints, or a sum: nobody knows.
        let mut depth = 0_usize;
        for letter in letters.by_ref() {
            name.push(letter);
            depth = if letter == '(' { depth + 1 } else { depth - usize::from(letter == ')') };
            if depth == 0 {
                break;
            }
        }
        return format!("${}", name.split_whitespace().collect::<String>());
    }
    while let Some(letter) = letters.next_if(|it| it.is_ascii_alphanumeric() || *it == '_' || *it == '@') {
        name.push(letter);
    }
    variables.get(&name).cloned().unwrap_or_else(|| format!("${name}"))
}

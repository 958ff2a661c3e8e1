//! Words that must not come back: in pages, in what programs print, and in their messages.

use super::{files, nothing, pages, read};

/// What is not said, and what is said instead: the words of the field.
const WORDS: [(&str, &str); 15] = [
    ("by what they do", "distinct programs"),
    ("computed again", "recomputed, recomputation"),
    ("crossings of the update", "update communication"),
    ("exchange beside computing", "hidden communication"),
    ("held skewed", "skewed"),
    ("is made small", "is minimised"),
    ("is not said", "is missing, unknown"),
    ("kept values", "saved activations"),
    ("make no sense", "invalid"),
    ("makes no sense", "invalid"),
    ("no sense together", "contradict each other"),
    ("owed sum", "partial"),
    ("stage group", "pipeline rank"),
    ("sum owed", "partial"),
    ("what is held of it", "its sharding"),
];

/// What is written between quotes, with the line where it begins; comments are not.
fn quoted(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut line, mut rest) = (1, code);
    while let Some(next) = rest.find(['"', '/', '\'', '\n']) {
        let at = &rest[next..];
        let end = match at.as_bytes() {
            [b'\n', ..] => 1,
            [b'/', b'/', ..] => at.find('\n').unwrap_or(at.len()),
            [b'\'', b'"', b'\'', ..] => 3,
            [b'"', ..] => {
                let raw = rest[..next].ends_with("r#");
                let ends = |&(place, it): &(usize, char)| {
                    let before = at[1..place].bytes().rev().take_while(|it| *it == b'\\').count();
                    it == '"' && if raw { at[place + 1..].starts_with('#') } else { before % 2 == 0 }
                };
                let end = at.char_indices().skip(1).find(ends).map_or(at.len(), |it| it.0 + 1);
                let words = at[1..end].split_whitespace().filter(|it| *it != "\\");
                found.push((line, words.collect::<Vec<_>>().join(" ")));
                end
            }
            _ => 1,
        };
        line += at[..end].matches('\n').count();
        rest = &at[end..];
    }
    found
}

/// What is wrong with texts: of which file, at which line, and what it says.
fn wrong<'a>(path: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<String> {
    let mut found = Vec::new();
    for (line, text) in lines {
        let lower = text.to_lowercase();
        for (word, instead) in WORDS.iter().filter(|it| lower.contains(it.0)) {
            found.push(format!("{path}:{line} says `{word}`, expected `{instead}`"));
        }
    }
    found
}

#[test]
fn pages_and_printed_texts_say_what_the_field_says() {
    // Decisions are of their time.
    let pages = pages().into_iter().filter(|it| !it.starts_with("docs/decisions/"));
    let texts = files("tests/cases", ".txt").into_iter().chain(files("docs/images", ".svg"));
    let mut found = Vec::new();
    let mut read_lines = 0;
    for path in pages.chain(texts) {
        let text = read(&path);
        read_lines += text.lines().count();
        found.extend(wrong(&path, (1..).zip(text.lines())));
    }
    nothing(&found);
    assert!(read_lines > 5000, "only {read_lines} lines were read");
}

#[test]
fn messages_say_what_the_field_says() {
    let mut found = Vec::new();
    let mut messages = 0;
    for folder in ["planner-ir", "cost-models", "kernels", "crates"] {
        for path in files(folder, ".rs").into_iter().filter(|it| !it.contains("/tests")) {
            let text = read(&path);
            let quoted = quoted(&text);
            messages += quoted.iter().filter(|it| it.1.contains(' ')).count();
            found.extend(wrong(&path, quoted.iter().map(|it| (it.0, it.1.as_str()))));
        }
    }
    nothing(&found);
    assert!(messages > 1000, "only {messages} messages were read");
}

#[test]
fn words_are_found_in_quotes_and_not_in_comments() {
    let code = "// \"sum owed\"\nlet at = ('\"', \"a \\\" sum \\\n   owed\",\n name); // \"makes no sense\"\n\"kept values\"";
    let quoted = quoted(code);
    assert_eq!(
        wrong("at", quoted.iter().map(|it| (it.0, it.1.as_str()))),
        ["at:2 says `sum owed`, expected `partial`", "at:5 says `kept values`, expected `saved activations`",]
    );
    assert_eq!(wrong("at", [(1, "Makes no sense")].into_iter()).len(), 1);
}

//! Colour of what is printed, where a terminal shows it: what is wrong, whether something fits, headings, and the words
//! that lines begin with.

use std::ffi::OsString;
use std::io::{Result, Write};

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Style};

/// A stream of text that is shown in colour, if its end is a terminal: `--color`, `NO_COLOR`, `CLICOLOR` and
/// `CLICOLOR_FORCE` say otherwise.
pub struct Painted<W>(W);

impl<W: RawStream> Painted<W> {
    /// A stream that is not in colour yet.
    pub fn new(stream: W) -> Self {
        Self(stream)
    }
}

impl<W: RawStream> Write for Painted<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let plain = AutoStream::choice(&self.0) == ColorChoice::Never;
        match std::str::from_utf8(bytes) {
            Ok(text) if !plain => self.0.write_all(painted(text).as_bytes())?,
            _ => return self.0.write(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

/// Takes note of what `--color` says among arguments, right or wrong.
pub(crate) fn wish(arguments: &[OsString]) {
    let words: Vec<&str> = arguments.iter().map(|it| it.to_str().unwrap_or_default()).collect();
    let said = words.iter().enumerate().find_map(|(place, word)| match word.strip_prefix("--color")? {
        "" => words.get(place + 1).copied(),
        value => value.strip_prefix('='),
    });
    let choice = match said {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    choice.write_global();
}

const WRONG: Style = AnsiColor::Red.on_default().bold();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
const RIGHT: Style = AnsiColor::Green.on_default();
const HEADING: Style = Style::new().bold().underline();
const LABEL: Style = Style::new().bold();

/// What lines begin with, and its colour.
const BEGINNINGS: [(&str, Style); 5] = [
    ("error:", WRONG),
    ("warning:", DOUBTFUL),
    ("NOT UNDERSTOOD", WRONG),
    ("lost ", DOUBTFUL),
    ("Usage:", HEADING),
];

/// What lines say of memory, and its colour.
const VERDICTS: [(&str, Style); 2] = [("does not fit", WRONG), ("fits", RIGHT)];

/// A text in colour, line by line.
fn painted(text: &str) -> String {
    text.split_inclusive('\n').map(of_line).collect()
}

fn of_line(line: &str) -> String {
    let (said, end) = line.strip_suffix('\n').map_or((line, ""), |it| (it, "\n"));
    // Lines of JSON, and those that belong to one before them, are as they are.
    if !said.starts_with(|it: char| it.is_ascii_alphabetic()) {
        return line.to_owned();
    }
    let beginning = BEGINNINGS.iter().find(|it| said.starts_with(it.0)).map(|it| (it.0.len(), it.1));
    let beginning = beginning.or_else(|| {
        let is_heading = said.ends_with(':') && said.is_ascii() && !said.contains(['`', '{']);
        is_heading.then_some((said.len(), HEADING))
    });
    let beginning = beginning.or_else(|| {
        let length = said.find("  ")?;
        said[..length].chars().all(|it| it.is_ascii_lowercase() || it == ' ').then_some((length, LABEL))
    });
    let Some((length, style)) = beginning else { return line.to_owned() };
    let (first, rest) = said.split_at(length);
    format!("{style}{first}{style:#}{}{end}", judged(rest))
}

/// The rest of a line, with what it says of memory.
fn judged(rest: &str) -> String {
    let found =
        VERDICTS.iter().find_map(|(word, style)| Some((rest.find(&format!(": {word}"))? + 2, word, style)));
    let Some((place, word, style)) = found else { return rest.to_owned() };
    let (before, after) = (&rest[..place], &rest[place + word.len()..]);
    format!("{before}{style}{word}{style:#}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What there is without the codes of colours.
    fn plain(text: &str) -> String {
        let mut parts = text.split('\x1b');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, part| all + part.split_once('m').map_or("", |it| it.1))
    }

    #[test]
    fn colours_change_no_word() {
        let text = "error: no file `a`\nmemory        5 GB of 9 GB: does not fit\n  stage  a: fits\nOptions:\n{\n  \"a\": 1\n}\n\
                    lost       a: b\nworst load    3 GB: fits; 2 s\nstep 3  loss 1.5\nNo label, no colour";
        let shown = painted(text);
        assert_eq!(plain(&shown), text);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "\x1b[1m\x1b[31merror:\x1b[0m no file `a`");
        assert_eq!(lines[1], "\x1b[1mmemory\x1b[0m        5 GB of 9 GB: \x1b[1m\x1b[31mdoes not fit\x1b[0m");
        assert_eq!(lines[3], "\x1b[1m\x1b[4mOptions:\x1b[0m");
        assert_eq!(lines[8], "\x1b[1mworst load\x1b[0m    3 GB: \x1b[32mfits\x1b[0m; 2 s");
        for place in [2, 4, 5, 6, 9, 10] {
            assert!(!lines[place].contains('\x1b'), "{}", lines[place]);
        }
    }
}

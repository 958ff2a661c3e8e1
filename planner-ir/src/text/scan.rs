//! Where text is read from: a place in it, and the words, numbers and strings that follow.

use std::cell::Cell;
use std::fmt;

/// Why a text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1 (characters).
    pub column: usize,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, found, expected } = self;
        write!(f, "line {line}, column {column}: found {found}, expected {expected}")
    }
}

impl std::error::Error for ParseError {}

pub(super) type Result<T> = std::result::Result<T, ParseError>;

/// How many characters of what was found an error shows.
const SHOWN: usize = 24;

/// How deep regions may be nested.
const MAX_DEPTH: usize = 32;

/// A place in a text.
pub(super) struct Scan<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// A place up to which ends of lines have been counted, and how many there are. Alternatives are
    /// tried where errors are expected, and a long text is not counted again for each.
    counted: Cell<(usize, usize)>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0, counted: Cell::new((0, 0)) }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips blanks and comments, within the line.
    pub(super) fn blanks(&mut self) {
        self.skip(|it| matches!(it, ' ' | '\t' | '\r'));
    }

    /// Skips blanks, comments and ends of lines.
    pub(super) fn lines(&mut self) {
        self.skip(|it| matches!(it, ' ' | '\t' | '\r' | '\n'));
    }

    fn skip(&mut self, blank: impl Fn(char) -> bool) {
        loop {
            let rest = self.rest().trim_start_matches(&blank);
            self.at = self.text.len() - rest.len();
            if !rest.starts_with("//") {
                return;
            }
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    /// That what follows is not what was expected.
    pub(super) fn error<T>(&self, expected: impl Into<String>) -> Result<T> {
        self.error_at(self.at, expected)
    }

    /// That what stands at an earlier place is not what was expected.
    pub(super) fn error_at<T>(&self, at: usize, expected: impl Into<String>) -> Result<T> {
        let before = &self.text[..at];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let after = &self.text[at..];
        let token: String = after.chars().take_while(|it| !it.is_whitespace()).take(SHOWN).collect();
        let found = match after.chars().next() {
            None => "the end".to_owned(),
            Some('\n' | '\r') => "the end of the line".to_owned(),
            Some(_) => format!("`{token}`"),
        };
        Err(ParseError {
            line: self.ends_before(at) + 1,
            column: before[start..].chars().count() + 1,
            found,
            expected: expected.into(),
        })
    }

    /// How many lines end before a place.
    fn ends_before(&self, at: usize) -> usize {
        let (place, counted) = self.counted.get();
        let between = &self.text.as_bytes()[place.min(at)..place.max(at)];
        let more = between.iter().filter(|&&it| it == b'\n').count();
        let ends = if place <= at { counted + more } else { counted - more };
        self.counted.set((at, ends));
        ends
    }

    /// The place after blanks, for `error_at`.
    pub(super) fn place(&mut self) -> usize {
        self.blanks();
        self.at
    }

    /// Whether these characters follow (after blanks); if so, steps over them.
    pub(super) fn eat(&mut self, expected: &str) -> bool {
        self.blanks();
        let follows = self.rest().starts_with(expected);
        if follows {
            self.at += expected.len();
        }
        follows
    }

    /// Steps over these characters.
    pub(super) fn expect(&mut self, expected: &str) -> Result<()> {
        if self.eat(expected) { Ok(()) } else { self.error(format!("`{expected}`")) }
    }

    /// The longest run of such characters (after blanks), stepped over.
    pub(super) fn run(&mut self, of: impl Fn(char) -> bool) -> &'a str {
        self.blanks();
        let rest = self.rest();
        let run = &rest[..rest.len() - rest.trim_start_matches(of).len()];
        self.at += run.len();
        run
    }

    /// The character that follows (after blanks) if it is such a one, stepped over.
    pub(super) fn character(&mut self, such: impl Fn(char) -> bool) -> Option<char> {
        self.blanks();
        let character = self.rest().chars().next().filter(|&it| such(it))?;
        self.at += character.len_utf8();
        Some(character)
    }

    /// A name of letters, digits and underscores.
    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str> {
        let at = self.place();
        let word = self.run(|it| it.is_ascii_alphanumeric() || it == '_');
        if word.is_empty() { self.error_at(at, expected) } else { Ok(word) }
    }

    /// Whether this word follows; if so, steps over it.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let at = self.place();
        let follows = self.run(|it| it.is_ascii_alphanumeric() || it == '_') == word;
        if !follows {
            self.at = at;
        }
        follows
    }

    /// A number that a type can hold.
    pub(super) fn number<T: std::str::FromStr>(&mut self, expected: &str) -> Result<T> {
        let at = self.place();
        let sign = if self.rest().starts_with(['-', '+']) { 1 } else { 0 };
        self.at += sign;
        let _digits = self.run(|it| it.is_ascii_digit());
        self.text[at..self.at].parse().or_else(|_| self.error_at(at, expected))
    }

    /// Digits of 16, two for each byte.
    pub(super) fn hexadecimal(&mut self) -> Result<Vec<u8>> {
        let at = self.place();
        let digits = self.run(|it| it.is_ascii_hexdigit()).as_bytes();
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(value(*high)? << 4 | value(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes.map_or_else(|| self.error_at(at, "two hexadecimal digits for each byte"), Ok)
    }

    /// A string in quotes.
    pub(super) fn string(&mut self, expected: &str) -> Result<String> {
        if !self.eat("\"") {
            return self.error(expected);
        }
        let mut string = String::new();
        loop {
            let rest = self.rest();
            let Some(end) = rest.find(['"', '\\', '\n']) else {
                self.at = self.text.len();
                return self.error("`\"`");
            };
            string.push_str(&rest[..end]);
            self.at += end;
            match rest.as_bytes()[end] {
                b'"' => {
                    self.at += 1;
                    return Ok(string);
                }
                b'\\' => string.push(self.escape()?),
                _ => return self.error("`\"`"),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        const EXPECTED: &str = "one of `\\n`, `\\\"`, `\\\\`, `\\u{..}`";
        let at = self.at;
        self.at += 1;
        let rest = self.rest();
        if let Some(code) = rest.strip_prefix("u{") {
            let end = code.find('}').filter(|&end| (1..=6).contains(&end) && code.is_char_boundary(end));
            let code =
                end.and_then(|end| u32::from_str_radix(&code[..end], 16).ok()).and_then(char::from_u32);
            let (Some(end), Some(char)) = (end, code) else { return self.error_at(at, EXPECTED) };
            self.at += "u{}".len() + end;
            return Ok(char);
        }
        let char = match rest.chars().next() {
            Some('n') => '\n',
            Some('"') => '"',
            Some('\\') => '\\',
            _ => return self.error_at(at, EXPECTED),
        };
        self.at += 1;
        Ok(char)
    }

    /// The end of a statement: of its line, or the brace that closes what it stands in.
    pub(super) fn end_of_statement(&mut self) -> Result<()> {
        self.blanks();
        match self.rest().chars().next() {
            None | Some('\n' | '}') => Ok(()),
            Some(_) => self.error("the end of the line"),
        }
    }

    /// The end of the text.
    pub(super) fn end(&mut self) -> Result<()> {
        self.lines();
        if self.rest().is_empty() { Ok(()) } else { self.error("the end") }
    }

    /// Reads something that may contain others like it.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return self.error(format!("{MAX_DEPTH} nested regions at most"));
        }
        self.depth += 1;
        let it = read(self);
        self.depth -= 1;
        it
    }
}

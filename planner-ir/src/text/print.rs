//! Where text is written to.

use std::fmt::{self, Write};

/// Text being written, at some depth of braces.
pub(super) struct Print<'a> {
    out: &'a mut dyn Write,
    depth: usize,
}

impl<'a> Print<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, depth: 0 }
    }

    /// Writes what follows in the line.
    pub(super) fn text(&mut self, text: impl fmt::Display) -> fmt::Result {
        write!(self.out, "{text}")
    }

    /// Begins a line.
    pub(super) fn line(&mut self) -> fmt::Result {
        write!(self.out, "\n{:1$}", "", self.depth * 2)
    }

    /// Writes lines in braces.
    pub(super) fn braces(&mut self, lines: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        self.out.write_char('{')?;
        self.depth += 1;
        lines(self)?;
        self.depth -= 1;
        self.line()?;
        self.out.write_char('}')
    }

    /// Writes items with separators.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        separator: &str,
        write: impl Fn(&mut Self, T) -> fmt::Result,
    ) -> fmt::Result {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.write_str(separator)?;
            }
            write(self, item)?;
        }
        Ok(())
    }

    /// Writes a string in quotes.
    pub(super) fn string(&mut self, string: &str) -> fmt::Result {
        self.out.write_char('"')?;
        for char in string.chars() {
            match char {
                '\n' => self.out.write_str("\\n")?,
                '"' => self.out.write_str("\\\"")?,
                '\\' => self.out.write_str("\\\\")?,
                char if char.is_control() => write!(self.out, "\\u{{{:x}}}", u32::from(char))?,
                char => self.out.write_char(char)?,
            }
        }
        self.out.write_char('"')
    }
}

//! A CSV file as rows of named fields, with everything that can be wrong with one.

use std::fmt;

/// The most that there can be of anything: longer than every sequence, wider than every vocabulary.
pub(crate) const MOST: u64 = 1 << 21;

/// The most bytes of anything.
const MOST_BYTES: u64 = 1 << 50;

/// A CSV file with a head line.
#[derive(Clone, Debug)]
pub struct Table {
    file: String,
    columns: Vec<String>,
    records: Vec<(u64, csv::StringRecord)>,
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    line: u64,
    record: &'a csv::StringRecord,
}

/// Why a text is not a table of the expected columns, or a field not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableError {
    /// Not CSV: what the reader says.
    Csv {
        /// The file.
        file: String,
        /// What is wrong, with the place in the file.
        message: String,
    },
    /// A column that is not there.
    Column {
        /// The file.
        file: String,
        /// The column.
        column: String,
    },
    /// A field that is not what its column holds.
    Field {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The column.
        column: String,
        /// What it says.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl Table {
    /// The table that `text` is, if it has all `columns`; `file` names it in errors.
    pub fn read(file: &str, text: &str, columns: &[&str]) -> Result<Self, TableError> {
        let wrong = |error: csv::Error| TableError::Csv { file: file.to_owned(), message: error.to_string() };
        let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
        let head: Vec<String> = reader.headers().map_err(wrong)?.iter().map(str::to_owned).collect();
        if let Some(column) = columns.iter().find(|column| !head.iter().any(|it| it == *column)) {
            return Err(TableError::Column { file: file.to_owned(), column: (*column).to_owned() });
        }
        let line = |record: &csv::StringRecord| record.position().map_or(0, csv::Position::line);
        let records = reader.records().map(|record| record.map(|record| (line(&record), record)));
        let records = records.collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Self { file: file.to_owned(), columns: head, records })
    }

    /// The names of the columns, in order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(String::as_str)
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.records.iter().map(|(line, record)| Row { table: self, line: *line, record })
    }
}

impl<'a> Row<'a> {
    /// The line of the file on which it begins, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// What a column says, without blanks around it; empty if there is no such column.
    #[must_use]
    pub fn text(&self, column: &str) -> &'a str {
        let place = self.table.columns.iter().position(|it| it == column);
        place.and_then(|place| self.record.get(place)).map_or("", str::trim)
    }

    /// The number in a column; `None` if it is blank.
    pub fn number(&self, column: &str) -> Result<Option<f64>, TableError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        // `inf` stands for what did not end and is a number; what is not one is refused.
        let number = text.parse::<f64>().ok().filter(|number| !number.is_nan());
        number.map(Some).ok_or_else(|| self.wrong(column, "a number"))
    }

    /// How many there are of what a column counts, at most [`MOST`]; `None` if it is blank.
    pub fn count(&self, column: &str) -> Result<Option<u64>, TableError> {
        let count = self.whole(column)?;
        let most = count.is_none_or(|count| count <= MOST);
        if most { Ok(count) } else { Err(self.wrong(column, "a whole number of at most 2097152")) }
    }

    /// The bytes in a column; `None` if it is blank.
    pub fn bytes(&self, column: &str) -> Result<Option<u64>, TableError> {
        let bytes = self.whole(column)?;
        let most = bytes.is_none_or(|bytes| bytes <= MOST_BYTES);
        if most { Ok(bytes) } else { Err(self.wrong(column, "a whole number of at most 2^50")) }
    }

    fn whole(&self, column: &str) -> Result<Option<u64>, TableError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let text = text.strip_suffix(".0").unwrap_or(text);
        text.parse().map(Some).map_err(|_| self.wrong(column, "a whole number"))
    }

    /// The error that says what a column should have been.
    #[must_use]
    pub fn wrong(&self, column: &str, expected: &'static str) -> TableError {
        TableError::Field {
            file: self.table.file.clone(),
            line: self.line,
            column: column.to_owned(),
            found: self.text(column).to_owned(),
            expected,
        }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Csv { file, message } => write!(f, "{file}: {message}"),
            Self::Column { file, column } => write!(f, "{file}: no column `{column}`"),
            Self::Field { file, line, column, found, expected } => {
                write!(f, "{file}, line {line}, column `{column}`: `{found}`, expected {expected}")
            }
        }
    }
}

impl std::error::Error for TableError {}

#[cfg(test)]
mod tests;

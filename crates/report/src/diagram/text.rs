//! A diagram as lines.

use std::fmt;

use super::{Cell, Diagram, Thing, Way};

/// The widest column that texts are aligned in.
const WIDEST: usize = 1000;

impl fmt::Display for Diagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let longest = |of: fn(&Thing) -> &String| width(self.things.iter().map(of));
        let (name, rest) = (longest(|it| &it.name), longest(|it| &it.at_rest));
        for it in &self.things {
            let received = if it.moves { format!("; all receive {}", it.share()) } else { String::new() };
            writeln!(f, "  {:name$}  {:rest$}  {}{received}", it.name, it.at_rest, it.how)?;
        }
        let steps = self.cells.first().map_or(0, Vec::len);
        let mut lines = vec![format!("{:>4}", "rank")];
        lines.extend((0..self.cells.len()).map(|rank| format!("{rank:>4}")));
        for step in 0..steps {
            let mut column = vec![self.column(step)];
            column.extend(self.cells.iter().map(|row| self.cell(&row[step])));
            let width = width(&column);
            for (line, text) in lines.iter_mut().zip(column) {
                *line += &format!("   {text:width$}");
            }
        }
        writeln!(f)?;
        lines.iter().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

/// The columns that the longest of some texts takes, if they are not so long that nobody aligns them:
/// formats cannot.
fn width<'a>(texts: impl IntoIterator<Item = &'a String>) -> usize {
    texts.into_iter().map(String::len).max().unwrap_or(0).min(WIDEST)
}

impl Diagram {
    /// The work, and what comes and goes for it.
    fn cell(&self, cell: &Cell) -> String {
        let mut text = cell.work.clone();
        for message in &cell.messages {
            let how = match message.way {
                Way::Shifted | Way::Given => "from",
                Way::Added => "to",
            };
            text += &format!("  {} {how} {}", cell.blocks[message.thing].1, message.other);
        }
        text
    }
}

impl Thing {
    /// What all devices together receive, in parts of the whole.
    pub fn share(&self) -> String {
        let (mut parts, mut whole) = (self.received, self.bytes.max(1));
        let common = divisor(parts, whole);
        (parts, whole) = (parts / common, whole / common);
        if whole == 1 { format!("{parts} {}", self.name) } else { format!("{parts}/{whole} {}", self.name) }
    }
}

/// The greatest common divisor, at least 1.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { divisor(b, a % b) }
}

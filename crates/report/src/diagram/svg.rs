//! A diagram as a picture: rows are ranks, columns are steps, and what moves has the colour of its
//! block.

use std::fmt::Write as _;

use super::{Cell, Diagram, Way};
use crate::svg::{escaped, opening};

/// A cell (pixels).
const WIDTH: usize = 128;
/// What lies between columns, for arrows (pixels).
const GAP: usize = 44;
/// A line of text (pixels).
const LINE: usize = 18;
/// What is left of the cells (pixels).
const LEFT: usize = 64;
/// What is above them (pixels).
const ABOVE: usize = 52;
/// What lies between rows (pixels).
const BETWEEN: usize = 14;

impl Diagram {
    /// The picture, an SVG text.
    pub fn svg(&self) -> String {
        let steps = self.cells.first().map_or(0, Vec::len);
        let (width, height) = (LEFT + steps * (WIDTH + GAP), ABOVE + self.cells.len() * self.pitch());
        let mut text = opening(width, height, &self.title);
        for step in 0..steps {
            let x = LEFT + step * (WIDTH + GAP);
            // Writing to a string does not fail.
            let name = self.column(step);
            let _ = writeln!(text, "<text x=\"{x}\" y=\"{}\">{name}</text>", ABOVE - 10);
        }
        for (rank, row) in self.cells.iter().enumerate() {
            let y = self.top(rank) + self.tall() / 2 + 4;
            let _ = writeln!(text, "<text x=\"8\" y=\"{y}\">rank {rank}</text>");
            for (step, cell) in row.iter().enumerate() {
                self.draw(rank, step, cell, &mut text);
            }
        }
        for (rank, row) in self.cells.iter().enumerate() {
            for (step, cell) in row.iter().enumerate() {
                self.arrows(rank, step, cell, &mut text);
            }
        }
        text + "</svg>\n"
    }

    /// How tall a cell is (pixels).
    fn tall(&self) -> usize {
        LINE * (1 + self.things.len())
    }

    /// How far rows are apart (pixels).
    fn pitch(&self) -> usize {
        self.tall() + BETWEEN
    }

    fn top(&self, rank: usize) -> usize {
        ABOVE + rank * self.pitch()
    }

    fn draw(&self, rank: usize, step: usize, cell: &Cell, text: &mut String) {
        let (x, y) = (LEFT + step * (WIDTH + GAP), self.top(rank));
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            x + 6,
            y + 13,
            escaped(&cell.work)
        );
        for (place, ((number, name), thing)) in cell.blocks.iter().zip(&self.things).enumerate() {
            let band = y + LINE * (1 + place);
            // What stays is grey.
            let fill = if thing.moves { colour(*number, thing.blocks) } else { "#eeeeee".to_owned() };
            let _ = writeln!(
                text,
                "<rect x=\"{x}\" y=\"{band}\" width=\"{WIDTH}\" height=\"{LINE}\" fill=\"{fill}\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                x + 6,
                band + 13,
                escaped(name)
            );
        }
        let tall = self.tall();
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{tall}\" fill=\"none\" stroke=\"#555555\"/>"
        );
    }

    /// Shifts go from a column to the next; what is given or added stays in its column.
    fn arrows(&self, rank: usize, step: usize, cell: &Cell, text: &mut String) {
        // What goes the same way is in every second column.
        let ways = usize::try_from(self.ways.count()).unwrap_or(1);
        let before = GAP + (ways - 1) * (WIDTH + GAP);
        for message in &cell.messages {
            let Ok(other) = usize::try_from(message.other) else { continue };
            let line = LINE * (1 + message.thing) + LINE / 2;
            let (own, far) = (self.top(rank) + line, self.top(other) + line);
            let left = LEFT + step * (WIDTH + GAP);
            let (right, bow) = (left + WIDTH, left + WIDTH + 14 + 7 * message.thing);
            let path = match message.way {
                Way::Shifted => format!("M{} {far}L{left} {own}", left.saturating_sub(before)),
                Way::Given => format!("M{right} {far}C{bow} {far} {bow} {own} {right} {own}"),
                Way::Added => format!("M{right} {own}C{bow} {own} {bow} {far} {right} {far}"),
            };
            let _ = writeln!(
                text,
                "<path d=\"{path}\" fill=\"none\" stroke=\"#333333\" marker-end=\"url(#tip)\"/>"
            );
        }
    }
}

/// A colour for one of so many blocks.
fn colour(number: u64, blocks: u64) -> String {
    format!("hsl({},70%,80%)", number * 360 / blocks.max(1))
}

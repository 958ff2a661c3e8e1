//! A chart as lines: a row for each group, in which a task is its word and a line for as long as it
//! lasts, `-` forward, `=` backward, `~` gradients of weights.
//!
//! Where tasks are narrower than their words these are without the chunk, or letters alone, and
//! where many share a column, the last is seen.

use schedule::{Span, Task, Work};

use super::{Chart, marks, short_time};

/// Columns for each mark of the axis.
const MARK: u32 = 10;

impl Chart<'_> {
    /// The lines, no wider than so many columns.
    pub fn text(&self, width: usize) -> String {
        let groups = self.schedule.groups.len();
        let left = (0..groups).map(|group| self.name(group).len() + 2).max().unwrap_or(0);
        let scale = self.scale(width.saturating_sub(left));
        let mut text = String::new();
        for (group, (tasks, spans)) in self.schedule.groups.iter().zip(&self.timeline.groups).enumerate() {
            let mut row = Vec::new();
            for (task, span) in tasks.iter().zip(spans) {
                self.draw(task, span, scale, &mut row);
            }
            let row: String = row.into_iter().collect();
            text += &format!("{:left$}{row}\n", self.name(group));
        }
        text + &self.axis(left, scale)
    }

    /// Columns for a unit of time: as many as let every task have its word, if they fit; else so many
    /// that the shortest task has a whole number of them, if it has one.
    fn scale(&self, columns: usize) -> f64 {
        let tasks = self.schedule.groups.iter().flatten().zip(self.timeline.groups.iter().flatten());
        let (mut needed, mut shortest) = (0.0_f64, f64::INFINITY);
        for (task, span) in tasks {
            let lasts = span.end - span.start;
            if lasts > 0.0 {
                needed = needed.max(count(self.schedule.word(task).len()) / lasts);
                shortest = shortest.min(lasts);
            }
        }
        let most = if self.timeline.makespan > 0.0 { count(columns) / self.timeline.makespan } else { 0.0 };
        let whole = (most * shortest).floor() / shortest;
        match most {
            _ if needed <= most => needed,
            _ if whole > 0.0 => whole,
            _ => most,
        }
    }

    fn draw(&self, task: &Task, span: &Span, scale: f64, row: &mut Vec<char>) {
        let (start, end) = (column(span.start * scale), column(span.end * scale));
        let mark = match task.work {
            Work::Forward => '-',
            Work::Backward => '=',
            Work::Weight => '~',
        };
        let word = self.schedule.word(task);
        let without_chunk = word.split('.').next().unwrap_or_default();
        let fits = [&word[..], without_chunk].into_iter().find(|it| it.len() <= end - start);
        let shown = fits.unwrap_or(&word[..1]);
        row.resize(row.len().max(end), ' ');
        let drawn = shown.chars().chain(std::iter::repeat(mark));
        for (cell, drawn) in row[start..end].iter_mut().zip(drawn) {
            *cell = drawn;
        }
    }

    /// The times below the rows.
    fn axis(&self, left: usize, scale: f64) -> String {
        let columns = column(self.timeline.makespan * scale);
        let most = u32::try_from(columns).unwrap_or(u32::MAX) / MARK;
        let mut line = " ".repeat(left);
        for mark in marks(self.timeline.makespan, most) {
            let at = left + column(mark * scale);
            line += &" ".repeat(at.saturating_sub(line.len()));
            line += &short_time(mark);
        }
        line + "\n"
    }
}

/// The column nearest to a place.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "places are from 0 to the width of a chart; casts of floats saturate"
)]
fn column(place: f64) -> usize {
    place.round() as usize
}

/// A number of columns as a number: no chart is wider than four billion.
fn count(columns: usize) -> f64 {
    f64::from(u32::try_from(columns).unwrap_or(u32::MAX))
}

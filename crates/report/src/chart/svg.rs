//! A chart as a picture: rows are groups, a task is a bar with its micro-batch, blue forward, green
//! backward, orange for gradients of weights, darker with each chunk; lines are messages.

use std::fmt::Write as _;

use schedule::{Message, Span, Task, Work};

use super::{Chart, marks, short_time};
use crate::svg::{escaped, opening};

/// What bars lie in (pixels).
const WIDTH: f64 = 1_200.0;
/// What is left of them (pixels).
const LEFT: f64 = 72.0;
/// What is above them (pixels).
const ABOVE: f64 = 44.0;
/// What is below them, for the axis (pixels).
const BELOW: f64 = 28.0;
/// A bar (pixels).
const TALL: f64 = 26.0;
/// From row to row (pixels).
const PITCH: f64 = 40.0;
/// The width of a character of a bar (pixels).
const LETTER: f64 = 8.0;
/// The most marks of the axis.
const MARKS: u32 = 20;
/// The works by name and hue.
const HUES: [(Work, &str, u32); 3] =
    [(Work::Forward, "forward", 210), (Work::Backward, "backward", 120), (Work::Weight, "weights", 30)];

impl Chart<'_> {
    /// The picture, an SVG text.
    pub fn svg(&self, title: &str) -> String {
        let rows = (0..self.schedule.groups.len()).map(|_| PITCH).sum::<f64>();
        let (width, height) = (LEFT + WIDTH + LEFT / 2.0, ABOVE + rows + BELOW);
        let mut text = opening(width, height, title);
        let mut add = |element: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{element}");
        };
        for (number, (_, name, hue)) in HUES.iter().take(self.schedule.works().len()).enumerate() {
            let x = LEFT + WIDTH - 90.0 * f64::from(u32::try_from(3 - number).unwrap_or(0));
            let fill = format!("hsl({hue},70%,80%)");
            add(format!("<rect x=\"{x}\" y=\"8\" width=\"14\" height=\"12\" fill=\"{fill}\"/>"));
            add(format!("<text x=\"{}\" y=\"18\">{name}</text>", x + 18.0));
        }
        for mark in marks(self.timeline.makespan, MARKS) {
            let x = self.across(mark);
            let (top, bottom) = (ABOVE - 6.0, ABOVE + rows);
            add(format!("<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#dddddd\"/>"));
            add(format!(
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                short_time(mark)
            ));
        }
        for (group, (tasks, spans)) in self.schedule.groups.iter().zip(&self.timeline.groups).enumerate() {
            let y = down(group);
            add(format!("<text x=\"8\" y=\"{}\">{}</text>", y + 17.0, escaped(&self.name(group))));
            for (task, span) in tasks.iter().zip(spans) {
                add(self.bar(task, span, y));
            }
        }
        for message in &self.timeline.messages {
            add(self.line(message));
        }
        text + "</svg>\n"
    }

    fn across(&self, time: f64) -> f64 {
        let whole = self.timeline.makespan;
        LEFT + if whole > 0.0 { time / whole * WIDTH } else { 0.0 }
    }

    fn bar(&self, task: &Task, span: &Span, y: f64) -> String {
        let (x, end) = (self.across(span.start), self.across(span.end));
        let hue = HUES.iter().find(|it| it.0 == task.work).map_or(0, |it| it.2);
        let dark = u32::try_from(task.chunk).unwrap_or(u32::MAX).saturating_mul(12).min(36);
        let fill = format!("hsl({hue},70%,{}%)", 80 - dark);
        let rest = format!("height=\"{TALL}\" fill=\"{fill}\" stroke=\"#ffffff\"");
        let bar = format!(
            "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" {rest}><title>{}</title></rect>",
            end - x,
            self.schedule.word(task)
        );
        let number = task.micro_batch.to_string();
        let letters: f64 = number.chars().map(|_| LETTER).sum();
        if letters > end - x {
            return bar;
        }
        let middle = (x + end) / 2.0;
        format!("{bar}<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{number}</text>", y + 17.0)
    }

    /// A message goes from the edge of one row to that of another.
    fn line(&self, message: &Message) -> String {
        let [from, to] = [message.from, message.to].map(|stage| self.schedule.home(stage).0);
        let edges = |group: usize, lower: bool| down(group) + if lower { TALL } else { 0.0 };
        let (start, end) = (self.across(message.span.start), self.across(message.span.end));
        format!(
            "<path d=\"M{start:.1} {}L{end:.1} {}\" stroke=\"#888888\" stroke-width=\"0.7\"/>",
            edges(from, to > from),
            edges(to, to < from)
        )
    }
}

/// Where a group's bars begin.
fn down(group: usize) -> f64 {
    ABOVE + f64::from(u32::try_from(group).unwrap_or(u32::MAX)) * PITCH
}

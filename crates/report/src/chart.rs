//! A schedule as a chart: pipeline ranks against time.

mod svg; // as a picture
mod text; // as lines

use schedule::{Schedule, Timeline};

/// What is drawn: a schedule, and when it does what.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'a> {
    /// The order of work.
    pub schedule: &'a Schedule,
    /// When each task and message starts and ends.
    pub timeline: &'a Timeline,
}

/// The most tasks of a chart.
pub const MAX_DRAWN: usize = 16_384;

impl Chart<'_> {
    /// Whether it has so few tasks that it can be looked at.
    pub fn is_small(&self) -> bool {
        self.schedule.groups.iter().map(Vec::len).sum::<usize>() <= MAX_DRAWN
    }

    /// What a group is called: a stage, if it has one.
    fn name(&self, group: usize) -> String {
        format!("{} {group}", if self.schedule.chunks == 1 { "stage" } else { "group" })
    }
}

/// Times at which the axis has marks, for at most so many of them: multiples of 1, 2 or 5 and a
/// power of 10.
fn marks(makespan: f64, most: u32) -> Vec<f64> {
    let step = makespan / f64::from(most.max(1));
    if step <= 0.0 {
        return vec![0.0];
    }
    let power = 10.0_f64.powf(step.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * power).into_iter().find(|it| *it >= step).unwrap_or(step);
    let mark = |number: u32| f64::from(number) * step;
    (0..=most).map(mark).take_while(|it| *it <= makespan).collect()
}

/// A time in words: three decimals at most.
pub fn short_time(time: f64) -> String {
    let text = format!("{time:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests;

//! Curves as a picture: panels one below the other, in SVG.

use std::fmt::Write as _;

use crate::svg::{canvas, escaped};

/// A line: heights at 1, 2, and so on.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is called.
    pub title: String,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Its heights. In a panel of decades, those that are 0 are not drawn.
    pub heights: Vec<f64>,
}

/// How a line is drawn, so that lines upon one another are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// Broad and pale: what lies upon it is seen.
    Broad,
    /// Fine and dark.
    Fine,
    /// Fine, in dashes.
    Dashed,
    /// Fine, in dots.
    Dotted,
    /// A level that others are held against.
    Level,
}

/// How heights are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0, as they are.
    Linear,
    /// By their logarithms, in whole powers of ten.
    Decades,
}

/// Lines over one axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What heights are.
    pub title: &'static str,
    /// How they are drawn.
    pub scale: Scale,
    /// The lines, those in front last.
    pub lines: Vec<Line>,
}

/// The width of the picture (pixels).
const WIDTH: f64 = 720.0;
/// The height of what is drawn in a panel (pixels).
const HEIGHT: f64 = 220.0;
/// What is left of it (pixels).
const LEFT: f64 = 60.0;
/// What is above it, for its title (pixels).
const ABOVE: f64 = 34.0;
/// What is below it, for numbers (pixels).
const BELOW: f64 = 40.0;
/// What is right of it (pixels).
const RIGHT: f64 = 20.0;
/// How far apart the lines of the legend are (pixels).
const LEGEND: f64 = 18.0;
/// How many parts an axis is cut into, about.
const PARTS: f64 = 5.0;

/// What stands below the axis: what its places are called, and what each is, where it is not its number.
#[derive(Clone, Copy, Debug)]
pub struct Across<'a> {
    /// What places are.
    pub title: &'a str,
    /// What the first, the second and so on are; nothing where they are counted.
    pub names: &'a [String],
}

impl Across<'_> {
    /// Steps, which are counted.
    pub const STEPS: Across<'static> = Across { title: "step", names: &[] };
}

/// The picture, a text.
pub fn svg(across: Across<'_>, panels: &[Panel]) -> String {
    let mut text = String::new();
    let mut top = 0.0;
    for panel in panels {
        top += ABOVE;
        panel.draw(across, top, &mut text);
        top += HEIGHT + BELOW;
    }
    canvas(WIDTH, top, "") + &text + "</svg>\n"
}

impl Panel {
    fn draw(&self, below: Across<'_>, top: f64, text: &mut String) {
        let count = self.lines.iter().map(|line| line.heights.len()).max().unwrap_or(0);
        let axis = Axis::of(self.scale, self.lines.iter().flat_map(|line| &line.heights));
        let across = |step: f64| LEFT + step / number(count) * (WIDTH - LEFT - RIGHT);
        let down = |height: f64| top + (1.0 - axis.place(height)) * HEIGHT;
        let mut add = |element: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{element}");
        };
        add(format!(
            "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
            top - 12.0,
            escaped(self.title)
        ));
        for &height in &axis.ticks {
            let y = down(height);
            add(format!(
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#dddddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                self.scale.name(height)
            ));
        }
        let counted = Axis::of(Scale::Linear, &[number(count)]).ticks.into_iter();
        let places: Vec<(f64, String)> = match below.names {
            [] => counted.filter(|it| *it <= number(count)).map(|it| (it, it.to_string())).collect(),
            names => (1..).map(number).zip(names.iter().map(|it| escaped(it))).collect(),
        };
        for (place, name) in places {
            add(format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                across(place),
                top + HEIGHT + 16.0
            ));
        }
        add(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            top + HEIGHT + 32.0,
            escaped(below.title)
        ));
        for (index, line) in self.lines.iter().enumerate() {
            let style = line.stroke.style();
            let drawn = |height: &f64| self.scale == Scale::Linear || *height > 0.0;
            let points = line.heights.iter().enumerate().filter(|it| drawn(it.1));
            let points: Vec<String> = points
                .map(|(step, &height)| format!("{:.1},{:.1}", across(number(step + 1)), down(height)))
                .collect();
            add(format!("<polyline points=\"{}\" fill=\"none\" {style}/>", points.join(" ")));
            let (x, y) = (WIDTH - RIGHT - 300.0, top + 12.0 + number(index) * LEGEND);
            add(format!(
                "<path d=\"M{x} {y:.1}h28\" {style}/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 36.0,
                y + 4.0,
                escaped(&line.title)
            ));
        }
    }
}

impl Stroke {
    fn style(self) -> &'static str {
        match self {
            Self::Broad => "stroke=\"#9ecae1\" stroke-width=\"7\"",
            Self::Fine => "stroke=\"#08306b\" stroke-width=\"1.5\"",
            Self::Dashed => "stroke=\"#d95f02\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"",
            Self::Dotted => "stroke=\"#1b9e77\" stroke-width=\"2\" stroke-dasharray=\"2 4\"",
            Self::Level => "stroke=\"#777777\" stroke-width=\"1\" stroke-dasharray=\"1 2\"",
        }
    }
}

impl Scale {
    fn name(self, height: f64) -> String {
        match self {
            Self::Linear => format!("{height}"),
            Self::Decades => format!("{height:e}"),
        }
    }
}

/// What heights an axis has.
struct Axis {
    scale: Scale,
    ticks: Vec<f64>,
}

impl Axis {
    /// The axis on which some heights have their places: from 0 in steps of 1, 2 or 5 times a power
    /// of ten, or all decades and one more.
    fn of<'a>(scale: Scale, heights: impl IntoIterator<Item = &'a f64>) -> Self {
        let heights = heights.into_iter().copied().filter(|&it| it > 0.0);
        let (least, most) =
            heights.fold((f64::INFINITY, 0.0_f64), |(least, most), it| (least.min(it), most.max(it)));
        let (least, most) = if least <= most { (least, most) } else { (1.0, 1.0) };
        let ticks = match scale {
            Scale::Linear => {
                let power = 10_f64.powf((most / PARTS).log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power);
                let step = step.into_iter().find(|step| step * PARTS >= most).unwrap_or(most);
                (0_u8..).map(|it| f64::from(it) * step).take_while(|it| *it < most + step).collect()
            }
            Scale::Decades => {
                let first = least.log10().floor();
                // One more than the highest needs: titles stand there.
                let last = most.log10().ceil().max(first) + 1.0;
                (0_u8..).map(|it| first + f64::from(it)).take_while(|it| *it <= last).map(decade).collect()
            }
        };
        Self { scale, ticks }
    }

    /// How far up a height is, between 0 and 1.
    fn place(&self, height: f64) -> f64 {
        let ends = [self.ticks.first(), self.ticks.last()].map(|it| it.copied().unwrap_or(height));
        let [first, last, height] = match self.scale {
            Scale::Linear => [ends[0], ends[1], height],
            Scale::Decades => [ends[0].log10(), ends[1].log10(), height.log10()],
        };
        (height - first) / (last - first)
    }
}

/// A power of ten, written as short as it can be.
fn decade(power: f64) -> f64 {
    format!("1e{power}").parse().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "steps of a picture")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;

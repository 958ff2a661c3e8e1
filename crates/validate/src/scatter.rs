//! Predictions over measurements as a picture: both by their logarithms, in SVG.

use std::fmt::Write as _;

/// Points of one colour.
#[derive(Clone, Debug)]
pub struct Points {
    /// What they are called.
    pub title: String,
    /// What was measured, and what is predicted.
    pub pairs: Vec<(f64, f64)>,
}

/// The width and height of what is drawn in (pixels).
const SIDE: f64 = 460.0;
/// What is left of it (pixels).
const LEFT: f64 = 64.0;
/// What is above it (pixels).
const ABOVE: f64 = 32.0;
/// What is below it (pixels).
const BELOW: f64 = 48.0;
/// The width of the legend (pixels).
const LEGEND: f64 = 240.0;
/// How far apart its lines are (pixels).
const LINE: f64 = 16.0;
/// Colours, one after another.
const COLOURS: [&str; 10] = [
    "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22",
    "#17becf",
];
/// Shapes, each for a round of colours.
const ROUNDS: usize = 2;

/// The picture, a text; `unit` is that of both axes.
pub fn svg(title: &str, unit: &str, points: &[Points]) -> String {
    let all = points.iter().flat_map(|it| &it.pairs).flat_map(|&(x, y)| [x, y]).filter(|it| *it > 0.0);
    let (least, most) = all.fold((f64::INFINITY, 0.0_f64), |(least, most), it| (least.min(it), most.max(it)));
    let (least, most) = if least <= most { (least, most) } else { (1.0, 10.0) };
    let (first, last) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
    let place = |value: f64| (value.log10() - first) / (last - first);
    let (x, y) = (|value: f64| LEFT + place(value) * SIDE, |value: f64| ABOVE + (1.0 - place(value)) * SIDE);
    let mut body = String::new();
    let mut add = |element: String| {
        // Writing to a string does not fail.
        let _ = writeln!(body, "{element}");
    };
    add(format!("<text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{}</text>", escaped(title)));
    let (bottom, right) = (ABOVE + SIDE, LEFT + SIDE);
    let mut power = first;
    while power <= last {
        let value = 10.0_f64.powf(power);
        add(format!(
            "<path d=\"M{LEFT} {0:.1}H{right}M{1:.1} {ABOVE}V{bottom}\" stroke=\"#dddddd\"/>",
            y(value),
            x(value)
        ));
        add(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">1e{power}</text>",
            LEFT - 6.0,
            y(value) + 4.0
        ));
        add(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">1e{power}</text>",
            x(value),
            bottom + 16.0
        ));
        power += 1.0;
    }
    add(format!("<path d=\"M{LEFT} {bottom}L{right} {ABOVE}\" stroke=\"#777777\"/>"));
    add(format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">measured ({unit})</text>",
        LEFT + SIDE / 2.0,
        bottom + 36.0
    ));
    add(format!(
        "<text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">predicted ({unit})</text>",
        ABOVE + SIDE / 2.0
    ));
    for (index, group) in points.iter().enumerate() {
        for &(measured, predicted) in group.pairs.iter().filter(|it| it.0 > 0.0 && it.1 > 0.0) {
            add(mark(index, x(measured), y(predicted)));
        }
        let down = ABOVE + LINE * number(index) + 8.0;
        add(mark(index, right + 16.0, down));
        add(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            right + 26.0,
            down + 4.0,
            escaped(&group.title)
        ));
    }
    let (width, height) = (right + LEGEND, (bottom + BELOW).max(ABOVE + LINE * number(points.len()) + LINE));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// A point: a circle, and a square in the second round of colours.
fn mark(index: usize, x: f64, y: f64) -> String {
    let colour = COLOURS[index % COLOURS.len()];
    if (index / COLOURS.len()).is_multiple_of(ROUNDS) {
        format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\" fill-opacity=\"0.6\"/>")
    } else {
        format!("<path d=\"M{:.1} {:.1}h5v5h-5z\" fill=\"{colour}\" fill-opacity=\"0.6\"/>", x - 2.5, y - 2.5)
    }
}

#[expect(clippy::cast_precision_loss, reason = "lines of a legend")]
fn number(count: usize) -> f64 {
    count as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many marks as points with two numbers above 0, and one in the legend.
    #[test]
    fn every_point_is_drawn() {
        let points = Points { title: "a<b".to_owned(), pairs: vec![(1.0, 2.0), (10.0, 9.0), (0.0, 1.0)] };
        let picture = svg("steps", "s", &[points]);
        assert_eq!(picture.matches("<circle").count(), 3);
        assert!(picture.contains("a&lt;b") && picture.contains("measured (s)"));
    }
}

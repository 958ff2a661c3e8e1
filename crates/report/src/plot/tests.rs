//! Tests of pictures.

use super::{Across, Axis, Line, Panel, Scale, Stroke, svg};

#[test]
fn axes_begin_and_end_at_round_numbers() {
    let ticks = |scale, heights: &[f64]| Axis::of(scale, heights).ticks;
    assert_eq!(ticks(Scale::Linear, &[5.5, 2.0]), [0.0, 2.0, 4.0, 6.0]);
    assert_eq!(ticks(Scale::Linear, &[200.0]), [0.0, 50.0, 100.0, 150.0, 200.0]);
    assert_eq!(ticks(Scale::Decades, &[3e-7, 0.0, 2e-5]), [1e-7, 1e-6, 1e-5, 1e-4, 1e-3]);
    assert_eq!(ticks(Scale::Decades, &[1e-7]), [1e-7, 1e-6]);
    assert!(ticks(Scale::Decades, &[]).len() > 1);
}

#[test]
fn points_of_a_line_are_where_their_numbers_say() {
    let line = Line { title: "a < b".to_owned(), stroke: Stroke::Fine, heights: vec![4.0, 2.0, 0.0, 1.0] };
    let panel = Panel { title: "loss", scale: Scale::Linear, lines: vec![line] };
    let drawing = svg(Across::STEPS, &[panel]);
    // A quarter of the 640 pixels right of 60 for each step; 220 pixels below 34 for 4.
    assert!(drawing.contains("points=\"220.0,34.0 380.0,144.0 540.0,254.0 700.0,199.0\""), "{drawing}");
    assert!(drawing.contains("a &lt; b"), "{drawing}");
}

/// Where places are something else than steps, they are named.
#[test]
fn places_are_called_what_they_are() {
    let line = Line { title: "time".to_owned(), stroke: Stroke::Fine, heights: vec![4.0, 2.0] };
    let panel = Panel { title: "step (s)", scale: Scale::Linear, lines: vec![line] };
    let names = ["64".to_owned(), "1 < 2".to_owned()];
    let drawing = svg(Across { title: "devices", names: &names }, &[panel]);
    for words in [
        "<text x=\"380.0\" y=\"270.0\" text-anchor=\"middle\">64</text>",
        ">1 &lt; 2</text>",
        ">devices</text>",
    ] {
        assert!(drawing.contains(words), "{drawing}");
    }
    assert!(!drawing.contains(">step</text>"), "{drawing}");
}

#[test]
fn what_has_no_logarithm_is_left_out() {
    let line = Line { title: String::new(), stroke: Stroke::Broad, heights: vec![0.0, 1e-6] };
    let drawing = svg(Across::STEPS, &[Panel { title: "apart", scale: Scale::Decades, lines: vec![line] }]);
    assert!(drawing.contains("points=\"700.0,254.0\""), "{drawing}");
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
}

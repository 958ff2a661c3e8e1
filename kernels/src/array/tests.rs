//! Where blocks lie.

use super::Span;

/// Positions are those of the elements that are there, in order, and so many lie before each.
#[test]
fn elements_of_stripes_lie_where_they_should() {
    for (start, run, stride) in [(0, 1, 1), (3, 1, 1), (1, 1, 3), (0, 2, 6), (4, 3, 3), (5, 2, 3)] {
        let span = Span { extent: 60, start, run, stride };
        let is_held = |at: &u64| *at >= start && (*at - start) % stride < run;
        let held: Vec<u64> = (0..60).filter(is_held).collect();
        for (place, &at) in (0..).zip(&held) {
            assert_eq!(span.position(place), at, "{span:?}");
        }
        for position in 0..60 {
            let before = held.iter().filter(|&&at| at < position).count();
            assert_eq!(span.before(position), u64::try_from(before).unwrap(), "{span:?}, {position}");
        }
    }
}

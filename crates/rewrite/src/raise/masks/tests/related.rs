//! Masks that depend on what is given: documents, prefixes, images.

use planner_ir::{Attention, Binary, Blind, DType, Graph, Op, Unary, ValueId};

use super::numbers::choice;
use super::{LOWEST, Sketch, earlier, same, says};
use crate::raise::masks::{AttentionKind, Sight, attentions};

/// What hides keys: a number of that type that is added, or truth values.
const HIDING: [(DType, Option<f64>); 7] = [
    (DType::F32, Some(LOWEST)),
    (DType::F32, Some(f64::NEG_INFINITY)),
    (DType::F16, Some(-65504.0)),
    (DType::F16, Some(f64::NEG_INFINITY)),
    (DType::BF16, Some(-3.389_531_389_251_535_5e38)),
    (DType::BF16, Some(f64::NEG_INFINITY)),
    (DType::F32, None),
];

/// A mask by what is seen.
fn hiding(sketch: &mut Sketch, (dtype, low): (DType, Option<f64>), seen: ValueId) -> ValueId {
    low.map_or(seen, |low| choice(sketch, dtype, seen, [0.0, low]))
}

/// Integers that are given, one for each place, as rows and as columns.
fn both(sketch: &mut Sketch, ids: ValueId, size: u64) -> [ValueId; 2] {
    let shapes = [vec![2, 1, size, 1], vec![2, 1, 1, size]];
    shapes.map(|shape| sketch.op(Op::Reshape { shape }, &[ids]))
}

/// Whether query and key are of one document, in the spellings of exporters.
fn documents(sketch: &mut Sketch, size: u64, spelling: usize) -> ValueId {
    let ids = match spelling {
        // Where documents start is given, or that is where positions do not go on.
        0 => {
            let starts = sketch.input("starts", DType::I64, &[2, size]);
            sketch.op(Op::CumSum { dim: 1, exclusive: false, reverse: false }, &[starts])
        }
        _ => sketch.input("documents", DType::I64, &[2, size]),
    };
    let [rows, columns] = both(sketch, ids, size);
    match spelling {
        1 => {
            let shape = vec![2, 1, size, size];
            let [rows, columns] =
                [rows, columns].map(|it| sketch.op(Op::Expand { shape: shape.clone() }, &[it]));
            let same = sketch.binary(Binary::Equal, columns, rows);
            sketch.op(Op::Reshape { shape }, &[same])
        }
        2 => {
            let same = sketch.binary(Binary::Equal, rows, columns);
            let other = sketch.op(Op::Unary(Unary::Not), &[same]);
            sketch.op(Op::Unary(Unary::Not), &[other])
        }
        _ => sketch.binary(Binary::Equal, rows, columns),
    }
}

/// The one kind of attention there is.
fn kind(graph: &Graph) -> AttentionKind {
    let kinds: Vec<AttentionKind> = attentions(graph).into_keys().collect();
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    kinds[0]
}

/// The type of the elements of what masks attention, and what attention says itself.
fn masked(graph: &Graph) -> (Option<DType>, Attention) {
    let node = graph.nodes.iter().find(|it| matches!(it.op, Op::Attention(_))).unwrap();
    let Op::Attention(attention) = node.op else { panic!("{graph}") };
    (attention.masks(&node.operands[3..]).0.map(|&it| graph.type_of(it).dtype), attention)
}

/// The shapes of the documents that attention takes.
fn told(graph: &Graph) -> Option<[Vec<u64>; 2]> {
    let node = graph.nodes.iter().find(|it| matches!(it.op, Op::Attention(_))).unwrap();
    let Op::Attention(attention) = node.op else { panic!("{graph}") };
    attention.masks(&node.operands[3..]).1.map(|it| it.map(|&it| graph.type_of(it).shape.clone()))
}

/// Expects attention of documents without anything of queries by keys but its scores.
#[track_caller]
fn has_no_pairs(graph: &Graph) {
    assert_eq!(told(graph), Some([vec![2, 1, 6, 1], vec![2, 1, 1, 6]]), "{graph}");
    let outside = graph.value_ids().find(|&it| graph.type_of(it).shape.ends_with(&[6, 6]));
    assert_eq!(outside, None, "{graph}");
}

#[test]
fn documents_are_told_whatever_hides_them_and_no_pair_has_a_mask() {
    for hides in HIDING {
        for spelling in 0..3 {
            for is_causal in [true, false] {
                let mut sketch = Sketch::default();
                let mut seen = documents(&mut sketch, 6, spelling);
                if is_causal {
                    let early = earlier(&mut sketch, 6, 6);
                    seen = sketch.binary(Binary::And, early, seen);
                }
                let mask = hiding(&mut sketch, hides, seen);
                let found = same(&sketch.attention(6, 6, mask));
                assert_eq!(says(&found), (is_causal, None, None), "{hides:?} {spelling}:\n{found}");
                let sight = if is_causal { Sight::Earlier } else { Sight::All };
                let expected = AttentionKind { sight, documents: true, padding: false, each: false };
                assert_eq!(kind(&found), expected, "{hides:?} {spelling}:\n{found}");
                has_no_pairs(&found);
            }
        }
    }
}

/// Padding, windows and prefixes beside documents, in every type: of padding a mask of keys is left, windows are
/// said, and with a prefix pairs have a mask.
#[test]
fn documents_are_told_beside_padding_and_windows() {
    // Spelled out, a row without keys is no number where -inf is added.
    let is_number = |it: &(DType, Option<f64>)| it.0 == DType::F32 || it.1.is_some_and(f64::is_finite);
    for hides in HIDING.into_iter().filter(is_number) {
        for spelling in 0..3 {
            for hidden_by in [true, false] {
                for window in [None, Some(3)] {
                    let mut sketch = Sketch::default();
                    let mut seen = documents(&mut sketch, 6, spelling);
                    let mut keys = sketch.input("there", DType::Bool, &[2, 1, 1, 6]);
                    if hidden_by {
                        keys = sketch.op(Op::Unary(Unary::Not), &[keys]);
                    }
                    let all = sketch.op(Op::Expand { shape: vec![2, 1, 6, 6] }, &[keys]);
                    seen = sketch.binary(Binary::And, seen, all);
                    let early = earlier(&mut sketch, 6, 6);
                    seen = sketch.binary(Binary::And, early, seen);
                    if window.is_some() {
                        let [rows, columns] =
                            [true, false].map(|rows| sketch.places(if rows { -3 } else { 0 }, 6, rows));
                        let near = sketch.binary(Binary::Less, rows, columns);
                        seen = sketch.binary(Binary::And, near, seen);
                    }
                    let mask = hiding(&mut sketch, hides, seen);
                    let found = same(&sketch.attention(6, 6, mask));
                    let expected = (true, window, Some(vec![2, 1, 1, 6]));
                    assert_eq!(says(&found), expected, "{hides:?} {spelling}:\n{found}");
                    has_no_pairs(&found);
                    let sight = window.map_or(Sight::Earlier, Sight::Near);
                    let expected = AttentionKind { sight, documents: true, padding: true, each: false };
                    assert_eq!(kind(&found), expected, "{hides:?} {spelling}:\n{found}");
                }
            }
        }
        let mut sketch = Sketch::default();
        let lengths = sketch.input("lengths", DType::I64, &[2, 1, 1, 1]);
        let columns = sketch.places(0, 6, false);
        let prefix = sketch.binary(Binary::Less, columns, lengths);
        let early = earlier(&mut sketch, 6, 6);
        let seen = sketch.binary(Binary::Or, early, prefix);
        let documents = documents(&mut sketch, 6, 1);
        let seen = sketch.binary(Binary::And, seen, documents);
        let mask = hiding(&mut sketch, hides, seen);
        let found = same(&sketch.attention(6, 6, mask));
        assert_eq!((told(&found), masked(&found).0), (None, Some(DType::Bool)), "{hides:?}:\n{found}");
    }
}

/// Documents of queries that are hidden too stay a mask, and those of numbers of 64 bits without a sign.
#[test]
fn documents_with_what_is_so_of_queries_stay_masks() {
    let mut sketch = Sketch::default();
    let seen = documents(&mut sketch, 6, 1);
    let rows = sketch.input("there", DType::Bool, &[2, 1, 6, 1]);
    let seen = sketch.binary(Binary::And, seen, rows);
    let found = same(&sketch.attention(6, 6, seen));
    assert_eq!((told(&found), masked(&found).0), (None, Some(DType::Bool)), "{found}");
}

/// Numbers of two kinds are no documents: a query may see none of the keys, also its own.
#[test]
fn places_with_numbers_of_two_kinds_are_of_no_documents() {
    let mut sketch = Sketch::default();
    let [a, b] = ["a", "b"].map(|name| sketch.input(name, DType::I64, &[2, 6]));
    let [[rows, _], [_, columns]] = [a, b].map(|it| both(&mut sketch, it, 6));
    let seen = sketch.binary(Binary::Equal, rows, columns);
    let found = same(&sketch.attention(6, 6, seen));
    assert_eq!((kind(&found).sight, kind(&found).documents), (Sight::Unknown, false));
}

/// Nor are they where keys of other documents are seen too.
#[test]
fn keys_of_other_documents_are_of_no_documents() {
    let mut sketch = Sketch::default();
    let documents = documents(&mut sketch, 6, 1);
    let [rows, columns] = [true, false].map(|rows| sketch.places(if rows { 0 } else { 2 }, 6, rows));
    let before = sketch.binary(Binary::Equal, rows, columns);
    let seen = sketch.binary(Binary::Or, documents, before);
    let early = earlier(&mut sketch, 6, 6);
    let seen = sketch.binary(Binary::And, early, seen);
    let found = same(&sketch.attention(6, 6, seen));
    assert_eq!((kind(&found).sight, kind(&found).documents), (Sight::Earlier, false), "{found}");
}

/// A query that sees no key gets what the number that hides makes of it, or nothing.
#[test]
fn truth_values_stand_in_place_of_numbers_that_hide() {
    for (hides, blind) in [(LOWEST, Blind::Mean), (f64::NEG_INFINITY, Blind::Zero)] {
        for turned in [false, true] {
            let mut sketch = Sketch::default();
            let seen = sketch.input("seen", DType::Bool, &[2, 1, 6, 6]);
            let mask = match turned {
                true => {
                    let hidden = sketch.op(Op::Unary(Unary::Not), &[seen]);
                    choice(&mut sketch, DType::F32, hidden, [hides, 0.0])
                }
                false => choice(&mut sketch, DType::F32, seen, [0.0, hides]),
            };
            let found = same(&sketch.attention(6, 6, mask));
            let (dtype, attention) = masked(&found);
            assert_eq!((dtype, attention.blind), (Some(DType::Bool), blind), "{found}");
        }
    }
    // Of -10000 something is left of scores.
    let mut sketch = Sketch::default();
    let seen = sketch.input("seen", DType::Bool, &[2, 1, 6, 6]);
    let mask = choice(&mut sketch, DType::F32, seen, [0.0, -10000.0]);
    assert_eq!(masked(&same(&sketch.attention(6, 6, mask))).0, Some(DType::F32));
}

#[test]
fn prefixes_and_images_are_told_from_what_is_not_known() {
    for hides in HIDING {
        let sight_of = |seen: &dyn Fn(&mut Sketch) -> ValueId| {
            let mut sketch = Sketch::default();
            let later = seen(&mut sketch);
            let early = earlier(&mut sketch, 6, 6);
            let seen = sketch.binary(Binary::Or, early, later);
            let mask = hiding(&mut sketch, hides, seen);
            let found = same(&sketch.attention(6, 6, mask));
            assert!(!says(&found).0);
            kind(&found).sight
        };
        // Up to a length that is given with each example.
        let prefix = sight_of(&|sketch| {
            let lengths = sketch.input("lengths", DType::I64, &[2, 1, 1, 1]);
            let columns = sketch.places(0, 6, false);
            sketch.binary(Binary::Less, columns, lengths)
        });
        assert_eq!(prefix, Sight::Prefix, "{hides:?}");
        // Both of an image, and of the same image.
        let images = sight_of(&|sketch| {
            let kinds = sketch.input("kinds", DType::I64, &[2, 6]);
            let one = sketch.number(DType::I64, 1.0);
            let [rows, columns] = both(sketch, kinds, 6).map(|it| sketch.binary(Binary::Equal, it, one));
            sketch.binary(Binary::And, rows, columns)
        });
        assert_eq!(images, Sight::Groups, "{hides:?}");
        assert_eq!(sight_of(&|sketch| documents(sketch, 6, 1)), Sight::Groups, "{hides:?}");
        // Any pairs.
        let any = sight_of(&|sketch| sketch.input("seen", DType::Bool, &[2, 1, 6, 6]));
        assert_eq!(any, Sight::Unknown, "{hides:?}");
    }
}

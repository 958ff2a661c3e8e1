//! Masks of later keys that model files have are seen.

use planner_ir::Binary;

use super::*;

/// Types of masks, and the bytes of what is on one side of the diagonal.
fn elements() -> [(DType, Vec<u8>); 5] {
    [
        (DType::Bool, vec![1]),
        (DType::F32, 1f32.to_le_bytes().to_vec()),
        (DType::F32, f32::MIN.to_le_bytes().to_vec()),
        (DType::F32, f32::NEG_INFINITY.to_le_bytes().to_vec()),
        (DType::BF16, vec![0x7F, 0xFF]),
    ]
}

/// The operations of a band, on a value that is full of the number.
fn made(full: &Array, banded: Banded) -> Array {
    let one = |op: &Op, of: &Array| kernels::evaluate(op, &[of]).unwrap().remove(0);
    let side = |triangle, diagonal, of: &Array| one(&Op::Triangle { triangle, diagonal }, of);
    match banded {
        Banded::Side(triangle, diagonal) => side(triangle, diagonal, full),
        Banded::Within(first, last) => side(Triangle::Upper, first, &side(Triangle::Lower, last, full)),
        Banded::Outside(last, first) => {
            let both = [side(Triangle::Lower, last, full), side(Triangle::Upper, first, full)];
            let op = if full.dtype() == DType::Bool { Binary::Or } else { Binary::Add };
            kernels::evaluate(&Op::Binary(op), &[&both[0], &both[1]]).unwrap().remove(0)
        }
    }
}

#[test]
fn bands_of_one_number_are_seen_and_nothing_else_is() {
    for (dtype, element) in elements() {
        for (rows, columns) in [(4usize, 4usize), (3, 6)] {
            let [nearest, farthest] = [1 - i64::try_from(rows).unwrap(), i64::try_from(columns).unwrap() - 1];
            let intervals =
                (nearest..=farthest).flat_map(|first| (first..=farthest).map(move |last| (first, last)));
            for ((first, last), within) in intervals.flat_map(|it| [(it, true), (it, false)]) {
                let at = |place: usize| {
                    let [row, column] =
                        [place / columns % rows, place % columns].map(|it| i64::try_from(it).unwrap());
                    (first..=last).contains(&(column - row)) == within
                };
                let zero = vec![0; element.len()];
                let each = (0..2 * rows * columns).map(|it| if at(it) { &element } else { &zero });
                let mut bytes: Vec<u8> = each.flatten().copied().collect();
                let shape = [2, rows, columns].map(|it| u64::try_from(it).unwrap());
                let type_ = Type::new(dtype, shape);
                let found = banded(&type_, &bytes);
                let is_all = first == nearest && last == farthest;
                assert_eq!(found.is_none(), is_all, "{dtype} {rows} {columns} {first} {last} {within}");
                if let Some((number, banded)) = found {
                    let full = Array::from_bytes(type_.clone(), &element.repeat(2 * rows * columns)).unwrap();
                    assert_eq!(made(&full, banded).bytes(), &bytes[..], "{banded:?}");
                    let first = full.to_truths().map_or_else(|_| full.to_floats().unwrap()[0], |_| 1.0);
                    assert_eq!(number.to_bits(), first.to_bits());
                }
                // One element of a diagonal that has others is another.
                bytes[(columns + 1) * element.len()] ^= 1;
                assert_eq!(banded(&type_, &bytes), None);
            }
        }
    }
}

/// A weight may start as the identity, or as ones in a band; what hides, a triangle and truths are masks.
#[test]
fn weights_that_start_as_the_identity_are_no_masks() {
    let of = |dtype: DType| Type::new(dtype, [4, 4]);
    for banded in [Banded::Within(0, 0), Banded::Within(-1, 2), Banded::Outside(-1, 1)] {
        assert!(!is_mask(&of(DType::F32), 1.0, banded) && !is_mask(&of(DType::BF16), 2.0, banded));
        assert!(is_mask(&of(DType::F32), f64::from(f32::MIN), banded), "{banded:?}");
        assert!(is_mask(&of(DType::Bool), 1.0, banded) && is_mask(&of(DType::I64), 1.0, banded));
    }
    let triangle = Banded::Side(Triangle::Lower, 0);
    assert!(is_mask(&of(DType::F32), 1.0, triangle));
    assert!(!is_mask(&Type::new(DType::F32, [2, 4, 4]), 1.0, triangle));
    assert!(!is_mask(&of(DType::F32), 0.5, triangle));
}

//! Masks of later keys that model files have are seen.

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

#[test]
fn triangles_of_one_number_are_seen() {
    for (dtype, element) in elements() {
        for (rows, columns) in [(4usize, 4usize), (3, 6)] {
            for (diagonal, lower) in (-1i64..6).flat_map(|it| [(it, true), (it, false)]) {
                let at = |place: usize| {
                    let [row, column] =
                        [place / columns % rows, place % columns].map(|it| i64::try_from(it).unwrap());
                    let apart = column - row;
                    if lower { apart <= diagonal } else { apart >= diagonal }
                };
                let zero = vec![0; element.len()];
                let each = (0..2 * rows * columns).map(|it| if at(it) { &element } else { &zero });
                let mut bytes: Vec<u8> = each.flatten().copied().collect();
                let shape = [2, rows, columns].map(|it| u64::try_from(it).unwrap());
                let type_ = Type::new(dtype, shape);
                let found = triangle(&type_, &bytes);
                if let Some((number, op)) = &found {
                    let full = Array::from_bytes(type_.clone(), &element.repeat(2 * rows * columns)).unwrap();
                    assert_eq!(kernels::evaluate(op, &[&full]).unwrap()[0].bytes(), &bytes[..]);
                    let first = full.to_truths().map_or_else(|_| full.to_floats().unwrap()[0], |_| 1.0);
                    assert_eq!(number.to_bits(), first.to_bits());
                }
                let last = i64::try_from(columns).unwrap() - 1;
                let usual = diagonal == i64::from(!lower) && diagonal < last;
                assert!(found.is_some() || !usual, "{dtype} {rows} {columns} {diagonal} {lower}");
                bytes[(columns + 1) * element.len()] ^= 1;
                assert_eq!(triangle(&type_, &bytes), None);
            }
        }
    }
}

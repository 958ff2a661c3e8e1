//! Masks of later keys that model files have are seen.

use super::*;

#[test]
fn triangles_of_ones_are_seen() {
    for (rows, columns) in [(4usize, 4usize), (3, 6)] {
        for diagonal in -1i64..6 {
            for lower in [true, false] {
                let at = |place: usize| {
                    let [row, column] =
                        [place / columns % rows, place % columns].map(|it| i64::try_from(it).unwrap());
                    let apart = column - row;
                    u8::from(if lower { apart <= diagonal } else { apart >= diagonal })
                };
                let mut bytes: Vec<u8> = (0..2 * rows * columns).map(at).collect();
                let shape = [2, rows, columns].map(|it| u64::try_from(it).unwrap());
                let type_ = Type::new(DType::Bool, shape);
                let found = triangle(&type_, &bytes);
                if let Some(op) = &found {
                    let full = Array::from_bytes(type_.clone(), &vec![1; bytes.len()]).unwrap();
                    assert_eq!(kernels::evaluate(op, &[&full]).unwrap()[0].bytes(), &bytes[..]);
                }
                let last = i64::try_from(columns).unwrap() - 1;
                let usual = diagonal == i64::from(!lower) && diagonal < last;
                assert!(found.is_some() || !usual, "{rows} {columns} {diagonal} {lower}");
                bytes[columns + 1] ^= 1;
                assert_eq!(triangle(&type_, &bytes), None);
            }
        }
    }
}

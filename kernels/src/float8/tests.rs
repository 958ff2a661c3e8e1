//! All codes of all formats, and the numbers between them.

use planner_ir::DType;

use super::Format;

const FORMATS: [(DType, Format); 4] = [
    (DType::F8E4M3FN, Format::E4M3FN),
    (DType::F8E4M3FNUZ, Format::E4M3FNUZ),
    (DType::F8E5M2, Format::E5M2),
    (DType::F8E5M2FNUZ, Format::E5M2FNUZ),
];

#[test]
fn formats_have_their_largest_and_least_numbers() {
    let largest = FORMATS.map(|(_, it)| it.decoded(it.largest).to_bits());
    assert_eq!(largest, [448.0_f32, 240.0, 57344.0, 57344.0].map(f32::to_bits));
    let least = FORMATS.map(|(_, it)| it.decoded(1).to_bits());
    assert_eq!(least, [-9, -10, -16, -17].map(|power| 2f32.powi(power).to_bits()));
}

#[test]
fn every_number_is_its_own_code() {
    for (dtype, format) in FORMATS {
        for code in 0..=u8::MAX {
            let number = format.decoded(code);
            let again = format.encoded(number);
            let expected = if number.is_nan() { format.nan } else { code };
            assert_eq!(again, expected, "{dtype} {code:#x} {number}");
        }
    }
}

#[test]
fn numbers_between_codes_go_to_the_nearest_and_halves_to_the_even_one() {
    for (dtype, format) in FORMATS {
        for code in 0..format.largest {
            let [low, high] = [code, code + 1].map(|it| format.decoded(it));
            let half = low.midpoint(high);
            let even = if code % 2 == 0 { code } else { code + 1 };
            let beside = |by: i32| f32::from_bits(half.to_bits().saturating_add_signed(by));
            let found = [beside(-1), half, beside(1)].map(|it| format.encoded(it));
            assert_eq!(found, [code, even, code + 1], "{dtype} between {low} and {high}");
        }
    }
}

#[test]
fn what_is_too_large_is_infinite_or_no_number() {
    for (dtype, format) in FORMATS {
        let last = format.decoded(format.largest);
        let step = last - format.decoded(format.largest - 1);
        let inside = format.encoded(last + step * 0.49);
        assert_eq!(inside, format.largest, "{dtype}");
        for number in [last + step * 0.51, f32::INFINITY] {
            let [up, down] = [number, -number].map(|it| format.decoded(format.encoded(it)));
            match dtype {
                DType::F8E5M2 => assert!(up == f32::INFINITY && down == -f32::INFINITY),
                _ => assert!(up.is_nan() && down.is_nan(), "{dtype} {up} {down}"),
            }
        }
    }
}

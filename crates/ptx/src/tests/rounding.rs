//! Numbers as a GPU rounds them.

use crate::numbers::{bf16, fused, fused_down, fused_toward_zero, fused_up, half, of_bf16, of_half};

/// So many numbers of all sizes, the same each time.
fn numbers() -> impl Iterator<Item = f32> {
    let mut state = 0x9e37_79b9_u32;
    std::iter::repeat_with(move || {
        // Source: Marsaglia, "Xorshift RNGs", 2003.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f32::from_bits(state)
    })
}

#[test]
fn a_product_and_a_sum_are_rounded_once() {
    let mut numbers = numbers();
    let mut next = || numbers.next().unwrap();
    for round in 0..300_000 {
        let (a, b) = (next(), next());
        // Sums that nearly vanish are those that are hard, and those that lie between two numbers.
        let c = match round % 3 {
            0 => next(),
            1 => -(a * b),
            _ => a * b * 16_777_216.0,
        };
        let (found, exact) = (fused(a, b, c), a.mul_add(b, c));
        assert!(
            found.to_bits() == exact.to_bits() || found.is_nan() && exact.is_nan(),
            "{a} {b} {c}: {found} {exact}"
        );
        if exact.is_finite() {
            let (down, up, toward) = (fused_down(a, b, c), fused_up(a, b, c), fused_toward_zero(a, b, c));
            assert!(down <= exact && exact <= up && toward.abs() <= exact.abs(), "{a} {b} {c}");
            assert!(
                up <= down.next_up() && [down, up].contains(&toward) && [down, up].contains(&exact),
                "{a} {b} {c}"
            );
        }
    }
}

#[test]
fn a_sum_that_is_nearly_between_two_numbers_is_rounded_to_its_own_side() {
    // 1 - 2^-40 above 2^24 + 2: in 64 bits it is 2^24 + 3, of which the even neighbour is the wrong one.
    let (above, below) = (1.0 + f32::EPSILON * 8.0, 1.0 - f32::EPSILON * 8.0);
    assert_eq!(fused(above, below, 16_777_218.0).to_bits(), 16_777_218.0_f32.to_bits());
    assert_eq!(fused(1.0, 1.0, 16_777_218.0).to_bits(), 16_777_220.0_f32.to_bits());
}

#[test]
fn numbers_of_16_bits_are_rounded_to_the_nearest() {
    // Each is itself, and half of the way between two neighbours it is the even one.
    for (of, to) in [(of_half as fn(u16) -> f32, half as fn(f32) -> u16), (of_bf16, bf16)] {
        for bits in 0..=u16::MAX {
            let number = of(bits);
            if number.is_nan() {
                assert!(of(to(number)).is_nan());
                continue;
            }
            assert_eq!(to(number), bits);
            let next = of(bits.wrapping_add(1));
            if number.is_finite() && next.is_finite() && bits & 0x7fff != 0x7fff {
                let middle = f32::midpoint(number, next);
                assert_eq!(to(middle), bits + (bits & 1), "{number}");
                let nearer = if number.is_sign_negative() { middle.next_up() } else { middle.next_down() };
                assert_eq!(to(nearer), bits, "{number}");
            }
        }
    }
    assert_eq!([half(65_519.0), half(65_520.0), half(-1e30)], [0x7bff, 0x7c00, 0xfc00]);
    assert_eq!(of_half(0x3c01).to_bits(), 0x3f80_2000);
    assert_eq!(of_half(0x0001).to_bits(), 0x3380_0000);
}

//! Approximations against f64 functions, over dense ranges.

#![expect(clippy::float_cmp, reason = "the special values are exact")]

/// The distance of an f32 to a number, in units of the last place of that number.
#[expect(clippy::cast_possible_truncation, reason = "the nearest f32 is meant")]
fn distance(found: f32, expected: f64) -> f64 {
    let nearest = expected as f32;
    if found == nearest || (found.is_nan() && nearest.is_nan()) {
        return 0.0;
    }
    let exponent = nearest.abs().max(f32::MIN_POSITIVE).to_bits() >> 23;
    let unit = f64::from(f32::from_bits(exponent << 23)) * f64::from(f32::EPSILON);
    (f64::from(found) - expected).abs() / unit
}

/// The greatest distance over a range, and where it is.
fn worst(
    range: std::ops::Range<f32>,
    function: impl Fn(f32) -> f32,
    reference: impl Fn(f64) -> f64,
) -> (f64, f32) {
    let count = 400_000_u32;
    let width = f64::from(range.end) - f64::from(range.start);
    let mut worst = (0.0, 0.0);
    for index in 0..count {
        #[expect(clippy::cast_possible_truncation, reason = "any number nearby will do")]
        let x = (f64::from(range.start) + width * f64::from(index) / f64::from(count)) as f32;
        let distance = distance(function(x), reference(f64::from(x)));
        if distance > worst.0 {
            worst = (distance, x);
        }
    }
    worst
}

fn check(
    name: &str,
    range: std::ops::Range<f32>,
    limit: f64,
    function: impl Fn(f32) -> f32,
    reference: impl Fn(f64) -> f64,
) {
    let (found, place) = worst(range.clone(), function, reference);
    println!("{name} {range:?}: {found} at {place}");
    assert!(found <= limit, "{name} is {found} units off at {place}, more than {limit}");
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

fn gelu(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x / std::f64::consts::SQRT_2)
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    x * sigmoid(2.0 * inner)
}

#[test]
fn functions_are_near_the_exact_ones() {
    for range in [-104.0..-87.0, -87.0..88.7, -1.0..1.0, -1e-4..1e-4] {
        check("exp", range, 1.5, super::exp, libm::exp);
    }
    for range in [-87.0..20.0, -1.0..1.0] {
        check("sigmoid", range, 3.0, super::sigmoid, sigmoid);
    }
    for range in [-10.0..10.0, -1.0..1.0, -0.01..0.01] {
        check("tanh", range, 2.0, super::tanh, libm::tanh);
    }
    for range in [-5.0..5.0, -1.0..1.0, -0.01..0.01] {
        check("erf", range, 2.0, super::erf, libm::erf);
    }
    for range in [-87.0..20.0, -1.0..1.0] {
        check("silu", range, 3.5, super::silu, |x| x * sigmoid(x));
    }
    for range in [-50.0..20.0, -1.0..1.0] {
        check("gelu_quick", range, 90.0, super::gelu_quick, |x| x * sigmoid(1.702 * x));
    }
    for range in [-1.0..10.0, -0.01..0.01] {
        check("gelu", range.clone(), 3.5, super::gelu, gelu);
        check("gelu_tanh", range, 4.0, super::gelu_tanh, gelu_tanh);
    }
    // In the tail the exponent is large, and so is what its rounding does.
    check("gelu tail", -9.0..-1.0, 150.0, super::gelu, gelu);
    check("gelu_tanh tail", -9.0..-1.0, 250.0, super::gelu_tanh, gelu_tanh);
}

#[test]
fn special_values_are_kept() {
    let infinity = f32::INFINITY;
    assert_eq!([super::exp(infinity), super::exp(-infinity), super::exp(0.0)], [infinity, 0.0, 1.0]);
    assert_eq!([super::exp(89.0), super::exp(-110.0)], [infinity, 0.0]);
    assert_eq!([super::tanh(infinity), super::tanh(-infinity), super::tanh(0.0)], [1.0, -1.0, 0.0]);
    assert_eq!([super::erf(infinity), super::erf(-infinity), super::erf(0.0)], [1.0, -1.0, 0.0]);
    assert_eq!([super::sigmoid(infinity), super::sigmoid(-infinity)], [1.0, 0.0]);
    assert_eq!([super::gelu(20.0), super::gelu(-20.0)], [20.0, 0.0]);
    assert!(super::tanh(-0.0).is_sign_negative() && super::erf(-0.0).is_sign_negative());
    for function in [super::exp, super::tanh, super::erf, super::sigmoid, super::gelu, super::silu] {
        assert!(function(f32::NAN).is_nan());
    }
}

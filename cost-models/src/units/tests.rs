//! The algebra of quantities and their text.

use arbtest::arbtest;

use super::*;

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-12 * one.abs().max(other.abs())
}

#[test]
fn dividing_and_multiplying_agree() {
    arbtest(|u| {
        let size = Bytes(u.int_in_range(1..=1 << 50)?);
        let rate = BytesPerSecond(exact(u.int_in_range(1..=1 << 45)?));
        let duration = size / rate;
        assert!(close((size / duration).0, rate.0), "{size} {rate}");
        let work = Flops(exact(u.int_in_range(1..=1 << 50)?));
        let speed = FlopsPerSecond(exact(u.int_in_range(1..=1 << 50)?));
        assert!(close((work / (work / speed)).0, speed.0), "{work} {speed}");
        Ok(())
    });
}

#[test]
fn sums_do_not_depend_on_grouping() {
    arbtest(|u| {
        let [a, b, c] = [(); 3].map(|()| u.int_in_range(0..=1_u64 << 40));
        let (a, b, c) = (Bytes(a?), Bytes(b?), Bytes(c?));
        assert_eq!((a + b) + c, [c, a, b].into_iter().sum());
        assert_eq!(a + a + a, 3 * a);
        let rate = BytesPerSecond(1024.0);
        let apart = a / rate + b / rate;
        assert!(close(apart.0, ((a + b) / rate).0));
        assert!(close((2.0 * apart).0, (apart + apart).0));
        Ok(())
    });
}

#[test]
fn a_gigabyte_at_a_gigabyte_per_second_takes_a_second() {
    assert_eq!(Bytes(1_000_000_000) / BytesPerSecond(1e9), Seconds(1.0));
    assert_eq!(Flops(3e12) / FlopsPerSecond(1e12), Seconds(3.0));
    assert_eq!(Ratio(0.5) * BytesPerSecond(3e9), BytesPerSecond(1.5e9));
}

#[test]
fn the_order_is_total_and_agrees_with_minimum_and_maximum() {
    let mut times = [Seconds(2.0), Seconds(f64::INFINITY), Seconds(-1.0), Seconds(0.0)];
    times.sort_by(Seconds::total_cmp);
    assert_eq!(times, [Seconds(-1.0), Seconds(0.0), Seconds(2.0), Seconds(f64::INFINITY)]);
    assert_eq!(Seconds(2.0).max(Seconds(3.0)), Seconds(3.0));
    assert_eq!(Seconds(2.0).min(Seconds(3.0)), Seconds(2.0));
    assert_eq!(BytesPerSecond(2.0).min(BytesPerSecond(3.0)), BytesPerSecond(2.0));
    assert_eq!(Bytes(3).saturating_sub(Bytes(5)), Bytes::ZERO);
}

#[test]
fn text_has_three_digits_and_a_decimal_prefix() {
    let shown = |time: f64| Seconds(time).to_string();
    assert_eq!(shown(0.0), "0 s");
    assert_eq!(shown(1.0), "1 s");
    assert_eq!(shown(8.4e-6), "8.4 µs");
    assert_eq!(shown(0.001_234_5), "1.23 ms");
    assert_eq!(shown(0.099_96), "100 ms");
    assert_eq!(shown(0.999_6), "1 s");
    assert_eq!(shown(1234.0), "1.23 ks");
    assert_eq!(shown(-2.5e-3), "-2.5 ms");
    assert_eq!(Bytes(0).to_string(), "0 B");
    assert_eq!(Bytes(512).to_string(), "512 B");
    assert_eq!(Bytes(1024).to_string(), "1.02 kB");
    assert_eq!(Bytes(80_000_000_000).to_string(), "80 GB");
    assert_eq!(Bytes(u64::MAX).to_string(), "18.4 EB");
    assert_eq!(BytesPerSecond(3.35e12).to_string(), "3.35 TB/s");
    assert_eq!(FlopsPerSecond(989.4e12).to_string(), "989 TFLOP/s");
    assert_eq!(Flops(5e8).to_string(), "500 MFLOP");
    assert_eq!(format!("{:>9}", Seconds(0.5)), "   500 ms");
}

#[test]
fn text_never_has_a_thousand_of_a_unit() {
    arbtest(|u| {
        let bytes: u64 = u.arbitrary()?;
        let text = Bytes(bytes).to_string();
        let digits = text.split(' ').next().unwrap_or_default();
        let value: f64 = digits.parse().expect("a number");
        assert!(value < 1000.0 && (bytes == 0 || value >= 1.0), "{bytes}: {text}");
        Ok(())
    });
}

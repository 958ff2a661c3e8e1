//! Sizes and times in words.

use std::fmt::Display;

use crate::units::Bytes;

/// Units of sizes that are read, and their bytes.
const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// The bytes of a size such as `70GiB`, `70 GB`, `1.5GB` or `1000`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let expected = || format!("`{text}` is not a size, expected one such as `70GiB`, `70GB` or `1000000`");
    let text = text.trim();
    let known = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = known.unwrap_or((text, 1));
    let (whole, part) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
    let digits = |text: &str| text.len() <= 15 && text.chars().all(|it| it.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return Err(expected());
    }
    let scale = part.chars().fold(1u128, |scale, _| scale * 10);
    let number: u128 = format!("{whole}{part}").parse().map_err(|_| expected())?;
    let bytes = u64::try_from(number * u128::from(unit) / scale).map_err(|_| expected())?;
    if bytes == 0 { Err(expected()) } else { Ok(bytes) }
}

/// So many bytes as a whole number, rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes are positive and below 2^63; casts of floats saturate"
)]
#[must_use]
pub fn whole_bytes(bytes: f64) -> Bytes {
    Bytes(bytes.ceil() as u64)
}

/// A size in a fitting unit, rounded down to a hundredth.
pub fn bytes(bytes: u64) -> String {
    const NAMES: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match NAMES.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{}.{:02} {name}", bytes / unit, bytes % unit / (unit / 100).max(1)),
        None => format!("{bytes} B"),
    }
}

/// A time in a fitting unit.
pub fn seconds(seconds: f64) -> String {
    const NAMES: [(f64, &str); 3] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")];
    if seconds <= 0.0 {
        return "0 s".to_owned();
    }
    let fitting = NAMES.into_iter().find(|(unit, _)| seconds >= *unit);
    let (unit, name) = fitting.unwrap_or((1e-9, "ns"));
    format!("{:.3} {name}", seconds / unit)
}

/// A part in percent; of nothing, none.
pub fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", part / whole * 100.0) } else { "0.0 %".to_owned() }
}

/// Two times that differ by less are the same: their sums are rounded (parts).
const ROUNDING: f64 = 1e-9;

/// By which part a time may be above the best, in percent with a digit that is not 0; none, if that is rounding.
pub fn gap(part: f64) -> Option<String> {
    if part <= ROUNDING {
        return None;
    }
    let (mut digits, mut shown) = (2, part * 1e4);
    while shown < 1.0 {
        (digits, shown) = (digits + 1, shown * 10.0);
    }
    Some(format!("{:.digits$} %", part * 100.0))
}

/// `1 stage`, `2 stages`, `1 micro-batch`, `0 micro-batches`.
pub fn counted<N: Display + From<u8> + PartialEq>(count: N, what: &str) -> String {
    let ending = match what.ends_with("ch") {
        _ if count == N::from(1) => "",
        true => "es",
        false => "s",
    };
    format!("{count} {what}{ending}")
}

#[cfg(test)]
mod tests;

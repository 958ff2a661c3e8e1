//! Memory of a device that plans leave free, besides what its driver and communication library take at first.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::Deserialize;

use super::Machine;
use super::json::{Fault, Number, number};
use crate::known::Known;
use crate::quantity;
use crate::units::{Bytes, Ratio, exact};

/// The part of a GPU's memory that plans leave free where nobody says otherwise.
static OF_GPUS: LazyLock<Known<Ratio>> =
    LazyLock::new(|| read(include_str!("../../margins/gpu.json")).expect("a test reads the shipped margin"));

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MarginFile {
    format: u32,
    part: Number,
}

/// The version of the form of the file.
const FORMAT: u32 = 1;

/// How much of a device's memory plans leave free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// So many bytes.
    Bytes(Bytes),
    /// So much of all that it has.
    Part(f64),
}

impl Margin {
    /// What plans leave free where nobody says otherwise: a part of the memory of GPUs, nothing of threads.
    #[must_use]
    pub fn usual(machine: &Machine) -> Self {
        if machine.is_host() { Self::Bytes(Bytes::ZERO) } else { Self::Part(OF_GPUS.value.0) }
    }

    /// How much that is of so much memory (bytes).
    #[must_use]
    pub fn of(self, memory: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Part(part) => quantity::whole_bytes(part * exact(memory.0)),
        }
    }
}

impl FromStr for Margin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("`{text}` is no margin, expected a size such as `2GB`, or a part such as `3%`");
        match text.trim().strip_suffix('%') {
            Some(percent) => {
                let part = percent.trim().parse::<f64>().map_err(|_| expected())? / 100.0;
                if (0.0..1.0).contains(&part) { Ok(Self::Part(part)) } else { Err(expected()) }
            }
            None if text.trim() == "0" => Ok(Self::Bytes(Bytes::ZERO)),
            None => {
                quantity::parse_bytes(text).map(|bytes| Self::Bytes(Bytes(bytes))).map_err(|_| expected())
            }
        }
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Part(part) => write!(f, "{} %", part * 100.0),
        }
    }
}

fn read(text: &str) -> Result<Known<Ratio>, Fault> {
    let file: MarginFile = serde_json::from_str(text).map_err(Fault::Json)?;
    if file.format != FORMAT {
        return Err(Fault::Format(file.format));
    }
    number("part", &file.part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::shipped::named;

    #[test]
    fn plans_leave_a_part_of_gpus_free_and_nothing_of_threads() {
        let [gpu, host] = ["h100-80g-8x", "cpu-4x"].map(|name| named(name).unwrap());
        let without = gpu.usable_memory();
        let capacity = gpu.device.memory_capacity.value;
        let kept = gpu.clone().leaving(None);
        assert_eq!(without.0 - kept.usable_memory().0, Margin::Part(0.02).of(capacity).0);
        assert_eq!(
            crate::machine::json::write(&kept),
            crate::machine::json::write(&gpu),
            "no price is another"
        );
        assert_eq!(host.clone().leaving(None), host);
        let all = gpu.leaving(Some(Margin::Bytes(Bytes(u64::MAX))));
        assert_eq!(all.usable_memory(), Bytes::ZERO);
    }

    #[test]
    fn margins_are_sizes_or_parts() {
        let read = |text: &str| text.parse::<Margin>();
        assert_eq!(read("2GB"), Ok(Margin::Bytes(Bytes(2_000_000_000))));
        assert_eq!(read("0"), Ok(Margin::Bytes(Bytes::ZERO)));
        assert_eq!(read("3.5 %").map(|it| it.of(Bytes(1000))), Ok(Bytes(35)));
        for wrong in ["", "%", "-1%", "100%", "nan%", "much", "-2GB"] {
            let message = read(wrong).unwrap_err();
            assert!(message.contains(&format!("`{wrong}` is no margin")), "{message}");
        }
    }
}

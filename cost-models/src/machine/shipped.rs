//! The machine files that come with the program, and the names of machines.
//!
//! A machine is called `<device>-<devices>x`: `h100-80g-8x` is a node of 8, `h100-80g-64x` is 8
//! such nodes and `h100-80g-2x` is a quarter of one.

use std::fmt;

use crate::machine::{Machine, SizeError, setting};

/// The shipped device types and their files, in the order in which they are listed.
const FILES: [(&str, &str); 25] = [
    ("v100-16g", include_str!("../../machines/v100-16g.json")),
    ("v100-16g-10gbe", include_str!("../../machines/v100-16g-10gbe.json")),
    ("v100-16g-25gbe", include_str!("../../machines/v100-16g-25gbe.json")),
    ("v100-32g", include_str!("../../machines/v100-32g.json")),
    ("v100-32g-pcie", include_str!("../../machines/v100-32g-pcie.json")),
    ("v100-32g-sxm3", include_str!("../../machines/v100-32g-sxm3.json")),
    ("t4-16g", include_str!("../../machines/t4-16g.json")),
    ("a100-40g", include_str!("../../machines/a100-40g.json")),
    ("a100-80g", include_str!("../../machines/a100-80g.json")),
    ("a100-80g-pcie", include_str!("../../machines/a100-80g-pcie.json")),
    ("a100-80g-pairs", include_str!("../../machines/a100-80g-pairs.json")),
    ("a40-48g", include_str!("../../machines/a40-48g.json")),
    ("l40s-48g", include_str!("../../machines/l40s-48g.json")),
    ("h100-80g", include_str!("../../machines/h100-80g.json")),
    ("h100-80g-pcie", include_str!("../../machines/h100-80g-pcie.json")),
    ("h800-80g", include_str!("../../machines/h800-80g.json")),
    ("h200-141g", include_str!("../../machines/h200-141g.json")),
    ("gh200-96g", include_str!("../../machines/gh200-96g.json")),
    ("b200-180g", include_str!("../../machines/b200-180g.json")),
    ("gb200-186g", include_str!("../../machines/gb200-186g.json")),
    ("b300-288g", include_str!("../../machines/b300-288g.json")),
    ("gb300-288g", include_str!("../../machines/gb300-288g.json")),
    ("rtx-pro-6000-96g", include_str!("../../machines/rtx-pro-6000-96g.json")),
    ("mi250x-64g", include_str!("../../machines/mi250x-64g.json")),
    (HOST, include_str!("../../machines/cpu.json")),
];

/// The shipped device type that is a thread of a host.
pub const HOST: &str = "cpu";

/// Whether a machine is so many threads of the shipped host: measured on another one than it is used
/// for, and without paces of operations.
#[must_use]
pub fn is_host(name: &str) -> bool {
    let count = name.strip_prefix(HOST).and_then(|rest| rest.strip_prefix('-')?.strip_suffix('x'));
    count.is_some_and(|it| it.parse::<u64>().is_ok())
}

/// Why a name is not that of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Not of the form `<device>-<devices>x`.
    Form(String),
    /// No file is shipped for the device type.
    Device(String),
    /// A number that is to be set beside the file cannot be, for this reason.
    Setting(String),
    /// There is no machine of so many devices.
    Size(String, SizeError),
}

/// The device types that machine files are shipped for.
#[must_use]
pub fn device_names() -> Vec<&'static str> {
    FILES.iter().map(|(name, _)| *name).collect()
}

/// The text of the file of a device type.
#[must_use]
pub fn text(device: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == device).map(|(_, text)| *text)
}

/// The machine called `name`, with what that says to be set beside its file ([`setting`](super::setting)).
pub fn named(name: &str) -> Result<Machine, NameError> {
    let (name, settings) = setting::parts(name);
    let parts = name.strip_suffix('x').and_then(|rest| rest.rsplit_once('-'));
    let counted = parts.and_then(|(device, count)| Some((device, count.parse::<u64>().ok()?)));
    let (device, devices) = counted.ok_or_else(|| NameError::Form(name.to_owned()))?;
    let text = text(device).ok_or_else(|| NameError::Device(device.to_owned()))?;
    let machine = setting::read(device, text, &settings);
    let machine = machine.map_err(|error| NameError::Setting(error.to_string()))?;
    machine.with_devices(devices).map_err(|error| NameError::Size(name.to_owned(), error))
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(name) => write!(
                f,
                "machine `{name}`, expected `<device>-<devices>x` such as `h100-80g-8x`, \
                 with a device of {}, or the path of a machine file",
                device_names().join(", ")
            ),
            Self::Device(device) => write!(
                f,
                "device `{device}`{}, expected one of {}; \
                 `shardloom calibrate` writes a file for another",
                planner_ir::did_you_mean(device, device_names()),
                device_names().join(", ")
            ),
            Self::Setting(error) => write!(f, "{error}"),
            Self::Size(name, error) => write!(f, "machine `{name}`: {error}"),
        }
    }
}

impl std::error::Error for NameError {}

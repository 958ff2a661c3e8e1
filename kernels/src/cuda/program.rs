//! Kernels with their primitives: one program for a device, or for a host.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::launch::{Kernel, Parameter};
use super::text::filled;
use super::vectors::vectors;

const DEVICE: &str = include_str!("primitives/device.h");
const HOST: &str = include_str!("primitives/host.h");
const HOST_MAIN: &str = include_str!("primitives/host_main.h");
const COMMON: &str = include_str!("primitives/common.h");
const FLOATS: &str = include_str!("primitives/floats.h");
const GROUPS: &str = include_str!("primitives/groups.h");

/// The text that every kernel is made of, but for the primitives themselves.
fn common() -> String {
    let single = [("T", "float"), ("S", "f"), ("U", "F")];
    let double = [("T", "double"), ("S", "d"), ("U", "D")];
    let mut text = COMMON.to_owned();
    for types in [single, double] {
        text.push_str(&filled(FLOATS, &types));
    }
    let integers = [("T", "t_i64"), ("S", "i"), ("U", "")];
    let naturals = [("T", "t_u64"), ("S", "u"), ("U", "")];
    for types in [single, double, integers, naturals] {
        text.push_str(&filled(GROUPS, &types));
    }
    text + &vectors()
}

/// Each kernel once, by name.
fn distinct<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> BTreeMap<&'a str, &'a Kernel> {
    kernels.into_iter().map(|kernel| (kernel.name.as_str(), kernel)).collect()
}

/// A program for a CUDA device that has these kernels, each once: CUDA C++ without headers.
pub fn device_program<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> String {
    let mut text = DEVICE.to_owned() + &common();
    for kernel in distinct(kernels).values() {
        text.push_str(&kernel.source);
    }
    text
}

/// A program for a host that has these kernels, each once, and their names in its order: C with
/// GNU's extensions, for Linux. It runs the kernels that its standard input asks for.
pub fn host_program<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> (String, Vec<String>) {
    let kernels = distinct(kernels);
    let mut text = HOST.to_owned() + &common();
    let mut entries = String::new();
    for kernel in kernels.values() {
        text.push_str(&kernel.source);
        let arguments: Vec<String> = kernel
            .parameters
            .iter()
            .enumerate()
            .map(|(number, parameter)| match parameter {
                Parameter::Pointer => format!("*(void **)given[{number}]"),
                Parameter::Integer => format!("*(t_i64 *)given[{number}]"),
            })
            .collect();
        let name = &kernel.name;
        // Writing to a string does not fail.
        let _ =
            writeln!(text, "static void run_{name}(void **given) {{ {name}({}); }}", arguments.join(", "));
        let _ = writeln!(entries, "    {{\"{name}\", run_{name}}},");
    }
    text.push_str(HOST_MAIN);
    let _ = writeln!(
        text,
        "\nstatic const t_named t_entries[] = {{\n{entries}    {{0, 0}},\n}};\n\
         int main(void) {{ return t_serve(t_entries, sizeof t_entries / sizeof *t_entries - 1); }}"
    );
    (text, kernels.keys().map(|&name| name.to_owned()).collect())
}

//! Tests of numbers that are said beside a file.

use super::*;
use crate::machine::shipped;

fn h100(settings: &[&str]) -> Result<Machine, String> {
    let text = shipped::text("h100-80g").unwrap();
    read("h100-80g", text, settings).map_err(|error| error.to_string())
}

#[test]
fn a_number_is_set_in_any_unit_of_its_kind() {
    let bandwidth = |value: &str| {
        let machine = h100(&[&format!("network.adapter_bandwidth={value}")]).unwrap();
        machine.network.unwrap().adapter_bandwidth.value.0
    };
    for value in ["25GB/s", "25 GB/s", "200Gbit/s", "25000MB/s", "25e9", "25000000000B/s"] {
        assert_eq!(bandwidth(value).to_bits(), 25e9_f64.to_bits(), "{value}");
    }
    let launch = h100(&["device.launch=2.5us"]).unwrap().device.launch.value.0;
    assert_eq!(launch.to_bits(), 2.5e-6_f64.to_bits());
    assert_eq!(
        h100(&["device.memory_capacity=40GB"]).unwrap().device.memory_capacity.value.0,
        40_000_000_000
    );
    assert_eq!(h100(&["network.adapters=4"]).unwrap().network.unwrap().adapters.value.0, 4);
}

/// All else is as in the file, and the name says what is not.
#[test]
fn only_that_number_is_another() {
    let (plain, mut set) = (h100(&[]).unwrap(), h100(&["network.adapter_bandwidth=25GB/s"]).unwrap());
    assert_ne!(plain, set);
    assert_eq!(set.full_name(), "h100-80g-8x with network.adapter_bandwidth=25GB/s");
    assert_eq!(parts(&set.full_name()), ("h100-80g-8x", vec!["network.adapter_bandwidth=25GB/s"]));
    set.settings.clear();
    set.network.as_mut().unwrap().adapter_bandwidth =
        plain.network.as_ref().unwrap().adapter_bandwidth.clone();
    assert_eq!(plain, set);
}

#[test]
fn names_are_told_what_is_set_besides() {
    let more = ["c=1".to_owned(), "d=2".to_owned()];
    assert_eq!(named("a-8x", &[]), "a-8x");
    assert_eq!(named("a-8x+b-8x", &more), "a-8x with c=1, d=2+b-8x with c=1, d=2");
    assert_eq!(named("a-8x with b=3", &more), "a-8x with b=3, c=1, d=2");
}

#[test]
fn what_is_no_setting_is_refused() {
    let refused = |settings: &[&str]| h100(settings).unwrap_err();
    assert_eq!(
        refused(&["network.adapter_bandwith=25GB/s"]),
        "the machine has no number `network.adapter_bandwith`; did you mean `network.adapter_bandwidth`? \
         `shardloom machines show NAME --json` has them all"
    );
    assert_eq!(
        refused(&["network.adapter_bandwidth=25ms"]),
        "`network.adapter_bandwidth` is `25ms`, expected a number in `Mbit/s`, `Gbit/s`, `Tbit/s`, `kB/s`, `MB/s`, \
         `GB/s`, `TB/s`, `B/s`, or in `B/s` without a unit"
    );
    assert_eq!(
        refused(&["device.launch=1us", "device.launch=2us"]),
        "`device.launch` is set twice, expected once"
    );
    for form in ["device.launch", "=1us", "device.launch=", "device.launch=1e+3"] {
        assert!(refused(&[form]).contains("sets no number of a machine"), "{form}");
    }
    // What a file may not say, nobody may.
    assert!(refused(&["device.memory_efficiency=120%"]).contains("device.memory_efficiency"));
    assert!(refused(&["node.devices=2.5"]).contains("node.devices"));
}

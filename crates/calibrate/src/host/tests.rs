//! Tests of what systems say.

use super::*;

#[test]
fn what_others_took_is_what_was_neither_idle_nor_ours() {
    let process = |own: u32| format!("1 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {own} 5 0 0 20 0");
    let read = |system: &str, own: u32| Ticks::read(system, &process(own)).unwrap();
    let before = read("cpu  100 0 0 100 0 0 0 0 7 7\ncpu0 1\n", 10);
    // 200 more: 100 of programs, 60 of them ours, and 100 of nobody.
    let after = read("cpu  180 10 10 150 50 0 0 0 7 7\ncpu0 1\n", 70);
    assert!((after.others_since(before) - 0.2).abs() < 1e-12);
    assert!(after.others_since(after).abs() < 1e-12);
    assert!(Ticks::read("", &process(1)).is_none() && Ticks::read("cpu 1 2 3", &process(1)).is_none());
}

#[test]
fn the_driver_of_a_gpu_says_its_version() {
    let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n\
                GCC version:  gcc version 12.3.0\n";
    assert_eq!(gpu_driver_in(text), Some("580.65.06"));
    assert_eq!(gpu_driver_in(""), None);
}

//! What is made of what compute-sanitizer says, and of what is not it.

use super::{faults, first};

#[test]
fn summaries_are_added_up() {
    let memcheck = "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\n\
                    =========     at 0x10 in sum_1\n========= ERROR SUMMARY: 3 errors\n";
    assert_eq!(faults(memcheck), Some(3));
    assert_eq!(first(memcheck).as_deref(), Some("Invalid __global__ read of size 4 bytes"));
    let racecheck = "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n";
    assert_eq!(faults(&format!("{racecheck}other words\n{racecheck}")), Some(4));
    assert_eq!(faults("========= ERROR SUMMARY: 0 errors\n"), Some(0));
    assert_eq!(faults("ERROR SUMMARY: 0 errors\n========= Error: no such tool\n"), None);
}

//! Devices by the names that sources give them.

use super::*;

#[test]
fn devices_are_recognised_by_the_words_of_their_names() {
    assert_eq!(file_of("A100-SXM4-80GB (Selene)"), Some("a100-80g"));
    assert_eq!(file_of("A100-SXM4-40GB"), Some("a100-40g"));
    assert_eq!(file_of("NVIDIA H100 SXM"), Some("h100-80g"));
    assert_eq!(machine_of("TPU v4").unwrap_err(), "no machine file for device `TPU v4`");
}

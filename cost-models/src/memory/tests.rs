//! Sums of memory and their text.

use arbtest::arbtest;

use super::*;

fn memory(weights: u64, activations: u64, communication: u64, reserved: u64) -> Memory {
    Memory {
        weights: Bytes(weights),
        activations: Bytes(activations),
        communication: Bytes(communication),
        reserved: Bytes(reserved),
    }
}

#[test]
fn the_total_of_a_sum_is_the_sum_of_the_totals() {
    arbtest(|u| {
        let mut one = || u.int_in_range(0..=1_u64 << 40);
        let parts = [memory(one()?, one()?, one()?, one()?), memory(one()?, one()?, one()?, one()?)];
        let sum: Memory = parts.into_iter().sum();
        assert_eq!(sum.total(), parts[0].total() + parts[1].total());
        for kind in MemoryKind::ALL {
            assert_eq!(sum.of(kind), parts[0].of(kind) + parts[1].of(kind));
        }
        Ok(())
    });
}

#[test]
fn text_names_the_kinds_that_are_there() {
    let text = memory(60_000_000_000, 20_000_000_000, 0, 1_000_000).to_string();
    assert_eq!(text, "80 GB = 60 GB weights + 20 GB activations + 1 MB reserved");
    assert_eq!(Memory::default().to_string(), "0 B");
}

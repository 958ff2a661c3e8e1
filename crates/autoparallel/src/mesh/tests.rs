//! Tests of the meshes that are tried.

use super::{candidates, sizes};

#[test]
fn every_mesh_that_is_tried_has_all_devices_and_none_is_tried_twice() {
    for devices in 1..=128 {
        let meshes = candidates(devices);
        for (index, mesh) in meshes.iter().enumerate() {
            assert_eq!(mesh.devices(), devices);
            assert!(!meshes[..index].contains(mesh), "{mesh}");
        }
    }
}

#[test]
fn powers_of_two_fall_into_up_to_three_axes() {
    let tried = |devices| candidates(devices).iter().map(sizes).collect::<Vec<_>>().join(" ");
    assert_eq!(tried(1), "1");
    assert_eq!(tried(2), "2");
    assert_eq!(tried(4), "4 2x2");
    assert_eq!(tried(8), "8 2x4 2x2x2");
    assert_eq!(tried(12), "12 2x6 3x4 2x2x3");
    assert_eq!(tried(7), "7");
    assert_eq!(tried(16), "16 2x8 4x4 2x2x4");
}

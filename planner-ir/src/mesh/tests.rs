//! Tests of meshes.

use arbtest::arbtest;
use expect_test::expect;

use super::{AxisId, Mesh};

#[test]
fn coordinates_and_devices_are_inverse_and_groups_differ_in_their_axes_only() {
    arbtest(|u| {
        let sizes: Vec<u64> =
            (0..u.int_in_range(0..=4)?).map(|_| u.int_in_range(1..=3)).collect::<Result<_, _>>()?;
        let mesh = Mesh::of_sizes(&sizes);
        let axes: Vec<AxisId> = mesh.axis_ids().filter(|it| it.0 % 2 == 0).collect();
        for device in 0..mesh.devices() {
            let coordinates = mesh.coordinates(device);
            assert_eq!(mesh.device(&coordinates), device);
            let group = mesh.group(device, &axes);
            assert!(group.contains(&device) && group.is_sorted());
            let alike = |other: &u64| {
                let other = mesh.coordinates(*other);
                mesh.axis_ids().all(|it| axes.contains(&it) || other[it.0] == coordinates[it.0])
            };
            assert_eq!((0..mesh.devices()).filter(alike).collect::<Vec<_>>(), group);
        }
        // In another order along the axes too: the first device has the least coordinates in any.
        for axes in [axes.clone(), axes.iter().rev().copied().collect()] {
            let all = (0..mesh.devices()).map(|device| (device, mesh.group(device, &axes)));
            let firsts = all.filter(|(device, group)| group[0] == *device).map(|it| it.1);
            assert_eq!(mesh.groups(&axes), firsts.collect::<Vec<_>>());
        }
        if !sizes.is_empty() {
            assert_eq!(Mesh::parse(&mesh.to_string()), Ok(mesh));
        }
        Ok(())
    });
}

#[test]
fn meshes_are_read_from_sizes_and_names() {
    let show = |text: &str| match Mesh::parse(text) {
        Ok(mesh) => mesh.to_string(),
        Err(error) => error.to_string(),
    };
    expect!["a=2,b=4"].assert_eq(&show("2x4"));
    expect!["data=2,expert=4"].assert_eq(&show("data=2,expert=4"));
    expect!["mesh has two axes `a`, expected different names"].assert_eq(&show("a=2,a=2"));
    expect!["mesh has 5 axes, expected 4 at most"].assert_eq(&show("2x2x2x2x2"));
    expect!["mesh axis `0` is not a size, expected axes such as `2x4` or `data=2,model=4`"]
        .assert_eq(&show("2x0"));
}

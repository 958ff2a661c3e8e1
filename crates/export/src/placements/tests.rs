//! Tests of placements against what devices hold: the rules of DTensor applied by hand, device by device.

use planner_ir::{Layout, Mesh, parse_layout};

use super::{Placement, placements};

/// Which elements of a dimension a device has, by the placements of the axes in turn: `Shard` cuts what is
/// there in as many blocks as the axis has devices, `Strided` cuts each of some equal parts of it so.
fn held(mesh: &Mesh, placements: &[Placement], device: u64, extent: u64) -> Vec<u64> {
    let coordinates = mesh.coordinates(device);
    let mut held: Vec<u64> = (0..extent).collect();
    for (axis, placement) in placements.iter().enumerate() {
        let parts = match placement {
            Placement::Shard(0) => 1,
            Placement::Strided(0, parts) => usize::try_from(*parts).unwrap(),
            _ => continue,
        };
        let (size, own) = (mesh.axes[axis].size, coordinates[axis]);
        let part = held.len() / parts;
        let block = part / usize::try_from(size).unwrap();
        let own = usize::try_from(own).unwrap() * block;
        held = held.chunks(part).flat_map(|it| it[own..own + block].to_vec()).collect();
    }
    held
}

/// The same by a layout's own numbers of blocks.
fn expected(mesh: &Mesh, layout: &Layout, device: u64, extent: u64) -> Vec<u64> {
    let pieces = &layout.pieces(mesh, device, &[extent])[0];
    let mut held = vec![0];
    for piece in pieces {
        let indices: Vec<u64> = piece.index.map_or((0..piece.size).collect(), |index| vec![index]);
        held = held.iter().flat_map(|outer| indices.iter().map(move |it| outer * piece.size + it)).collect();
    }
    held
}

/// Every order of axes and free digits in one dimension.
#[test]
fn devices_hold_by_placements_what_they_hold_by_layouts() {
    let mesh = Mesh::parse("a=2,b=3,c=2").unwrap();
    let digits = ["a", "b", "c", "*5"];
    let mut tried = 0;
    for number in 0..625_usize {
        let chosen: Vec<usize> = (0..4).map(|place| number / 5_usize.pow(place) % 5).collect();
        let chosen: Vec<usize> = chosen.into_iter().filter(|&it| it < 4).collect();
        let twice = |(place, it): (usize, &usize)| chosen[..place].contains(it);
        if chosen.iter().enumerate().any(twice) {
            continue;
        }
        let text = chosen.iter().map(|&it| digits[it]).collect::<Vec<_>>().join(".");
        let text = if text.is_empty() { "-".to_owned() } else { text };
        let Ok(layout) = parse_layout(&mesh, &format!("[{text}]")) else { continue };
        let (layout, extent) = (layout.canonical(), 2 * 3 * 2 * 5 * 2);
        let all = placements(&mesh, &layout).unwrap();
        for device in 0..mesh.devices() {
            assert_eq!(
                held(&mesh, &all, device, extent),
                expected(&mesh, &layout, device, extent),
                "[{text}]"
            );
        }
        assert_eq!(local_shape(&mesh, &all, &[extent]), layout.local_shape(&[extent]));
        tried += 1;
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn owed_sums_are_partial_and_skews_are_not_said() {
    let mesh = Mesh::parse("a=2,b=2").unwrap();
    let of = |text: &str| placements(&mesh, &parse_layout(&mesh, text).unwrap());
    assert_eq!(of("[-,a] owes b"), Some(vec![Placement::Shard(1), Placement::Partial]));
    assert_eq!(of("[b.a]"), Some(vec![Placement::Strided(0, 2), Placement::Shard(0)]));
    assert_eq!(of("[(a+b:2)]"), None);
}

/// The shape of what each device holds by some placements.
fn local_shape(mesh: &Mesh, placements: &[Placement], shape: &[u64]) -> Vec<u64> {
    let mut local = shape.to_vec();
    for (placement, axis) in placements.iter().zip(&mesh.axes) {
        if let Placement::Shard(dim) | Placement::Strided(dim, _) = placement
            && let Some(extent) = usize::try_from(*dim).ok().and_then(|dim| local.get_mut(dim))
        {
            *extent /= axis.size;
        }
    }
    local
}

//! Tests of layouts.

use std::collections::BTreeSet;

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

use super::{Digit, Layout, LayoutError, Piece, canonical_digits, is_canonical};
use crate::data::{DType, Type};
use crate::mesh::{AxisId, Mesh};

/// A mesh, and a layout of plain, free and skewed digits on it, good or not, with a type.
fn random(u: &mut Unstructured<'_>) -> Result<(Mesh, Layout, Type)> {
    let mesh = Mesh::of_sizes(&[2, 2, 3]);
    let digit = |u: &mut Unstructured<'_>| {
        let axis = AxisId(u.int_in_range(0..=2)?);
        Ok(match u.int_in_range(0..=3)? {
            0 | 1 => Digit::axis(&mesh, axis),
            2 => Digit::free(u.int_in_range(2..=3)?),
            _ => Digit {
                size: 2,
                terms: vec![(AxisId(0), 1), (AxisId(1), u.int_in_range(-1..=1)?)],
                step: 0,
                offset: u.int_in_range(0..=1)?,
            },
        })
    };
    let mut dims = Vec::new();
    let mut shape = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        dims.push((0..u.int_in_range(0..=2)?).map(|_| digit(u)).collect::<Result<Vec<_>>>()?);
        shape.push(*u.choose(&[1, 2, 4, 6, 12])?);
    }
    let owed = if u.ratio(1, 4)? { vec![AxisId(u.int_in_range(0..=2)?)] } else { vec![] };
    Ok((mesh, Layout { dims, owed }.canonical(), Type::new(DType::F32, shape)))
}

/// The positions that a device holds along a dimension.
fn held(pieces: &[Piece]) -> Vec<u64> {
    pieces.iter().fold(vec![0], |held, piece| {
        let values = piece.index.map_or(0..piece.size, |index| index..index + 1);
        held.iter().flat_map(|before| values.clone().map(move |it| before * piece.size + it)).collect()
    })
}

#[test]
fn the_pieces_of_a_good_layout_cover_the_value_and_have_its_local_shape() {
    arbtest(|u| {
        let (mesh, layout, type_) = random(u)?;
        if layout.check(&mesh, &type_).is_err() {
            return Ok(());
        }
        let local = layout.local_shape(&type_.shape);
        let mut covered = BTreeSet::new();
        for device in 0..mesh.devices() {
            let pieces = layout.pieces(&mesh, device, &type_.shape);
            let held: Vec<Vec<u64>> = pieces.iter().map(|it| held(it)).collect();
            let mut places = vec![0];
            for (dim, held) in held.iter().enumerate() {
                assert_eq!(u64::try_from(held.len()), Ok(local[dim]));
                assert_eq!(pieces[dim].iter().map(|it| it.size).product::<u64>(), type_.shape[dim]);
                let extent = type_.shape[dim];
                places = places.iter().flat_map(|at| held.iter().map(move |it| at * extent + it)).collect();
            }
            covered.extend(places);
            if let Some(start) = layout.start(&mesh, device, &type_.shape) {
                for (dim, held) in held.iter().enumerate() {
                    assert!(held.iter().copied().eq(start[dim]..start[dim] + local[dim]));
                }
            }
        }
        assert_eq!(u64::try_from(covered.len()), Ok(type_.elements()), "{}", layout.display(&mesh));
        assert_eq!(layout.parts() * local.iter().product::<u64>(), type_.elements());
        Ok(())
    });
}

#[test]
fn a_layout_without_a_device_for_some_block_is_refused() {
    arbtest(|u| {
        let (mesh, layout, type_) = random(u)?;
        if layout.check(&mesh, &type_) != Err(LayoutError::NotOnto) {
            return Ok(());
        }
        let pieces = (0..mesh.devices()).map(|device| layout.pieces(&mesh, device, &type_.shape));
        let different: BTreeSet<Vec<Vec<u64>>> =
            pieces.map(|pieces| pieces.iter().map(|it| held(it)).collect()).collect();
        assert!(u64::try_from(different.len()).unwrap() < layout.parts());
        Ok(())
    });
}

#[test]
fn digits_are_canonical_that_would_stay_as_they_are() {
    let mesh = Mesh::of_sizes(&[1, 2]);
    let digits =
        [Digit::free(1), Digit::free(2), Digit::axis(&mesh, AxisId(0)), Digit::axis(&mesh, AxisId(1))];
    let (mut chosen, mut stay) = ([0; 4], 0);
    loop {
        // Of the last number none is taken: so lists are of up to four digits.
        let list: Vec<Digit> = chosen.iter().filter_map(|&it: &usize| digits.get(it).cloned()).collect();
        let same = canonical_digits(list.clone()) == list;
        assert_eq!(is_canonical(&list), same, "{list:?}");
        stay += usize::from(same);
        if !crate::advance(&mut chosen, &[digits.len() + 1; 4]) {
            break;
        }
    }
    assert!((10..300).contains(&stay), "{stay}");
}

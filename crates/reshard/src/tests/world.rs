//! Random sides, and what their devices hold.

use std::collections::BTreeMap;

use arbtest::arbitrary::{Result, Unstructured};
use cost_models::units::{BytesPerSecond, Seconds};
use planner_ir::{AxisId, DType, Digit, Layout, Mesh, Type};

use crate::network::Network;
use crate::side::{Place, Side};

/// A network in round numbers.
pub(super) const NETWORK: Network =
    Network { between: BytesPerSecond(1e3), inside: BytesPerSecond(1e4), latency: Seconds(1e-2) };

/// A mesh of one to three axes.
fn mesh(u: &mut Unstructured<'_>) -> Result<Mesh> {
    let axes = u.int_in_range(1..=3)?;
    let sizes = (0..axes).map(|_| u.int_in_range(1..=if axes == 3 { 3 } else { 4 }));
    Ok(Mesh::of_sizes(&sizes.collect::<Result<Vec<u64>>>()?))
}

/// A digit: plain, free, or skewed along axes of one size.
fn digit(u: &mut Unstructured<'_>, mesh: &Mesh) -> Result<Digit> {
    let axis = AxisId(u.choose_index(mesh.axes.len())?);
    if u.ratio(1, 4)? {
        return Ok(Digit::free(u.int_in_range(2..=3)?));
    }
    let mut digit = Digit::axis(mesh, axis);
    if u.ratio(1, 3)? {
        let size = mesh.size(axis);
        let coefficient = |u: &mut Unstructured<'_>| u.int_in_range(-2..=2);
        let same: Vec<AxisId> = mesh.axis_ids().filter(|&it| mesh.size(it) == size).collect();
        digit.terms = same.iter().map(|&it| Ok((it, coefficient(u)?))).collect::<Result<_>>()?;
        digit.terms.retain(|term| term.1 != 0);
        digit.offset = u.int_in_range(0..=3)?;
    }
    Ok(digit)
}

/// A layout of so many dimensions, good or not.
fn layout(u: &mut Unstructured<'_>, mesh: &Mesh, rank: usize) -> Result<Layout> {
    let dims = (0..rank).map(|_| (0..u.int_in_range(0..=2)?).map(|_| digit(u, mesh)).collect());
    Ok(Layout { dims: dims.collect::<Result<_>>()?, owed: vec![] }.canonical())
}

/// Two sides and a value that can be on both, or nothing. Nodes have any number of devices; now
/// and then the sides share one.
pub(super) fn sides(u: &mut Unstructured<'_>) -> Result<Option<(Type, Side, Side)>> {
    let (first, second) = (mesh(u)?, mesh(u)?);
    let rank = u.int_in_range(0..=3)?;
    let (have, need) = (layout(u, &first, rank)?, layout(u, &second, rank)?);
    let blocks = |digits: &[Digit]| digits.iter().map(|digit| digit.size).product::<u64>();
    let mut shape = Vec::new();
    for (have, need) in have.dims.iter().zip(&need.dims) {
        let (a, b) = (blocks(have), blocks(need));
        let least = (1..).map(|it| it * a).find(|it| it % b == 0).unwrap();
        shape.push(least * u.int_in_range(1..=3)?);
    }
    let type_ = Type::new(*u.choose(&[DType::F32, DType::BF16])?, shape);
    let fits = |layout: &Layout, mesh: &Mesh| layout.check(mesh, &type_).is_ok();
    if !fits(&have, &first) || !fits(&need, &second) || type_.elements() > 5000 {
        return Ok(None);
    }
    let mut ranks: Vec<u64> = (0..first.devices() + second.devices()).map(|it| 3 * it + 1).collect();
    for place in (1..ranks.len()).rev() {
        ranks.swap(place, u.choose_index(place + 1)?);
    }
    let shared = u.ratio(1, 4)?;
    let mut node = 0;
    let mut places = |mesh: &Mesh, ranks: &[u64]| -> Result<Vec<Place>> {
        if !shared {
            node += 1;
        }
        let place = |&rank: &u64| {
            node += u64::from(u.ratio(1, 3)?);
            Ok(Place { rank, node, adapter: u.int_in_range(0..=1)? })
        };
        ranks.iter().take(usize::try_from(mesh.devices()).unwrap()).map(place).collect()
    };
    let of_first = places(&first, &ranks)?;
    let of_second = places(&second, &ranks[of_first.len()..])?;
    let from = Side { mesh: first, layout: have, places: of_first };
    let to = Side { mesh: second, layout: need, places: of_second };
    Ok(Some((type_, from, to)))
}

/// For each rank of a side the numbers of the elements that it holds, in order, counted one by
/// one: those all of whose block's digits are the device's.
pub(super) fn held(type_: &Type, side: &Side) -> BTreeMap<u64, Vec<u64>> {
    let of_device = |device: u64| {
        let coordinates = side.mesh.coordinates(device);
        let dims = side.layout.dims.iter().zip(&type_.shape).map(|(digits, &extent)| {
            let blocks: u64 = digits.iter().map(|digit| digit.size).product();
            let here = |&index: &u64| {
                let mut number = index / (extent / blocks);
                digits.iter().rev().all(|digit| {
                    let value = number % digit.size;
                    number /= digit.size;
                    digit.is_free() || digit.at(&coordinates, 0) == value
                })
            };
            (extent, (0..extent).filter(here).collect::<Vec<u64>>())
        });
        dims.fold(vec![0], |numbers, (extent, held)| {
            numbers.iter().flat_map(|number| held.iter().map(move |it| number * extent + it)).collect()
        })
    };
    (0..).zip(&side.places).map(|(device, place)| (place.rank, of_device(device))).collect()
}

/// A value of that shape.
pub(super) fn value(shape: &[u64]) -> Type {
    Type::new(DType::I32, shape.to_vec())
}

/// A layout of plain digits: for each dimension the axes it is split over.
pub(super) fn plain(mesh: &Mesh, dims: &[&[usize]]) -> Layout {
    let digits = |axes: &&[usize]| axes.iter().map(|&axis| Digit::axis(mesh, AxisId(axis))).collect();
    Layout { dims: dims.iter().map(digits).collect(), owed: vec![] }.canonical()
}

/// Two sides whose layouts have plain digits; ranks and nodes follow each other, and the second
/// side begins in a node of its own.
pub(super) fn pair(
    first: &[u64],
    have: &[&[usize]],
    second: &[u64],
    need: &[&[usize]],
    per_node: u64,
) -> (Side, Side) {
    let (first, second) = (Mesh::of_sizes(first), Mesh::of_sizes(second));
    let (have, need) = (plain(&first, have), plain(&second, need));
    let begins = first.devices().next_multiple_of(per_node);
    let side = |mesh, layout, first| Side::successive(mesh, layout, first, [per_node, 1]);
    (side(first, have, 0), side(second, need, begins))
}

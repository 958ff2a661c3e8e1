//! Random partitions in time.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{AxisId, Digit, LoopId, Loops, Mesh, Partition, Role, Slots, Ways};

/// How many maps are tried before an operation is computed at once.
const TRIES: u64 = 20;

/// Numbers that follow from one another, so that few bytes make many maps.
struct Numbers(u64);

impl Numbers {
    /// One of so many, from 0.
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count.max(1)
    }
}

/// A partition of several steps, if one is found.
pub(super) fn partition(mesh: &Mesh, loops: &Loops, u: &mut Unstructured<'_>) -> Result<Option<Partition>> {
    let mut numbers = Numbers(u.arbitrary()?);
    let wide: Vec<AxisId> = mesh.axis_ids().filter(|&axis| mesh.size(axis) > 1).collect();
    let split: Vec<LoopId> = loops.ids().filter(|&it| loops.get(it).role != Role::Whole).collect();
    if wide.is_empty() || split.is_empty() {
        return Ok(None);
    }
    let found = (0..TRIES).find_map(|_| {
        let partition = attempt(mesh, loops, (&wide, &split), &mut numbers);
        partition.check(mesh, loops).is_ok().then_some(partition)
    });
    Ok(found)
}

fn attempt(
    mesh: &Mesh,
    loops: &Loops,
    (wide, split): (&[AxisId], &[LoopId]),
    numbers: &mut Numbers,
) -> Partition {
    let mut partition = Partition::replicated(loops);
    let turned = split[numbers.below(split.len())];
    let size = mesh.size(wide[numbers.below(wide.len())]);
    let equal: Vec<AxisId> = wide.iter().copied().filter(|&axis| mesh.size(axis) == size).collect();
    partition.steps = size;
    for &it in split {
        let mut terms: Vec<(AxisId, i64)> = Vec::new();
        for &axis in &equal {
            if numbers.below(2) == 0 {
                terms.push((axis, if numbers.below(4) == 0 { -1 } else { 1 }));
            }
        }
        let timed = it == turned || numbers.below(6) == 0;
        let step = if !timed {
            0
        } else if numbers.below(3) == 0 {
            -1
        } else {
            1
        };
        let offset = i64::from(numbers.below(4) == 0 && (timed || !terms.is_empty()));
        partition.loops[it.0].extend(Some(Digit { size, terms, step, offset }).filter(|it| !it.is_free()));
    }
    partition.streams = equal.into_iter().filter(|_| numbers.below(2) == 0).collect();
    partition.ways = if numbers.below(2) == 0 { Ways::Both } else { Ways::One };
    partition.slots = if numbers.below(2) == 0 { Slots::One } else { Slots::Two };
    partition
}

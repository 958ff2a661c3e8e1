//! Rows that are routed, by counting: which rows devices have at rest, and what goes between them.

use planner_ir::{AxisId, Digit, LoopId, Loops, Mesh, Partition, Type};

use super::blocks::{Cover, all_held, canonical, cover};

/// How rows of an operation are routed.
pub(super) struct Routed<'a> {
    mesh: &'a Mesh,
    partition: &'a Partition,
    loops: &'a Loops,
    rows: LoopId,
    parts: LoopId,
    /// How many parts a row uses.
    pub(super) used: u64,
    /// Along which axes.
    axes: Vec<AxisId>,
}

impl<'a> Routed<'a> {
    /// None if devices along some axes do not have each block of rows and of parts once, or sets of them that pass rows on
    /// are not equal, and several of several.
    pub(super) fn of(mesh: &'a Mesh, partition: &'a Partition, loops: &'a Loops) -> Option<Self> {
        let it = loops.routed?;
        let named = |digits: &[Digit]| -> Vec<AxisId> {
            let mut axes: Vec<AxisId> = digits.iter().flat_map(|it| &it.terms).map(|term| term.0).collect();
            axes.sort_unstable();
            axes
        };
        let once = |digits: &[Digit]| {
            let digits: Vec<&Digit> = digits.iter().filter(|digit| !all_held(digit)).collect();
            cover(mesh, &named(&partition.routed), &digits, 1) == Cover::Once
        };
        let (axes, parts) = (named(&partition.routed), &partition.loops[it.parts.0]);
        let group: u64 = axes.iter().map(|axis| mesh.axes[axis.0].size).product();
        let by = partition.routed_by;
        let in_sets = by == 1 || by > 1 && by < group && group.is_multiple_of(by);
        let right = in_sets && axes == named(parts) && once(&partition.routed) && once(parts);
        let (rows, parts, used) = (it.rows, it.parts, it.used);
        right.then_some(Self { mesh, partition, loops, rows, parts, used, axes })
    }

    fn has(&self, dims: &[Vec<LoopId>]) -> [bool; 2] {
        [self.rows, self.parts].map(|it| dims.iter().any(|dim| dim.contains(&it)))
    }

    /// The digits of dimensions that these loops index, at rest.
    pub(super) fn at_rest(&self, dims: &[Vec<LoopId>]) -> Vec<Vec<Digit>> {
        let [rows, parts] = self.has(dims);
        let dim = |dim: &Vec<LoopId>| {
            let mut digits = Vec::new();
            for &it in dim {
                let mut own = self.partition.loops[it.0].clone();
                if it == self.rows {
                    own.extend(self.partition.routed.iter().cloned());
                } else if it == self.parts && rows && parts {
                    own.clear();
                }
                let blocks: u64 = own.iter().map(|digit| digit.size).product();
                digits.extend(own);
                digits.push(Digit::free(self.loops.loops[it.0].size / blocks));
            }
            canonical(digits)
        };
        dims.iter().map(dim).collect()
    }

    /// The axes over which addends of a result have been added up.
    pub(super) fn added(&self, dims: &[Vec<LoopId>]) -> &[AxisId] {
        match self.has(dims) {
            [true, false] => &self.axes,
            _ => &[],
        }
    }

    /// What all devices together are expected to receive of a value (bytes).
    pub(super) fn received(&self, dims: &[Vec<LoopId>], type_: &Type) -> u64 {
        let [rows, parts] = self.has(dims);
        if !rows {
            return 0;
        }
        let group: u64 = self.axes.iter().map(|axis| self.mesh.axes[axis.0].size).product();
        // What one device has of the value at rest is what another one might get of it.
        let at_rest = self.at_rest(dims);
        let blocks: u64 = at_rest.iter().flatten().filter(|it| !all_held(it)).map(|it| it.size).product();
        let own = type_.bytes() / blocks.max(1);
        if parts {
            return self.mesh.devices() * (group - 1) * (own / group);
        }
        let by = self.partition.routed_by;
        if by == 1 {
            return self.mesh.devices() * self.without_others(own * (group - 1), group);
        }
        // Across sets by way of the device at the same place, and within one whatever its devices have then; a bit
        // for each row and device of a set goes ahead.
        let sets = group / by;
        let rows = self.partition.loops[self.rows.0].iter().chain(&self.partition.routed);
        let blocks: u64 = rows.filter(|it| !all_held(it)).map(|it| it.size).product();
        let bits = by * (self.loops.loops[self.rows.0].size / blocks).div_ceil(8);
        let across = self.without_others(own * (sets - 1), sets) + bits * (sets - 1);
        self.mesh.devices() * (across + self.without_others(own * sets * (by - 1), group))
    }

    /// What is left of an amount without the share of rows all of whose parts are others', where each of so many has as
    /// many parts.
    fn without_others(&self, amount: u64, each_of: u64) -> u64 {
        let count = self.loops.loops[self.parts.0].size;
        let others = count - count / each_of;
        let mut left = u128::from(amount);
        for it in 0..self.used.min(count) {
            left = left * u128::from(others.saturating_sub(it)) / u128::from(count - it);
        }
        amount - u64::try_from(left).unwrap_or(0)
    }
}

//! The time of work whose rows go to the devices that have what they use.
//!
//! ```text
//! t = c + Σ gates (a(S) + 2 copies of S) + Σ rows (r(S) + a copy of S where rows do not lie as they came)
//! ```
//!
//! `c` is what a device computes with the rows that it gets, `S` what all rows of a group come to. `a` is an all-to-all,
//! `r` the way of the shares of rows that are expected to go ([`RoutedRows`](planner_ir::RoutedRows)), which are not
//! known before they do: see [`routed`](cost_models::collective::routed).
//!
//! Source: Lepikhin et al., "GShard", ICLR 2021 (dispatch and combine as all-to-alls); DeepSeek-AI, "DeepEP",
//! 2025 (a row goes to a device once, however many of its experts it uses).

use cost_models::collective;
use cost_models::units::Bytes;
use planner_ir::{Layout, LoopId, Move, Route, Type};

use super::{MachinePrices, Work, packs};

impl MachinePrices<'_> {
    /// What a device computes with the rows that it gets (seconds).
    pub(super) fn met(&self, work: &Work<'_>) -> f64 {
        let Work { op, whole, partition, loops, .. } = *work;
        let Ok(made) = op.infer(whole) else { return f64::INFINITY };
        let met = partition.met();
        let given = whole.iter().enumerate().map(|(it, type_)| met.operand(loops, it).local_type(type_));
        let gotten = made.iter().enumerate().map(|(it, type_)| met.result(loops, it).local_type(type_));
        let (operands, results): (Vec<Type>, Vec<Type>) = (given.collect(), gotten.collect());
        self.at_once(&Work { operands: &operands, results: &results, partition: &met, ..*work })
    }

    /// What rows take on their way to where they are used, and what is made of them on its way back, with what says
    /// where they go; and for how long that has links for itself (seconds).
    pub(super) fn routed(&self, work: &Work<'_>) -> [f64; 2] {
        let Work { op, whole, partition, loops, .. } = *work;
        let Ok(made) = op.infer(whole) else { return [f64::INFINITY; 2] };
        let met = partition.met();
        let ends = |(index, type_)| (&loops.operands[index], type_, met.operand(loops, index));
        let operands = whole.iter().enumerate().map(ends);
        let ends = |(index, type_)| (&loops.results[index], type_, met.result(loops, index));
        let all = operands.chain(made.iter().enumerate().map(ends));
        all.map(|(dims, type_, layout)| self.route(work, dims, type_, &layout))
            .fold([0.0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]])
    }

    /// The time to bring a value where it is used, or back, that is held so in between; and for how long that has links
    /// for itself (seconds).
    fn route(&self, work: &Work<'_>, dims: &[Vec<LoopId>], type_: &Type, met: &Layout) -> [f64; 2] {
        let Work { partition, loops, .. } = *work;
        let (axes, held) = (partition.routed_axes(), Bytes(met.local_bytes(type_)));
        match partition.route(loops, dims) {
            Route::Stays => [0.0; 2],
            Route::Gates => {
                let [sent, links] =
                    self.sent(&axes, held, |it, bytes| collective::all_to_all(self.machine, it, bytes));
                [sent + 2.0 * self.copy(held), links]
            }
            Route::Rows => {
                let Some(rows) = partition.routed_rows(loops) else { return [f64::INFINITY; 2] };
                let sent = self.slowest(&axes, |it| collective::routed(self.machine, it, held, &rows));
                let links =
                    self.slowest(&axes, |it| collective::routed_on_links(self.machine, it, held, &rows));
                let dim = loops.routed.and_then(|it| it.dim_of_rows(dims)).unwrap_or(0);
                let back = Move::ReduceScatter { dim, digits: partition.routed.clone() };
                let [packed, _] = packs(&back, met, met, type_);
                [sent + if packed { self.copy(held) } else { 0.0 }, links]
            }
        }
    }
}

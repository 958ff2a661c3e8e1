//! Numbers of machine files that were fitted, fitted again: which they are, to which rows, and how near
//! both halves of the rows are by what the files state and by what is found now.
//!
//! Numbers are sought on the one half between half and double of what the file states, one after
//! another, so that the mean of `|ln (predicted / measured)|` is least. The files stay as they are.

use cost_models::machine::{Machine, json, shipped};
use serde_json::Value;

use super::{Half, descend, halved};
use crate::device::file_of;
use crate::errors::number;
use crate::rows::{Priced, collectives, products};
use crate::table::{Row, Table};

/// Numbers of a machine that are fitted together.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// The machine file.
    pub machine: &'static str,
    /// What the rows measure.
    pub what: What,
    /// Who published them.
    pub sources: &'static [&'static str],
    /// The numbers, each as fields of the machine file that are the same.
    pub numbers: &'static [&'static [&'static str]],
}

/// What rows measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Matrix products.
    Products,
    /// Passes that take elements one by one.
    Passes,
    /// Attention in one kernel.
    Attention,
    /// All-reduces inside a node.
    AllReduces,
}

/// Numbers fitted again.
#[derive(Clone, Debug, PartialEq)]
pub struct Refit {
    /// How many rows there are: those that numbers are fitted to, and the others.
    pub rows: [usize; 2],
    /// Each number's first field, what the file states, and what is found.
    pub numbers: Vec<(String, f64, f64)>,
    /// The mean of |predicted/measured − 1| by the file, of the rows fitted to and of the others.
    pub stated: [f64; 2],
    /// The same by what is found.
    pub found: [f64; 2],
}

const REACHED: &[&str] = &["device.matrix_reached.f16", "device.matrix_reached.bf16"];
const FEED: &[&str] = &["device.products.feed"];
const TILE_START: &[&str] = &["device.products.tile_start"];
const START: &[&str] = &["device.products.start"];
const SUSTAINED: &[&str] = &["device.products.sustained"];
const HEATING: &[&str] = &["device.products.heating"];
const WEIGHT_GRADIENT: &[&str] = &["device.products.weight_gradient"];
const SCALAR: &[&str] = &["device.scalar_efficiency"];

/// Every fit of numbers that machine files cite.
pub const FITS: [Fit; 9] = [
    Fit {
        machine: "a100-80g",
        what: What::Products,
        sources: &["vidur_mlp_a100"],
        numbers: &[REACHED, FEED, TILE_START, START, SUSTAINED],
    },
    Fit {
        machine: "h100-80g",
        what: What::Products,
        sources: &["vidur_mlp_h100"],
        numbers: &[FEED, TILE_START, START, SUSTAINED],
    },
    Fit {
        machine: "a100-80g-pcie",
        what: What::Products,
        sources: &["simumax_gemm_a100pcie"],
        numbers: &[REACHED, WEIGHT_GRADIENT],
    },
    Fit {
        machine: "b200-180g",
        what: What::Products,
        sources: &["simumax_gemm_b200"],
        numbers: &[REACHED, FEED, SUSTAINED, HEATING, WEIGHT_GRADIENT],
    },
    Fit {
        machine: "h800-80g",
        what: What::Products,
        sources: &["deepgemm_h800_fp8"],
        numbers: &[&["device.matrix_reached.f8"]],
    },
    Fit { machine: "a100-80g", what: What::Passes, sources: &["vidur_mlp_a100"], numbers: &[SCALAR] },
    Fit { machine: "h100-80g", what: What::Passes, sources: &["vidur_mlp_h100"], numbers: &[SCALAR] },
    Fit {
        machine: "a100-80g-pcie",
        what: What::Attention,
        sources: &["simumax_attn_a100pcie"],
        numbers: &[&["device.attention_forward"], &["device.attention_backward"]],
    },
    Fit {
        machine: "a100-80g",
        what: What::AllReduces,
        sources: &["vtrain_nccl_lut_a100", "vidur_a100_dgx", "ml_eng_a100_1node"],
        numbers: &[
            &["transport.local_rate"],
            &["transport.bulk.fill"],
            &["transport.packed.fill"],
            &["transport.packed.share"],
            &["transport.eager.fill"],
            &["transport.eager.hop"],
            &["transport.eager.share"],
        ],
    },
];

/// How often each number is sought.
const ROUNDS: usize = 3;

impl What {
    /// The file that has such rows.
    #[must_use]
    pub fn file(self) -> &'static str {
        if self == Self::AllReduces { "collective_rows.csv" } else { "gemm_rows.csv" }
    }

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Products => "products",
            Self::Passes => "passes that take one element at a time",
            Self::Attention => "attention in one kernel",
            Self::AllReduces => "all-reduces inside a node",
        }
    }

    fn has(self, row: &Row<'_>) -> bool {
        let op = row.text("op");
        match self {
            Self::Products => op.starts_with("gemm"),
            Self::Passes => ["memory:mlp_act", "memory:input_layernorm"].contains(&op),
            Self::Attention => op.starts_with("sdp_"),
            Self::AllReduces => op == "all_reduce" && ["", "1"].contains(&row.text("n_nodes")),
        }
    }
}

impl Fit {
    /// Its rows of a table.
    fn rows<'a>(&self, table: &'a Table) -> Vec<Row<'a>> {
        let ours = |row: &Row<'_>| {
            self.sources.contains(&row.text("source"))
                && file_of(row.text("gpu")) == Some(self.machine)
                && self.what.has(row)
        };
        table.rows().filter(ours).collect()
    }

    fn price(&self, row: &Row<'_>, machine: &Machine) -> Option<Priced> {
        let priced = match self.what {
            What::AllReduces => collectives::priced_on(row, machine.clone()),
            _ => products::priced_on(row, &machine.device),
        };
        priced.ok()
    }
}

/// Fits numbers again to the rows of the table that has them; nothing if there are no such rows.
#[must_use]
pub fn refit(fit: &Fit, table: &Table) -> Option<Refit> {
    let file: Value = serde_json::from_str(shipped::text(fit.machine)?).ok()?;
    let stated: Vec<f64> = fit.numbers.iter().map(|fields| value(&file, fields[0])).collect::<Option<_>>()?;
    let with = |numbers: &[f64]| {
        let mut file = file.clone();
        for (fields, number) in fit.numbers.iter().zip(numbers) {
            for field in *fields {
                *file.pointer_mut(&pointer(field))? = Value::from(*number);
            }
        }
        let machine = json::read(fit.machine, &file.to_string()).ok()?;
        machine.with_devices(1).ok()
    };
    let machine = with(&stated)?;
    let (near, far): (Vec<Row<'_>>, Vec<Row<'_>>) = fit
        .rows(table)
        .into_iter()
        .filter(|row| fit.price(row, &machine).is_some())
        .partition(|row| halved(row.text("row_id")) == Half::Fitted);
    if near.is_empty() || far.is_empty() {
        return None;
    }
    let errors = |machine: &Machine, rows: &[Row<'_>], error: fn(&Priced) -> f64| {
        rows.iter().filter_map(|row| fit.price(row, machine)).map(|it| error(&it)).sum::<f64>()
            / number(rows.len())
    };
    let both = |machine: &Machine| [&near, &far].map(|rows| errors(machine, rows, Priced::error));
    let logarithm = |row: &Priced| (row.predicted / row.measured).ln().abs();
    let ranges: Vec<(f64, f64)> = fit.numbers.iter().zip(&stated).map(|(it, at)| range(it[0], *at)).collect();
    let mut found = stated.clone();
    descend(&ranges, &mut found, ROUNDS, &mut |numbers| {
        with(numbers).map_or(f64::INFINITY, |machine| errors(&machine, &near, logarithm))
    });
    let names = fit.numbers.iter().map(|fields| fields[0].to_owned());
    Some(Refit {
        rows: [near.len(), far.len()],
        numbers: names
            .zip(stated)
            .zip(&found)
            .map(|((name, before), &after)| (name, before, after))
            .collect(),
        stated: both(&machine),
        found: both(&with(&found)?),
    })
}

/// Where a number is sought: parts of a whole are at most that.
fn range(field: &str, stated: f64) -> (f64, f64) {
    let rates = ["feed", "start", "fill", "hop", "rate", "heating"];
    let is_part = !rates.iter().any(|it| field.ends_with(it));
    (stated / 2.0, if is_part { (2.0 * stated).min(1.0) } else { 2.0 * stated })
}

fn value(file: &Value, field: &str) -> Option<f64> {
    file.pointer(&pointer(field))?.as_f64()
}

fn pointer(field: &str) -> String {
    format!("/{}/value", field.replace('.', "/"))
}

#[cfg(test)]
mod tests;

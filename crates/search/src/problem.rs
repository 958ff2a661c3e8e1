//! The problem that every solver solves: one choice per node, in plain numbers.
//!
//! ```text
//! minimise    Σ_v t_v[x_v]  +  Σ_(u,w) t_uw[x_u, x_w]
//! subject to  Σ_v r_v[x_v]  +  c_p  +  Σ_v m_pv[x_v]  ≤  capacity     for every window p
//! ```
//!
//! `t` are times (seconds; infinite means forbidden), `r` the bytes that stay resident through
//! everything, `m_p` the bytes that are live at the point `p`. [`Problem::time`] and
//! [`Problem::memory`] define the two sides; solvers are tested against them.

mod windows; // which of them say something, and those of several problems side by side

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use windows::align;

/// Nodes with choices, tables of times on pairs of nodes, and bytes live at points of time.
///
/// Invariants: every node has a choice; no time is NaN or −∞; an edge joins two different nodes
/// and its table has a row for each choice of `from` and a column for each choice of `to`; a list
/// of bytes has one number for each choice of the node that holds it. Solvers panic otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Problem {
    /// For each node, the time of each of its choices (seconds).
    pub times: Vec<Vec<f64>>,
    /// Pairs of nodes whose choices cost time together.
    pub edges: Vec<Edge>,
    /// The tables that edges name. Edges that cost the same share one.
    pub tables: Vec<Arc<Table>>,
    /// The lists of bytes, one number per choice, that `resident` and `live` name.
    pub bytes: Vec<Vec<u64>>,
    /// What is held through everything.
    pub resident: Vec<Held>,
    /// For each point of time at which memory must suffice, what is live there whatever is chosen (bytes). None
    /// at all means one at which only what is resident is held.
    pub windows: Vec<u64>,
    /// What is live at some of these points as much as choices say.
    pub live: Vec<Live>,
}

/// A pair of nodes and the table of what their choices cost together.
///
/// An edge has no direction but that of its table: swap `from` and `to` to use it transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node whose choice is the table's row.
    pub from: usize,
    /// The node whose choice is the table's column.
    pub to: usize,
    /// An index of [`Problem::tables`].
    pub table: usize,
}

impl Edge {
    /// The other end.
    pub(crate) fn other(self, node: usize) -> usize {
        if self.from == node { self.to } else { self.from }
    }
}

/// A dense table of times (seconds), row after row; an infinite one forbids the pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The length of a row.
    pub columns: usize,
    /// `entries[row * columns + column]`.
    pub entries: Vec<f64>,
}

/// A node that holds bytes, as many as its choice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The node.
    pub node: usize,
    /// An index of [`Problem::bytes`].
    pub bytes: usize,
}

/// What a node holds at points of time that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The node, and its bytes.
    pub held: Held,
    /// The first window.
    pub from: usize,
    /// The first window after it at which it is not live.
    pub until: usize,
}

impl Live {
    /// The windows.
    pub(crate) fn windows(&self) -> Range<usize> {
        self.from..self.until
    }
}

/// One choice for each node, and how good it is known to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// For each node, the index of its choice.
    pub choices: Vec<usize>,
    /// [`Problem::time`] of `choices` (seconds).
    pub time: f64,
    /// What is proven about `time`.
    pub proof: Proof,
}

/// What is proven about the time of a solution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Proof {
    /// Nothing that fits takes less.
    Optimal,
    /// Nothing that fits takes less than this.
    Gap {
        /// The proven bound (seconds).
        lower_bound: f64,
    },
}

/// A window of a segment of a chain; of a plain problem, the segment is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The index of the segment.
    pub segment: usize,
    /// The index of the window in the segment's problem; 0 in one that has none.
    pub window: usize,
}

/// Why there is no solution.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchError {
    /// Every assignment takes infinite time: the forbidden pairs leave nothing.
    Contradiction,
    /// Proven: this window alone takes more than there is, whatever is chosen.
    DoesNotFit {
        /// The window.
        place: Place,
        /// Every assignment takes at least this there (bytes), in one of the blocks if it repeats.
        least: u64,
        /// What there is (bytes).
        capacity: u64,
    },
    /// Proven: every assignment exceeds the memory in some window, though for each window alone
    /// that is not proven.
    DoesNotFitTogether {
        /// Every assignment has a peak of at least this (bytes).
        least: u64,
        /// What there is (bytes).
        capacity: u64,
    },
    /// Nothing was found that fits. This does not prove that there is nothing.
    NothingFound {
        /// The window that has the peak in the nearest assignment that was found.
        place: Place,
        /// That peak (bytes).
        found: u64,
        /// What there is (bytes).
        capacity: u64,
    },
    /// No choice of the globals was found that leaves anything allowed. This does not prove that
    /// there is none.
    GlobalsNotFound,
    /// The nodes depend on each other so closely that elimination needs too large a table.
    TooWide {
        /// Entries of the largest table.
        entries: f64,
        /// The most that are allowed.
        limit: f64,
    },
    /// The solver of linear programs gave up, for the reason that it says.
    Solver(String),
}

impl fmt::Display for SearchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction => write!(out, "every assignment is forbidden"),
            Self::DoesNotFit { place: Place { segment, window }, least, capacity } => write!(
                out,
                "window {window} of segment {segment} takes at least {least} bytes, \
                 there are {capacity}: {} too few",
                least.saturating_sub(*capacity)
            ),
            Self::DoesNotFitTogether { least, capacity } => write!(
                out,
                "the peak is at least {least} bytes, there are {capacity}: {} too few",
                least.saturating_sub(*capacity)
            ),
            Self::NothingFound { place: Place { segment, window }, found, capacity } => write!(
                out,
                "nothing found that fits, and not proven that nothing does: the nearest takes \
                 {found} bytes in window {window} of segment {segment}, there are {capacity}: \
                 {} too few",
                found.saturating_sub(*capacity)
            ),
            Self::GlobalsNotFound => {
                write!(out, "no choice of the globals found that is allowed, nor a proof of none")
            }
            Self::TooWide { entries, limit } => {
                write!(out, "elimination needs a table of {entries} entries, the limit is {limit}")
            }
            Self::Solver(reason) => write!(out, "the linear program was not solved: {reason}"),
        }
    }
}

impl std::error::Error for SearchError {}

impl SearchError {
    /// The same with this much memory, if what it says of memory then holds too.
    pub(crate) fn with_less(&self, less: u64) -> Option<Self> {
        let mut refusal = self.clone();
        match &mut refusal {
            Self::DoesNotFit { least: needed, capacity, .. }
            | Self::DoesNotFitTogether { least: needed, capacity }
            | Self::NothingFound { found: needed, capacity, .. }
                if less < *needed =>
            {
                *capacity = less;
            }
            _ => return None,
        }
        Some(refusal)
    }
}

impl Problem {
    /// The time of an assignment (seconds), infinite if it is forbidden.
    pub fn time(&self, choices: &[usize]) -> f64 {
        let nodes: f64 = self.times.iter().zip(choices).map(|(times, &choice)| times[choice]).sum();
        let edges: f64 = self
            .edges
            .iter()
            .map(|edge| self.tables[edge.table].at(choices[edge.from], choices[edge.to]))
            .sum();
        nodes + edges
    }

    /// Whether all assignments take as long as those of another problem, whatever they hold.
    pub(crate) fn takes_as(&self, other: &Self) -> bool {
        (&self.times, &self.edges, &self.tables) == (&other.times, &other.edges, &other.tables)
    }

    /// What stays resident through everything (bytes).
    pub fn resident(&self, choices: &[usize]) -> u64 {
        self.held(&self.resident, choices)
    }

    /// What is live at each window, without what is resident (bytes); a problem without windows
    /// has one at which nothing is.
    pub fn live(&self, choices: &[usize]) -> Vec<u64> {
        if self.windows.is_empty() {
            return vec![0];
        }
        let bytes = |live: &Live| self.bytes[live.held.bytes][choices[live.held.node]];
        self.summed(bytes)
    }

    /// For each window its constant and what is live there, where each takes so many bytes.
    pub(crate) fn summed(&self, bytes: impl Fn(&Live) -> u64) -> Vec<u64> {
        // How much more is live at each window than at the one before.
        let (mut more, mut less) = (vec![0; self.windows.len() + 1], vec![0; self.windows.len() + 1]);
        for live in &self.live {
            let bytes = bytes(live);
            more[live.from] += bytes;
            less[live.until] += bytes;
        }
        let mut live = 0;
        let windows = self.windows.iter().zip(more).zip(less);
        windows
            .map(|((constant, more), less)| {
                live = live + more - less;
                constant + live
            })
            .collect()
    }

    /// The memory that each window takes (bytes): what is resident and what is live there.
    pub fn memory(&self, choices: &[usize]) -> Vec<u64> {
        let resident = self.resident(choices);
        self.live(choices).into_iter().map(|live| resident + live).collect()
    }

    /// The largest of [`Problem::memory`] (bytes).
    pub fn peak(&self, choices: &[usize]) -> u64 {
        self.memory(choices).into_iter().max().unwrap_or(0)
    }

    /// For each node, the number of its choices.
    pub fn domains(&self) -> Vec<usize> {
        self.times.iter().map(Vec::len).collect()
    }

    fn held(&self, held: &[Held], choices: &[usize]) -> u64 {
        held.iter().map(|held| self.bytes[held.bytes][choices[held.node]]).sum()
    }
}

impl Table {
    /// The time of a pair of choices (seconds).
    pub fn at(&self, row: usize, column: usize) -> f64 {
        self.entries[row * self.columns + column]
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.entries.len() / self.columns
    }
}

/// A count of bytes or of entries as a real number, exact below 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^53")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// The number of pairs, choices or entries as a real number.
pub(crate) fn real_size(size: usize) -> f64 {
    real(u64::try_from(size).unwrap_or(u64::MAX))
}

#[cfg(test)]
pub(crate) mod tests;

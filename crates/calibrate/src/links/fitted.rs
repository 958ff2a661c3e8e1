//! Numbers of a machine file that explain what exchanges take.
//!
//! They are sought by their logarithms, so that the sum of the squares of `ln(priced/measured)` is least:
//! rates first, by large values; then starts, by small ones; then all together. A number that changes no
//! price of what was measured, such as that of a protocol that is never the fastest, stays as the file that
//! this starts from has it, with its source.

use cost_models::machine::Machine;
use files::Failure;

use super::{Ranks, Timed};
use crate::gpu::{Draft, Fitted, Kind, seek};

/// A value is large from here on, and small up to there (bytes).
const LARGE: u64 = 16 << 20;
const SMALL: u64 = 64 << 10;

/// By how much a number is moved to see whether prices change, and what counts as a change.
const MOVED: f64 = 0.9;
const CHANGE: f64 = 1e-3;

/// How often everything is sought together: which protocol is the fastest depends on what is found.
const ROUNDS: usize = 3;

const RATES: [(&str, Kind); 7] = [
    ("node.ring_share", Kind::Part),
    ("node.pair_share", Kind::Part),
    ("node.exchange_share", Kind::Part),
    ("node.host_share", Kind::Part),
    ("transport.local_rate", Kind::Amount),
    ("transport.in_switch.share", Kind::Part),
    ("network.share", Kind::Part),
];
const STARTS: [(&str, Kind); 3] = [
    ("transport.eager.start", Kind::Amount),
    ("transport.eager.fill", Kind::Amount),
    ("transport.eager.hop", Kind::Amount),
];
const BETWEEN: [(&str, Kind); 9] = [
    ("transport.eager.share", Kind::Part),
    ("transport.packed.fill", Kind::Amount),
    ("transport.packed.share", Kind::Part),
    ("transport.bulk.fill", Kind::Amount),
    ("transport.in_switch.start", Kind::Amount),
    ("network.bulk.ring", Kind::Amount),
    ("network.packed.ring", Kind::Amount),
    ("network.eager.ring", Kind::Amount),
    ("network.eager.tree", Kind::Amount),
];

/// What keeps nodes of a machine from having these ranks, if something does.
pub fn lacking(like: &Machine, ranks: Ranks) -> Option<String> {
    let (name, node) = (&like.name, like.node.devices.value.0);
    if ranks.each > node {
        let each = ranks.each;
        return Some(format!("{each} ranks are on one host, and a node of {name} has {node} devices"));
    }
    let alone = ranks.nodes > 1 && like.network.is_none();
    alone.then(|| format!("ranks are on {} hosts, and {name} has no network", ranks.nodes))
}

/// The machine that explains what was measured, with what was not from another one's file.
pub fn fitted(like: &Machine, rows: &[(Timed, f64)], source: &str) -> Result<Fitted, Failure> {
    let before = Draft::of(like, &like.name)?;
    let mut draft = before.clone();
    let all: Vec<(&str, Kind)> = [&RATES[..], &STARTS, &BETWEEN].concat();
    let all: Vec<(&str, Kind)> = all.into_iter().filter(|it| before.number(it.0).is_finite()).collect();
    let priced = |timed: &Timed, machine: &Machine| timed.priced(machine);
    let chosen = |is: &dyn Fn(&Timed) -> bool| rows.iter().filter(|(it, _)| is(it)).collect::<Vec<_>>();
    let (large, small) = (chosen(&|it| it.bytes >= LARGE), chosen(&|it| it.bytes <= SMALL));
    let there = |numbers: &[(&'static str, Kind)]| -> Vec<(&'static str, Kind)> {
        numbers.iter().copied().filter(|it| all.contains(it)).collect()
    };
    seek(&mut draft, &there(&RATES), &large, &priced);
    seek(&mut draft, &there(&STARTS), &small, &priced);
    let every = chosen(&|_| true);
    for _ in 0..ROUNDS {
        let felt = felt(&draft, &all, rows)?;
        seek(&mut draft, &felt, &every, &priced);
    }
    let felt = felt(&draft, &all, rows)?;
    for (field, _) in all.iter().filter(|it| !felt.contains(it)) {
        draft.set(field, before.number(field));
    }
    let from = format!("{source}: fitted to {} times", rows.len());
    felt.iter().for_each(|(field, _)| draft.cite(field, &from));
    let number = |(field, _): &(&str, Kind)| ((*field).to_owned(), before.number(field), draft.number(field));
    let full = felt.iter().filter(|it| it.1 == Kind::Part && draft.number(it.0) > 0.995);
    Ok(Fitted {
        machine: draft.machine()?,
        numbers: felt.iter().map(number).collect(),
        full: full.map(|it| it.0.to_owned()).collect(),
    })
}

/// The numbers that change some price of what was measured.
fn felt<'a>(
    draft: &Draft,
    all: &[(&'a str, Kind)],
    rows: &[(Timed, f64)],
) -> Result<Vec<(&'a str, Kind)>, Failure> {
    let prices = |draft: &Draft| -> Result<Vec<Option<f64>>, Failure> {
        let machine = draft.machine()?;
        Ok(rows.iter().map(|(timed, _)| timed.priced(&machine)).collect())
    };
    let here = prices(draft)?;
    let mut felt = Vec::new();
    for number in all {
        let mut other = draft.clone();
        other.set(number.0, MOVED * draft.number(number.0));
        let there = prices(&other)?;
        let changes = |(here, there): (&Option<f64>, &Option<f64>)| match (here, there) {
            (Some(here), Some(there)) => (there / here - 1.0).abs() > CHANGE,
            _ => false,
        };
        if here.iter().zip(&there).any(changes) {
            felt.push(*number);
        }
    }
    Ok(felt)
}

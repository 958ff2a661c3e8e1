//! What GPUs of this machine exchange with each other: times by their own events, and the numbers of a
//! machine file that explain them.

mod rows; // what is timed, and what it is priced by
mod fitted; // numbers of a machine that explain times

use std::rc::Rc;
use std::time::Duration;

use cost_models::machine::Machine;
use device::{Facts, Links, Settings};
use files::{Doing, Failure, Of, Say};
use run::Processes;

use super::gpu::{Beside, Care, Fitted, failure, named, shown_links, steady};
use super::notes::Notes;

pub use fitted::{fitted, lacking};
pub use rows::{Among, Timed};

/// What the largest value has (bytes).
const LARGEST: u64 = 8 << 30;

/// On which node each rank is: as many on each, one node after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// How many nodes there are.
    pub nodes: u64,
    /// How many ranks each has.
    pub each: u64,
}

impl Ranks {
    /// By the number of each rank's node, ascending; or why ranks lie in no such way.
    pub fn of(nodes: &[u64]) -> Result<Self, String> {
        let count = nodes.last().map_or(0, |it| it + 1);
        let of_node = |node: u64| nodes.iter().filter(|it| **it == node).count();
        let each: Vec<usize> = (0..count).map(of_node).collect();
        let first = each.first().copied().unwrap_or(0);
        if each.iter().any(|it| *it != first) {
            let each: Vec<String> = each.iter().map(usize::to_string).collect();
            return Err(format!(
                "nodes one after another have {} ranks, expected as many on each",
                each.join(", ")
            ));
        }
        Ok(Self { nodes: count, each: u64::try_from(first).unwrap_or(0) })
    }

    fn all(self) -> u64 {
        self.nodes * self.each
    }
}

/// What the GPUs and the library that were measured are called: times of others are of no use.
pub fn identity(facts: &Facts, version: &str, ranks: Ranks) -> String {
    let Ranks { nodes, each } = ranks;
    let nodes = if nodes == 1 { "one node".to_owned() } else { format!("each of {nodes} nodes") };
    format!("{}, NCCL {version}, {each} ranks on {nodes}", named(facts))
}

/// Measures what the notes of the first rank do not have yet, saying what is measured. All ranks do this;
/// all get the same.
pub fn measured(
    settings: &Settings,
    (processes, limit): (&Rc<Processes>, Duration),
    ranks: Ranks,
    notes: &mut Notes,
    say: &Say<'_>,
) -> Result<(Vec<(Timed, f64)>, Care), Failure> {
    let among = Among::all(ranks);
    let groups: Vec<Vec<Vec<u64>>> = among.iter().map(|it| it.groups(ranks)).collect();
    let mut links = Links::open(settings, processes, limit, &groups).map_err(failure)?;
    let room = links.take_memory(LARGEST).map_err(failure)?;
    let all = rows::all(&among, ranks, room);
    // The notes are the first rank's: it says what they have.
    let own: Vec<u8> = all.iter().map(|it| u8::from(notes.get(&it.name).is_some())).collect();
    let there = processes.said(&own).into_iter().next().unwrap_or_default();
    let (count, before) = (all.len(), there.iter().filter(|it| **it == 1).count());
    let again = if before > 0 { format!(" ({before} are there from before)") } else { String::new() };
    let mut care = Care::default();
    let mut rows = Vec::new();
    for (number, timed) in all.into_iter().enumerate() {
        say(Doing::one("measuring", number + 1, Of::All(count)).named(format!("{}{again}", timed.name)));
        let measure = |care: &mut Care| {
            let time = &mut || links.time(timed.what, timed.bytes, timed.group);
            Ok(steady(&timed.name, care, time)?.seconds)
        };
        let seconds = match there.get(number) {
            // What others have from before they do not need: the first one fits.
            Some(1) => notes.get(&timed.name).unwrap_or(1.0),
            _ if processes.leads() => notes.of(&timed.name, || measure(&mut care))?,
            _ => measure(&mut care)?,
        };
        rows.push((timed, seconds));
    }
    Ok((rows, care))
}

/// What was measured, in tables, beside what the numbers say of it and what the file that they start from says.
pub fn shown(rows: &[(Timed, f64)], like: &Machine, fitted: &Fitted, care: &Care) -> String {
    let beside = rows.iter().map(|(timed, seconds)| {
        let by = [&fitted.machine, like].map(|it| timed.priced(it));
        Beside { name: &timed.name, seconds: *seconds, by }
    });
    shown_links(&beside.collect::<Vec<_>>(), &like.name, fitted, care)
}

#[cfg(test)]
mod tests;

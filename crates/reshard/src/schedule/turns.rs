//! As few rounds as can be of work that does not meet.
//!
//! Where each piece of work enters one node, pieces are the edges of a bipartite graph, between the
//! adapters that they leave by and those that they enter by; rounds are colours, of which an adapter has
//! each once. There are as many as the busiest adapter has pieces: where these are of one size, the
//! schedule ends when that adapter does.
//!
//! Source: D. Kőnig, "Über Graphen und ihre Anwendung auf Determinantentheorie und Mengenlehre",
//! Mathematische Annalen 77, 1916; colours are swapped along alternating paths, as in its proof.

use super::longest::least_loaded;
use super::matched::matched_senders;
use super::{Problem, Schedule, in_order};

/// Up to how many places there are for rounds of adapters.
const PLACES: usize = 1 << 22;

pub(super) fn in_turns(problem: &Problem) -> Schedule {
    let [alike, least] = [matched_senders(problem), least_loaded(problem)];
    let senders = if most_sent(problem, &least) < most_sent(problem, &alike) { least } else { alike };
    match rounds(problem, &senders) {
        Some(rounds) => {
            let mut order: Vec<usize> = (0..rounds.len()).collect();
            order.sort_by_key(|&work| rounds[work]);
            problem.schedule(senders, order)
        }
        None => in_order(problem),
    }
}

/// What leaves by the busiest adapter (bytes).
fn most_sent(problem: &Problem, senders: &[usize]) -> u64 {
    let mut sent = vec![0; problem.adapters];
    senders.iter().zip(&problem.works).for_each(|(&sender, work)| sent[sender] += work.bytes);
    sent.into_iter().max().unwrap_or(0)
}

/// The round of each piece of work, if each enters one node, and there are not too many.
fn rounds(problem: &Problem, senders: &[usize]) -> Option<Vec<usize>> {
    let entry = |work: usize| match problem.works[work].receivers[..] {
        [ref only] => only.first().copied(),
        _ => None,
    };
    // Adapters outwards, then adapters inwards.
    let ends: Vec<[usize; 2]> = (0..problem.works.len())
        .map(|work| Some([senders[work], problem.adapters + entry(work)?]))
        .collect::<Option<_>>()?;
    let mut busy = vec![0_usize; 2 * problem.adapters];
    ends.iter().flatten().for_each(|&end| busy[end] += 1);
    let rounds = busy.into_iter().max().unwrap_or(0);
    if rounds.checked_mul(2 * problem.adapters)? > PLACES {
        return None;
    }
    let mut colours = Colours { rounds, ends, at: vec![None; rounds * 2 * problem.adapters] };
    for work in 0..problem.works.len() {
        colours.add(work)?;
    }
    let mut found = vec![0; problem.works.len()];
    for (place, work) in colours.at.iter().enumerate() {
        if let Some(work) = *work {
            found[work] = place % rounds;
        }
    }
    Some(found)
}

struct Colours {
    rounds: usize,
    /// The two ends of each piece of work.
    ends: Vec<[usize; 2]>,
    /// For each end and round the piece of work that it has then.
    at: Vec<Option<usize>>,
}

impl Colours {
    fn place(&self, end: usize, round: usize) -> usize {
        end * self.rounds + round
    }

    /// The first round in which an end is free.
    fn free(&self, end: usize) -> Option<usize> {
        (0..self.rounds).find(|&round| self.at[self.place(end, round)].is_none())
    }

    fn add(&mut self, work: usize) -> Option<()> {
        let [sender, entry] = self.ends[work];
        let both = |&round: &usize| {
            self.at[self.place(sender, round)].is_none() && self.at[self.place(entry, round)].is_none()
        };
        let round = match (0..self.rounds).find(both) {
            Some(round) => round,
            None => {
                let (of_sender, of_entry) = (self.free(sender)?, self.free(entry)?);
                self.swap(entry, [of_sender, of_entry]);
                of_sender
            }
        };
        for end in [sender, entry] {
            let place = self.place(end, round);
            self.at[place] = Some(work);
        }
        Some(())
    }

    /// Swaps two rounds along the path of work of both from an end that has none in the second one.
    fn swap(&mut self, from: usize, [first, second]: [usize; 2]) {
        let mut path = Vec::new();
        let (mut end, mut round, mut other) = (from, first, second);
        while let Some(work) = self.at[self.place(end, round)] {
            path.push((work, round, other));
            let [sender, entry] = self.ends[work];
            end = if end == sender { entry } else { sender };
            (round, other) = (other, round);
        }
        for &(work, had, _) in &path {
            for end in self.ends[work] {
                let place = self.place(end, had);
                self.at[place] = None;
            }
        }
        for &(work, _, gets) in &path {
            for end in self.ends[work] {
                let place = self.place(end, gets);
                self.at[place] = Some(work);
            }
        }
    }
}

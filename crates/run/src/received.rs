//! What ranks have received from others, by why.

use lower::{Action, Instruction, Origin};

use crate::rank::{Rank, Report};
use crate::session::Session;

impl Session {
    /// What ranks with the same instructions have received, for each of these instructions.
    pub(crate) fn received(&self, reports: &[Report]) -> Vec<(Origin, u64)> {
        type Exchanges = Vec<(usize, Vec<(Origin, u64)>)>;
        let exchanges = |rank: &Rank| -> Exchanges {
            let all = rank.program.instructions.iter().enumerate();
            let exchanges = all.filter(|(_, it)| {
                it.action.communicator().is_some() || matches!(it.action, Action::Receive(_))
            });
            exchanges.map(|(index, it)| (index, exchanged(it))).collect()
        };
        let mut stages: Vec<(Exchanges, Vec<u64>)> = Vec::new();
        for (rank, report) in self.ranks.iter().zip(reports) {
            let own = exchanges(rank);
            let place = stages.iter().position(|(known, _)| *known == own).unwrap_or_else(|| {
                stages.push((own.clone(), vec![0; own.len()]));
                stages.len() - 1
            });
            for (sum, (index, _)) in stages[place].1.iter_mut().zip(&own) {
                *sum += report.received[*index];
            }
        }
        let stage = |(known, sums): (Exchanges, Vec<u64>)| {
            known.into_iter().zip(sums).flat_map(|((_, parts), sum)| parted(&parts, sum)).collect::<Vec<_>>()
        };
        stages.into_iter().flat_map(stage).collect()
    }
}

/// For what ranks exchange something in an instruction, and how many elements.
fn exchanged(instruction: &Instruction) -> Vec<(Origin, u64)> {
    let mut all = vec![(instruction.origin, 1)];
    if let Action::Collective(it) = &instruction.action {
        all[0].1 = it.elements;
        all.extend(it.further.iter().map(|it| (it.origin, it.elements)));
    }
    all
}

/// What all ranks together receive in several exchanges of a kind, by their elements: each as many times those.
fn parted(parts: &[(Origin, u64)], bytes: u64) -> Vec<(Origin, u64)> {
    let all: u128 = parts.iter().map(|it| u128::from(it.1)).sum();
    let of = |elements: u64| u128::from(bytes) * u128::from(elements) / all.max(1);
    parts.iter().map(|&(origin, it)| (origin, u64::try_from(of(it)).unwrap_or(u64::MAX))).collect()
}

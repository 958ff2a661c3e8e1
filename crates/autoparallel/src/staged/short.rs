//! Which stages have to do with how much less memory, where a group of devices does not have what its stages hold.

/// What part of what a stage counts it has to do with less, at least.
const LEAST: u64 = 200;

/// A quarter more is done without, or a thirty-second.
const MUCH: u32 = 2;
const LITTLE: u32 = 5;

/// What was too little when stages were last planned.
pub(super) struct Short {
    /// By how much groups hold too much (bytes), and the group of each stage.
    beyond: Vec<u64>,
    groups: Vec<usize>,
    /// What each stage counts, and by how much it holds too much by itself (bytes).
    counted: Vec<u64>,
    alone: Vec<u64>,
    /// What each had when it was planned (bytes).
    had: Vec<u64>,
    /// What each cannot do without, as far as is known (bytes).
    needs: Vec<u64>,
    /// How often half of it is how much more stages do without.
    spare: u32,
}

impl Short {
    /// Of so many stages, which were not planned yet.
    pub(super) fn new(count: usize) -> Self {
        let nothing = || vec![0; count];
        let (beyond, groups) = (Vec::new(), Vec::new());
        Self {
            beyond,
            groups,
            counted: nothing(),
            alone: nothing(),
            had: nothing(),
            needs: nothing(),
            spare: MUCH,
        }
    }

    /// Notes by how much groups hold too much, with what stages had.
    pub(super) fn by(
        &mut self,
        (beyond, groups): (Vec<u64>, Vec<usize>),
        (counted, alone): (Vec<u64>, Vec<u64>),
        had: &[u64],
    ) {
        let (had, needs) = (had.to_vec(), std::mem::take(&mut self.needs));
        *self = Self { beyond, groups, counted, alone, had, needs, ..*self };
    }

    /// Stages of groups that hold too much have less, and a little more: each of what it counts and can do without. False
    /// where they cannot do with so little.
    pub(super) fn give(&self, capacities: &mut [u64]) -> bool {
        let mut can = true;
        for group in 0..self.beyond.len() {
            can &= self.give_of(group, capacities);
        }
        can
    }

    /// Stages that were given less, and fit, are given a little more again. False where they were, or had all.
    pub(super) fn a_little_more(&mut self, capacities: &mut [u64]) -> bool {
        let is_new = self.spare == MUCH && !self.beyond.is_empty();
        if is_new {
            self.spare = LITTLE;
        }
        is_new && self.give(capacities)
    }

    /// What a stage counts that it can do without, as far as is known (bytes).
    fn free(&self, stage: usize) -> u64 {
        self.had[stage].min(self.counted[stage]).saturating_sub(self.needs[stage])
    }

    fn give_of(&self, group: usize, capacities: &mut [u64]) -> bool {
        let beyond = self.beyond[group];
        let own: Vec<usize> = (0..self.groups.len()).filter(|&it| self.groups[it] == group).collect();
        let together: u64 = own.iter().map(|&it| self.free(it)).sum();
        // A little more, for the next plan's programs need what is not counted too.
        let more = |bytes: u64| bytes.saturating_add(bytes >> self.spare);
        let wanted = more(beyond).min(together.max(beyond));
        for &stage in own.iter().filter(|&&it| beyond > 0 || self.alone[it] > 0) {
            let (free, counted) = (self.free(stage), self.counted[stage]);
            let part = u128::from(wanted) * u128::from(free) / u128::from(together.max(1));
            let part = u64::try_from(part).unwrap_or(u64::MAX).max(more(self.alone[stage]));
            let less = part.max(counted / LEAST).min(free);
            capacities[stage] = (self.had[stage].min(counted) - less).max(1);
        }
        beyond <= together && own.iter().all(|&it| self.alone[it] <= self.free(it))
    }

    /// Where stages cannot be planned with what they were given, and need so much, as far as is known (bytes), others of
    /// their groups have less. False where those cannot either.
    pub(super) fn others(
        &mut self,
        failed: impl IntoIterator<Item = (usize, u64)>,
        capacities: &mut [u64],
    ) -> bool {
        let less = |all, (stage, needs): (usize, u64)| self.cannot(stage, capacities[stage], needs) && all;
        failed.into_iter().fold(true, less) && self.give(capacities)
    }

    /// A stage needs so much, as far as is known, and not what it was given (bytes). False where it was given all it had.
    fn cannot(&mut self, stage: usize, given: u64, needs: u64) -> bool {
        let had = self.had[stage].min(self.counted[stage]);
        // What is near what is needed may be hard to find.
        let needs = needs.max(given).saturating_add(self.counted[stage] / LEAST);
        self.needs[stage] = needs.min(had).max(self.needs[stage]);
        !self.groups.is_empty() && given < had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups of two stages each, of which the first holds 100 too much.
    fn short() -> Short {
        let mut short = Short::new(4);
        short.by((vec![100, 0], vec![0, 1, 0, 1]), (vec![600, 500, 200, 100], vec![0; 4]), &[1000; 4]);
        short
    }

    #[test]
    fn stages_give_of_what_they_count() {
        let mut capacities = vec![1000; 4];
        assert!(short().give(&mut capacities));
        // 75 % and 25 % of 125.
        assert_eq!(capacities, [600 - 93, 1000, 200 - 31, 1000]);
    }

    #[test]
    fn what_a_stage_cannot_give_the_others_of_its_group_do() {
        let mut short = short();
        let mut capacities = vec![507, 1000, 169, 1000];
        // It can give 17 only: 600 without 580 and a two-hundredth of it.
        assert!(short.others([(0, 580)], &mut capacities));
        assert_eq!(capacities, [600 - 9, 1000, 200 - 115, 1000]);
        // Less than a quarter more is there, and less than is missing.
        assert!(short.others([(2, 90)], &mut capacities));
        assert_eq!(capacities, [600 - 16, 1000, 200 - 108, 1000]);
        assert!(short.others([(2, 110)], &mut capacities.clone()), "106 are there");
        assert!(!short.others([(2, 118)], &mut capacities), "98 are there");
        // A stage that was given nothing less is not what fails.
        assert!(!Short::new(2).others([(0, 2)], &mut [1, 1]));
    }

    #[test]
    fn what_fits_is_given_a_little_more_once() {
        let (mut short, mut capacities) = (short(), vec![507, 1000, 169, 1000]);
        assert!(short.a_little_more(&mut capacities));
        // 75 % and 25 % of 103.
        assert_eq!(capacities, [600 - 77, 1000, 200 - 25, 1000]);
        assert!(!short.a_little_more(&mut capacities));
        assert!(!Short::new(2).a_little_more(&mut [1, 1]), "none had less");
    }
}

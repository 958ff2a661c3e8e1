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
    /// Stages that cannot do with less than they had.
    stuck: Vec<bool>,
    /// How often half of it is how much more stages do without.
    spare: u32,
}

impl Short {
    /// Of so many stages, which were not planned yet.
    pub(super) fn new(count: usize) -> Self {
        let nothing = || vec![0; count];
        let (beyond, groups, stuck) = (Vec::new(), Vec::new(), vec![false; count]);
        Self { beyond, groups, counted: nothing(), alone: nothing(), had: nothing(), stuck, spare: MUCH }
    }

    /// Notes by how much groups hold too much, with what stages had.
    pub(super) fn by(
        &mut self,
        (beyond, groups): (Vec<u64>, Vec<usize>),
        (counted, alone): (Vec<u64>, Vec<u64>),
        had: &[u64],
    ) {
        let (had, stuck) = (had.to_vec(), std::mem::take(&mut self.stuck));
        *self = Self { beyond, groups, counted, alone, had, stuck, spare: self.spare };
    }

    /// Stages of groups that hold too much have less, each of what it counts, and a little more.
    pub(super) fn give(&self, capacities: &mut [u64]) {
        (0..self.beyond.len()).for_each(|group| self.give_of(group, capacities));
    }

    /// Stages that were given less, and fit, are given a little more again. False where they were, or had all.
    pub(super) fn a_little_more(&mut self, capacities: &mut [u64]) -> bool {
        let is_new = self.spare == MUCH && !self.beyond.is_empty();
        if is_new {
            self.spare = LITTLE;
            self.give(capacities);
        }
        is_new
    }

    fn give_of(&self, group: usize, capacities: &mut [u64]) {
        for (number, capacity) in capacities.iter_mut().enumerate() {
            let (beyond, alone) = (self.beyond[group], self.alone[number]);
            if self.groups[number] != group || self.stuck[number] || beyond == 0 && alone == 0 {
                continue;
            }
            let own = |it: &usize| self.groups[*it] == self.groups[number] && !self.stuck[*it];
            let together: u64 = (0..self.counted.len()).filter(own).map(|it| self.counted[it]).sum();
            let counted = self.counted[number];
            let part = u128::from(beyond) * u128::from(counted) / u128::from(together.max(1));
            let part = part.max(u128::from(alone));
            // A little more, for the next plan's programs need what is not counted too.
            let part = part + (part >> self.spare);
            let less = u64::try_from(part).unwrap_or(u64::MAX).max(counted / LEAST);
            *capacity = self.had[number].min(counted).saturating_sub(less).max(1);
        }
    }

    /// Where these stages cannot be planned with what they were given, they have what they had, and others of their
    /// groups give it; where there are none, they have half as much less. False where that is hardly less.
    pub(super) fn others(&mut self, capacities: &mut [u64], failed: impl Fn(usize) -> bool) -> bool {
        if self.groups.is_empty() {
            return false;
        }
        for number in (0..self.stuck.len()).filter(|&it| failed(it)) {
            let (group, given, counted) = (self.groups[number], capacities[number], self.counted[number]);
            let had = self.had[number].min(counted);
            // What is given to others of one form may be too little of one of them only.
            if given >= had {
                continue;
            }
            let gives = |it: usize| it != number && self.groups[it] == group && !self.stuck[it];
            if (0..self.stuck.len()).any(gives) && self.alone[number] == 0 {
                self.stuck[number] = true;
                capacities[number] = self.had[number];
            } else if had - given <= counted / LEAST {
                return false;
            } else {
                capacities[number] = given + (had - given) / 2;
                continue;
            }
            self.give_of(group, capacities);
        }
        true
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
        short().give(&mut capacities);
        // 75 and 25 of the 100, and a quarter more.
        assert_eq!(capacities, [600 - 93, 1000, 200 - 31, 1000]);
    }

    #[test]
    fn what_a_stage_cannot_give_the_others_of_its_group_do() {
        let mut short = short();
        let mut capacities = vec![507, 1000, 169, 1000];
        assert!(short.others(&mut capacities, |it| it == 0));
        assert_eq!(capacities, [1000, 1000, 200 - 125, 1000]);
        // None is left: half as much less, until that is hardly less.
        assert!(short.others(&mut capacities, |it| it == 2));
        assert_eq!(capacities, [1000, 1000, 75 + 62, 1000]);
        capacities[2] = 199;
        assert!(!short.others(&mut capacities, |it| it == 2));
        // A stage that was given nothing less is not what fails.
        assert!(!Short::new(2).others(&mut [1, 1], |_| true));
    }

    #[test]
    fn what_fits_is_given_a_little_more_once() {
        let (mut short, mut capacities) = (short(), vec![507, 1000, 169, 1000]);
        assert!(short.a_little_more(&mut capacities));
        // 75 and 25 of the 100, and a thirty-second more.
        assert_eq!(capacities, [600 - 77, 1000, 200 - 25, 1000]);
        assert!(!short.a_little_more(&mut capacities));
        assert!(!Short::new(2).a_little_more(&mut [1, 1]), "none had less");
    }
}

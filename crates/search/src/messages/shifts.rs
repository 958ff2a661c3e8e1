//! Costs moved from one end of a problem to the other.

/// By how much nodes at the one end of a problem cost less, and those at the other more: nothing at all where
/// such problems follow each other, as the one end stands for the same as the other end of the problem before.
#[derive(Clone, Debug)]
pub(super) struct Shifts {
    /// A node at the one end and the node at the other that stands for the same in the next problem.
    ends: Vec<[usize; 2]>,
    /// For each of these, by choice.
    moved: Vec<Vec<f64>>,
}

impl Shifts {
    /// Nothing is moved; a node that is at both ends is left out.
    pub(super) fn new(ends: &[[usize; 2]], domains: &[usize]) -> Self {
        let ends: Vec<[usize; 2]> = ends.iter().copied().filter(|[first, last]| first != last).collect();
        let moved = ends.iter().map(|[first, _]| vec![0.0; domains[*first]]).collect();
        Self { ends, moved }
    }

    /// Moves costs of nodes.
    pub(super) fn apply(&self, costs: &mut [Vec<f64>]) {
        for ([first, last], moved) in self.ends.iter().zip(&self.moved) {
            costs[*first].iter_mut().zip(moved).for_each(|(cost, it)| *cost -= it);
            costs[*last].iter_mut().zip(moved).for_each(|(cost, it)| *cost += it);
        }
    }

    /// So that choices exceed a bound by as much at both ends.
    pub(super) fn even(&mut self, excess: &[Vec<f64>]) {
        for ([first, last], moved) in self.ends.iter().zip(&mut self.moved) {
            for ((it, first), last) in moved.iter_mut().zip(&excess[*first]).zip(&excess[*last]) {
                if *first < f64::INFINITY && *last < f64::INFINITY {
                    *it += (first - last) / 2.0;
                }
            }
        }
    }

    /// What a choice of a node costs more than it says where costs are moved.
    pub(super) fn back(&self, node: usize, choice: usize) -> f64 {
        let each = self.ends.iter().zip(&self.moved).map(|([first, last], moved)| {
            if *first == node {
                moved[choice]
            } else if *last == node {
                -moved[choice]
            } else {
                0.0
            }
        });
        each.sum()
    }
}

//! Blocks that lead from what one block chooses at its end to what another one chooses at its start.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Base, Solver};
use crate::chain::{ChainChoices, Prices, Starts};
use crate::problem::SearchError;

/// A block of a segment from one state to another, with these choices of the globals.
type Joint = (usize, [Vec<usize>; 2], Vec<usize>);

/// What joins blocks of a chain.
#[derive(Clone)]
pub(crate) struct Joints {
    base: Arc<Base>,
    starts: Starts,
    /// The blocks that were found; nothing where there is none.
    known: BTreeMap<Joint, Option<Vec<usize>>>,
}

impl Solver {
    /// What joins blocks of its chain; nothing if the boundaries have too many states.
    pub(crate) fn joints(&self) -> Option<Joints> {
        let (base, starts) = (Arc::clone(&self.base), self.starts.clone());
        base.relaxation.is_some().then_some(Joints { base, starts, known: BTreeMap::new() })
    }
}

impl Joints {
    /// The choices of these blocks, where a block that begins in another state than the one before ends in is the
    /// one of least time that leads from there to where the next one begins; nothing if there is no such block,
    /// or blocks disagree on globals.
    pub(crate) fn joined(&mut self, mut choices: ChainChoices) -> Result<Option<ChainChoices>, SearchError> {
        let joints = self.between(&choices);
        self.find(joints.iter().map(|(_, joint)| joint))?;
        for ((segment, block), joint) in joints {
            let Some(found) = &self.known[&joint] else { return Ok(None) };
            choices.blocks[segment][block].clone_from(found);
        }
        Ok((self.base.chain.time(&choices) < f64::INFINITY).then_some(choices))
    }

    /// The places where other blocks are needed, and which.
    fn between(&self, choices: &ChainChoices) -> Vec<((usize, usize), Joint)> {
        let segments = &self.base.chain.segments;
        let all: Vec<(usize, usize)> = choices
            .blocks
            .iter()
            .enumerate()
            .flat_map(|(segment, blocks)| (0..blocks.len()).map(move |block| (segment, block)))
            .collect();
        let states = |(segment, block): (usize, usize), nodes: &[usize]| -> Vec<usize> {
            nodes.iter().map(|&node| choices.blocks[segment][block][node]).collect()
        };
        let entry = |at: (usize, usize)| states(at, &segments[at.0].entry);
        let exit = |at: (usize, usize)| states(at, &segments[at.0].exit);
        let mut joints = Vec::new();
        let mut state = all.first().map(|&at| entry(at)).unwrap_or_default();
        for (number, &at) in all.iter().enumerate() {
            if entry(at) == state {
                state = exit(at);
            } else {
                let next = all.get(number + 1).map_or_else(|| exit(at), |&next| entry(next));
                joints.push((at, (at.0, [state, next.clone()], choices.globals.clone())));
                state = next;
            }
        }
        joints
    }

    /// Finds those that are not known yet, all of a segment at once.
    fn find<'a>(&mut self, joints: impl Iterator<Item = &'a Joint>) -> Result<(), SearchError> {
        let mut missing: BTreeMap<(usize, &Vec<usize>), Vec<&Joint>> = BTreeMap::new();
        for joint in joints.filter(|joint| !self.known.contains_key(joint)) {
            let of = missing.entry((joint.0, &joint.2)).or_default();
            if !of.contains(&joint) {
                of.push(joint);
            }
        }
        let Some(relaxation) = &self.base.relaxation else { return Ok(()) };
        let live = self.base.chain.segments.iter().map(|at| vec![0.0; at.problem.windows.len()]);
        let free = Prices { resident: 0.0, live: live.collect() };
        for ((segment, globals), joints) in missing {
            let pairs: Vec<[&[usize]; 2]> = joints.iter().map(|it| [&it.1[0][..], &it.1[1][..]]).collect();
            let found = relaxation.between(segment, &pairs, &free, (globals, &self.starts))?;
            self.known.extend(joints.into_iter().cloned().zip(found));
        }
        Ok(())
    }
}

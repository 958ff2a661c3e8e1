//! Ways to run a step, planned stage by stage: what a price of blocks promises, made.

use plan::Pipeline;
use planner_ir::schedule::Kind;
use rewrite::Steps;

use super::known::Known;
use super::refused::none_fits;
use super::setups::Chosen;
use super::{Answer, Question, proof};
use crate::failure::Failure;
use crate::pipeline::staged::{Meshes, Order, Wanted, staged};

/// So many ways are tried at most.
const TRIED: usize = 8;
/// And so many of those that fit are planned.
const PLANNED: usize = 2;

/// A way to run a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    /// What it takes by the prices of its blocks (seconds).
    pub(super) seconds: f64,
    /// The groups and what they share.
    pub(super) chosen: Chosen,
    /// The schedule.
    pub(super) kind: Kind,
    /// How many stages each group has.
    pub(super) chunks: usize,
    /// The first block of each stage.
    pub(super) first: Vec<usize>,
}

/// What came of some ways.
pub(super) struct Finished {
    /// The one that takes least, and its pipeline.
    pub(super) best: Option<(Way, Pipeline)>,
    /// Why the last of those that do not fit does not.
    refused: Option<Failure>,
}

/// The best of the ways, of which nothing takes less than a bound (seconds), as the answer; how many setups
/// there are, and how many were priced.
pub(super) fn answer(
    question: &Question<'_>,
    known: &[Known],
    ways: impl IntoIterator<Item = Way>,
    (bound, looked_at): (f64, (usize, usize)),
    say: &dyn Fn(String),
) -> Result<Answer, Failure> {
    let Finished { best, refused } = least(question, &known[0], ways, f64::INFINITY, say)?;
    let Some((Way { chosen, kind, .. }, pipeline)) = best else {
        return Err(refused.unwrap_or_else(|| none_fits(question, looked_at.0, known)));
    };
    let pipeline = Pipeline { proof: proof(bound, pipeline.seconds()), ..pipeline };
    Ok(Answer { pipeline, chosen, kind, looked_at })
}

/// Plans the ways stage by stage, the best promise first, until none promises less than what is had: that,
/// or `below` (seconds) at first.
pub(super) fn least(
    question: &Question<'_>,
    known: &Known,
    ways: impl IntoIterator<Item = Way>,
    below: f64,
    say: &dyn Fn(String),
) -> Result<Finished, Failure> {
    let mut finished = Finished { best: None, refused: None };
    let (mut least, mut made) = (below, 0);
    for way in ways.into_iter().take(TRIED) {
        if way.seconds >= least || made == PLANNED {
            break;
        }
        say(format!("planning {}, {}", way.chosen, way.kind.name()));
        match planned(question, known, &way, say) {
            Ok(pipeline) => {
                made += 1;
                if pipeline.seconds() < least {
                    least = pipeline.seconds();
                    finished.best = Some((way, pipeline));
                }
            }
            Err(failure @ Failure::Internal(_)) => return Err(failure),
            Err(failure) => finished.refused = Some(failure),
        }
    }
    Ok(finished)
}

fn planned(
    question: &Question<'_>,
    known: &Known,
    way: &Way,
    say: &dyn Fn(String),
) -> Result<Pipeline, Failure> {
    let Way { chosen, kind, chunks, first, .. } = way;
    let forward = known.of(question, chosen.micro_batches)?.again(&chosen.recompute);
    let wanted = Wanted {
        cluster: question.cluster,
        meshes: Meshes::Each(&chosen.meshes),
        memory: question.memory,
        steps: Steps::One,
        order: Order::Named(*kind),
        chunks: *chunks,
        first: Some(first.clone()),
        fixed: &question.pins.operations,
    };
    staged(&forward, &(question.header)(chosen.micro_batches), &wanted, say)
}

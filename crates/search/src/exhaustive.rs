//! Exact minimisation by trying every assignment, for tiny problems and to test the others.

use planner_ir::advance;

use crate::problem::{Place, Problem, Proof, SearchError, Solution};

/// The first assignment of least time among those that fit.
///
/// A refusal names the window of the assignment with the least peak.
pub fn solve(problem: &Problem, capacity: u64) -> Result<Solution, SearchError> {
    let domains = problem.domains();
    let mut best: Option<Solution> = None;
    let mut nearest: Option<(u64, usize)> = None;
    let mut choices = vec![0; domains.len()];
    loop {
        let time = problem.time(&choices);
        if time < f64::INFINITY {
            let (peak, window) = peak(&problem.memory(&choices));
            if nearest.is_none_or(|(least, _)| peak < least) {
                nearest = Some((peak, window));
            }
            if peak <= capacity && best.as_ref().is_none_or(|best| time < best.time) {
                best = Some(Solution { choices: choices.clone(), time, proof: Proof::Optimal });
            }
        }
        if !advance(&mut choices, &domains) {
            break;
        }
    }
    match (best, nearest) {
        (Some(best), _) => Ok(best),
        (None, None) => Err(SearchError::Contradiction),
        (None, Some((least, window))) => {
            let place = Place { segment: 0, window };
            Err(match problem.windows.len() {
                0 | 1 => SearchError::DoesNotFit { place, least, capacity },
                _ => SearchError::DoesNotFitTogether { least, capacity },
            })
        }
    }
}

/// The largest of some numbers and the first place where it stands.
fn peak(memory: &[u64]) -> (u64, usize) {
    let mut peak = (0, 0);
    for (window, &bytes) in memory.iter().enumerate() {
        if bytes > peak.0 {
            peak = (bytes, window);
        }
    }
    peak
}

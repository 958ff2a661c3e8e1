//! The second opinion: an integer linear program.
//!
//! ```text
//! minimise    Σ_v Σ_i t_v[i] x_v[i]  +  Σ_e Σ_ij t_e[i,j] y_e[i,j]
//! subject to  Σ_i x_v[i] = 1                    for every node v          (one-choice)
//!             Σ_j y_e[i,j] = x_from[i]          for every edge e, every i (edge-leaves)
//!             Σ_i y_e[i,j] = x_to[j]            for every edge e, every j (edge-enters)
//!             Σ_v Σ_i m_pv[i] x_v[i] ≤ M        for every window p        (memory)
//!             x integer, 0 ≤ y ≤ 1;  x_v[i] = 0 and y_e[i,j] = 0 where the time is infinite
//! ```
//!
//! Bytes are divided by M. If nothing fits, the same program is solved for the least peak P in the
//! place of M, so that the refusal can say by how much. An assignment that the solver lets through although it takes more, by
//! less than the solver's tolerance, is excluded and the program solved again.

use good_lp::solvers::SolutionStatus;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution as _, SolverModel, Variable, WithMipGap,
    constraint, variable,
};

use crate::eliminate::prune;
use crate::problem::{Held, Place, Problem, Proof, SearchError, Solution, real, real_size};

#[cfg(feature = "highs")]
pub(crate) use good_lp::solvers::highs::highs as solver;
#[cfg(not(feature = "highs"))]
pub(crate) use good_lp::solvers::microlp::microlp as solver;

/// How many assignments may be excluded.
const MOST_EXCLUDED: usize = 32;

/// What a solver may get wrong, relatively.
const TOLERANCE: f64 = 1e-6;

/// For each node or edge, the variable of each choice or pair; none where the time is infinite.
type Choices = Vec<Vec<Option<Variable>>>;

/// The number of variables of the program (variables), before needless choices are dropped.
pub fn variables(problem: &Problem) -> usize {
    let nodes = problem.times.iter().map(Vec::len).sum::<usize>();
    let pairs = |table: usize| problem.tables[table].entries.len();
    nodes + problem.edges.iter().map(|edge| pairs(edge.table)).sum::<usize>()
}

/// The assignment of least time whose memory fits, if the solver proves it.
pub fn solve(problem: &Problem, capacity: u64) -> Result<Solution, SearchError> {
    let pruned = prune(problem, &[]);
    let small = &pruned.problem;
    let mut excluded: Vec<Vec<usize>> = Vec::new();
    while let Some((choices, _)) = optimum(small, capacity, Aim::Time, &excluded)? {
        if small.peak(&choices) <= capacity {
            let choices = pruned.restore(&choices);
            let time = problem.time(&choices);
            return Ok(Solution { choices, time, proof: Proof::Optimal });
        }
        if excluded.len() == MOST_EXCLUDED {
            let reason = format!("{MOST_EXCLUDED} assignments exceed the memory by rounding");
            return Err(SearchError::Solver(reason));
        }
        excluded.push(choices);
    }

    let Some((_, peak)) = optimum(small, capacity, Aim::Peak, &[])? else {
        return Err(SearchError::Contradiction);
    };
    let least = bytes_above(peak * (1.0 - TOLERANCE), capacity);
    Err(match problem.windows.len() {
        0 | 1 => SearchError::DoesNotFit { place: Place { segment: 0, window: 0 }, least, capacity },
        _ => SearchError::DoesNotFitTogether { least, capacity },
    })
}

/// What is minimised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// The time, while the peak is at most the capacity.
    Time,
    /// The peak of memory, as a part of the capacity; times only forbid.
    Peak,
}

/// An optimum but for the excluded assignments, and its value; none if there is none.
fn optimum(
    problem: &Problem,
    capacity: u64,
    aim: Aim,
    excluded: &[Vec<usize>],
) -> Result<Option<(Vec<usize>, f64)>, SearchError> {
    let mut variables = ProblemVariables::new();
    let x = choice_variables(problem, &mut variables);
    let y = edge_variables(problem, &mut variables);
    let peak = variables.add(variable().min(0.0));
    let (objective, limit) = match aim {
        Aim::Time => (total_time(problem, &x, &y), real(capacity) / unit(capacity) + 0.0 * peak),
        Aim::Peak => (1.0 * peak, 1.0 * peak),
    };
    let solver_error = |error: &dyn std::fmt::Display| SearchError::Solver(error.to_string());
    let model = variables.minimise(objective.clone()).using(solver);
    let mut model = model.with_mip_gap(0.0).map_err(|error| solver_error(&error))?;
    one_choice(&x, &mut model);
    edge_agrees_with_ends(problem, &x, &y, &mut model);
    fits_in_memory(problem, &x, &limit, unit(capacity), &mut model);
    for choices in excluded {
        let same = sum(x.iter().zip(choices).map(|(own, &choice)| own[choice]));
        model.add_constraint(constraint!(same <= real_size(choices.len()) - 1.0));
    }

    match model.solve() {
        Ok(solution) if matches!(solution.status(), SolutionStatus::Optimal) => {
            let chosen = |own: &Vec<Option<Variable>>| {
                own.iter().position(|at| at.is_some_and(|at| solution.value(at) > 0.5))
            };
            let choices: Option<Vec<usize>> = x.iter().map(chosen).collect();
            let choices = choices.ok_or_else(|| solver_error(&"a node has no choice"))?;
            Ok(Some((choices, solution.eval(&objective))))
        }
        Ok(_) => Err(solver_error(&"it stopped short of the optimum")),
        Err(ResolutionError::Infeasible) => Ok(None),
        Err(error) => Err(solver_error(&error)),
    }
}

/// What bytes are divided by.
fn unit(capacity: u64) -> f64 {
    real(capacity.max(1))
}

/// A part of the capacity in whole bytes, and more than the capacity.
#[expect(clippy::cast_possible_truncation, reason = "bytes of memory are far below 2^53")]
#[expect(clippy::cast_sign_loss, reason = "no part is negative")]
fn bytes_above(part: f64, capacity: u64) -> u64 {
    ((part * unit(capacity)).ceil() as u64).max(capacity + 1)
}

fn choice_variables(problem: &Problem, variables: &mut ProblemVariables) -> Choices {
    let mut one = |&time: &f64| time.is_finite().then(|| variables.add(variable().binary()));
    problem.times.iter().map(|times| times.iter().map(&mut one).collect()).collect()
}

fn edge_variables(problem: &Problem, variables: &mut ProblemVariables) -> Choices {
    let mut one = |&time: &f64| time.is_finite().then(|| variables.add(variable().min(0.0).max(1.0)));
    let edges = problem.edges.iter();
    edges.map(|edge| problem.tables[edge.table].entries.iter().map(&mut one).collect()).collect()
}

fn total_time(problem: &Problem, x: &Choices, y: &Choices) -> Expression {
    let tables = problem.edges.iter().map(|edge| &problem.tables[edge.table].entries);
    let times = problem.times.iter().chain(tables).flatten();
    let all = x.iter().chain(y).flatten().zip(times);
    all.filter_map(|(variable, &time)| Some((*variable)? * time)).sum()
}

fn one_choice(x: &Choices, model: &mut impl SolverModel) {
    for own in x {
        model.add_constraint(constraint!(sum(own.iter().copied()) == 1.0));
    }
}

fn edge_agrees_with_ends(problem: &Problem, x: &Choices, y: &Choices, model: &mut impl SolverModel) {
    for (edge, y) in problem.edges.iter().zip(y) {
        let columns = problem.tables[edge.table].columns;
        for (row, &chosen) in y.chunks(columns).zip(&x[edge.from]) {
            let leaves = sum(row.iter().copied());
            model.add_constraint(constraint!(leaves == sum([chosen])));
        }
        for (column, &chosen) in x[edge.to].iter().enumerate() {
            let enters = sum(y.iter().skip(column).step_by(columns).copied());
            model.add_constraint(constraint!(enters == sum([chosen])));
        }
    }
}

fn fits_in_memory(
    problem: &Problem,
    x: &Choices,
    limit: &Expression,
    unit: f64,
    model: &mut impl SolverModel,
) {
    let windows = if problem.windows.is_empty() { &[0][..] } else { &problem.windows };
    for (window, &constant) in windows.iter().enumerate() {
        let bytes = |held: &Held| {
            let pairs = x[held.node].iter().zip(&problem.bytes[held.bytes]);
            pairs
                .filter_map(|(variable, &bytes)| Some((*variable)? * (real(bytes) / unit)))
                .sum::<Expression>()
        };
        let live = problem.live.iter().filter(|live| live.windows().contains(&window));
        let held: Expression = problem.resident.iter().chain(live.map(|live| &live.held)).map(bytes).sum();
        model.add_constraint(constraint!(held + real(constant) / unit <= limit.clone()));
    }
}

fn sum(variables: impl IntoIterator<Item = Option<Variable>>) -> Expression {
    variables.into_iter().flatten().sum()
}

#[cfg(test)]
mod tests;

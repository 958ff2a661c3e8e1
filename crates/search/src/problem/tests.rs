//! Random problems for the tests of all solvers, and the definitions of time and memory.

use super::*;

/// A seeded generator of numbers (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// An index below `bound`.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(u64::try_from(bound).unwrap())).unwrap()
    }

    /// An index of at least `low` and at most `high`.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.index(high + 1 - low)
    }

    /// A time, infinite once in `odds` throws.
    pub(crate) fn time(&mut self, odds: u64) -> f64 {
        if self.below(odds) == 0 { f64::INFINITY } else { real(self.below(1000)) / 64.0 }
    }

    /// For each domain, one of its choices.
    pub(crate) fn choices(&mut self, domains: &[usize]) -> Vec<usize> {
        domains.iter().map(|&domain| self.index(domain)).collect()
    }
}

/// A random problem over nodes of the given domains, one entry in `odds` infinite.
pub(crate) fn random(dice: &mut Dice, domains: &[usize], odds: u64) -> Problem {
    let times: Vec<Vec<f64>> =
        domains.iter().map(|&k| (0..k).map(|_| dice.time(4 * odds)).collect()).collect();
    let mut problem = Problem { times, ..Problem::default() };
    for _ in 0..dice.between(0, 2 * domains.len()) {
        let (from, to) = (dice.index(domains.len()), dice.index(domains.len()));
        if from == to {
            continue;
        }
        let fits = |edge: &&Edge| (domains[edge.from], domains[edge.to]) == (domains[from], domains[to]);
        let shared = problem.edges.iter().find(fits).map(|edge| edge.table);
        let table = match shared {
            Some(table) if dice.below(2) == 0 => table,
            _ => {
                let entries = (0..domains[from] * domains[to]).map(|_| dice.time(odds)).collect();
                problem.tables.push(Table { columns: domains[to], entries }.into());
                problem.tables.len() - 1
            }
        };
        problem.edges.push(Edge { from, to, table });
    }
    for &domain in domains {
        problem.bytes.push((0..domain).map(|_| dice.below(50)).collect());
    }
    problem.resident = some(dice, domains.len());
    for _ in 0..dice.index(4) {
        let constant = dice.below(20);
        problem.push_window(constant, &some(dice, domains.len()));
    }
    problem
}

impl Problem {
    /// Adds a window; what is live in the one before too stays so.
    pub(crate) fn push_window(&mut self, constant: u64, held: &[Held]) {
        let window = self.windows.len();
        self.windows.push(constant);
        for &held in held {
            match self.live.iter_mut().find(|live| live.held == held && live.until == window) {
                Some(live) => live.until += 1,
                None => self.live.push(Live { held, from: window, until: window + 1 }),
            }
        }
    }
}

/// Some of the nodes, each holding its own list of bytes.
fn some(dice: &mut Dice, nodes: usize) -> Vec<Held> {
    (0..nodes).filter(|_| dice.below(2) == 0).map(|node| Held { node, bytes: node }).collect()
}

/// Domains whose product is small.
pub(crate) fn small_domains(dice: &mut Dice) -> Vec<usize> {
    let mut domains = vec![dice.between(1, 4)];
    while domains.iter().product::<usize>() < 500 && domains.len() < 7 {
        domains.push(dice.between(1, 4));
    }
    domains
}

/// Whether two times agree but for rounding.
pub(crate) fn close(a: f64, b: f64) -> bool {
    (a.is_infinite() && b.is_infinite()) || (a - b).abs() <= 1e-9 * (1.0 + a.abs())
}

fn example() -> Problem {
    Problem {
        times: vec![vec![1.0, 2.0], vec![10.0, 20.0, 30.0]],
        edges: vec![Edge { from: 1, to: 0, table: 0 }],
        tables: vec![Table { columns: 2, entries: vec![0.1, 0.2, 0.3, 0.4, f64::INFINITY, 0.6] }.into()],
        bytes: vec![vec![5, 6], vec![7, 8, 9]],
        resident: vec![Held { node: 0, bytes: 0 }],
        windows: vec![100, 50],
        live: vec![
            Live { held: Held { node: 1, bytes: 1 }, from: 1, until: 2 },
            Live { held: Held { node: 0, bytes: 0 }, from: 1, until: 2 },
        ],
    }
}

#[test]
fn time_is_the_sum_over_nodes_and_edges() {
    assert!(close(example().time(&[1, 1]), 22.4));
    assert!(example().time(&[0, 2]).is_infinite());
}

#[test]
fn memory_is_resident_and_live_bytes_per_window() {
    assert_eq!(example().memory(&[1, 2]), vec![106, 6 + 50 + 9 + 6]);
    assert_eq!(example().peak(&[1, 2]), 106);
}

#[test]
fn a_problem_without_windows_has_one_that_holds_what_is_resident() {
    let problem = Problem { windows: Vec::new(), live: Vec::new(), ..example() };
    assert_eq!(problem.memory(&[1, 2]), vec![6]);
}

#[test]
fn refusals_say_by_how_much() {
    let place = Place { segment: 0, window: 2 };
    let refusal = SearchError::DoesNotFit { place, least: 107, capacity: 100 };
    assert_eq!(
        refusal.to_string(),
        "window 2 of segment 0 takes at least 107 bytes, there are 100: 7 too few"
    );
}

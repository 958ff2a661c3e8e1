//! Schedules against every order and every choice.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

use crate::{Problem, Proof, Schedule, Work, exact, heuristic, in_order, scheduled};

/// Work from up to three nodes to up to three others.
fn problem(u: &mut Unstructured<'_>, most: usize) -> Result<Problem> {
    let (from, to) = (u.int_in_range(1..=3)?, u.int_in_range(1..=3)?);
    let some = |u: &mut Unstructured<'_>, first: usize, count: usize| -> Result<Vec<usize>> {
        let members = u.int_in_range(1..=(1_usize << count) - 1)?;
        Ok((0..count).filter(|it| members >> it & 1 == 1).map(|it| first + it).collect())
    };
    let works = (0..u.int_in_range(1..=most)?).map(|_| {
        Ok(Work { senders: some(u, 0, from)?, receivers: some(u, from, to)?, bytes: u.int_in_range(1..=6)? })
    });
    Ok(Problem { nodes: from + to, works: works.collect::<Result<_>>()? })
}

/// The same bytes for a case, always.
fn bytes(case: u64) -> Vec<u8> {
    let mut state = case;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..200).map(byte).collect()
}

/// When the last work ends, written once more.
fn end(problem: &Problem, senders: &[usize], order: &[usize]) -> u64 {
    let mut done: Vec<(usize, u64)> = Vec::new();
    for &work in order {
        let meets = |other: usize| {
            let (one, two) = (&problem.works[work], &problem.works[other]);
            senders[work] == senders[other] || one.receivers.iter().any(|it| two.receivers.contains(it))
        };
        let start = done.iter().filter(|it| meets(it.0)).map(|it| it.1).max().unwrap_or(0);
        done.push((work, start + problem.works[work].bytes));
    }
    done.iter().map(|it| it.1).max().unwrap_or(0)
}

/// The least end over every choice of senders and every order.
fn least(problem: &Problem, senders: &mut Vec<usize>, order: &mut Vec<usize>) -> u64 {
    if senders.len() < problem.works.len() {
        let candidates = problem.works[senders.len()].senders.clone();
        let each = candidates.into_iter().map(|sender| {
            senders.push(sender);
            let found = least(problem, senders, order);
            senders.pop();
            found
        });
        return each.min().unwrap();
    }
    if order.len() == problem.works.len() {
        return end(problem, senders, order);
    }
    let left: Vec<usize> = (0..problem.works.len()).filter(|it| !order.contains(it)).collect();
    let each = left.into_iter().map(|work| {
        order.push(work);
        let found = least(problem, senders, order);
        order.pop();
        found
    });
    each.min().unwrap()
}

/// Whether everything is sent once, by somebody who can, and the numbers are right.
fn check(problem: &Problem, found: &Schedule) {
    let mut order = found.order.clone();
    order.sort_unstable();
    assert!(order.into_iter().eq(0..problem.works.len()));
    assert!(problem.works.iter().zip(&found.senders).all(|(work, sender)| work.senders.contains(sender)));
    assert_eq!(found.end, end(problem, &found.senders, &found.order));
    assert_eq!(found.bound, problem.bound());
    assert!(found.end >= found.bound);
}

#[test]
fn the_bound_is_what_enters_a_node_or_has_to_leave_some() {
    let bound = |works: &[(&[usize], &[usize], u64)]| {
        let work = |&(senders, receivers, bytes): &(&[usize], &[usize], u64)| Work {
            senders: senders.to_vec(),
            receivers: receivers.to_vec(),
            bytes,
        };
        Problem { nodes: 8, works: works.iter().map(work).collect() }.bound()
    };
    // Into node 5; out of node 0 alone; out of nodes 0 and 1; out of all three.
    assert_eq!(bound(&[(&[0], &[4, 5], 3), (&[1], &[5, 6], 4)]), 7);
    assert_eq!(bound(&[(&[0], &[4], 5), (&[0], &[5], 4), (&[1], &[6], 2), (&[0, 1], &[7], 1)]), 9);
    assert_eq!(bound(&[(&[0], &[4], 3), (&[0, 1], &[5], 4), (&[0, 1], &[6], 4), (&[2], &[7], 1)]), 6);
    assert_eq!(bound(&[(&[0, 1], &[4], 4), (&[1, 2], &[5], 4), (&[0, 2], &[6], 5)]), 5);
    assert_eq!(bound(&[(&[0, 1], &[4], 4), (&[1, 2], &[5], 4), (&[0, 2], &[6], 4), (&[2, 1], &[7], 2)]), 5);
    assert_eq!(bound(&[]), 0);
}

#[test]
fn the_exact_schedule_is_the_best_of_all() {
    arbtest(|u| {
        let problem = problem(u, 5)?;
        let best = least(&problem, &mut vec![], &mut vec![]);
        let found = exact(&problem, &in_order(&problem));
        check(&problem, &found);
        assert_eq!((found.end, found.proof), (best, Proof::Optimal), "{problem:?}");
        assert!(problem.bound() <= best);
        let found = scheduled(&problem);
        check(&problem, &found);
        assert_eq!((found.end, found.proof), (best, Proof::Optimal));
        Ok(())
    })
    .budget_ms(1500);
}

#[test]
fn what_is_found_without_trying_everything_is_seldom_worse() {
    let (mut better, mut far) = (0, 0);
    const CASES: u64 = 300;
    for case in 0..CASES {
        let problem = problem(&mut Unstructured::new(&bytes(case)), 9).unwrap();
        let found = heuristic(&problem);
        check(&problem, &found);
        let best = exact(&problem, &found);
        check(&problem, &best);
        assert!(best.end <= found.end && found.end <= in_order(&problem).end);
        if found.proof == Proof::Optimal {
            assert_eq!(best.end, found.end);
        }
        better += u64::from(best.end < found.end);
        far += u64::from(10 * found.end > 13 * best.end);
    }
    println!("{better} of {CASES} better, {far} by far");
    assert!(better * 5 < CASES, "{better} of {CASES}");
    assert!(far * 100 < CASES, "{far} of {CASES}");
}

#[test]
fn much_work_is_scheduled_close_to_the_bound() {
    // Every node of one side to every node of the other, in several pieces that any of two
    // neighbours may send.
    for (nodes, pieces) in [(4_usize, 64), (16, 4), (48, 2)] {
        let mut works = Vec::new();
        for receiver in 0..nodes {
            for sender in 0..nodes {
                let mut senders = vec![sender, (sender + 1) % nodes];
                senders.sort_unstable();
                let work = Work { senders, receivers: vec![nodes + receiver], bytes: 5 };
                works.extend(std::iter::repeat_n(work, pieces));
            }
        }
        let problem = Problem { nodes: 2 * nodes, works };
        let found = scheduled(&problem);
        check(&problem, &found);
        assert!(20 * found.end <= 21 * found.bound, "{nodes}: {} of {}", found.end, found.bound);
        assert!(in_order(&problem).end > found.end);
    }
}

#[test]
fn very_much_work_is_put_together_in_pieces_that_fit() {
    // What three nodes send to three others: whole, no order is better than 7/6 of the bound.
    let mut works = Vec::new();
    for (sender, row) in [[0, 3, 1], [2, 2, 2], [3, 0, 3]].into_iter().enumerate() {
        for (receiver, count) in row.into_iter().enumerate() {
            let work = Work { senders: vec![sender], receivers: vec![3 + receiver], bytes: 2 };
            works.extend(std::iter::repeat_n(work, 200 * count));
        }
    }
    let problem = Problem { nodes: 6, works };
    let found = scheduled(&problem);
    check(&problem, &found);
    assert_eq!(problem.bound(), 2 * 6 * 200);
    assert!(20 * found.end <= 21 * found.bound, "{} of {}", found.end, found.bound);
}

#[test]
fn receivers_have_senders_of_their_own_where_as_many_have_it() {
    let work = |senders: std::ops::Range<usize>, receiver| Work {
        senders: senders.collect(),
        receivers: vec![receiver],
        bytes: 1,
    };
    let problem = |senders: usize, receivers: usize, each: usize| {
        let receivers = senders..senders + receivers;
        let works = receivers.clone().flat_map(|it| (0..each).map(move |_| work(0..senders, it)));
        Problem { nodes: receivers.end, works: works.collect() }
    };
    for ([senders, receivers, each], expected) in [
        ([4, 4, 1], vec![0, 1, 2, 3]),
        ([4, 4, 2], vec![0, 0, 1, 1, 2, 2, 3, 3]),
        ([2, 4, 1], vec![0, 0, 1, 1]),
        ([4, 2, 4], vec![0, 0, 1, 1, 2, 2, 3, 3]),
    ] {
        let problem = problem(senders, receivers, each);
        let found = scheduled(&problem);
        check(&problem, &found);
        assert_eq!((found.senders, found.proof), (expected, Proof::Optimal), "{senders} {receivers} {each}");
    }
}

#[test]
fn who_has_to_send_is_chosen_before_who_can() {
    // The first half may come from either node, the second half from the first one only.
    let work = |place: usize| {
        let senders = if place < 1500 { vec![0, 1] } else { vec![0] };
        Work { senders, receivers: vec![2 + place % 5], bytes: 3 }
    };
    let problem = Problem { nodes: 7, works: (0..3000).map(work).collect() };
    let found = scheduled(&problem);
    check(&problem, &found);
    assert_eq!(found.bound, 3 * 1500);
    assert!(20 * found.end <= 21 * found.bound, "{} of {}", found.end, found.bound);
}

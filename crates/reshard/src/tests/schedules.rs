//! Schedules against every order and every choice.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

use crate::{Problem, Proof, Schedule, Work, exact, heuristic, in_order, scheduled};

/// Some of so many numbers from the first one on, at least one.
fn some(u: &mut Unstructured<'_>, first: usize, count: usize) -> Result<Vec<usize>> {
    let members = u.int_in_range(1..=(1_usize << count) - 1)?;
    Ok((0..count).filter(|it| members >> it & 1 == 1).map(|it| first + it).collect())
}

/// Work from up to three nodes to up to three others, of one adapter each.
fn problem(u: &mut Unstructured<'_>, most: usize) -> Result<Problem> {
    let (from, to) = (u.int_in_range(1..=3)?, u.int_in_range(1..=3)?);
    let works = (0..u.int_in_range(1..=most)?).map(|_| {
        let receivers = some(u, from, to)?.into_iter().map(|it| vec![it]).collect();
        Ok(Work { senders: some(u, 0, from)?, receivers, bytes: u.int_in_range(1..=6)? })
    });
    Ok(Problem { adapters: from + to, works: works.collect::<Result<_>>()? })
}

/// Work from up to three adapters to one or two nodes of up to two each, of which it may enter by some.
fn choosing(u: &mut Unstructured<'_>, most: usize) -> Result<Problem> {
    let from = u.int_in_range(1..=3)?;
    let nodes: Vec<usize> =
        (0..u.int_in_range(1..=2)?).map(|_| u.int_in_range(1..=2)).collect::<Result<_>>()?;
    let works = (0..u.int_in_range(1..=most)?).map(|_| {
        let mut receivers = Vec::new();
        for node in some(u, 0, nodes.len())? {
            let first = from + nodes[..node].iter().sum::<usize>();
            receivers.push(some(u, first, nodes[node])?);
        }
        Ok(Work { senders: some(u, 0, from)?, receivers, bytes: u.int_in_range(1..=6)? })
    });
    Ok(Problem { adapters: from + nodes.iter().sum::<usize>(), works: works.collect::<Result<_>>()? })
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
fn end(problem: &Problem, [senders, order]: [&[usize]; 2], entries: &[Vec<usize>]) -> u64 {
    let mut done: Vec<(usize, u64)> = Vec::new();
    for &work in order {
        let meets = |other: usize| {
            senders[work] == senders[other] || entries[work].iter().any(|it| entries[other].contains(it))
        };
        let start = done.iter().filter(|it| meets(it.0)).map(|it| it.1).max().unwrap_or(0);
        done.push((work, start + problem.works[work].bytes));
    }
    done.iter().map(|it| it.1).max().unwrap_or(0)
}

/// The least end over every choice of senders and entries, and every order.
fn least(problem: &Problem, chosen: &mut (Vec<usize>, Vec<Vec<usize>>), order: &mut Vec<usize>) -> u64 {
    let known = chosen.0.len();
    if known < problem.works.len() {
        let Work { senders, receivers, .. } = &problem.works[known];
        let mut ways: Vec<Vec<usize>> = vec![vec![]];
        for entries in receivers {
            ways = ways.iter().flat_map(|way| entries.iter().map(|&it| [&way[..], &[it]].concat())).collect();
        }
        let mut best = u64::MAX;
        for (&sender, entries) in senders.iter().flat_map(|it| ways.iter().map(move |way| (it, way))) {
            chosen.0.push(sender);
            chosen.1.push(entries.clone());
            best = best.min(least(problem, chosen, order));
            chosen.0.pop();
            chosen.1.pop();
        }
        return best;
    }
    if order.len() == problem.works.len() {
        return end(problem, [&chosen.0, order], &chosen.1);
    }
    let left: Vec<usize> = (0..problem.works.len()).filter(|it| !order.contains(it)).collect();
    let each = left.into_iter().map(|work| {
        order.push(work);
        let found = least(problem, chosen, order);
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
    for (work, entries) in problem.works.iter().zip(&found.entries) {
        assert_eq!(work.receivers.len(), entries.len());
        assert!(work.receivers.iter().zip(entries).all(|(some, entry)| some.contains(entry)));
    }
    assert_eq!(found.end, end(problem, [&found.senders, &found.order], &found.entries));
    assert_eq!(found.bound, problem.bound());
    assert!(found.end >= found.bound);
}

#[test]
fn the_bound_is_what_enters_an_adapter_or_has_to_leave_by_some() {
    let bound = |works: &[(&[usize], &[usize], u64)]| {
        let work = |&(senders, receivers, bytes): &(&[usize], &[usize], u64)| Work {
            senders: senders.to_vec(),
            receivers: receivers.iter().map(|it| vec![*it]).collect(),
            bytes,
        };
        Problem { adapters: 8, works: works.iter().map(work).collect() }.bound()
    };
    // Into adapter 5; out of adapter 0 alone; out of 0 and 1; out of all three.
    assert_eq!(bound(&[(&[0], &[4, 5], 3), (&[1], &[5, 6], 4)]), 7);
    assert_eq!(bound(&[(&[0], &[4], 5), (&[0], &[5], 4), (&[1], &[6], 2), (&[0, 1], &[7], 1)]), 9);
    assert_eq!(bound(&[(&[0], &[4], 3), (&[0, 1], &[5], 4), (&[0, 1], &[6], 4), (&[2], &[7], 1)]), 6);
    assert_eq!(bound(&[(&[0, 1], &[4], 4), (&[1, 2], &[5], 4), (&[0, 2], &[6], 5)]), 5);
    assert_eq!(bound(&[(&[0, 1], &[4], 4), (&[1, 2], &[5], 4), (&[0, 2], &[6], 4), (&[2, 1], &[7], 2)]), 5);
    assert_eq!(bound(&[]), 0);

    let entering = |works: &[(&[usize], u64)]| {
        let senders = |it: usize| vec![it];
        let work = |(it, &(entries, bytes)): (usize, &(&[usize], u64))| Work {
            senders: senders(it),
            receivers: vec![entries.to_vec()],
            bytes,
        };
        Problem { adapters: 8, works: works.iter().enumerate().map(work).collect() }.bound()
    };
    // Into adapter 5 alone; into 5 and 6; into all three.
    assert_eq!(entering(&[(&[5], 4), (&[5], 4), (&[5, 6], 1)]), 8);
    assert_eq!(entering(&[(&[5], 3), (&[5, 6], 4), (&[5, 6], 4), (&[7], 1)]), 6);
    assert_eq!(entering(&[(&[5, 6], 4), (&[6, 7], 4), (&[5, 7], 4), (&[5, 6, 7], 2)]), 5);
}

#[test]
fn the_exact_schedule_is_the_best_of_all() {
    arbtest(|u| {
        let problem = if u.ratio(1, 2)? { problem(u, 5)? } else { choosing(u, 4)? };
        let best = least(&problem, &mut (vec![], vec![]), &mut vec![]);
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
        let bytes = bytes(case);
        let u = &mut Unstructured::new(&bytes);
        let problem = if case % 2 == 0 { problem(u, 9) } else { choosing(u, 9) }.unwrap();
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
                let work = Work { senders, receivers: vec![vec![nodes + receiver]], bytes: 5 };
                works.extend(std::iter::repeat_n(work, pieces));
            }
        }
        let problem = Problem { adapters: 2 * nodes, works };
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
            let work = Work { senders: vec![sender], receivers: vec![vec![3 + receiver]], bytes: 2 };
            works.extend(std::iter::repeat_n(work, 200 * count));
        }
    }
    let problem = Problem { adapters: 6, works };
    let found = scheduled(&problem);
    check(&problem, &found);
    assert_eq!(problem.bound(), 2 * 6 * 200);
    assert!(20 * found.end <= 21 * found.bound, "{} of {}", found.end, found.bound);
}

#[test]
fn receivers_have_senders_of_their_own_where_as_many_have_it() {
    let work = |senders: std::ops::Range<usize>, receiver| Work {
        senders: senders.collect(),
        receivers: vec![vec![receiver]],
        bytes: 1,
    };
    let problem = |senders: usize, receivers: usize, each: usize| {
        let receivers = senders..senders + receivers;
        let works = receivers.clone().flat_map(|it| (0..each).map(move |_| work(0..senders, it)));
        Problem { adapters: receivers.end, works: works.collect() }
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
        Work { senders, receivers: vec![vec![2 + place % 5]], bytes: 3 }
    };
    let problem = Problem { adapters: 7, works: (0..3000).map(work).collect() };
    let found = scheduled(&problem);
    check(&problem, &found);
    assert_eq!(found.bound, 3 * 1500);
    assert!(20 * found.end <= 21 * found.bound, "{} of {}", found.end, found.bound);
}

#[test]
fn work_of_one_size_from_one_to_one_ends_with_the_busiest_adapter() {
    // Between four adapters and four others, any number of pieces of each pair.
    arbtest(|u| {
        let mut works = Vec::new();
        for (sender, receiver) in (0..4).flat_map(|it| (4..8).map(move |to| (it, to))) {
            let work = Work { senders: vec![sender], receivers: vec![vec![receiver]], bytes: 3 };
            works.extend(std::iter::repeat_n(work, u.int_in_range(0..=5)?));
        }
        for place in (1..works.len()).rev() {
            works.swap(place, u.choose_index(place + 1)?);
        }
        let problem = Problem { adapters: 8, works };
        let found = heuristic(&problem);
        check(&problem, &found);
        let busy = |of: &dyn Fn(&Work) -> bool| 3 * problem.works.iter().filter(|it| of(it)).count();
        let busiest = (0..8).map(|it| busy(&|work| work.senders == [it] || work.receivers[0] == [it])).max();
        assert_eq!((found.end, found.proof), (u64::try_from(busiest.unwrap()).unwrap(), Proof::Optimal));
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn all_to_all_of_a_thousand_adapters_ends_at_its_bound() {
    // Each of 512 adapters has a part that eight of 512 others need.
    let works = (0..512_usize).flat_map(|sender| {
        let work = move |turn: usize| Work {
            senders: vec![sender],
            receivers: vec![vec![512 + sender / 8 + 64 * turn]],
            bytes: 7,
        };
        (0..8).map(work)
    });
    let problem = Problem { adapters: 1024, works: works.collect() };
    let found = scheduled(&problem);
    check(&problem, &found);
    assert_eq!((found.end, found.bound), (7 * 8, 7 * 8));
}

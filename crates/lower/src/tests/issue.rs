//! Orders in which hosts issue what ranks exchange: those of schedules are right, broken ones are found.

use schedule::Kind as Order;

use super::pipelines::{good, is_send};
use crate::verify::Violation;
use crate::verify::issued::{check_orders, natural};
use crate::{Action, Issued, Program, issue_order};

fn found(programs: &[Program], orders: &[Vec<Issued>]) -> Vec<Violation> {
    let mut found = Vec::new();
    check_orders(programs, orders, &mut found);
    found
}

fn sends(program: &Program, issued: &Issued) -> bool {
    is_send(&program.instructions[issued.instruction].action)
}

/// In the order of programs, a stage sends the next one an activation while that one sends it a
/// gradient; schedules that only go one way at a time do not.
#[test]
fn in_the_order_of_programs_stages_wait_forever() {
    for (order, waits) in [(Order::OneForwardOneBackward, true), (Order::GPipe, false)] {
        let programs = good(2, 1, order);
        let orders: Vec<Vec<Issued>> = programs.iter().map(natural).collect();
        let found = found(&programs, &orders);
        assert_eq!(!found.is_empty(), waits, "{order}: {found:?}");
        let says = ["rank 0, instruction", "sending to rank 2", "rank 2, instruction", "sending to rank 0"];
        assert!(
            !waits || found.iter().any(|it| says.iter().all(|part| it.to_string().contains(part))),
            "{found:?}"
        );
        assert_eq!(super::super::verify(&programs), Ok(()));
    }
}

/// What is issued is all that is exchanged, and only what is sent has moved, to later.
#[test]
fn only_what_is_sent_is_issued_later() {
    let mut moved = 0;
    for order in Order::ALL {
        let programs = good(4, if order.interleaves() { 2 } else { 1 }, order);
        let orders = issue_order(&programs).unwrap();
        assert_eq!(found(&programs, &orders), []);
        for (program, order) in programs.iter().zip(&orders) {
            let natural = natural(program);
            let rest = |order: &[Issued]| -> Vec<Issued> {
                order.iter().filter(|it| !sends(program, it)).copied().collect()
            };
            assert_eq!(rest(order), rest(&natural));
            let place = |order: &[Issued], it: &Issued| order.iter().position(|other| other == it);
            for it in natural.iter().filter(|it| sends(program, it)) {
                let after = |order: &[Issued]| {
                    order[..place(order, it).unwrap()].iter().filter(|it| !sends(program, it)).count()
                };
                assert!(after(order) >= after(&natural));
                moved += usize::from(after(order) > after(&natural));
            }
        }
    }
    assert!(moved > 100, "{moved}");
}

/// Breaks the orders of two stages, and expects a violation that says all of this.
#[track_caller]
fn check(says: &[&str], fault: impl FnOnce(&[Program], &mut Vec<Vec<Issued>>)) {
    let programs = good(2, 1, Order::Eager);
    let mut orders = issue_order(&programs).unwrap();
    assert_eq!(found(&programs, &orders), []);
    fault(&programs, &mut orders);
    let found = found(&programs, &orders);
    let right = |it: &Violation| {
        let shown = it.to_string();
        it.rule == "issue-order" && says.iter().all(|part| shown.contains(part))
    };
    assert!(found.iter().any(right), "expected {says:?}, found {found:?}");
}

/// The first send of a rank.
fn first_send(program: &Program, order: &[Issued]) -> usize {
    order.iter().position(|it| sends(program, it)).unwrap()
}

#[test]
fn what_is_issued_never_or_twice_is_found() {
    check(&["rank 1: ", "exchanges are issued, expected"], |_, orders| {
        orders[1].pop();
    });
    check(&["rank 1: ", "exchanges are issued, expected"], |_, orders| {
        let first = orders[1][0];
        orders[1].push(first);
    });
    check(&["rank 1, instruction", "is never issued"], |_, orders| {
        orders[1][0].micro_batch = Some(99);
    });
}

#[test]
fn what_is_sent_before_it_is_made_is_found() {
    check(&["rank 2, instruction", "sending to rank 0", "for which it waits"], |programs, orders| {
        let send = first_send(&programs[2], &orders[2]);
        let first = orders[2].remove(send);
        orders[2].insert(0, first);
    });
}

/// The place of what is sent is written again by a later turn.
#[test]
fn what_is_sent_after_it_is_written_over_is_found() {
    check(
        &["rank 0, instruction", "sending to rank 2", "of micro-batch 2", "of micro-batch 0, for which"],
        |programs, orders| {
            let to = |it: &Issued| {
                let action = &programs[0].instructions[it.instruction].action;
                sends(&programs[0], it).then(|| action.remotes()[it.part].rank)
            };
            // Everything of the first micro-batch to one rank goes behind that of the third to others.
            let third = |it: &Issued| it.micro_batch == Some(2) && to(it).is_some_and(|rank| rank != 2);
            let last = orders[0].iter().rposition(third).unwrap();
            let early = |it: &Issued| to(it) == Some(2) && it.micro_batch < Some(2);
            let moved: Vec<Issued> = orders[0][..last].iter().filter(|it| early(it)).copied().collect();
            assert!(!moved.is_empty());
            orders[0].splice(last + 1..last + 1, moved.clone());
            let mut seen = 0;
            orders[0].retain(|it| {
                seen += 1;
                seen > last || !moved.contains(it)
            });
        },
    );
}

#[test]
fn what_goes_to_one_rank_in_another_order_is_found() {
    check(&["rank 0, instruction", "sending to rank 2", "for which it waits"], |programs, orders| {
        let to = |it: &usize| {
            let issued = orders[0][*it];
            let action = &programs[0].instructions[issued.instruction].action;
            sends(&programs[0], &issued) && action.remotes()[issued.part].rank == 2
        };
        let all: Vec<usize> = (0..orders[0].len()).filter(to).collect();
        orders[0].swap(all[0], all[1]);
    });
}

/// Ranks of a stage meet before one of them has received, and after the other has.
#[test]
fn meetings_and_crossings_in_another_order_are_found() {
    check(&["rank 3, instruction", "for which it waits"], |programs, orders| {
        let meets = |it: &Issued| {
            let action = &programs[3].instructions[it.instruction].action;
            !matches!(action, Action::Send(_) | Action::Receive(_))
        };
        let met = orders[3].iter().position(meets).unwrap();
        let first = orders[3].remove(met);
        orders[3].insert(0, first);
    });
}

/// Two stages that each send before they receive: what programs say, with one send issued too early.
#[test]
fn sends_that_meet_are_found() {
    check(&["sending to rank", "waits forever; so do rank"], |programs, orders| {
        for rank in 0..4 {
            orders[rank] = natural(&programs[rank]);
        }
    });
}

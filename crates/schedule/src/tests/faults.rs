//! What is wrong is found, and what is right is not.

use super::played::played;
use super::*;

/// What is said of a text.
fn said(text: &str, stages: usize, micro_batches: usize) -> String {
    match text.parse::<Schedule>() {
        Err(error) => error.to_string(),
        Ok(schedule) => {
            verify(schedule, stages, micro_batches).map_or_else(|it| it.to_string(), |_| String::new())
        }
    }
}

#[test]
fn words_that_are_no_tasks_are_shown_with_their_place() {
    let task = "expected a task: `F`, `B` or `W` and the micro-batch, such as `F0`";
    assert_eq!(said("F0 B0 // as is\n\n F0  X1", 2, 1), format!("line 3, column 6: found `X1`, {task}"));
    assert_eq!(said("é0", 1, 1), format!("line 1, column 1: found `é0`, {task}"));
    let number = |what| format!("expected the {what} as a number below 16777216");
    assert_eq!(said("F0 F", 1, 1), format!("line 1, column 4: found `F`, {}", number("micro-batch")));
    assert_eq!(said("F0. B0", 1, 1), format!("line 1, column 1: found `F0.`, {}", number("chunk")));
    assert_eq!(said("F+1", 1, 1), format!("line 1, column 1: found `F+1`, {}", number("micro-batch")));
    assert_eq!(said("F0.1.2", 1, 1), format!("line 1, column 1: found `F0.1.2`, {}", number("chunk")));
    assert_eq!(
        said("F16777216", 1, 1),
        format!("line 1, column 1: found `F16777216`, {}", number("micro-batch"))
    );
    assert_eq!(said("// nothing\n", 1, 1), "line 1, column 1: found the end, expected a task such as `F0`");
}

#[test]
fn comments_and_chunks_are_read() {
    let schedule: Schedule = "\t F1.2 //F0\r\n//\nB0 W3.1".parse().unwrap();
    assert_eq!((schedule.chunks, schedule.splits_backward, schedule.micro_batches()), (3, true, 4));
    assert_eq!(schedule.to_string(), "F1.2\nB0.0 W3.1\n");
}

#[test]
fn faults_name_the_group_the_task_and_the_rule() {
    assert_eq!(said("F0 B0", 1, 1), "");
    assert_eq!(said("F0 B0\nF0 B0", 3, 1), "a schedule of 2 stages, expected 3 [shape]");
    assert_eq!(
        said("F0 B0", 1, 0),
        "a schedule of nothing, expected a group, a chunk and a micro-batch [shape]"
    );
    assert_eq!(said("F0 B0", 1, 1 << 24), "a schedule of more than 16777216 tasks [shape]");
    assert_eq!(
        said("F0 F1\nF0 B0", 2, 2),
        "group 0: B0.0 is missing [once]\ngroup 0: B1.0 is missing [once]\n\
         group 1: F1.0 is missing [once]\ngroup 1: B1.0 is missing [once]"
    );
    assert_eq!(said("F0 B0 F1", 1, 1), "group 0, task 2: F1.0 is for micro-batch 1, of 1 from 0 [range]");
    assert_eq!(said("F0 B0 F0", 1, 1), "group 0, task 2: F0.0 again, first as task 0 [once]");
    assert_eq!(said("B0 F0", 1, 1), "group 0, task 0: B0.0 comes before F0.0, task 1 [order]");
    assert_eq!(said("F0 W0 B0\nF0 B0 W0", 2, 1), "group 0, task 1: W0.0 comes before B0.0, task 2 [order]");
    let mut schedule: Schedule = "F0 B0 W0".parse().unwrap();
    schedule.splits_backward = false;
    assert_eq!(
        verify(schedule.clone(), 1, 1).unwrap_err().to_string(),
        "group 0, task 2: W0.0, where backward tasks are whole [apart]"
    );
    schedule = Schedule { chunks: 2, ..schedule };
    schedule.groups[0][0].chunk = 2;
    let strange = verify(schedule, 2, 1).unwrap_err().to_string();
    assert!(strange.starts_with("group 0, task 0: F0.2 is on chunk 2, of 2 from 0 [range]\n"), "{strange}");
    let many = said("F0", 1, 40);
    assert!(many.ends_with("and 63 more") && many.lines().count() == 17, "{many}");
}

#[test]
fn groups_that_wait_for_each_other_are_named_with_what_they_wait_for() {
    // The first wants both gradients before the second forward task, which the second wants first.
    assert_eq!(
        said("F0 B0 F1 B1\nF0 F1 B0 B1", 2, 2),
        "group 0, task 1: B0.0 waits for B0.0 of group 1, task 2; \
         group 1, task 1: F1.0 waits for F1.0 of group 0, task 2 [acyclic]"
    );
    // A group that waits for what it does later itself.
    assert_eq!(
        said("F0.1 F0.0 B0.1 B0.0", 2, 1),
        "group 0, task 0: F0.1 waits for F0.0 of group 0, task 1 [acyclic]"
    );
    // The third group stands still because of the first two, and is not part of the circle.
    let text = "F0 B0 F1 B1\nF0 F1 B0 B1\nF0 F1 B0 B1";
    assert!(!said(text, 3, 2).contains("group 2, task 0"), "{}", said(text, 3, 2));
}

/// Every order of these tasks.
fn orders(tasks: &[Task]) -> Vec<Vec<Task>> {
    if tasks.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |first: usize| {
        let rest: Vec<Task> = tasks.iter().enumerate().filter(|it| it.0 != first).map(|it| *it.1).collect();
        orders(&rest).into_iter().map(move |order| [vec![tasks[first]], order].concat())
    };
    (0..tasks.len()).flat_map(with_first).collect()
}

#[test]
fn verified_is_exactly_what_plays_to_its_end() {
    let worlds =
        [([2, 1, 2], false), ([2, 2, 1], false), ([1, 2, 1], true), ([3, 1, 1], true), ([1, 1, 2], true)];
    for ([groups, chunks, micro_batches], splits_backward) in worlds {
        let mut tasks = Vec::new();
        for work in Work::ALL.into_iter().take(if splits_backward { 3 } else { 2 }) {
            for chunk in 0..chunks {
                tasks.extend((0..micro_batches).map(|micro_batch| Task { work, chunk, micro_batch }));
            }
        }
        let orders = orders(&tasks);
        let (mut right, mut wrong) = (0, 0);
        for number in 0..orders.len().pow(u32::try_from(groups).unwrap()) {
            let of_group = |group| orders[number / orders.len().pow(group) % orders.len()].clone();
            let groups: Vec<Vec<Task>> = (0..u32::try_from(groups).unwrap()).map(of_group).collect();
            let schedule = Schedule { chunks, splits_backward, groups };
            let stages = schedule.stages();
            let times = StageTimes { forward: 1.0, backward: 1.0, weight: 1.0 };
            let ends =
                played(&schedule, &Durations::equal(stages, times, 0.0, Overlap::Overlapped)).is_some();
            assert_eq!(verify(schedule.clone(), stages, micro_batches).is_ok(), ends, "\n{schedule}");
            if ends { right += 1 } else { wrong += 1 }
        }
        assert!(right > 0 && wrong > 0);
    }
}

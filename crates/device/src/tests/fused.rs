//! Which operations are one kernel: by what is read, what is waited for, and where things lie.

use lower::{Action, BufferId, Event, Kind};
use planner_ir::{Binary, DType, Op, Real, Reduction, Unary};

use super::script::Script;

const SCORES: [u64; 2] = [4, 32];
const SCORES_BYTES: u64 = 4 * 32 * 4;
const GRADIENT: Op = Op::CrossEntropyGradient { ignored: -1 };
const LOSS: Op = Op::CrossEntropy { ignored: -1 };

/// A loss at 0, with scores behind it; a sum far behind; the gradient at a place.
struct Step {
    script: Script,
    scores: BufferId,
    losses: BufferId,
    sum: BufferId,
}

/// Where scores and the sum lie, and what is free.
const AT_SCORES: u64 = 1024;
const AT_SUM: u64 = 4096;
const FREE: u64 = 8192;

impl Step {
    /// The loss, something, its sum, something, and the gradient at that place.
    fn new(
        gradient: u64,
        before: impl FnOnce(&mut Script, BufferId),
        after: impl FnOnce(&mut Script, [BufferId; 2]),
    ) -> Self {
        let mut script = Script::new();
        let labels = script.value(Kind::Input, DType::I64, &[4], 0);
        let back = script.value(Kind::Prepared, DType::F32, &[4], 64);
        let scores = script.step(DType::F32, &SCORES, AT_SCORES);
        let losses = script.step(DType::F32, &[4], 0);
        let sum = script.value(Kind::Output, DType::F32, &[1], AT_SUM);
        let towards = script.step(DType::F32, &SCORES, gradient);
        script.op(LOSS, &[scores, labels], losses);
        before(&mut script, scores);
        script.op(Op::Reduce { reduction: Reduction::Sum, dims: vec![0] }, &[losses], sum);
        after(&mut script, [losses, back]);
        script.op(GRADIENT, &[scores, labels, back], towards);
        Self { script, scores, losses, sum }
    }

    fn plain(gradient: u64) -> Self {
        Self::new(gradient, |_, _| {}, |_, _| {})
    }

    fn is_fused(&self) -> bool {
        let last = self.script.0.instructions.len() - 1;
        let task = self.script.task(last);
        task.instructions.len() == 3 && task.instructions[0] == 0
    }
}

#[test]
fn a_loss_its_sum_and_its_gradient_are_one_task() {
    // Where it is free, where the losses would have been, and where the scores are.
    for place in [FREE, 0, AT_SCORES] {
        let step = Step::plain(place);
        let task = step.script.task(0);
        assert_eq!(task.instructions, [0, 1, 2], "at {place}");
        let work = task.work.unwrap();
        assert!(work.launches[0].kernel.name.starts_with("classifier_"), "{:?}", work.launches);
        assert!(work.room >= 16);
        assert!(task.results.contains(&step.sum) && !task.results.contains(&step.losses));
    }
}

#[test]
fn a_gradient_is_not_made_where_something_else_lies() {
    // Over a part of the scores, and where the sum goes.
    for place in [AT_SCORES + 64, AT_SCORES - SCORES_BYTES + 64, AT_SUM - 64] {
        assert!(!Step::plain(place).is_fused(), "at {place}");
    }
    // What is made between them and read there lies there, or beside.
    let between = |place: u64| {
        Step::new(
            FREE,
            |_, _| {},
            |script, _| {
                let weight = script.value(Kind::Weight, DType::F32, &[8], 512);
                let made = script.step(DType::F32, &[8], place);
                script.op(Op::Unary(Unary::Silu), &[weight], made);
            },
        )
    };
    assert!(!between(FREE + SCORES_BYTES - 32).is_fused());
    assert!(between(FREE + SCORES_BYTES).is_fused());
    // What another operation makes before the sum lies where the sum does.
    let made = Step::new(
        FREE,
        |script, _| {
            let weight = script.value(Kind::Weight, DType::F32, &[8], 512);
            let made = script.step(DType::F32, &[8], AT_SUM);
            script.op(Op::Unary(Unary::Silu), &[weight], made);
        },
        |_, _| {},
    );
    assert!(!made.is_fused());
    // The scores are read once more before the gradient comes over them.
    let read = |place: u64| {
        Step::new(
            place,
            |script, scores| {
                let made = script.step(DType::F32, &SCORES, FREE + 4096);
                script.op(Op::Unary(Unary::Silu), &[scores], made);
            },
            |_, _| {},
        )
    };
    assert!(read(FREE).is_fused());
    assert!(!read(AT_SCORES).is_fused());
}

#[test]
fn a_gradient_is_not_made_before_what_it_needs() {
    let mut waits = Step::plain(FREE);
    waits.script.0.instructions[2].waits.push(Event(0));
    assert!(!waits.is_fused());
    let mut guarded = Step::plain(FREE);
    guarded.script.0.guard = Some(2);
    assert!(!guarded.is_fused());
    // What comes back is made between them.
    let made = Step::new(
        FREE,
        |_, _| {},
        |script, [_, back]| {
            let weight = script.value(Kind::Weight, DType::F32, &[4], 512);
            script.op(Op::Unary(Unary::Silu), &[weight], back);
        },
    );
    assert!(!made.is_fused());
    // The losses are read by another operation too, or returned.
    let twice = Step::new(
        FREE,
        |_, _| {},
        |script, [losses, _]| {
            let made = script.step(DType::F32, &[4], FREE + 4096);
            script.op(Op::Unary(Unary::Silu), &[losses], made);
        },
    );
    assert!(!twice.is_fused());
    let mut kept = Step::plain(FREE);
    kept.script.0.storages[kept.losses.0].kind = Kind::Output;
    assert!(!kept.is_fused());
    // The gradient of other scores.
    let mut other = Step::plain(FREE);
    let scores = other.script.step(DType::F32, &SCORES, FREE + 4096);
    if let Action::Compute(compute) = &mut other.script.0.instructions[2].action {
        assert_eq!(compute.operands[0].buffer, other.scores);
        compute.operands[0].buffer = scores;
    }
    assert!(!other.is_fused());
}

const ROWS: [u64; 2] = [4, 16];
const ROWS_BYTES: u64 = 4 * 16 * 4;

/// A sum of two values, and its norm at a place; whether something reads the sum later.
fn normalised(place: u64, is_read: bool) -> (Script, [BufferId; 2]) {
    let mut script = Script::new();
    let scale = script.value(Kind::Weight, DType::F32, &[16], 0);
    let [a, b, sum] = [0, 1, 2].map(|it| script.step(DType::F32, &ROWS, it * 1024));
    let normal = script.step(DType::F32, &ROWS, place);
    script.op(Op::Binary(Binary::Add), &[a, b], sum);
    script.op(Op::RmsNorm { dims: 1, epsilon: Real(1e-5) }, &[sum, scale], normal);
    if is_read {
        let last = script.step(DType::F32, &[4, 1], FREE + 4096);
        script.op(Op::Reduce { reduction: Reduction::Sum, dims: vec![1] }, &[sum], last);
    }
    (script, [sum, normal])
}

#[test]
fn a_sum_and_its_norm_are_one_kernel_that_stores_what_is_read() {
    // Where it is free, and where an addend was.
    for place in [FREE, 0, 1024] {
        let (script, [sum, normal]) = normalised(place, true);
        assert_eq!(script.groups(), [vec![0, 1], vec![2]], "at {place}");
        assert_eq!(script.task(0).results, [sum, normal]);
        let (script, [_, normal]) = normalised(place, false);
        assert_eq!(script.task(0).results, [normal]);
    }
    // Over a part of an addend.
    assert_eq!(normalised(ROWS_BYTES - 64, true).0.groups()[..2], [vec![0], vec![1]]);
}

#[test]
fn what_is_normalised_is_stored_where_it_cannot_be_computed_again() {
    let (mut script, [sum, normal]) = normalised(FREE, false);
    // Before the sum: what it adds is made of one addend, and read later.
    let first = script.0.instructions.remove(0);
    let Action::Compute(add) = &first.action else { unreachable!("it was made so") };
    let (addend, made) = (add.operands[0].buffer, script.step(DType::F32, &ROWS, FREE + 1024));
    script.0.instructions.clear();
    script.op(Op::Unary(Unary::Silu), &[addend], made);
    script.op(Op::Binary(Binary::Add), &[made, add.operands[1].buffer], sum);
    let scale = script.value(Kind::Weight, DType::F32, &[16], 0);
    script.op(Op::RmsNorm { dims: 1, epsilon: Real(1e-5) }, &[sum, scale], normal);
    let last = script.step(DType::F32, &[4, 1], FREE + 4096);
    script.op(Op::Reduce { reduction: Reduction::Sum, dims: vec![1] }, &[made], last);
    assert_eq!(script.groups(), [vec![0, 1, 2], vec![3]]);
    assert_eq!(script.task(0).results, [made, sum, normal]);
}

#[test]
fn a_sum_whose_addend_is_repeated_over_examples_and_its_norm_are_one_kernel() {
    // The same rows for each example, or the same row for all places of one.
    let groups = |addend: [u64; 3]| {
        let mut script = Script::new();
        let scale = script.value(Kind::Weight, DType::F32, &[16], 0);
        let places = script.value(Kind::Weight, DType::F32, &addend, 64);
        let [tokens, sum, normal] = [0, 1, 2].map(|it| script.step(DType::F32, &[3, 4, 16], it * 1024));
        script.op(Op::Binary(Binary::Add), &[tokens, places], sum);
        script.op(Op::RmsNorm { dims: 1, epsilon: Real(1e-5) }, &[sum, scale], normal);
        assert!(script.task(0).work.is_ok() && script.task(1).work.is_ok());
        script.groups()
    };
    assert_eq!(groups([1, 4, 16]), [vec![0, 1]]);
    assert_eq!(groups([3, 1, 16]), [vec![0], vec![1]]);
}

#[test]
fn a_second_norm_is_a_kernel_of_its_own() {
    let (mut script, [_, normal]) = normalised(FREE, false);
    let scale = script.value(Kind::Weight, DType::F32, &[16], 0);
    let [again, made] = [1, 2].map(|it| script.step(DType::F32, &ROWS, FREE + it * 1024));
    script.op(Op::RmsNorm { dims: 1, epsilon: Real(1e-5) }, &[normal, scale], again);
    script.op(Op::Unary(Unary::Silu), &[again], made);
    assert_eq!(script.groups(), [vec![0, 1], vec![2, 3]]);
}

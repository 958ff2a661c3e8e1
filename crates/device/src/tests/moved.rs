//! Where operations that one kernel computes are issued, if others stand between them.

use lower::{BufferId, Event, Kind, Program};
use planner_ir::{Binary, DType, Op, Real, Reduction, StateKind, Unary};

use super::script::Script;
use crate::tasks::tasks;

const ROWS: [u64; 2] = [4, 16];

/// Where what a norm's gradient reads lies, what it makes, what comes back to the residual, and what is
/// free.
const X: u64 = 0;
const BACK: u64 = 1024;
const MADE: u64 = 2048;
const RESIDUAL: u64 = 3072;
const FREE: u64 = 8192;

/// The gradient of a norm, that of its scale, and the sum with the residual's gradient.
struct Backward {
    script: Script,
    /// What the first one makes, and the sum.
    made: BufferId,
    sum: BufferId,
}

impl Backward {
    /// The sum and the gradient of the scale at places; between the operations others, which are given
    /// what comes back and what the first one makes and say what is added.
    fn new(
        [sum, scale]: [u64; 2],
        between: impl FnOnce(&mut Script, [BufferId; 2]) -> Option<BufferId>,
    ) -> Self {
        let mut script = Script::new();
        let factors = script.value(Kind::Weight, DType::F32, &[16], 0);
        let [x, back, made, residual] =
            [X, BACK, MADE, RESIDUAL].map(|place| script.step(DType::F32, &ROWS, place));
        let [towards, total] = [(scale, &[16][..]), (sum, &ROWS)]
            .map(|(place, shape)| script.value(Kind::Output, DType::F32, shape, place));
        script.op(Op::RmsNormGradient { dims: 1, epsilon: Real(1e-5) }, &[x, factors, back], made);
        script.op(Op::Reduce { reduction: Reduction::Sum, dims: vec![0] }, &[back], towards);
        let added = between(&mut script, [back, made]).unwrap_or(residual);
        script.op(Op::Binary(Binary::Add), &[added, made], total);
        Self { script, made, sum: total }
    }

    fn plain(sum: u64) -> Self {
        Self::new([sum, FREE + 4096], |_, _| None)
    }

    /// Where the gradient and the sum are issued, if they are one kernel.
    fn at(&self) -> Option<usize> {
        let last = self.script.0.instructions.len() - 1;
        let task = self.script.task(last);
        (task.instructions == [0, last]).then_some(task.at)
    }
}

#[test]
fn a_norms_gradient_and_the_sum_with_the_residuals_are_one_kernel() {
    // The sum comes where it is free, or over what it adds.
    for place in [FREE, MADE, RESIDUAL, X] {
        let backward = Backward::plain(place);
        assert_eq!(backward.at(), Some(0), "at {place}");
        assert_eq!(backward.script.task(0).results, [backward.sum]);
    }
    // Where it comes over what the gradient of the scale reads it comes later.
    assert_eq!(Backward::plain(BACK).at(), Some(2));
    // Over a part of that it does not.
    assert_eq!(Backward::plain(BACK + 64).at(), None);
}

#[test]
fn tasks_are_in_the_order_in_which_they_are_issued() {
    let places = |backward: &Backward| -> Vec<Vec<usize>> {
        tasks(&backward.script.0).into_iter().map(|task| task.instructions).collect()
    };
    assert_eq!(places(&Backward::plain(FREE)), [vec![0, 2], vec![1]]);
    assert_eq!(places(&Backward::plain(BACK)), [vec![1], vec![0, 2]]);
}

#[test]
fn nothing_goes_past_what_it_needs_or_what_needs_it() {
    // What is added is made between them.
    let made = |sum: u64, scale: u64| {
        Backward::new([sum, scale], |script, [back, _]| {
            let made = script.step(DType::F32, &ROWS, FREE + 2048);
            script.op(Op::Transpose { permutation: vec![0, 1] }, &[back], made);
            Some(made)
        })
    };
    assert_eq!(made(FREE, FREE + 4096).at(), Some(3));
    // The gradient of the scale comes over what the first one reads.
    assert_eq!(made(FREE, X + 64).at(), None);
    assert_eq!(Backward::new([FREE, X + 64], |_, _| None).at(), Some(0));
    // What the first one makes is read between them.
    let read = |sum: u64| {
        Backward::new([sum, FREE + 4096], |script, [_, made]| {
            let sum = script.value(Kind::Output, DType::F32, &[16], FREE + 2048);
            script.op(Op::Reduce { reduction: Reduction::Max, dims: vec![0] }, &[made], sum);
            None
        })
    };
    let early = read(FREE);
    assert_eq!(early.at(), Some(0));
    assert_eq!(early.script.task(0).results, [early.made, early.sum]);
    assert_eq!(read(BACK).at(), None);
    // Something comes over it, and it is read as that.
    let over = Backward::new([FREE, FREE + 4096], |script, [back, made]| {
        script.op(Op::Transpose { permutation: vec![0, 1] }, &[back], made);
        None
    });
    assert_eq!(over.at(), None);
}

#[test]
fn a_sum_that_is_read_before_something_is_added_is_there() {
    let mut script = Script::new();
    let [a, b] = [0, 1].map(|it| script.value(Kind::Input, DType::F32, &ROWS, it * 1024));
    // A state and what it becomes, in one place.
    let before = script.value(Kind::State(StateKind::Gradient), DType::F32, &ROWS, 2048);
    let [once, twice] = [0, 1].map(|_| {
        let same = script.0.buffer(before).clone();
        script.0.buffers.push(same);
        BufferId(script.0.buffers.len() - 1)
    });
    let most = script.value(Kind::Output, DType::F32, &[1, 16], FREE);
    script.op(Op::Binary(Binary::Add), &[before, a], once);
    script.op(Op::Reduce { reduction: Reduction::Max, dims: vec![0] }, &[once], most);
    script.op(Op::Binary(Binary::Add), &[once, b], twice);
    assert_eq!(script.groups(), [[0], [1], [2]]);
    script.0.instructions.remove(1);
    assert_eq!(script.groups(), [[0, 1]]);
}

#[test]
fn nothing_goes_past_waits_signals_and_turns() {
    let of = |sum: u64, change: &dyn Fn(&mut Program)| {
        let mut backward = Backward::plain(sum);
        change(&mut backward.script.0);
        backward.at()
    };
    let waits = |program: &mut Program| program.instructions[1].waits.push(Event(0));
    let signals = |program: &mut Program| program.instructions[1].signals = Some(Event(1));
    let guarded = |program: &mut Program| program.guard = Some(2);
    // The sum may not be made earlier; the gradient may be made later.
    assert_eq!(of(FREE, &waits), Some(2));
    assert_eq!(of(BACK, &signals), None);
    assert_eq!(of(FREE, &signals), Some(0));
    let both = |program: &mut Program| {
        waits(program);
        signals(program);
    };
    assert_eq!(of(FREE, &both), None);
    assert_eq!(of(FREE, &guarded), None);
    assert_eq!(of(BACK, &guarded), None);
    // Others wait for the gradient alone.
    assert_eq!(of(FREE, &|program| program.instructions[0].signals = Some(Event(1))), None);
    // What the gradient waits for is over when it comes later too.
    assert_eq!(of(BACK, &|program| program.instructions[0].waits.push(Event(0))), Some(2));
}

#[test]
fn what_stands_far_apart_stays_apart() {
    let with = |others: u64| {
        let far = Backward::new([FREE, FREE + 4096], |script, [back, _]| {
            for other in 0..others {
                let sum = script.value(Kind::Output, DType::F32, &[16], FREE + 4096 + 64 * other);
                script.op(Op::Reduce { reduction: Reduction::Max, dims: vec![0] }, &[back], sum);
            }
            None
        });
        far.at()
    };
    assert_eq!(with(62), Some(0));
    assert_eq!(with(63), None);
}

#[test]
fn what_has_been_put_off_is_not_passed_by_what_needs_it() {
    let mut script = Script::new();
    let [a, b, c] = [0, 1, 2].map(|it| script.value(Kind::Input, DType::F32, &ROWS, it * 1024));
    let [first, second, third] = [3, 4, 5].map(|it| script.step(DType::F32, &ROWS, it * 1024));
    let [sum, last] = [6, 7].map(|it| script.value(Kind::Output, DType::F32, &ROWS, it * 1024));
    script.op(Op::Unary(Unary::Silu), &[a], first);
    script.op(Op::Unary(Unary::Silu), &[c], second);
    script.op(Op::Transpose { permutation: vec![0, 1] }, &[b], third);
    script.op(Op::Binary(Binary::Add), &[first, third], sum);
    script.op(Op::Binary(Binary::Add), &[second, first], last);
    // The first is put off until what it is added to is there; so the last does not come before that.
    let places: Vec<_> = tasks(&script.0).into_iter().map(|it| (it.at, it.instructions)).collect();
    assert_eq!(places, [(2, vec![2]), (3, vec![0, 3]), (4, vec![1, 4])]);
}

//! Cross entropy against its definition.

use arbtest::arbtest;
use planner_ir::Op;

use crate::finite::{check_gradients, check_narrow, smooth};
use crate::naive::{Numbers, arbitrary, arbitrary_indices, check, check_blocks, one};
use crate::{Array, KernelError, evaluate};

#[test]
fn labels_cost_what_softmax_says_and_ignored_ones_nothing() {
    arbtest(|u| {
        let scores = arbitrary(u, &[2, 2, 5])?;
        let labels = arbitrary_indices(u, &[2, 2], -1, 4)?;
        let [numbers, classes] = [&scores, &labels].map(Numbers::of);
        let op = Op::CrossEntropy { ignored: -1 };
        check(&one(&op, &[&scores, &labels]), |index| {
            let label = classes.at(index);
            if label < 0.0 {
                return 0.0;
            }
            let score = |class: u64| numbers.at(&[index, &[class]].concat());
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is a small index"
            )]
            let own = score(label as u64);
            (0..5).map(|class| score(class).exp()).sum::<f64>().ln() - own
        });
        check_blocks(&op, &[(&scores, Some(0)), (&labels, Some(0))], &[Some(0)], 2);
        Ok(())
    });
}

#[test]
fn a_label_outside_is_an_error() {
    let scores = Array::of([1, 3], &[1.0_f32, 2.0, 3.0]).unwrap();
    for index in [3_i64, -1] {
        let label = Array::of([1], &[index]).unwrap();
        let found = evaluate(&Op::CrossEntropy { ignored: -100 }, &[&scores, &label]);
        assert_eq!(found, Err(KernelError::Index { index, extent: 3 }));
    }
}

#[test]
fn scores_have_a_gradient_unless_their_label_is_ignored() {
    arbtest(|u| {
        let (scores, dloss) = (smooth(u, &[2, 2, 5])?, smooth(u, &[2, 2])?);
        let labels = arbitrary_indices(u, &[2, 2], -1, 4)?;
        let op = Op::CrossEntropyGradient { ignored: -1 };
        let found = one(&op, &[&scores, &labels, &dloss]);
        let forward = Op::CrossEntropy { ignored: -1 };
        check_gradients(&forward, &[&scores, &labels], &dloss, &[(0, &found)]);
        check_narrow(&op, &[&scores, &labels, &dloss]);
        Ok(())
    });
    let scores = Array::of([1, 3], &[1.0_f32, 2.0, 3.0]).unwrap();
    let (label, dloss) = (Array::of([1], &[3_i64]).unwrap(), Array::of([1], &[1.0_f32]).unwrap());
    let found = evaluate(&Op::CrossEntropyGradient { ignored: -100 }, &[&scores, &label, &dloss]);
    assert_eq!(found, Err(KernelError::Index { index: 3, extent: 3 }));
}

//! Convolution against its definition.

use arbtest::arbtest;
use planner_ir::{Conv, Op};

use crate::finite::{check_gradients, check_narrow, smooth};
use crate::naive::{Numbers, arbitrary, check, check_blocks, check_sum, every_index, one};

#[test]
fn windows_meet_what_they_should() {
    arbtest(|u| {
        let dims = u.int_in_range(1..=2)?;
        let draw = |u: &mut arbtest::arbitrary::Unstructured, low: u64, high: u64| {
            (0..dims).map(|_| u.int_in_range(low..=high)).collect::<Result<Vec<u64>, _>>()
        };
        let (groups, each) = (u.int_in_range(1..=2)?, u.int_in_range(1..=2)?);
        let results = groups * u.int_in_range(1..=2)?;
        let conv = Conv {
            strides: draw(u, 1, 2)?,
            dilations: draw(u, 1, 2)?,
            before: draw(u, 0, 2)?,
            after: draw(u, 0, 2)?,
            groups,
        };
        let (pixels, window) = (draw(u, 3, 5)?, draw(u, 1, 2)?);
        let x = arbitrary(u, &[&[2, groups * each], &pixels[..]].concat())?;
        let w = arbitrary(u, &[&[results, each], &window[..]].concat())?;
        let bias = arbitrary(u, &[results])?;
        let [numbers, weights, offsets] = [&x, &w, &bias].map(Numbers::of);
        let expected = |index: &[u64]| {
            let group = index[1] / (results / groups);
            let taps = every_index(&window).into_iter().flat_map(|tap| {
                let numbers = &numbers;
                let weights = &weights;
                let place: Option<Vec<u64>> = (0..dims)
                    .map(|dim| {
                        let at = index[2 + dim] * conv.strides[dim] + tap[dim] * conv.dilations[dim];
                        at.checked_sub(conv.before[dim]).filter(|&at| at < pixels[dim])
                    })
                    .collect();
                (0..each).map(move |channel| {
                    let Some(place) = &place else { return 0.0 };
                    let pixel = numbers.at(&[&[index[0], group * each + channel], &place[..]].concat());
                    pixel * weights.at(&[&[index[1], channel], &tap[..]].concat())
                })
            });
            taps.sum::<f64>()
        };
        let op = Op::Conv(conv.clone());
        check(&one(&op, &[&x, &w]), expected);
        check(&one(&op, &[&x, &w, &bias]), |index| expected(index) + offsets.at(&index[1..2]));
        check_blocks(&op, &[(&x, Some(0)), (&w, None), (&bias, None)], &[Some(0)], 2);
        if groups == 2 {
            check_blocks(&op, &[(&x, Some(1)), (&w, Some(0)), (&bias, Some(0))], &[Some(1)], 2);
        } else {
            check_sum(&op, &[(&x, Some(1)), (&w, Some(1))], each);
            check_blocks(&op, &[(&x, None), (&w, Some(0)), (&bias, Some(0))], &[Some(1)], results);
        }
        Ok(())
    });
}

#[test]
fn inputs_and_weights_have_gradients() {
    arbtest(|u| {
        let dims = u.int_in_range(1..=2)?;
        let draw = |u: &mut arbtest::arbitrary::Unstructured, low: u64, high: u64| {
            (0..dims).map(|_| u.int_in_range(low..=high)).collect::<Result<Vec<u64>, _>>()
        };
        let (groups, each) = (u.int_in_range(1..=2)?, u.int_in_range(1..=2)?);
        let results = groups * u.int_in_range(1..=2)?;
        let conv = Conv {
            strides: draw(u, 1, 2)?,
            dilations: draw(u, 1, 2)?,
            before: draw(u, 0, 2)?,
            after: draw(u, 0, 2)?,
            groups,
        };
        let (spatial, window) = (draw(u, 3, 4)?, draw(u, 1, 2)?);
        let x = smooth(u, &[&[2, groups * each], &spatial[..]].concat())?;
        let w = smooth(u, &[&[results, each], &window[..]].concat())?;
        let forward = Op::Conv(conv.clone());
        let dy = smooth(u, one(&forward, &[&x, &w]).shape())?;
        let of_input = Op::ConvInputGradient { conv: conv.clone(), spatial };
        let of_weights = Op::ConvWeightGradient { conv, window };
        let (dx, dw) = (one(&of_input, &[&w, &dy]), one(&of_weights, &[&x, &dy]));
        check_gradients(&forward, &[&x, &w], &dy, &[(0, &dx), (1, &dw)]);
        check_narrow(&of_input, &[&w, &dy]);
        check_narrow(&of_weights, &[&x, &dy]);
        Ok(())
    });
}

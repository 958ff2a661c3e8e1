//! Every condition of truth is needed: where it alone fails, the two sides of a rule are not equal.

use super::*;

/// For conditions by name, matches that they alone refuse.
fn counterexamples() -> Vec<(&'static str, Example)> {
    let halves = || vec![concat(1), slice(&[0, 0], &[1, 1], &[3, 2]), slice(&[0, 2], &[1, 1], &[3, 2])];
    let queries = "q=f32[2,4,3,5] k=f32[2,2,6,5]";
    let narrow = |dtype| vec![cast(DType::F32), rms(1), cast(dtype)];
    let neighbours = vec![
        reshape(&[3, 4]),
        concat(2),
        reshape(&[3, 2, 1]),
        slice(&[0, 0], &[1, 2], &[3, 2]),
        reshape(&[3, 2, 1]),
        slice(&[0, 1], &[1, 2], &[3, 2]),
    ];
    vec![
        ("elements are floating-point numbers", i64s("divided by number", "x=i64[9] c=2", vec![])),
        ("the factor is of modest size", f32s("divided by number", "x=f32[99] c=1e-39", vec![])),
        (
            "the result has the operand's type",
            f32s("reshape to the same shape", "x=f32[2,3]", vec![reshape(&[3, 2])]),
        ),
        ("the dimensions stay in order", f32s("transpose in order", "x=f32[3,3]", vec![transpose(&[1, 0])])),
        (
            "every index is taken in order",
            f32s("slice of everything", "x=f32[3]", vec![slice(&[2], &[-1], &[3])]),
        ),
        (
            "the normalised dimensions are kept by the reshape",
            f32s("merged operand of an rms norm", "x=f32[2,3,4] s=f32[1]", vec![rms(1), reshape(&[2, 12])]),
        ),
        (
            "the normalised value was widened before and is narrowed after",
            f32s("rms norm computes wide itself", "x=f32[2,3,4] s=f16[4]", narrow(DType::F16)),
        ),
        (
            "the centre has the type of what is centred",
            f32s("layer norm", "x=f32[2,3,4] s=f32[4]", vec![rms(1), mean(&[1])]),
        ),
        (
            "the same number for every sample, and elements are wider inside",
            Example {
                rule: "rms norm takes a narrow scale",
                classes: "x=f16[2,3,4] y=f32[4]",
                operations: vec![cast(DType::F32), rms(1)],
                dtype: DType::F16,
            },
        ),
        (
            "the scores are not bound yet",
            f32s("scaled scores", "q=f32[2,4,3,5] k=f32[2,2,6,5] c=0.3", vec![scores(0.5, 2.0)]),
        ),
        (
            "what stands for a hidden score leaves nothing of its key beside others",
            f32s(
                "hidden scores",
                "q=f32[2,4,3,5] k=f32[2,2,6,5] m=bool[2,1,3,6] n=-1",
                vec![scores(0.5, 0.0)],
            ),
        ),
        (
            "nothing is left of a score that it is added to",
            f32s(
                "hidden masked scores",
                "q=f32[2,4,3,5] k=f32[2,2,6,5] m=bool[2,1,3,6] b=f32[4,1,6] n=-10000",
                vec![scores(0.5, 0.0)],
            ),
        ),
        (
            "the softmax is over the keys",
            f32s(
                "attention",
                "q=f32[2,4,3,5] k=f32[2,4,6,5] v=f32[2,4,6,7]",
                vec![contract("abcd", "abde", "abce"), softmax(2), scores(0.5, 0.0)],
            ),
        ),
        (
            "elements are narrower than the softmax's",
            f32s(
                "softmax computes wide itself",
                "x=f32[2,3]",
                vec![cast(DType::F32), softmax(1), cast(DType::F16)],
            ),
        ),
        (
            "the scores are widened",
            f32s("scores of widened operands", queries, vec![cast(DType::F16), scores(0.5, 0.0)]),
        ),
        (
            "the slices are the second and the first half",
            f32s("rotary of halves", "x=f32[3,4] cos=f32[3,4] sin=f32[1,4]", halves()),
        ),
        (
            "the slices are the odd and the even elements",
            f32s("rotary of neighbours", "x=f32[3,4] cos=f32[3,4] sin=f32[1,4]", neighbours),
        ),
        (
            "the slices are every second element from the second and from the first",
            f32s(
                "rotary of neighbours, half tables, taken apart",
                "x=f32[3,4] cos=f32[3,2] sin=f32[3,2]",
                vec![concat(1), slice(&[0, 1], &[1, 2], &[3, 2]), slice(&[0, 0], &[1, 2], &[3, 2])],
            ),
        ),
        (
            "the last column of the softmax, which is no key's, is left out",
            f32s(
                "attention with sinks",
                "q=f32[2,4,3,5] k=f32[2,4,6,5] v=f32[2,4,6,7] n=f32[2,4,3,1]",
                vec![
                    contract("abcd", "abde", "abce"),
                    slice(&[0, 0, 0, 1], &[1; 4], &[2, 4, 3, 6]),
                    softmax(3),
                    concat(3),
                    scores(0.5, 0.0),
                ],
            ),
        ),
        (
            "the products are bounded by one number, the second from below by its negative too",
            bounded("0.5", "-0.25"),
        ),
        (
            "the slice keeps the gathered dimension whole",
            f32s(
                "slice of gathered rows",
                "w=f32[2,5,6] i=i64[7,1]",
                vec![slice(&[1, 0, 0], &[1, 1, 1], &[3, 5, 6]), gather_nd()],
            ),
        ),
    ]
}

#[test]
fn every_condition_of_truth_is_needed() {
    let rules = all();
    let counterexamples = counterexamples();
    let mut failures = Vec::new();
    for condition in rules.iter().flat_map(|it| it.rule.conditions).filter(|it| it.needed == Needed::ForTruth)
    {
        if !counterexamples.iter().any(|(name, _)| *name == condition.name) {
            failures.push(format!("{}: no counterexample", condition.name));
        }
    }
    for (condition, example) in &counterexamples {
        let ready = rules.iter().find(|it| it.rule.name == example.rule).unwrap();
        match outcome(ready, example, Some(condition)) {
            Outcome::Type => {}
            Outcome::Apart(apart) if apart > 1e-5 => {}
            other => failures.push(format!("{condition}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

//! Numbers that are broader than what they are put together with: without them a term has another type.

use super::super::proof::matches;
use super::*;

#[test]
fn numbers_that_broaden_are_no_factors() {
    let rules = all();
    let matrices = || vec![contract("ab", "bc", "ac")];
    let queries = "q=f32[2,4,3,5] k=f32[2,2,6,5] c=0.3[2,1,1,1,1]";
    let broad = [
        f32s("divided by number", "x=f32[3] c=2[2,1]", vec![]),
        f32s("two factors", "x=f32[3] c=2[2,1] d=3", vec![]),
        f32s("two factors", "x=f32[3] c=2 d=3[2,1]", vec![]),
        f32s("factor out of product", "x=f32[2,1] c=3[1,4] y=f32[2,1]", vec![]),
        f32s("factor out of dividend", "x=f32[2,1] c=3[1,4] y=f32[2,1]", vec![]),
        f32s("factor out of movement", "x=f32[2,1] c=3[1,4]", vec![transpose(&[1, 0])]),
        f32s("factor out of repetition", "x=f32[1,1] c=3[2,1]", vec![expand(&[2, 4])]),
        f32s("factor out of left operand", "x=f32[2,1] c=3[1,3] y=f32[3,4]", matrices()),
        f32s("factor out of right operand", "y=f32[2,3] c=3[3,4] x=f32[3,1]", matrices()),
        f32s("factor out of rotation", "x=f32[1,4] c=3[3,1] y=f32[3,4] z=f32[3,4]", vec![rotary()]),
        f32s("scaled scores", queries, vec![scores(0.5, 0.0)]),
        f32s("bound scores", queries, vec![scores(0.5, 0.0)]),
    ];
    for example in &broad {
        let ready = rules.iter().find(|it| it.rule.name == example.rule).unwrap();
        assert!(!matches(ready, example), "{} on {}", example.rule, example.classes);
    }
}

//! What gradients and optimizer steps make of types, and what they refuse.

use crate::{DType, Op, Type, parse_op};

/// The types of the results, or why there are none.
fn infer(op: &str, operands: &[Type]) -> String {
    match parse_op(op).unwrap().infer(operands) {
        Ok(results) => results.iter().map(Type::to_string).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

fn f32(shape: &[u64]) -> Type {
    Type::new(DType::F32, shape)
}

#[test]
fn steps_have_no_derivative() {
    let x = f32(&[2, 3]);
    for name in ["ceil", "floor", "is_inf", "is_nan", "not", "round", "sign"] {
        let expected = format!("`{name}` has no derivative");
        assert_eq!(infer(&format!("unary_gradient function={name}"), &[x.clone(), x.clone()]), expected);
        let gated = [x.clone(), x.clone(), x.clone()];
        assert_eq!(infer(&format!("gated_gradient activation={name}"), &gated), expected);
    }
    assert_eq!(infer("unary_gradient function=relu", &[x.clone(), x.clone()]), "f32[2,3]");
    let other = "operand 1 is f32[3], expected the type of operand 0";
    assert_eq!(infer("unary_gradient function=relu", &[x, f32(&[3])]), other);
}

#[test]
fn gradients_have_the_types_of_what_they_are_gradients_of() {
    let (q, k, v) = (f32(&[2, 4, 5, 3]), f32(&[2, 2, 6, 3]), f32(&[2, 2, 6, 7]));
    let (y, statistics, mask) = (f32(&[2, 4, 5, 7]), f32(&[2, 4, 5, 2]), f32(&[5, 6]));
    let op =
        |mask: bool| format!("attention_gradient scale=1.0 causal=true softcap=0.0 window=none mask={mask}");
    let given = [q.clone(), k.clone(), v.clone(), y.clone(), statistics.clone(), y.clone()];
    let three = "f32[2,4,5,3] f32[2,2,6,3] f32[2,2,6,7]";
    assert_eq!(infer(&op(false), &given), three);
    assert_eq!(infer(&op(true), &given), "6 operands, expected 7 or 9");
    let masked = [&given[..], &[mask]].concat();
    assert_eq!(infer(&op(false), &masked), three);
    assert_eq!(infer(&op(true), &masked), format!("{three} f32[5,6]"));
    let hidden = [&given[..], &[Type::new(DType::Bool, [5, 6])]].concat();
    assert_eq!(infer(&op(false), &hidden), three);
    let expected = "operand 6 is bool[5,6], expected a mask of numbers, which has a gradient";
    assert_eq!(infer(&op(true), &hidden), expected);
    let forward = "attention scale=1.0 causal=true softcap=0.0 window=none statistics=true";
    assert_eq!(infer(forward, &[q, k, v]), "f32[2,4,5,7] f32[2,4,5,2]");

    let parts = [y.clone(), statistics.clone(), y.clone(), statistics];
    assert_eq!(infer("attention_merge", &parts), "f32[2,4,5,7] f32[2,4,5,2]");
    let wide = |it: &Type| Type::new(DType::F64, it.shape.clone());
    let wide_parts: Vec<Type> = parts.iter().map(wide).collect();
    assert_eq!(infer("attention_merge", &wide_parts), "f64[2,4,5,7] f64[2,4,5,2]");
    let expected = "operand 3 is f32[2,4], expected f32[2,4,5,2]";
    assert_eq!(infer("attention_merge", &[&parts[..3], &[f32(&[2, 4])]].concat()), expected);
    let narrow = Type::new(DType::BF16, y.shape.clone());
    let expected = "operand 2 is bf16[2,4,5,7], expected f32[2,4,5,7]";
    let mixed = [parts[0].clone(), parts[1].clone(), narrow, parts[3].clone()];
    assert_eq!(infer("attention_merge", &mixed), expected);

    let indices = Type::new(DType::I64, [4]);
    assert_eq!(infer("gather_gradient dim=1 extent=9", &[indices.clone(), f32(&[2, 4, 3])]), "f32[2,9,3]");
    let expected = "operand 1 is f32[4,2], expected the extents of the indices from dimension 1";
    assert_eq!(infer("gather_gradient dim=1 extent=9", &[indices, f32(&[4, 2])]), expected);

    let conv = "strides=[2] dilations=[1] before=[0] after=[0] groups=2";
    let (x, w, y) = (f32(&[2, 4, 9]), f32(&[6, 2, 3]), f32(&[2, 6, 4]));
    let input = format!("conv_input_gradient {conv} spatial=[9]");
    assert_eq!(infer(&input, &[w.clone(), y.clone()]), x.to_string());
    let weights = format!("conv_weight_gradient {conv} window=[3]");
    assert_eq!(infer(&weights, &[x, y]), w.to_string());
}

/// Gradients of weights of experts are added to sums in their elements, or in those in which they are accumulated.
#[test]
fn gradients_of_weights_of_experts_add_to_sums() {
    let of = |dtype: DType, shape: &[u64]| Type::new(dtype, shape);
    let [x, gates, into] = [&[4, 6][..], &[4, 3], &[3, 5, 6]].map(|shape| of(DType::BF16, shape));
    let [down, bias] = [&[3, 6, 5][..], &[3, 5]].map(|shape| of(DType::BF16, shape));
    let [wide, wide_down] = [&[3, 5, 6][..], &[3, 6, 5]].map(|shape| of(DType::F32, shape));
    let [two, gated] = [&[&x, &gates, &into, &down, &x][..], &[&x, &gates, &into, &into, &down, &x]];
    let biased = [&x, &gates, &into, &into, &down, &bias, &bias, &x];
    let made = |adds: &str, given: &[&Type], sums: &[&Type]| {
        let operands: Vec<Type> = given.iter().chain(sums).map(|&it| it.clone()).collect();
        infer(&format!("experts_gradient activation=silu active=2 adds={adds}"), &operands)
    };
    let expected = "bf16[4,6] bf16[4,3] f32[3,5,6] bf16[3,6,5]";
    assert_eq!(made("[2,3]", two, &[&wide, &down]), expected);
    assert_eq!(made("[4]", gated, &[&wide_down]), "bf16[4,6] bf16[4,3] bf16[3,5,6] bf16[3,5,6] f32[3,6,5]");
    let expected = "bf16[4,6] bf16[4,3] f32[3,5,6] f32[3,5,6] f32[3,6,5] bf16[3,5] bf16[3,5]";
    assert_eq!(made("[2,3,4]", &biased, &[&wide, &wide, &wide_down]), expected);
    // Of none but weights, each once.
    let wrong = |adds: &str| format!("{adds} is added to, expected gradients of weights, in order");
    let (narrow, rows) = (of(DType::F32, &[3, 5]), of(DType::F32, &[4, 6]));
    for (adds, sums) in [
        ("[0]", &[&rows][..]),
        ("[1]", &[&gates]),
        ("[5]", &[&narrow]),
        ("[7]", &[&wide]),
        ("[3, 2]", &[&wide, &wide]),
        ("[2, 2]", &[&wide, &wide]),
    ] {
        assert_eq!(made(adds, &biased, sums), wrong(adds));
    }
    assert_eq!(
        made("[2]", two, &[&wide_down]),
        "operand 5 is f32[3,6,5], expected bf16[3,5,6] or f32[3,5,6]"
    );
    let other = of(DType::F16, &[3, 5, 6]);
    assert_eq!(made("[2]", two, &[&other]), "operand 5 is f16[3,5,6], expected bf16[3,5,6] or f32[3,5,6]");
    assert_eq!(made("[2]", &two[..4], &[]), "4 operands, expected 5, 6 or 8, and what is added to");
    assert_eq!(made("[2,3,4,5,6]", &two[..3], &[]), "3 operands, expected 5, 6 or 8, and what is added to");
}

#[test]
fn optimizers_keep_the_types_of_parameters_and_moments() {
    let (p, number) = (f32(&[4, 2]), f32(&[]));
    let narrow = Type::new(DType::BF16, [4, 2]);
    let adam = "update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.0";
    let given = [&p, &narrow, &narrow, &p, &number, &number, &number].map(Clone::clone);
    assert_eq!(infer(adam, &given), "f32[4,2] bf16[4,2] f32[4,2]");
    assert_eq!(infer(adam, &given[..6]), "6 operands, expected 7");
    assert_eq!(infer("update_sgd decay=0.0", &[&p, &narrow, &number, &number].map(Clone::clone)), "f32[4,2]");
    let found = infer("update_sgd decay=0.0", &[&p, &narrow, &number, &p].map(Clone::clone));
    assert_eq!(found, "operand 3 is f32[4,2], expected f32[]");
}

#[test]
fn splits_that_leave_sums_are_known() {
    use crate::Role;
    let op = "experts_gradient activation=silu active=2";
    let operands = [[4, 6, 0], [4, 3, 0], [3, 5, 6], [3, 6, 5], [4, 6, 0]];
    let operands: Vec<Type> = operands.iter().map(|it| f32(it.strip_suffix(&[0]).unwrap_or(it))).collect();
    let op: Op = parse_op(op).unwrap();
    let loops = op.loops(&operands, &op.infer(&operands).unwrap());
    let roles: Vec<(u64, Role)> = loops.loops.iter().map(|it| (it.size, it.role)).collect();
    assert_eq!(roles, [(4, Role::Sum), (3, Role::Sum), (5, Role::Sum), (6, Role::Whole)]);
}

#[test]
fn rounding_is_of_f32_and_starts_from_one_number() {
    let (x, number) = (f32(&[2, 3]), Type::new(DType::I64, []));
    let rounded = |operands: &[&Type]| {
        let operands: Vec<Type> = operands.iter().copied().cloned().collect();
        infer("round_stochastically seed=3", &operands)
    };
    assert_eq!(rounded(&[&x]), "bf16[2,3]");
    assert_eq!(rounded(&[&x, &number]), "bf16[2,3]");
    assert_eq!(rounded(&[&x, &number, &number]), "3 operands, expected 1 or 2");
    let narrow = Type::new(DType::BF16, [2, 3]);
    assert_eq!(rounded(&[&narrow]), "operand 0 is bf16[2,3], expected numbers in f32");
    let expected = "operand 1 is f32[2,3], expected one number (i64) of no dimensions";
    assert_eq!(rounded(&[&x, &x]), expected);
}

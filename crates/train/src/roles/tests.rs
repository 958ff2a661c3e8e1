//! Tests of what weights are.

use plan::{Roles, Why};
use planner_ir::{DType, Type, parse_graph};

use super::names::{is_buffer, is_made};
use super::{Because, Declared, Known, Numbers, roles};
use crate::TrainError;

/// The numbers of an f32 weight.
fn numbers(shape: &[u64], numbers: &[f32]) -> Numbers<Vec<u8>> {
    let bytes = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
    Numbers::of(&Type::new(DType::F32, shape), bytes).unwrap()
}

/// Which patterns numbers are of.
fn patterns(shape: &[u64], of: &[f32]) -> String {
    let numbers = numbers(shape, of);
    let tests = [
        ("mask", numbers.are_mask()),
        ("one", numbers.are_one()),
        ("signs", numbers.are_signs()),
        ("steps", numbers.are_steps()),
        ("slopes", numbers.are_slopes()),
        ("waves", numbers.are_waves()),
        ("repeated", numbers.repeat()),
    ];
    tests.iter().filter(|it| it.1).map(|it| it.0).collect::<Vec<_>>().join(" ")
}

#[test]
fn patterns_of_numbers() {
    let low = f32::MIN;
    assert_eq!(patterns(&[2, 2], &[0.0, low, 0.0, 0.0]), "mask");
    assert_eq!(patterns(&[1, 1, 2, 2], &[0.0, f32::NEG_INFINITY, 0.0, 0.0]), "mask");
    assert_eq!(patterns(&[4], &[0.0; 4]), "one repeated");
    assert_eq!(patterns(&[2, 2], &[1.0, -1.0, -1.0, 1.0]), "signs");
    assert_eq!(patterns(&[4], &[0.0, 1.0, 2.0, 3.0]), "steps");
    assert_eq!(patterns(&[2, 1, 3], &[-1.0, -0.5, 0.0, -0.5, -0.25, 0.0]), "steps");
    assert_eq!(patterns(&[4, 1], &[0.25, 0.0625, 0.015_625, 0.003_906_25]), "slopes");
    // Slopes of twelve heads are those of eight, and of four between them.
    let slope = |power: f32| 2_f32.powf(-power);
    let twelve: Vec<f32> =
        (1..=8_u8).map(|it| slope(f32::from(it))).chain([0.5, 1.5, 2.5, 3.5].map(slope)).collect();
    assert_eq!(patterns(&[12], &twelve), "slopes");
    let table: Vec<f32> = (0..3_u8)
        .flat_map(|at| [f32::from(at).sin(), f32::from(at).cos(), (f32::from(at) / 9.0).sin(), 0.9])
        .collect();
    assert_eq!(patterns(&[3, 4], &table), "");
    let table: Vec<f32> = (0..3_u8)
        .flat_map(|at| [1.0, 9.0].map(|by| f32::from(at) / by))
        .flat_map(|angle| [angle.sin(), angle.cos()])
        .collect();
    assert_eq!(patterns(&[3, 4], &table), "waves");
    assert_eq!(patterns(&[2, 1, 3], &[0.3, 0.1, 0.7, 0.3, 0.1, 0.7]), "repeated");
    assert_eq!(patterns(&[2, 2], &[0.3, 0.3, 0.7, 0.7]), "repeated");
    let any = [0.31, -0.12, 0.07, 0.6, -0.44, 0.2];
    assert_eq!(patterns(&[2, 3], &any), "");
    assert_eq!(patterns(&[6], &any), "");
}

#[test]
fn numbers_of_all_types_are_read() {
    let of =
        |dtype, bytes: Vec<u8>| Numbers::of(&Type::new(dtype, [2]), bytes).map(|it| (it.at(0), it.at(1)));
    assert_eq!(of(DType::F16, vec![0x00, 0x3c, 0xff, 0xfb]), Some((1.0, -65504.0)));
    assert_eq!(of(DType::F16, vec![0x01, 0x00, 0x00, 0xfc]), Some((2_f64.powi(-24), f64::NEG_INFINITY)));
    assert_eq!(of(DType::BF16, vec![0x80, 0x3f, 0x80, 0xff]), Some((1.0, f64::NEG_INFINITY)));
    let two = [1.5_f64, -2.0].iter().flat_map(|it| it.to_le_bytes()).collect();
    assert_eq!(of(DType::F64, two), Some((1.5, -2.0)));
    assert_eq!(of(DType::F32, vec![0; 7]), None);
}

#[test]
fn names_of_exporters_and_of_modules() {
    for made in [
        "val_221",
        "zeros",
        "_to_copy_3",
        "unsqueeze_14",
        "onnx::MatMul_314",
        "/model/Constant_3_output_0",
        "1843",
        "ortshared_1_0_1_1_token_5",
        "lifted_tensor_0",
        "scalar_tensor_default",
        "gelu/mul/x:0",
        "Const_3",
        "p2o.Constant.5",
        "model/constants/FLOAT/0",
        "expand",
    ] {
        assert!(is_made(made), "{made}");
    }
    for module in [
        "layers.0.weight",
        "gate",
        "scale",
        "score.bias",
        "Attention_0_qkv_weight",
        "bert/encoder/layer_0/output/dense/kernel:0",
        "linear_0.w_0",
        "model.layers.1.add.weight",
    ] {
        assert!(!is_made(module), "{module}");
    }
    assert!(is_buffer("model.rotary_emb.inv_freq") && is_buffer("inv_freq") && !is_buffer("model.freq"));
}

/// One layer: looked-up tokens, a norm that is spelled out, scores with something added, a head.
const LAYER: &str = "graph \"m\" {
  %0 = input \"ids\" : i64[2,3]
  %1 = weight \"TABLE\" : f32[5,4]
  %2 = weight \"val_1\" : f32[4]
  %3 = weight \"val_2\" : f32[1,3,3]
  %4 = weight \"val_3\" : f32[4,5]
  %5 = weight \"val_4\" : f32[4]
  %6 = gather dim=0 %1 %0 : f32[2,3,4]
  %7 = mul %6 %6 : f32[2,3,4]
  %8 = reduce_mean dims=[2] %7 : f32[2,3,1]
  %9 = sqrt %8 : f32[2,3,1]
  %10 = div %6 %9 : f32[2,3,4]
  %11 = mul %10 %2 : f32[2,3,4]
  %12 = transpose permutation=[0,2,1] %11 : f32[2,4,3]
  %13 = contract \"bik,bkj->bij\" %11 %12 : f32[2,3,3]
  %14 = add %13 %3 : f32[2,3,3]
  %15 = softmax dim=2 %14 : f32[2,3,3]
  %16 = contract \"bik,bkj->bij\" %15 %11 : f32[2,3,4]
  %17 = mul %16 %5 : f32[2,3,4]
  %18 = contract \"bik,kj->bij\" %17 %4 : f32[2,3,5]
  return \"logits\" %18
}
";

#[test]
fn use_decides_of_what_an_exporter_named() {
    let graph = parse_graph(LAYER).unwrap();
    // The head is the table, transposed.
    let table: Vec<f32> = (0..20_u8).map(|it| (f32::from(it) * 1.7).sin()).collect();
    let head = (0..20).map(|at| table[at % 5 * 4 + at / 5]).collect();
    let data: [(&str, Vec<f32>); 5] = [
        ("TABLE", table),
        ("val_1", vec![0.9, 1.1, 1.0, 0.8]),
        ("val_2", vec![0.4, 0.1, 0.2, 0.9, 0.3, 0.2, 0.7, 0.1, 0.6]),
        ("val_3", head),
        ("val_4", vec![0.3, 0.8, 0.1, 0.9]),
    ];
    let bytes = |name: &str| {
        let found = data.iter().find(|it| it.0 == name)?;
        Some(found.1.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>())
    };
    let found = |asked: &Roles, declared: &dyn Fn(&str) -> Option<Declared>| {
        let found = roles(&graph, asked, &Known { declared, bytes: &bytes })?;
        let trained = found.trained.iter().map(|it| format!("{} {}", it.name, it.why.name()));
        let constants = found.roles.constants.iter().map(|it| format!("{} no: {}", it.name, it.why.name()));
        let ties = found.roles.ties.iter().map(|it| format!("{}={}", it.copy, it.original));
        Ok(trained.chain(constants).chain(ties).collect::<Vec<String>>())
    };
    let silent = |_: &str| None;
    let all = [
        "TABLE named",
        "val_1 norm",
        "val_3 product",
        "val_2 no: scores",
        "val_4 no: computed",
        "val_3=TABLE",
    ];
    assert_eq!(found(&Roles::default(), &silent).unwrap(), all);
    let says = |name: &str| {
        Some(match name {
            "TABLE" => Declared::Parameter,
            "val_2" => Declared::Parameter,
            "val_1" => Declared::Constant,
            _ => Declared::Nothing,
        })
    };
    let all = [
        "TABLE declared",
        "val_2 declared",
        "val_3 product",
        "val_1 no: buffer",
        "val_4 no: computed",
        "val_3=TABLE",
    ];
    assert_eq!(found(&Roles::default(), &says).unwrap(), all);
    // Two that modules named are two.
    let all_named = |_: &str| Some(Declared::Parameter);
    assert_eq!(found(&Roles::default(), &all_named).unwrap().len(), 5);
    let names = |name: &str| vec![name.to_owned()];
    let asked = Roles { trained: names("val_4"), untied: names("TABLE"), ..Roles::default() };
    let all = ["TABLE named", "val_1 norm", "val_3 product", "val_4 asked", "val_2 no: scores"];
    assert_eq!(found(&asked, &silent).unwrap(), all);
    for (wrong, what) in [
        (Roles { trained: names("val_9"), ..Roles::default() }, "`--train`"),
        (Roles { frozen: names("*.bias"), ..Roles::default() }, "`--freeze`"),
        (Roles { untied: names("val_1"), ..Roles::default() }, "`--untie`: copies of others"),
    ] {
        let error = found(&wrong, &silent).unwrap_err();
        assert!(matches!(error, TrainError::Pattern(_, it) if it == what), "{error}");
    }
    assert_eq!(Because::Asked.in_words(), "asked for with `--train`");
    let single = |declared, name, readers| super::may_be_parameter(declared, name, readers);
    assert!(single(None, "gate", 1) && single(None, "layers.0.gate", 2) && !single(None, "half", 4));
    assert!(
        !single(None, "val_3", 1)
            && !single(None, "act.eps", 1)
            && !single(Some(Declared::Nothing), "exp", 1)
    );
    assert!(single(Some(Declared::Parameter), "half", 4) && !single(Some(Declared::Constant), "beta", 1));
    assert_eq!(Why::Mask.name(), "mask");
}

/// A quantised model: a product with packed numbers in blocks, one with integers per channel, an embedding of
/// numbers of 8 bits, a value that is rounded on the way, and beside them a norm, a bias and an adapter.
const QUANTISED: &str = "graph \"quantised\" {
  %0 = input \"ids\" : i64[2,3]
  %1 = weight \"embed.q\" : f8e4m3fn[5,4]
  %2 = weight \"embed.scale\" : f32[5,1]
  %3 = weight \"norm.weight\" : f32[4]
  %4 = weight \"up.packed\" : u8[6,1,2]
  %5 = weight \"up.scale\" : f32[6,1]
  %6 = weight \"up.bias\" : f32[6]
  %7 = weight \"down.q\" : i8[6,4]
  %8 = weight \"down.scale\" : f32[1,4]
  %9 = weight \"adapter.a\" : f32[4,2]
  %10 = weight \"adapter.b\" : f32[2,6]
  %11 = weight \"act.scale\" : f32[6]
  %12 = weight \"gamma\" : f32[4]
  %13 = gather dim=0 %1 %0 : f8e4m3fn[2,3,4]
  %14 = cast to=f32 %13 : f32[2,3,4]
  %15 = gather dim=0 %2 %0 : f32[2,3,1]
  %16 = mul %14 %15 : f32[2,3,4]
  %17 = rms_norm dims=1 epsilon=0.00001 %16 %3 : f32[2,3,4]
  %18 = dequantize bits=4 block=4 columns=4 %4 %5 : f32[6,4]
  %19 = contract \"bik,jk->bij\" %17 %18 : f32[2,3,6]
  %20 = contract \"bik,kj->bij\" %17 %9 : f32[2,3,2]
  %21 = contract \"bik,kj->bij\" %20 %10 : f32[2,3,6]
  %22 = add %19 %21 : f32[2,3,6]
  %23 = add %22 %6 : f32[2,3,6]
  %24 = div %23 %11 : f32[2,3,6]
  %25 = round %24 : f32[2,3,6]
  %26 = mul %25 %11 : f32[2,3,6]
  %27 = cast to=f32 %7 : f32[6,4]
  %28 = mul %27 %8 : f32[6,4]
  %29 = contract \"bik,kj->bij\" %26 %28 : f32[2,3,4]
  %30 = mul %29 %12 : f32[2,3,4]
  return \"logits\" %30
}
";

#[test]
fn scales_of_quantised_weights_are_not_trained() {
    let graph = parse_graph(QUANTISED).unwrap();
    let bytes = |_: &str| None::<Vec<u8>>;
    let silent = |_: &str| None;
    let known = Known { declared: &silent, bytes: &bytes };
    let found = roles(&graph, &Roles::default(), &known).unwrap();
    let trained: Vec<&str> = found.trained.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(trained, ["norm.weight", "up.bias", "adapter.a", "adapter.b", "gamma"]);
    let constants: Vec<String> =
        found.roles.constants.iter().map(|it| format!("{} {}", it.name, it.why.name())).collect();
    let expected =
        ["embed.q quantised", "embed.scale scale", "up.scale scale", "down.scale scale", "act.scale scale"];
    assert_eq!(constants, expected);
    for (name, dtype) in [("embed.q", "f8e4m3fn"), ("down.q", "i8"), ("up.packed", "u8")] {
        let asked = Roles { trained: vec![name.to_owned()], ..Roles::default() };
        let error = roles(&graph, &asked, &known).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{name}` is of {dtype}, expected f32")), "{error}");
    }
    let asked = Roles { trained: vec!["*".to_owned()], ..Roles::default() };
    let found = roles(&graph, &asked, &known).unwrap();
    assert_eq!(found.roles.constants.len(), 1, "{:?}", found.roles.constants);
}

/// An adapter whose second matrix starts with 0, a convolution that does, and a state that does: of examples and
/// heads in a product, and of examples where a layer of its own follows.
const ZEROS: &str = "graph \"zeros\" {
  %0 = input \"x\" : f32[2,3,4]
  %1 = weight \"onnx::MatMul_1\" : f32[4,2]
  %2 = weight \"onnx::MatMul_2\" : f32[6,2]
  %3 = weight \"val_3\" : f32[2,6,6]
  %4 = weight \"val_4\" : f32[3,6]
  %5 = weight \"val_5\" : f32[6,6]
  %6 = contract \"bik,kj->bij\" %0 %1 : f32[2,3,2]
  %7 = transpose permutation=[1,0] %2 : f32[2,6]
  %8 = contract \"bik,kj->bij\" %6 %7 : f32[2,3,6]
  %9 = contract \"bik,bkj->bij\" %8 %3 : f32[2,3,6]
  %10 = contract \"ik,kj->ij\" %4 %5 : f32[3,6]
  %11 = add %9 %10 : f32[2,3,6]
  return \"logits\" %11
}
";

#[test]
fn matrices_that_start_with_zeros_are_parameters_and_states_are_not() {
    let graph = parse_graph(ZEROS).unwrap();
    let any: Vec<f32> = (0..36_u8).map(|it| (f32::from(it) * 1.7).sin()).collect();
    let bytes = |name: &str| {
        let (size, zero) = match name {
            "onnx::MatMul_1" => (8, false),
            "onnx::MatMul_2" => (12, true),
            "val_3" => (72, true),
            "val_4" => (18, true),
            _ => (36, false),
        };
        let numbers: Vec<f32> = if zero { vec![0.0; size] } else { any[..size].to_vec() };
        Some(numbers.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>())
    };
    let known = Known { declared: &|_: &str| None, bytes: &bytes };
    let found = roles(&graph, &Roles::default(), &known).unwrap();
    let trained: Vec<&str> = found.trained.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(trained, ["onnx::MatMul_1", "onnx::MatMul_2", "val_5"]);
    let constants: Vec<&str> = found.roles.constants.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(constants, ["val_3", "val_4"]);
}

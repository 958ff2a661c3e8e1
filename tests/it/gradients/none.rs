//! Operations without a gradient, and those whose gradient is zero.

use planner_ir::{DType, Emit, Graph, Phase, Site, Source, Type, ValueId, parse_op};

/// Operations of which every form is refused.
pub(super) const NEVER: [&str; 56] = [
    "ceil",
    "floor",
    "round",
    "sign",
    "is_inf",
    "is_nan",
    "not",
    "and",
    "or",
    "xor",
    "equal",
    "greater",
    "greater_or_equal",
    "less",
    "less_or_equal",
    "resize shape=[4] scales=[2.0] half_pixel=true interpolation=linear",
    "dequantize bits=4 block=16 columns=64",
    "round_stochastically seed=3",
    "amax parts=[2]",
    "quantize to=f8e4m3fn",
    "quantize_blocks to=f8e4m3fn dim=0 block=2",
    "quantize_nvfp4 dim=0",
    "remember",
    "scaled_contract \"a,a->\" to=f32",
    "unary_gradient function=silu",
    "gated_gradient activation=silu",
    "softmax_gradient dim=0",
    "layer_norm_gradient dims=1 epsilon=1e-5",
    "rms_norm_gradient dims=1 epsilon=1e-5",
    "attention_merge",
    "attention_gradient scale=0.5 causal=false softcap=0.0 window=none mask=false",
    "selective_scan_gradient",
    "gated_delta_gradient",
    "rotary_gradient pairing=halves",
    "gather_gradient dim=0 extent=2",
    "conv_weight_gradient strides=[1] dilations=[1] before=[0] after=[0] groups=1 window=[2]",
    "cross_entropy_gradient ignored=-1",
    "experts_gradient activation=silu active=2",
    "update_sgd decay=0.1",
    "update_momentum momentum=0.9 decay=0.1",
    "update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.1",
    "region body={\n takes 1\n return %0 : f64[2]\n}",
    "dynamic_shape",
    "dynamic_non_zero",
    "dynamic_reshape zero_is_zero=false",
    "dynamic_expand",
    "dynamic_slice",
    "dynamic_range",
    "dynamic_fill dtype=f64 value=0.0",
    "dynamic_split dim=0",
    "dynamic_top_k dim=0 extreme=largest",
    "dynamic_tile",
    "dynamic_unsqueeze dims=[0]",
    "dynamic_squeeze dims=[0]",
    "dynamic_loop states=0 body={\n takes 2\n return %1 : bool[]\n}",
    "dynamic_if yes={\n takes 1\n return %0 : f64[2]\n} no={\n takes 1\n return %0 : f64[2]\n}",
];

/// Forms of operations that are refused though others have a gradient.
const SOME: [&str; 11] = [
    "pad before=[1] after=[0] edge=reflect",
    "pad before=[1] after=[0] edge=repeat",
    "pad before=[1] after=[0] edge=wrap",
    "gather_nd batch_dims=1",
    "scatter_elements dim=0 scatter=mul",
    "scatter_elements dim=0 scatter=max",
    "scatter_elements dim=0 scatter=min",
    "scatter_nd scatter=mul",
    "scatter_nd scatter=max",
    "scatter_nd scatter=min",
    "attention scale=0.5 causal=false softcap=0.0 window=none",
];

/// Operations towards whose second operand there is no gradient.
const SECOND: [&str; 2] = ["mod", "fmod"];

/// Operations whose results depend on no operand, or in steps.
pub(super) const ZERO: [&str; 4] = [
    "constant type=f64[2] data=[1.0,2.0]",
    "fill type=f64[2] value=1.5",
    "iota dtype=f64 length=2 start=1.0 step=0.5",
    "arg_extreme extreme=largest dim=0",
];

/// What the rule of an operation says of operands of which one is wanted.
fn gradient(text: &str, operand: usize) -> Result<Vec<Option<ValueId>>, String> {
    let op = parse_op(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut graph = Graph::default();
    let mut value = || graph.push_value(Type::new(DType::F64, [2]), Source::Input(String::new()));
    let operands: Vec<ValueId> = (0..3).map(|_| value()).collect();
    let (results, dy) = ([value()], [Some(value())]);
    let mut wanted = vec![None; operands.len()];
    wanted[operand] = Some(Phase::Backward);
    let site = Site { operands: &operands, results: &results, gradients: &dy, wanted: &wanted };
    let found = op.gradient(&site, &mut Emit { graph: &mut graph, phase: Phase::Backward, origin: "" });
    found.map_err(|error| error.to_string())
}

#[test]
fn operations_without_a_gradient_say_so() {
    let first = NEVER.iter().chain(&SOME).map(|text| (text, 0));
    for (text, operand) in first.chain(SECOND.iter().map(|text| (text, 1))) {
        match gradient(text, operand) {
            Ok(found) => panic!("`{text}` has gradients: {found:?}"),
            Err(error) => assert!(error.contains("gradient"), "`{text}`: {error}"),
        }
    }
}

#[test]
fn what_depends_on_nothing_or_in_steps_has_no_gradient_towards_anything() {
    for text in ZERO {
        assert_eq!(gradient(text, 0), Ok(vec![None; 3]), "{text}");
    }
}

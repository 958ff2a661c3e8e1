//! Models that break a rule are refused, with the reason.

use expect_test::{Expect, expect};
use kernels::Array;
use prost::Message;

use super::make::{
    FLOAT, INT64, bytes, floats, function, graph, int, integers, model, node, opset, tensor_attribute, value,
};
use crate::proto::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};
use crate::{Bindings, read};

/// What reading and importing a model says.
fn said(bytes: bytes::Bytes, bindings: &Bindings) -> String {
    let result = read(bytes).and_then(|model| model.import(bindings));
    match result {
        Ok(graph) => format!("imported: {} nodes", graph.nodes.len()),
        Err(error) => error.to_string(),
    }
}

fn check(model: &ModelProto, expected: Expect) {
    expected.assert_eq(&said(bytes(model), &Bindings::default()));
}

fn check_graph(graph: GraphProto, expected: Expect) {
    check(&model(graph, Vec::new()), expected);
}

fn check_bindings(graph: GraphProto, bindings: &Bindings, expected: Expect) {
    expected.assert_eq(&said(bytes(&model(graph, Vec::new())), bindings));
}

/// `c = a + w`, which is right.
fn sum() -> GraphProto {
    graph(
        vec![value("a", FLOAT, &["2", "3"])],
        vec![floats("w", &[3], &[1.0, 2.0, 3.0])],
        vec![node("Add a w -> c")],
        &["c"],
    )
}

#[test]
fn right_model_is_imported() {
    check_graph(sum(), expect!["imported: 1 nodes"]);
}

#[test]
fn every_truncation_is_refused() {
    let whole = ModelProto { opset_import: vec![opset("", 18)], ..model(sum(), Vec::new()) };
    let whole = bytes(&whole);
    for length in 0..whole.len() {
        let text = said(whole.slice(..length), &Bindings::default());
        assert!(!text.starts_with("imported"), "{length} of {} bytes: {text}", whole.len());
    }
}

#[test]
fn other_files_are_refused() {
    let text = said(b"{\"nodes\": []}".as_slice().into(), &Bindings::default());
    assert!(text.starts_with("not an ONNX model: "), "{text}");
}

#[test]
fn model_without_graph_is_refused() {
    let model = ModelProto { opset_import: vec![opset("", 18)], ..ModelProto::default() };
    check(&model, expect!["malformed model: there is no graph"]);
}

#[test]
fn newer_operators_are_refused() {
    let mut model = model(sum(), Vec::new());
    model.opset_import[0].version = 99;
    check(&model, expect!["operator set `ai.onnx` has version 99, the newest known is 28"]);
}

#[test]
fn newer_format_is_refused() {
    let mut model = model(sum(), Vec::new());
    model.ir_version = 1000;
    check(&model, expect!["not an ONNX model: IR version 1000, the newest known is 14"]);
}

#[test]
fn operator_of_a_domain_that_is_not_imported_is_refused() {
    let mut graph = sum();
    graph.node[0] = node("Add a w -> c").of_domain("elsewhere");
    check_graph(
        graph,
        expect!["malformed model: node `c`: operator set `elsewhere` is not imported (for `Add`)"],
    );
}

#[test]
fn unknown_operator_is_refused() {
    let mut graph = sum();
    graph.node[0] = node("Frobnicate a w -> c");
    check_graph(graph, expect!["node `c` (Frobnicate) of opset 18 is not supported: the operator"]);
}

#[test]
fn unknown_operator_that_no_output_needs_does_not_matter() {
    let mut graph = sum();
    graph.node.push(node("Frobnicate a w -> d"));
    check_graph(graph, expect!["imported: 1 nodes"]);
}

#[test]
fn cycle_is_refused() {
    let mut graph = sum();
    graph.node = vec![node("Add a d -> b"), node("Neg b -> d"), node("Add b w -> c")];
    check_graph(graph, expect!["malformed model: the graph has a cycle through node `d` (Neg)"]);
}

#[test]
fn nodes_in_another_order_are_sorted() {
    let mut graph = sum();
    graph.node = vec![node("Add b d -> c"), node("Neg a -> b"), node("Neg w -> d")];
    check_graph(graph, expect!["imported: 3 nodes"]);
}

#[test]
fn undefined_value_is_refused() {
    let mut graph = sum();
    graph.node[0] = node("Add a nothing -> c");
    check_graph(
        graph,
        expect!["malformed model: value `nothing`, which node `c` (Add) uses, is not defined"],
    );
}

#[test]
fn undefined_output_is_refused() {
    let mut graph = sum();
    graph.node.clear();
    check_graph(graph, expect!["malformed model: output `c` is not defined"]);
}

#[test]
fn missing_input_of_an_operator_is_refused() {
    let mut graph = sum();
    graph.node[0] = node("Add a _ -> c");
    check_graph(graph, expect!["node `c` (Add): input 1 is missing"]);
}

#[test]
fn value_that_is_defined_twice_is_refused() {
    let mut graph = sum();
    graph.node.push(node("Neg a -> c"));
    check_graph(graph, expect!["malformed model: value `c` is defined twice"]);
    let mut graph = sum();
    graph.node = vec![node("Neg a -> w"), node("Neg w -> c")];
    check_graph(graph, expect!["malformed model: value `w` is defined twice"]);
}

#[test]
fn input_that_is_declared_twice_is_refused() {
    let mut graph = sum();
    graph.input.push(value("a", FLOAT, &["2", "3"]));
    check_graph(graph, expect!["malformed model: input `a` is declared twice"]);
}

#[test]
fn output_that_is_declared_twice_is_refused() {
    let mut graph = sum();
    graph.output.push(value("c", FLOAT, &[]));
    check_graph(graph, expect!["malformed model: output `c` is declared twice"]);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let mut graph = sum();
    graph.input[0] = value("a", FLOAT, &["2", "5"]);
    check_graph(graph, expect!["node `c` (Add): operand 1 is f32[3], expected extent 1 or 5 in dimension 0"]);
    let mut graph = sum();
    graph.input[0] = value("a", INT64, &["2", "3"]);
    check_graph(graph, expect!["node `c` (Add): operand 1 is f32[3], expected elements i64"]);
}

/// What a model with this weight instead says.
fn check_weight(weight: TensorProto, expected: Expect) {
    let mut graph = sum();
    graph.initializer[0] = weight;
    check_graph(graph, expected);
}

#[test]
fn weight_whose_data_do_not_fit_is_refused() {
    check_weight(
        floats("w", &[4], &[1.0, 2.0, 3.0]),
        expect!["weight `w`: 12 bytes of data, expected 16 for f32[4]"],
    );
    check_weight(floats("w", &[-3], &[1.0, 2.0, 3.0]), expect!["weight `w`: extent -3 is negative"]);
    check_weight(
        TensorProto { raw_data: None, ..floats("w", &[3], &[]) },
        expect!["weight `w`: 0 elements of data, expected 3 for f32[3]"],
    );
    check_weight(
        TensorProto { data_type: 8, ..floats("w", &[3], &[1.0, 2.0, 3.0]) },
        expect!["weight `w`: element type 8 (string) is not supported"],
    );
}

#[test]
fn enormous_weight_is_refused_without_memory_for_it() {
    check_weight(
        floats("w", &[1 << 40, 1 << 40], &[1.0]),
        expect!["weight `w`: shape [1099511627776, 1099511627776] has too many elements"],
    );
    check_weight(
        floats("w", &[1 << 45], &[1.0]),
        expect!["weight `w`: 4 bytes of data, expected 140737488355328 for f32[35184372088832]"],
    );
    check_weight(
        floats("w", &[0, 1 << 62, 1 << 62], &[]),
        expect!["weight `w`: shape [0, 4611686018427387904, 4611686018427387904] has too many elements"],
    );
}

/// A weight in another file.
fn external(entries: &[(&str, &str)]) -> TensorProto {
    let entry = |(key, value): &(&str, &str)| StringStringEntryProto {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    TensorProto {
        raw_data: None,
        data_location: 1,
        external_data: entries.iter().map(entry).collect(),
        ..floats("w", &[3], &[])
    }
}

#[test]
fn weight_in_another_file_needs_no_data() {
    check_weight(
        external(&[("location", "w.bin"), ("offset", "8"), ("length", "12")]),
        expect!["imported: 1 nodes"],
    );
}

#[test]
fn shape_in_another_file_is_needed() {
    let shape = TensorProto { data_type: INT64, ..external(&[("location", "s.bin"), ("length", "24")]) };
    let mut graph = sum();
    (graph.initializer[0], graph.node[0]) = (shape, node("Reshape a w -> c"));
    check_graph(
        graph.clone(),
        expect![
            "weight `w`: node `c` (Reshape) needs its data, which are large or in a file that is not given"
        ],
    );
    let mut model = read(bytes(&model(graph, Vec::new()))).unwrap();
    model.attach("s.bin", [1_i64, 3, 2].iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>().into());
    let graph = model.import(&Bindings::default()).unwrap();
    assert_eq!(graph.type_of(graph.outputs[0].value).shape, [1, 3, 2]);
}

#[test]
fn weight_in_another_file_that_does_not_fit_is_refused() {
    check_weight(external(&[]), expect!["weight `w`: external data without a location"]);
    check_weight(
        external(&[("location", "w.bin"), ("length", "13")]),
        expect!["weight `w`: 13 bytes of external data, expected 12"],
    );
    check_weight(
        external(&[("location", "w.bin"), ("offset", "-1")]),
        expect!["weight `w`: offset `-1` is not a number of bytes"],
    );
    check_weight(
        external(&[("location", "w.bin"), ("offset", "18446744073709551615")]),
        expect!["weight `w`: offset 18446744073709551615 is too large"],
    );
}

#[test]
fn weight_beyond_the_end_of_its_file_is_refused() {
    let mut graph = sum();
    graph.initializer[0] = external(&[("location", "w.bin"), ("offset", "8"), ("length", "12")]);
    let mut model = read(bytes(&model(graph, Vec::new()))).unwrap();
    assert_eq!(model.files(), ["w.bin"]);
    model.attach("w.bin", vec![0; 19].into());
    let error = model.weight("w").unwrap_err();
    expect!["weight `w`: 12 bytes at 8 of `w.bin`, which has 19"].assert_eq(&error.to_string());
    model.attach("w.bin", vec![0; 20].into());
    assert!(model.weight("w").is_ok());
}

#[test]
fn enormous_result_of_small_numbers_is_refused() {
    let shape = integers("s", &[2], &[1 << 40, 1 << 40]);
    let graph = graph(
        Vec::new(),
        vec![shape],
        vec![node("ConstantOfShape s -> c").with(tensor_attribute("value", floats("", &[1], &[1.0])))],
        &["c"],
    );
    check_graph(
        graph,
        expect!["node `c` (ConstantOfShape): shape [1099511627776, 1099511627776] has too many elements"],
    );
}

#[test]
fn enormous_result_of_broadcasting_is_refused() {
    let wide = shapes(&[("a", &[1 << 40, 1]), ("b", &[1, 1 << 40])]);
    check_bindings(
        symbolic(&["m", "one"], &["one", "n"]),
        &wide,
        expect!["node `c` (Add): shape [1099511627776, 1099511627776] has too many elements"],
    );
}

#[test]
fn functions_that_call_each_other_are_refused() {
    let functions = vec![
        function("f", &["x"], &["y"], vec![node("g x -> y").of_domain("local")]),
        function("g", &["x"], &["y"], vec![node("f x -> y").of_domain("local")]),
    ];
    let mut graph = sum();
    graph.node = vec![node("f a -> c").of_domain("local")];
    check(
        &model(graph, functions),
        expect!["malformed model: functions and branches are nested more than 48 deep"],
    );
}

#[test]
fn functions_that_multiply_are_refused() {
    let mut functions = vec![function("f0", &["x"], &["y"], vec![node("Neg x -> y")])];
    for index in 1..40 {
        let call = |text: &str| node(&format!("f{} {text}", index - 1)).of_domain("local");
        functions.push(function(&format!("f{index}"), &["x"], &["y"], vec![call("x -> z"), call("z -> y")]));
    }
    let mut graph = sum();
    graph.node = vec![node("f39 a -> c").of_domain("local")];
    check(
        &model(graph, functions),
        expect!["malformed model: there are more than 1000000 nodes after inlining functions"],
    );
}

/// `c = a + b` with these dimensions.
fn symbolic(a: &[&str], b: &[&str]) -> GraphProto {
    graph(vec![value("a", FLOAT, a), value("b", FLOAT, b)], Vec::new(), vec![node("Add a b -> c")], &["c"])
}

fn sizes(sizes: &[(&str, u64)]) -> Bindings {
    let dims = sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
    Bindings { dims, ..Bindings::default() }
}

fn shapes(shapes: &[(&str, &[u64])]) -> Bindings {
    let inputs = shapes.iter().map(|&(name, shape)| (name.to_owned(), shape.to_vec())).collect();
    Bindings { inputs, ..Bindings::default() }
}

#[test]
fn unbound_dimensions_are_all_named() {
    check_bindings(
        symbolic(&["batch", "past + seq"], &["batch", ""]),
        &sizes(&[("past", 1)]),
        expect![
            "dimensions without a size: `b[1]` in b[1]; `batch` in a[0], b[0]; `seq` in a[1] (bind each symbol to a number, or give the shapes of these inputs)"
        ],
    );
}

#[test]
fn shapes_bind_symbols_through_expressions() {
    let graph = symbolic(&["seq", "past + seq"], &["seq", "2*past"]);
    check_bindings(
        graph.clone(),
        &shapes(&[("a", &[3, 8])]),
        expect!["node `c` (Add): operand 1 is f32[3,10], expected extent 1 or 8 in dimension 1"],
    );
    check_bindings(graph, &shapes(&[("a", &[5, 10])]), expect!["imported: 1 nodes"]);
}

#[test]
fn contradictory_sizes_are_refused_where_the_graph_needs_them() {
    let graph = symbolic(&["n", "past + n"], &["n", "n"]);
    let needed = expect!["node `c` (Add): operand 1 is f32[4,4], expected extent 1 or 3 in dimension 0"];
    check_bindings(graph.clone(), &shapes(&[("a", &[3, 8]), ("b", &[4, 4])]), needed);
    let mut both = shapes(&[("a", &[3, 8])]);
    both.dims.insert("n".to_owned(), 4);
    check_bindings(graph, &both, expect!["contradictory sizes: a[0] is 3, but `n` is 4"]);
    let mut place = shapes(&[("a", &[3, 8])]);
    place.dims.insert("a[0]".to_owned(), 4);
    let message = expect!["contradictory sizes: a[0] is 3, but `a[0]` is 4"];
    check_bindings(symbolic(&["n", "m"], &["n", "m"]), &place, message);
    let message = expect!["contradictory sizes: a[0] is 3, but `2` is 2"];
    check_bindings(symbolic(&["2", "m"], &["n", "m"]), &shapes(&[("a", &[3, 8])]), message);
}

/// A name with two sizes is two dimensions where the graph does not mind, and what is said of them gives
/// these shapes again.
#[test]
fn dimensions_that_share_a_name_are_taken_apart() {
    let mut graph = symbolic(&["n", "m"], &["n", "m"]);
    graph.input.push(value("labels", FLOAT, &["k", "n", "2*n"]));
    graph.node.push(node("Neg labels -> d"));
    graph.output.push(value("d", FLOAT, &["k", "n", "2*n"]));
    let model = read(model(graph, Vec::new()).encode_to_vec().into()).unwrap();
    let given = shapes(&[("a", &[3, 8]), ("b", &[3, 8]), ("labels", &[5, 6, 7])]);
    let dimensions = model.dimensions(&given).unwrap();
    let said: Vec<String> = dimensions.apart.iter().map(ToString::to_string).collect();
    expect![[r"
        labels[1] is 6, and `n`, as the model calls it, is 3 elsewhere: taken as a dimension of its own (`--dim n=SIZE` does not bind it, `--dim labels[1]=6` does)
        labels[2] is 7, and `2*n`, as the model calls it, is 6 elsewhere: taken as a dimension of its own (`--dim 2*n=SIZE` does not bind it, `--dim labels[2]=7` does)"]]
    .assert_eq(&said.join("\n"));
    let named: Vec<String> = dimensions.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
    expect!["k=5 labels[1]=6 labels[2]=7 m=8 n=3"].assert_eq(&named.join(" "));
    let again = Bindings { dims: dimensions.sizes.clone(), ..Bindings::default() };
    assert_eq!(model.import(&again), model.import(&given));
    assert_eq!(model.dimensions(&again).unwrap().apart, vec![]);
    // What one name is given is that of the dimensions that have this size.
    let mut named = given.clone();
    named.dims.insert("n".to_owned(), 6);
    let dimensions = model.dimensions(&named).unwrap();
    assert_eq!(dimensions.sizes["n"], 6);
    assert_eq!(dimensions.sizes["a[0]"], 3);
    assert_eq!(model.import(&named), model.import(&given));
}

#[test]
fn bindings_of_what_is_not_there_are_refused() {
    let graph = symbolic(&["n"], &["n"]);
    check_bindings(graph.clone(), &sizes(&[("m", 3)]), expect!["there is no dimension `m`, there are `n`"]);
    check_bindings(
        graph.clone(),
        &shapes(&[("x", &[3])]),
        expect!["there is no input `x`, there are `a`, `b`"],
    );
    check_bindings(graph, &shapes(&[("a", &[3, 3])]), expect!["input `a` has 1 dimensions, given [3, 3]"]);
}

#[test]
fn value_of_an_input_that_does_not_fit_is_refused() {
    let mut bindings = Bindings::default();
    bindings.controls.insert("a".to_owned(), Array::of([3], &[1_i64, 2, 3]).unwrap());
    check_bindings(
        symbolic(&["n"], &["n"]),
        &bindings,
        expect!["the value of `a` is i64[3], which does not fit"],
    );
}

#[test]
fn output_whose_shape_depends_on_data_is_refused() {
    let mut graph = sum();
    graph.node = vec![node("NonZero a -> c")];
    check_graph(
        graph,
        expect![
            "node `c` (an output of the model): its shape depends on data; if inputs decide it, give their values"
        ],
    );
}

#[test]
fn sizes_and_places_that_are_no_integers_are_refused() {
    for name in ["Reshape a a", "Expand a a", "Tile a a", "Split a a", "TopK a a", "Slice a a a"] {
        let mut graph = sum();
        graph.node = vec![node(&format!("{name} -> c"))];
        let text = said(model(graph, Vec::new()).encode_to_vec().into(), &Bindings::default());
        assert!(text.ends_with("sizes or places are f32, expected integers"), "{name}: {text}");
    }
}

#[test]
fn attribute_that_is_missing_is_refused() {
    let mut graph = sum();
    graph.node = vec![node("Concat a a -> c")];
    check_graph(graph, expect!["node `c` (Concat): attribute `axis` is missing"]);
    let mut graph = sum();
    graph.node = vec![node("Concat a a -> c").with(int("axis", 7))];
    check_graph(graph, expect!["node `c` (Concat): axis 7 of 2 dimensions"]);
}

#[test]
fn deep_nesting_is_refused() {
    let mut inner = sum();
    inner.input.clear();
    for _ in 0..200 {
        let branch = super::make::graph_attribute("then_branch", inner);
        inner = graph(Vec::new(), Vec::new(), vec![node("If x -> c").with(branch)], &["c"]);
    }
    let text = said(model(inner, Vec::new()).encode_to_vec().into(), &Bindings::default());
    expect!["not an ONNX model: ..Proto.g: NodeProto.attribute: GraphProto.node: AttributeProto.g: NodeProto.attribute: GraphProto.node: AttributeProto.g: NodeProto.attribute: GraphProto.node: ModelProto.graph: recursion limit reached (the file has 10270 bytes)"].assert_eq(&text);
}

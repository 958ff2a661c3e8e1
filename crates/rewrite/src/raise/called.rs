//! What operations are called that only move the results of products: as in the module of the product.
//!
//! A product whose results are then transposed becomes a product that makes them transposed, which is called as what
//! makes its results: `self_attn.transpose_1` says nothing of `self_attn.q_proj`.

use planner_ir::{Graph, Node, OpClass, Source, ValueId};

/// The graph with such operations in the modules of products.
pub(super) fn called(graph: &Graph) -> Graph {
    let mut result = graph.clone();
    for (place, node) in graph.nodes.iter().enumerate() {
        let Some(product) = moved(graph, node) else { continue };
        if let (Some((module, _)), Some(own)) =
            (product.origin.rsplit_once('.'), node.origin.rsplit('.').next())
        {
            result.nodes[place].origin = format!("{module}.{own}");
        }
    }
    result
}

/// The product whose results an operation moves, perhaps with others between them that do, and with its bias.
fn moved<'a>(graph: &'a Graph, node: &'a Node) -> Option<&'a Node> {
    let moves = |node: &Node| matches!(node.op.class(), OpClass::Movement(_));
    let mut node = node;
    if !moves(node) {
        return None;
    }
    while moves(node) {
        node = maker(graph, *node.operands.first()?)?;
    }
    let product = |node: &&Node| matches!(node.op.class(), OpClass::MatrixProduct(_));
    if product(&node) {
        return Some(node);
    }
    let module = |node: &Node| node.origin.rsplit_once('.').map(|it| it.0.to_owned());
    let made = node.operands.iter().filter_map(|&it| maker(graph, it));
    let is_sum = matches!(node.op.class(), OpClass::Elementwise(_));
    made.filter(product).find(|it| is_sum && module(it) == module(node))
}

/// The operation that makes a value.
fn maker(graph: &Graph, value: ValueId) -> Option<&Node> {
    match graph.value(value).source {
        Source::Result { node, .. } => Some(graph.node(node)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use planner_ir::parse_graph;

    use super::called;

    #[test]
    fn what_moves_results_of_a_product_is_of_its_module() {
        let text = "graph \"attention\" {
  %0 = input \"x\" : f32[4,8]
  %1 = weight \"w\" : f32[8,6]
  %2 = contract \"mk,kn->mn\" %0 %1 : f32[4,6] # origin \"h.0.attn.q_proj.linear_1\"
  %3 = weight \"b\" : f32[6]
  %4 = add %2 %3 : f32[4,6] # origin \"h.0.attn.q_proj.add_1\"
  %5 = reshape shape=[4,2,3] %4 : f32[4,2,3] # origin \"h.0.attn.view_1\"
  %6 = transpose permutation=[1,0,2] %5 : f32[2,4,3] # origin \"h.0.attn.transpose_1\"
  %7 = relu %6 : f32[2,4,3] # origin \"h.0.attn.relu_1\"
  %8 = reshape shape=[8,3] %7 : f32[8,3] # origin \"h.0.attn.view_2\"
  return \"y\" %8
}
";
        let graph = parse_graph(text).unwrap();
        let named = called(&graph);
        let names: Vec<&str> = named.nodes.iter().map(|it| it.origin.as_str()).collect();
        let moved = ["h.0.attn.q_proj.view_1", "h.0.attn.q_proj.transpose_1"];
        let made = ["h.0.attn.q_proj.linear_1", "h.0.attn.q_proj.add_1"];
        assert_eq!(names, [made[0], made[1], moved[0], moved[1], "h.0.attn.relu_1", "h.0.attn.view_2"]);
    }
}

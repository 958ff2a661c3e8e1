//! Tests of patterns.

use super::{matches, within};

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, name, expected) in [
        ("a.b", "a.b", true),
        ("a.b", "a.bc", false),
        ("*", "", true),
        ("h.*.bias", "h.11.attn.bias", true),
        ("h.*.bias", "h.bias", false),
        ("*norm*", "model.norm.weight", true),
        ("a*a", "a", false),
        ("a*b*c", "a_c_b_c", true),
        ("a*b*c", "a_c_b", false),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} and {name}");
    }
}

#[test]
fn a_module_has_what_is_in_it() {
    let name = "model.layers.11.self_attn.q_proj.MatMul_3";
    for (pattern, expected) in [
        ("model.layers.*.self_attn.q_proj", true),
        ("model.layers.*.self_attn.q_proj.MatMul_3", true),
        ("*.q_proj*", true),
        ("model.layers.11", true),
        ("/model/layers.11/self_attn/q_proj/MatMul_3", true),
        ("*/q_proj/*", true),
        ("model.layers.1", false),
        ("*.q_pro", false),
        ("q_proj", false),
    ] {
        assert_eq!(within(pattern, name), expected, "{pattern}");
    }
}

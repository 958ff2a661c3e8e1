//! Tests of patterns.

use super::matches;

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

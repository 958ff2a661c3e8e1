//! Tests of which modules are split.

use super::{Cut, is_split_alike};

fn is_split(names: &[&str], inside: &[(&str, Cut)], gathered: bool) -> bool {
    let has = |name: &str| names.iter().any(|it| format!("{it}.weight") == name);
    let inside: Vec<(String, Cut)> = inside.iter().map(|it| (it.0.to_owned(), it.1)).collect();
    is_split_alike(&has, &inside, gathered)
}

/// Attention of which some products are whole has other numbers of heads than it takes.
#[test]
fn a_module_is_split_everywhere_or_not() {
    use Cut::{Columns, Rows};
    let attention = ["q_proj", "k_proj", "v_proj", "o_proj", "q_norm"];
    let all = [("q_proj", Columns), ("k_proj", Columns), ("v_proj", Columns), ("o_proj", Rows)];
    assert!(is_split(&attention, &all, false));
    for left_out in 0..all.len() {
        let mut some = all.to_vec();
        some.remove(left_out);
        assert!(!is_split(&attention, &some, false), "{some:?}");
        // What is brought together is taken whole.
        assert_eq!(is_split(&attention, &some, true), left_out == 3, "{some:?}");
        let mut other = all;
        other[left_out].1 = if left_out == 3 { Columns } else { Rows };
        assert!(!is_split(&attention, &other, false), "{other:?}");
    }
    let latent = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"];
    assert!(is_split(&latent, &[("q_b_proj", Columns), ("kv_b_proj", Columns), ("o_proj", Rows)], false));
    assert!(!is_split(&latent, &[("kv_b_proj", Columns), ("o_proj", Rows)], false));
    let packed = ["qkv_proj", "o_proj"];
    assert!(is_split(&packed, &[("qkv_proj", Columns)], true));
    assert!(!is_split(&packed, &[("o_proj", Rows)], false));
    assert!(is_split(&["lm_head"], &[("lm_head", Columns)], false));
    assert!(!is_split(&["other", "w2"], &[("w2", Rows)], false));
}

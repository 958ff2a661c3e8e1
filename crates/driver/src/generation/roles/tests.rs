//! Names as tools write them.

use super::*;

fn parts(inputs: &[&str], outputs: &[&str]) -> Result<Vec<(String, String)>, String> {
    let input = |name: &&str| Input {
        name: (*name).to_owned(),
        dtype: planner_ir::DType::F32,
        dims: Some(vec![import::Dim::Number(2); 4]),
    };
    let inputs: Vec<Input> = inputs.iter().map(input).collect();
    let kept = paired(&inputs, outputs)?;
    Ok(kept.into_iter().map(|it| (it.past, it.present)).collect())
}

#[test]
fn the_names_of_every_tool_go_together() {
    let families = [
        ("past_key_values_0_key", "present_0_key"),
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.layers.0.keys", "past_key_values.layers.0.keys"),
        ("past_key_values.0.decoder.value", "present.0.decoder.value"),
        ("key_0", "key_0_out"),
        ("past_k_0", "present_k_0"),
        ("past_0", "present_0"),
        ("cache.0.key", "new_cache.0.key"),
    ];
    for (past, present) in families {
        assert_eq!(signature(past), signature(present), "{past}, {present}");
    }
    let different = [
        ("past_key_values.0.key", "present.0.value"),
        ("past_key_values.0.key", "present.1.key"),
        ("past_key_values.0.decoder.key", "present.0.encoder.key"),
    ];
    for (past, present) in different {
        assert_ne!(signature(past), signature(present), "{past}, {present}");
    }
}

#[test]
fn parts_are_paired_whatever_their_order() {
    let inputs = ["past_key_values.0.key", "past_key_values.0.value", "past_key_values.1.key"];
    let outputs = ["logits", "present.1.key", "present.0.value", "present.0.key"];
    let found = parts(&inputs, &outputs).unwrap();
    let presents: Vec<&str> = found.iter().map(|it| it.1.as_str()).collect();
    assert_eq!(presents, ["present.0.key", "present.0.value", "present.1.key"]);
}

/// Keys and values have a place for each token, whatever layers are called; windows and matrices have none.
#[test]
fn states_are_told_by_their_names() {
    for name in ["past_key_values.0.key", "past_0", "cache.0.value", "past_key_values.0.conv.key"] {
        assert_eq!(form(name), Form::Entries, "{name}");
    }
    for name in ["past_key_values.0.conv", "past_key_values.1.recurrent_state", "past.2.ssm", "past_state_3"]
    {
        assert_eq!(form(name), Form::State, "{name}");
        assert_eq!(
            signature(name),
            signature(&name.replace("past_key_values", "present").replace("past", "present"))
        );
    }
}

#[test]
fn what_cannot_be_told_is_said_with_a_way_on() {
    let error = parts(&["past_key_values.0.key"], &["logits", "kv_a", "kv_b"]).unwrap_err();
    assert!(error.contains("no output goes with `past_key_values.0.key`"), "{error}");
    assert!(error.contains("--kept INPUT=OUTPUT"), "{error}");
    let error = parts(&[], &["logits"]).unwrap_err();
    assert!(error.contains("it has no cache") && error.contains("`logits`"), "{error}");
    // Two outputs that could be it are none.
    let error = parts(&["past.0.key"], &["present.0.key", "present_0_key"]).unwrap_err();
    assert!(error.contains("no output goes with"), "{error}");
}

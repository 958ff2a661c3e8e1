//! Tests of configurations.

use crate::config::Config;
use crate::decoder::{Frequencies, Pairing};
use crate::onnx::{Data, Element, Place};
use crate::{ConfigError, ExpertWeights, Use, Wanted, is_config, rotary, written};

const MIXTRAL: &str = r#"{"model_type":"mixtral","vocab_size":19,"hidden_size":16,"intermediate_size":12,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"rms_norm_eps":1e-5,
    "num_local_experts":4,"num_experts_per_tok":2,"torch_dtype":"bfloat16"}"#;

#[test]
fn a_configuration_is_told_by_its_content() {
    assert!(is_config(MIXTRAL.as_bytes()));
    assert!(is_config(format!(" \n{MIXTRAL}").as_bytes()));
    for other in ["", "{}", "[]", "{\"model\":1}", "model_type = \"llama\"", "{\"model_type\":", "\u{8}\u{7}"]
    {
        assert!(!is_config(other.as_bytes()), "{other}");
    }
}

#[test]
fn what_is_no_object_is_refused() {
    for text in ["", "[]", "{"] {
        let refused = written(text, &Wanted::of(Use::Forward), Data::Absent).unwrap_err();
        assert!(matches!(refused, ConfigError::Json(_)), "{text}: {refused}");
    }
}

#[test]
fn weights_are_named_typed_and_counted_as_in_the_checkpoint() {
    let model = |wanted: &Wanted| written(MIXTRAL, wanted, Data::Absent).unwrap();
    let apart = model(&Wanted::of(Use::Forward));
    let expert = "model.layers.1.block_sparse_moe.experts.3.w2.weight";
    let found = apart.parameters.iter().find(|it| it.name == expert).unwrap();
    assert_eq!((found.shape.as_slice(), found.element), (&[16, 12][..], Element::Bf16));
    let together = model(&Wanted::of(Use::Loss));
    let found =
        together.parameters.iter().find(|it| it.name.ends_with(".1.block_sparse_moe.experts.w2.weight"));
    assert_eq!(found.unwrap().shape, [4, 16, 12]);
    assert_eq!(together.count(), apart.count());
    let said = Wanted { experts: ExpertWeights::Apart, ..Wanted::of(Use::Loss) };
    assert_eq!(model(&said).parameters.len(), apart.parameters.len());
    // The same wish gives the same bytes, another one others.
    assert!(model(&Wanted::of(Use::Forward)).bytes == apart.bytes);
    let shorter = model(&Wanted { layers: Some(1), ..Wanted::of(Use::Forward) });
    assert!(
        shorter.parameters.iter().all(|it| !it.name.contains("layers.1.")) && shorter.count() < apart.count()
    );
}

/// Phi-4 is published with `attention_bias`, which models of its type do not read: false is what they compute.
#[test]
fn what_a_type_does_without_may_be_said() {
    let phi = |said: &str| {
        let config = MIXTRAL
            .replace("mixtral", "phi3")
            .replace("\"num_local_experts\":4,\"num_experts_per_tok\":2,", said);
        written(&config, &Wanted::of(Use::Forward), Data::Absent)
    };
    let plain = phi("").unwrap();
    assert!(phi("\"attention_bias\":false,").unwrap().bytes == plain.bytes);
    let refused = phi("\"attention_bias\":true,").unwrap_err().to_string();
    assert!(refused.contains("attention_bias") && refused.contains("false"), "{refused}");
}

/// Without them a graph is that of a configuration that has no layers that predict further tokens.
#[test]
fn further_tokens_are_left_out_where_the_loss_is_of_next_ones() {
    let further = MIXTRAL.replace("\"num_local", "\"num_nextn_predict_layers\":2,\"num_local");
    let of = |config: &str, of| written(config, &Wanted::of(of), Data::Absent).unwrap();
    assert!(of(&further, Use::Loss).count() > of(MIXTRAL, Use::Loss).count());
    for it in Use::ALL.into_iter().filter(|it| *it != Use::Loss) {
        let (found, plain) = (of(&further, it), of(MIXTRAL, it));
        assert!(found.bytes == plain.bytes, "{it:?}");
        assert!(
            found.left_out.iter().any(|it| it.contains("num_nextn_predict_layers"))
                && plain.left_out.is_empty()
        );
    }
    assert!(of(MIXTRAL, Use::NextLoss).bytes == of(MIXTRAL, Use::Loss).bytes);
}

#[test]
fn data_lie_where_they_are_said_to_lie() {
    let place = |parameter: &crate::onnx::Parameter| {
        Some(Place { file: "sub/folder.safetensors".to_owned(), offset: parameter.count() })
    };
    let model = written(MIXTRAL, &Wanted::of(Use::Forward), Data::Placed(&place)).unwrap();
    let holds = |text: &str| model.bytes.windows(text.len()).any(|it| it == text.as_bytes());
    assert!(holds("sub/folder.safetensors") && !holds(crate::onnx::WEIGHTS));
}

#[test]
fn angles_are_scaled_as_configurations_say() {
    let table = |text: &str| {
        let table = rotary::table(&Config::parse(text).unwrap(), 4, Pairing::Halves).unwrap();
        (table.frequencies, table.factor)
    };
    let near = |found: &[f64], expected: [f64; 2]| {
        assert!(
            found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12),
            "{found:?}, expected {expected:?}"
        );
    };
    let fixed = |text: &str, expected: [f64; 2]| match table(text) {
        (Frequencies::Fixed(found), _) => near(&found, expected),
        other => panic!("{other:?}"),
    };
    fixed("{}", [1.0, 0.01]);
    fixed(r#"{"rope_theta":400}"#, [1.0, 0.05]);
    fixed(r#"{"rope_parameters":{"rope_type":"default","rope_theta":400}}"#, [1.0, 0.05]);
    fixed(r#"{"rope_scaling":{"type":"linear","factor":2}}"#, [0.5, 0.005]);
    let long = r#"{"max_position_embeddings":64,"original_max_position_embeddings":16,
        "rope_scaling":{"type":"longrope","short_factor":[1,2],"long_factor":[4,8]}}"#;
    let (Frequencies::ByLength { length, short, long }, factor) = table(long) else { panic!("{long}") };
    near(&short, [1.0, 0.005]);
    near(&long, [0.25, 0.00125]);
    assert_eq!(length, 16);
    assert!((factor - 1.5_f64.sqrt()).abs() < 1e-12, "{factor}");
}

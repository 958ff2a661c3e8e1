//! Tests of windows.

use planner_ir::{Optimizer, Real};

use super::*;

fn recipe(loss: Loss) -> Recipe {
    Recipe {
        precision: plan::Precision::F32,
        roles: ::plan::Roles::default(),
        ..Recipe::new(loss, Optimizer::Sgd { decay: Real(0.0) })
    }
}

fn own_loss() -> Recipe {
    recipe(Loss::Output("loss".to_owned()))
}

fn cross_entropy() -> Recipe {
    recipe(Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() })
}

fn input(name: &str, dtype: DType, shape: &[u64]) -> Input {
    Input { name: name.to_owned(), type_: Type::new(dtype, shape) }
}

fn usual() -> Vec<Input> {
    vec![
        input("input_ids", DType::I64, &[2, 3]),
        input("attention_mask", DType::I64, &[2, 3]),
        input("position_ids", DType::I32, &[2, 3]),
        input("labels", DType::I64, &[2, 3]),
    ]
}

/// A file with these bytes.
fn file(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("shardloom-tokens-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn numbers(tokens: &Tokens, inputs: &[Input], windows: &[u64]) -> Vec<Vec<i64>> {
    let one = |(number, input): (usize, &Input)| {
        tokens.input(number, &input.type_, windows).unwrap().to_integers().unwrap()
    };
    inputs.iter().enumerate().map(one).collect()
}

#[test]
fn windows_follow_each_other_and_labels_are_one_token_later() {
    let bytes: Vec<u8> = (0..12_u16).flat_map(|it| (300 + it).to_le_bytes()).collect();
    let path = file("windows", &bytes);
    let tokens = Tokens::open(&path, Width::U16, &usual(), &cross_entropy()).unwrap();
    assert_eq!((tokens.examples(), tokens.batch), (3, 2));
    let parts = numbers(&tokens, &usual(), &[2, 0]);
    assert_eq!(parts[0], [306, 307, 308, 300, 301, 302]);
    assert_eq!(parts[1], [1; 6]);
    assert_eq!(parts[2], [0, 1, 2, 0, 1, 2]);
    assert_eq!(parts[3], [307, 308, 309, 301, 302, 303]);
    // A model that has its own loss shifts labels itself.
    let tokens = Tokens::open(&path, Width::U16, &usual(), &own_loss()).unwrap();
    assert_eq!(numbers(&tokens, &usual(), &[1, 0])[3], [303, 304, 305, 300, 301, 302]);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn numbers_have_the_width_that_is_said() {
    let inputs = [input("x", DType::I64, &[1, 2]), input("position", DType::I64, &[2])];
    let several = [input("x", DType::I64, &[2, 2]), input("position", DType::I64, &[1, 2])];
    let path = file("width", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let first = |width| {
        let tokens = Tokens::open(&path, width, &inputs, &own_loss()).unwrap();
        (tokens.examples(), numbers(&tokens, &inputs, &[0]))
    };
    assert_eq!(first(Width::U8), (5, vec![vec![1, 2], vec![0, 1]]));
    let tokens = Tokens::open(&path, Width::U8, &several, &own_loss()).unwrap();
    assert_eq!(numbers(&tokens, &several, &[1, 0]), [vec![3, 4, 1, 2], vec![0, 1]]);
    assert_eq!(first(Width::U16), (2, vec![vec![0x0201, 0x0403], vec![0, 1]]));
    assert_eq!(first(Width::U32), (1, vec![vec![0x0403_0201, 0x0807_0605], vec![0, 1]]));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn inputs_that_tokens_cannot_make_are_named() {
    let path = file("refused", &[0; 100]);
    let error = |inputs: &[Input]| Tokens::open(&path, Width::U8, inputs, &own_loss()).unwrap_err();
    let with = |more: Input| [usual(), vec![more]].concat();
    for (inputs, expected) in [
        (with(input("token_type_ids", DType::I64, &[2, 3])), "nothing for input `token_type_ids` i64[2,3]"),
        (with(input("pixel_values", DType::F32, &[2, 3])), "nothing for input `pixel_values`"),
        (
            with(input("mask", DType::F32, &[2, 3])),
            "input `mask` is f32[2,3], and from a file of tokens it can only be made of integers",
        ),
        (with(input("mask", DType::I64, &[2, 4])), "only be made [2,3], the shape of `input_ids`"),
        (vec![input("x", DType::I64, &[6])], "two dimensions"),
        (vec![input("labels", DType::I64, &[2, 3])], "no input takes tokens"),
    ] {
        let error = error(&inputs);
        assert!(error.contains(expected) && error.contains("give arrays (.npz)"), "{error}");
    }
    let small = file("small", &[0; 3]);
    let error = Tokens::open(&small, Width::U8, &usual(), &own_loss()).unwrap_err();
    assert!(error.contains("has 3 tokens, expected 4 at least"), "{error}");
    let error = Tokens::open(&small, Width::U16, &usual(), &own_loss()).unwrap_err();
    assert!(error.contains("3 bytes are no whole number of tokens of 2 bytes"), "{error}");
    std::fs::remove_file(path).unwrap();
    std::fs::remove_file(small).unwrap();
}

#[test]
fn a_file_that_has_become_shorter_is_refused() {
    let path = file("shorter", &[7; 100]);
    let tokens = Tokens::open(&path, Width::U8, &usual(), &own_loss()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3).unwrap();
    let error = tokens.input(0, &usual()[0].type_, &[0, 1]).unwrap_err();
    assert!(error.ends_with("is 3 bytes long, expected 100 as when it was opened"), "{error}");
    std::fs::remove_file(path).unwrap();
}

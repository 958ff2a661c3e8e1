//! How one choice differs from another, in keys.

use predict::stated::gpt;

use super::*;

/// Stages that are no equal parts of the layers are said, as nobody takes them to be otherwise.
#[test]
fn unequal_stages_are_keys() {
    let base = Setup { tp: 1, pp: 2, stages: vec![3, 3], dp: 4, gbs: 8, ..gpt(6, 1024, 8, 512) };
    let keys = |pp| {
        let to = Choice { pp, ..Choice::of(&base) };
        let keys = Choice::of(&base).changes(&to, &base);
        keys.into_iter().map(|it| (it.name, it.to)).collect::<Vec<_>>()
    };
    assert!(keys(2).is_empty());
    assert_eq!(keys(3), [("pipeline_model_parallel_size", "3".to_owned())]);
    let layers = ("pipeline_layers", "[1, 2, 2, 1]".to_owned());
    let mut found = keys(4);
    found.sort();
    assert_eq!(found, [layers, ("pipeline_model_parallel_size", "4".to_owned())]);
}

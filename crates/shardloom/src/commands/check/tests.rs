//! A step of ranks that compute something else than the model is refused.

use std::sync::Arc;

use ::plan::json::read_any;
use lower::{Action, Program};
use planner_ir::{Op, Real};

use super::*;
use crate::main_with;

/// A wrong number in what ranks of a pipeline compute: forward in the first stage, on one of its ranks or all,
/// or backward in the last.
#[test]
fn a_wrong_number_in_a_pipeline_is_seen() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/gpt2-bytes.onnx");
    let path = std::env::temp_dir().join(format!("shardloom-wrong-number-{}.json", std::process::id()));
    let plan = path.to_str().unwrap();
    let sizes =
        ["--machine", "cpu-4x", "--stages", "2", "--mesh", "2", "--dim", "batch=4", "--dim", "sequence=8"];
    let step = ["--mode", "train", "--loss", "cross-entropy:logits,labels", "--microbatches", "2"];
    let arguments = [&["shardloom", "plan", model, "-o", plan][..], &sizes, &step].concat();
    let mut said = Vec::new();
    assert_eq!(main_with(arguments, &mut Vec::new(), &mut said), 0, "{}", String::from_utf8_lossy(&said));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let Ok(Content::Pipeline(pipeline)) = read_any(text.as_bytes()) else { panic!("it is no pipeline") };
    let file = plan_file::named_model(&path, &pipeline.stages[0].plan.model, Some(Path::new(model))).unwrap();
    let graph = derived_pipeline(&path, &pipeline, &file).unwrap();
    let programs = pipeline::lower_pipeline(&pipeline, &mut |_, _| {}).unwrap();
    let made = |programs: &[Program]| {
        let evaluated = Evaluated {
            path: &path,
            graph: &graph,
            controls: &[],
            file: &file,
            programs,
            turned: None,
            inputs: None,
        };
        evaluated.step().map_err(|failure| failure.to_string())
    };
    made(&programs).unwrap();
    for (ranks, gradient) in [(0..1, false), (0..2, false), (2..4, true)] {
        let mut wrong = programs.clone();
        let alone = ranks.len() == 1;
        assert!(ranks.clone().all(|it| planted(&mut wrong[it], gradient)), "{ranks:?} have no attention");
        let message = made(&wrong).unwrap_err();
        let expected =
            if alone { "different copies of `loss`" } else { "a step of its ranks is not that of one" };
        assert!(message.contains(expected), "{message}");
    }
}

/// Makes the first attention of a program, or the first gradient of one, scale its scores otherwise.
fn planted(program: &mut Program, gradient: bool) -> bool {
    let mut computed = program.instructions.iter_mut().filter_map(|it| match &mut it.action {
        Action::Compute(compute) => Some(&mut compute.op),
        _ => None,
    });
    computed.any(|op| {
        let scale = match Arc::make_mut(op) {
            Op::Attention(attention) if !gradient => &mut attention.scale,
            Op::AttentionGradient { attention, .. } if gradient => &mut attention.scale,
            _ => return false,
        };
        *scale = Real(scale.0 * 1.5);
        true
    })
}

//! A command of vLLM.
//!
//! Source: vLLM 0.33, `vllm/engine/arg_utils.py`, `vllm/config/parallel.py`, `vllm/config/scheduler.py`.

use plan::ExpertsBy;

use crate::file::File;
use crate::server::{Argument, script, with};
use crate::serving::Serving;

/// The script.
pub(crate) fn files(serving: &Serving, lost: &mut Vec<String>) -> Vec<File> {
    let arguments = arguments(serving, lost);
    let of_nodes: [Argument; 4] = [
        with("--nnodes", serving.nodes()),
        with("--node-rank", "\"$NODE\""),
        with("--master-addr", "\"$HEAD\""),
        ("$(test \"$NODE\" = 0 || echo --headless)", None),
    ];
    let title = ("vLLM", "0.33", "vllm.sh");
    let text = script(serving, title, ("vllm serve \"$MODEL\"", &arguments, &of_nodes));
    vec![File { name: "vllm.sh", text }]
}

/// What a server is told, but for where it is.
pub(crate) fn arguments(serving: &Serving, lost: &mut Vec<String>) -> Vec<Argument> {
    let served = &serving.served;
    let tokens = serving.of_group() * serving.prompt;
    let mut arguments = vec![
        with("--dtype", serving.element()),
        with("--tensor-parallel-size", served.tensor),
        with("--pipeline-parallel-size", 1),
        with("--data-parallel-size", served.data),
    ];
    if served.experts == Some(ExpertsBy::Experts) {
        arguments.push(("--enable-expert-parallel", None));
    }
    arguments.extend([
        with("--max-model-len", serving.context),
        with("--max-num-seqs", serving.of_group()),
        ("--enable-chunked-prefill", None),
        with("--max-num-batched-tokens", tokens.max(serving.of_group())),
    ]);
    match serving.device {
        Some(device) => {
            let share = Serving::share(serving.room.capacity, device.memory);
            arguments.push(with("--gpu-memory-utilization", share));
        }
        None => lost.push(
            "the machine of the plan is not known: `--gpu-memory-utilization` is yours to add".to_owned(),
        ),
    }
    arguments
}

//! A command of SGLang.
//!
//! Source: SGLang 0.5.23, `sglang/srt/arg_groups/fields/parallel.py`, `.../model.py`, `.../schedule.py`,
//! `sglang/srt/arg_groups/parallel_hook.py`. Where groups of a server share experts its `--tp-size` counts all
//! devices of the server; sequences and tokens are those of all groups there, and of one otherwise.

use plan::ExpertsBy;

use crate::file::File;
use crate::model::Model;
use crate::server::{Argument, script, with};
use crate::serving::Serving;

/// What SGLang runs: where a server has several nodes its data parallel groups are servers.
pub(crate) fn limited(serving: Serving, model: &Model) -> Serving {
    if model.experts.is_some() || serving.nodes() == 1 { serving } else { serving.groups_apart() }
}

/// The script.
pub(crate) fn files(serving: &Serving, model: &Model, lost: &mut Vec<String>) -> Vec<File> {
    let arguments = arguments(serving, model, lost);
    let of_nodes: [Argument; 3] = [
        with("--nnodes", serving.nodes()),
        with("--node-rank", "\"$NODE\""),
        with("--dist-init-addr", "\"$HEAD:25000\""),
    ];
    let title = ("SGLang", "0.5.23", "sglang.sh");
    let command = "python3 -m sglang.launch_server --model-path \"$MODEL\"";
    vec![File { name: "sglang.sh", text: script(serving, title, (command, &arguments, &of_nodes)) }]
}

/// What a server is told, but for where it is.
pub(crate) fn arguments(serving: &Serving, model: &Model, lost: &mut Vec<String>) -> Vec<Argument> {
    let served = &serving.served;
    let shares = model.experts.is_some() && served.data > 1;
    let groups = if shares { served.data } else { 1 };
    let mut arguments = vec![
        with("--dtype", serving.element()),
        with("--tp-size", served.tensor * groups),
        with("--pp-size", 1),
    ];
    if shares {
        arguments.push(with("--attn-dp-size", served.data));
        if model.units.is_some() {
            arguments.push(("--enable-dense-mlp-attn-tp", None));
        }
    } else {
        arguments.push(with("--dp-size", served.data));
    }
    if served.experts == Some(ExpertsBy::Experts) {
        arguments.push(with("--ep-size", serving.of_server()));
    }
    let sequences = serving.of_group() * groups;
    arguments.extend([
        with("--context-length", serving.context),
        with("--max-running-requests", sequences),
        with("--chunked-prefill-size", sequences * serving.prompt),
    ]);
    match serving.device {
        Some(device) => {
            // What a step makes comes on top of it.
            let at_rest = serving.room.capacity.saturating_sub(serving.room.step);
            arguments.push(with("--mem-fraction-static", Serving::share(at_rest, device.memory)));
        }
        None => lost
            .push("the machine of the plan is not known: `--mem-fraction-static` is yours to add".to_owned()),
    }
    arguments
}

//! A Python module for Hugging Face's transformers.
//!
//! Source: transformers 5.24, `transformers/distributed/configuration_utils.py`,
//! `transformers/distributed/tensor_parallel.py` for the names of styles. Experts are split as the model's own
//! plans say.

pub(crate) mod training; // how it is trained

use plan::{ExpertsBy, Served};

use crate::file::File;
use crate::job::Job;
use crate::model::Model;
use crate::modules::{Style, modules};
use crate::serving::Serving;

/// What transformers runs of a server: groups are servers of their own, and share no experts.
pub(crate) fn limited(serving: Serving, model: &Model, lost: &mut Vec<String>) -> Serving {
    let Served { data, .. } = serving.served;
    if data == 1 {
        return serving;
    }
    if model.experts.is_some() {
        lost.push(format!(
            "{data} data parallel groups share experts: transformers has all devices of a server compute the same sequences"
        ));
        return serving.without_groups(model);
    }
    serving.groups_apart()
}

/// The module of a server.
pub(crate) fn files(serving: &Serving, job: &Job<'_>, model: &Model, lost: &mut Vec<String>) -> Vec<File> {
    let Served { replicas, tensor, experts, .. } = serving.served;
    let plan = tp_plan(job, (model, tensor), lost);
    let mut degrees = vec![format!("tp_size={tensor}"), "tp_plan=TP_PLAN".to_owned()];
    if experts == Some(ExpertsBy::Experts) {
        degrees.push(format!("ep_size={tensor}"));
    }
    let several = match replicas {
        1 => String::new(),
        count => format!("\nThere are {count} of these, each on devices and with sequences of its own.\n"),
    };
    let launch = match serving.nodes() {
        1 => format!("--nproc-per-node {tensor}"),
        nodes => format!(
            "--nnodes {nodes} --node-rank NODE --master-addr HEAD --nproc-per-node {}",
            tensor / nodes
        ),
    };
    let text = format!(
        "\"\"\"How transformers 5.24 runs a plan of Shardloom: {}.\n{several}\n\
         A program that calls `load` is run as `torchrun {launch} program.py`.\n\"\"\"\n\n\
         from transformers import AutoModelForCausalLM\nfrom transformers.distributed import DistributedConfig\n\n\
         # How modules are split; those that are not here are as the model has them.\n{plan}\n\
         DISTRIBUTED = DistributedConfig({})\n\n\
         # What the plan is made for: sequences of a batch, tokens of prompts at once, tokens of a sequence.\n\
         SEQUENCES = {}\nPROMPT = {}\nCONTEXT = {}\n\n\n\
         def load(name, **more):\n    \"\"\"The model of a folder or name, in parts on all devices.\"\"\"\n    \
         return AutoModelForCausalLM.from_pretrained(\n        \
         name, dtype=\"{}\", distributed_config=DISTRIBUTED, **more\n    )\n",
        serving.in_words(),
        degrees.join(", "),
        serving.of_group(),
        serving.prompt,
        serving.context,
        serving.element(),
    );
    vec![File { name: "shardloom_hf.py", text }]
}

/// How each kind of module is split over so many devices, as a dictionary; what is not as a plan has it is added to what is lost.
fn tp_plan(job: &Job<'_>, (model, tensor): (&Model, u64), lost: &mut Vec<String>) -> String {
    let modules = modules(job, model, tensor);
    lost.extend(modules.lost("transformers"));
    if modules.styles.is_empty() && modules.whole.is_empty() {
        // What a plan does not split the model does.
        return "TP_PLAN = \"auto\"\n".to_owned();
    }
    let name = |style: Style| match style {
        Style::Columns => "colwise",
        Style::Halves | Style::Gathered => "colwise_gather_output",
        Style::Rows => "rowwise",
        Style::RowsOfWhole => "rowwise_split_input",
        Style::Summed => "replicated_with_grad_allreduce",
        Style::SummedKeys => "mla_kv_a_proj",
    };
    let lines: String =
        modules.styles.iter().map(|(it, &style)| format!("    \"{it}\": \"{}\",\n", name(style))).collect();
    format!("TP_PLAN = {{\n{lines}}}\n")
}

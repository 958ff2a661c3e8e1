//! A deployment of Dynamo: servers of one kind behind a frontend that shares requests out among them.
//!
//! Source: Dynamo 1.6, `docs/kubernetes/deployment/multinode-deployment.md` for what its operator adds on several
//! nodes; `dynamo/vllm/args.py`, `dynamo/sglang/args.py`, `dynamo/trtllm/backend_args.py`.

use serde_json::{Map, Value, json};

use crate::file::File;
use crate::server::Argument;
use crate::serving::{Serving, counted};

/// The servers of a deployment.
pub(crate) struct Servers<'a> {
    /// What they are called in sentences, and by Dynamo.
    pub(crate) title: &'static str,
    pub(crate) name: &'static str,
    /// What names the model.
    pub(crate) model: &'static str,
    /// What each is told besides.
    pub(crate) arguments: &'a [Argument],
}

/// What a server of TensorRT-LLM is told, as one argument.
pub(crate) fn of_settings(settings: Vec<(&'static str, Value)>) -> Argument {
    let settings: Map<String, Value> =
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    ("--override-engine-args", Some(Value::Object(settings).to_string()))
}

/// The deployment.
pub(crate) fn files(serving: &Serving, servers: &Servers<'_>) -> Vec<File> {
    let Servers { title, name, model, arguments } = servers;
    let image = match *name {
        "trtllm" => "tensorrtllm",
        name => name,
    };
    let image = format!("nvcr.io/nvidia/ai-dynamo/{image}-runtime:1.6.1");
    let nodes = serving.nodes();
    let mut text = format!(
        "# Dynamo 1.6 with {title} for a plan of Shardloom: {}.\n\
         #   kubectl apply -f dynamo.yaml\n\
         # Yours to set: `MODEL`, images, and secrets.\n\
         apiVersion: nvidia.com/v1alpha1\n\
         kind: DynamoGraphDeployment\n\
         metadata:\n  name: shardloom\n\
         spec:\n  backendFramework: {name}\n  services:\n",
        serving.in_words()
    );
    text += &format!(
        "    Frontend:\n      componentType: frontend\n      replicas: 1\n      extraPodSpec:\n        \
         mainContainer:\n          image: {image}\n"
    );
    text += &format!(
        "    # {}, each of {} on {}.\n    Worker:\n      componentType: worker\n      replicas: {}\n      \
         resources:\n        limits:\n          gpu: \"{}\"\n",
        counted(serving.served.replicas, "server"),
        counted(serving.of_server(), "device"),
        counted(nodes, "node"),
        serving.served.replicas,
        serving.of_server().div_ceil(nodes)
    );
    if nodes > 1 {
        text += &format!("      multinode:\n        nodeCount: {nodes}\n");
    }
    text += &format!(
        "      extraPodSpec:\n        mainContainer:\n          image: {image}\n          \
         command: [\"python3\", \"-m\", \"dynamo.{name}\"]\n          args:\n"
    );
    let named = [(*model, Some("MODEL".to_owned()))];
    for (name, value) in named.iter().chain(*arguments) {
        let words = std::iter::once((*name).to_owned()).chain(value.clone());
        words.for_each(|word| text += &format!("            - {}\n", json!(word)));
    }
    vec![File { name: "dynamo.yaml", text }]
}

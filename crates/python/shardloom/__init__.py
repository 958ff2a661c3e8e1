"""Shardloom: from a model and a machine to the cheapest execution plan, with a proof.

    import shardloom

    plan = shardloom.plan("llama.onnx", machine="h100-80g-8x", dims={"batch": 8, "sequence": 1024})
    print(plan.time_ms, plan.memory_bytes, plan.mfu)
    print(plan.explain())

A model is a path (an ONNX file or a `config.json` of Hugging Face), such a configuration as an object or a
dictionary, or a `torch.nn.Module`. Arguments are the options of the command line, `--global-batch 64` being
`global_batch=64`; what is planned is the same, byte for byte. Whatever goes wrong is an `Error`.
"""

from ._plan import Export, Plan, load, plan
from ._report import Report, machine, machines, predict, score
from ._shardloom import Error

__all__ = [
    "Error",
    "Export",
    "Plan",
    "Report",
    "load",
    "machine",
    "machines",
    "plan",
    "predict",
    "score",
]

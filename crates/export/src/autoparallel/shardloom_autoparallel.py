"""Fixes in AutoParallel where a plan of Shardloom has parameters.

    with AutoParallel(model, inputs, mesh) as autop:
        constrain(autop)
        autop.add_input_constraints(..)
        placement = autop.optimize_placement()

The mesh has the sizes and names of `autoparallel.json`, which is in the form of AutoParallel's solutions; names there
are those of parameters.
"""

import json
import re
from pathlib import Path

from torch.distributed.tensor import Replicate, Shard

SOLUTION = json.loads(Path(__file__).with_name("autoparallel.json").read_text())


def placements(text):
    """Placements as PyTorch prints them: `RS(0)`."""
    return tuple(Shard(int(dim)) if dim else Replicate() for dim in re.findall(r"R|S\((\d+)\)", text))


def constrain(autop):
    """Has each parameter where the plan has it; those that are not found, by name."""
    found = {name: placements(text) for name, text in SOLUTION["placements"].items()}
    missing = set(found)
    for node in autop.sharding_optimizer.graph.nodes:
        name = getattr(node.meta.get("desc"), "target", None)
        if node.op == "placeholder" and name in found:
            autop.sharding_optimizer.add_node_constraint(node, found[name])
            missing.discard(name)
    return sorted(missing)

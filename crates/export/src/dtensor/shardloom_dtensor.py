"""Applies the placements of a plan of Shardloom to a PyTorch model.

    mesh = stage_mesh("placements.json")
    distribute(model, mesh, "placements.json")

Parameters become DTensors that lie as the plan says. Where they are used they are brought into the layout that the
plan has there, and their gradients come back in the layout at rest: summed, or summed and scattered. Inputs of the
modules that parameters are of are brought into the layout that the plan has, too; a tensor that is no DTensor is
taken for one that all devices have whole. What is between these modules DTensor decides. Names are those of the
model that was planned; a model with other names, or sizes, is refused.
"""

import json

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn.utils import parametrize


def _placement(said):
    if said == "replicate":
        return Replicate()
    if said == "partial":
        return Partial()
    if "split_factor" in said:
        return _StridedShard(said["shard"], split_factor=said["split_factor"])
    return Shard(said["shard"])


def _placements(said):
    return [_placement(it) for it in said]


def read(path, stage=0):
    """What the file says of a stage."""
    with open(path) as file:
        content = json.load(file)
    found = (content.get("format"), content.get("version"))
    if found != ("shardloom-placements", 1):
        raise ValueError(f"{path}: found format and version {found}, expected ('shardloom-placements', 1)")
    return content["stages"][stage]


def stage_mesh(path, device_type="cpu", stage=0):
    """The mesh of a stage, of all processes there are."""
    axes = read(path, stage)["mesh"]
    sizes = tuple(axis["size"] for axis in axes)
    return init_device_mesh(device_type, sizes, mesh_dim_names=tuple(axis["name"] for axis in axes))


class _Used(nn.Module):
    """A parameter as it is used; its gradient comes back as it lies at rest."""

    def __init__(self, placements):
        super().__init__()
        self.placements = placements

    def forward(self, parameter):
        return parameter.redistribute(placements=self.placements)


def _input_hook(mesh, placements):
    def brought(value):
        if not isinstance(value, DTensor):
            value = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
        # A negative dimension is counted from the end.
        own = [Shard(it.dim % value.ndim) if isinstance(it, Shard) else it for it in placements]
        return value.redistribute(placements=own)

    def hook(module, arguments):
        return (brought(arguments[0]), *arguments[1:])

    return hook


def distribute(model, mesh, path, stage=0):
    """Makes the parameters of a model DTensors that lie and are used as a stage's plan says."""
    said = read(path, stage)["parameters"]
    own = dict(model.named_parameters())
    for name in sorted(said.keys() - own.keys()):
        raise ValueError(f"{path}: `{name}` is no parameter of the model, expected the model that was planned")
    for name, it in said.items():
        if list(own[name].shape) != it["shape"]:
            raise ValueError(f"{path}: `{name}` is {it['shape']}, the model has {list(own[name].shape)}")
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        parameter = distribute_tensor(own[name].detach(), mesh, _placements(it["at_rest"]))
        setattr(module, leaf, nn.Parameter(parameter, requires_grad=own[name].requires_grad))
        parametrize.register_parametrization(module, leaf, _Used(_placements(it["used"])), unsafe=True)
        if "input" in it:
            module.register_forward_pre_hook(_input_hook(mesh, _placements(it["input"])))
    return model

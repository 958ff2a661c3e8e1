"""Modules of PyTorch as ONNX: graphs with the names of parameters, without their numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._command import failure

# Sizes of dimensions that have a name while a module is exported: none is 0 or 1, which would be special, and no
# two are alike.
_EXAMPLES = (2, 3, 5, 7, 11, 13, 17, 19, 23)

_TYPES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "bool": "bool",
}

_EXPECTED = (
    "expected for each argument of `forward` its dimensions, such as "
    "`inputs={'input_ids': ('batch', 'sequence')}`, its type, such as `'f32[batch,64]'`, or a tensor"
)


def is_module(model: Any) -> bool:
    """Whether this is a module of PyTorch, which nobody has without having imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def export(module: Any, inputs: Any, path: Path) -> None:
    """Writes the ONNX graph of a module, in which numbers of parameters are nowhere.

    Tensors are fake while PyTorch traces the module, so that parameters may be on the device `meta`.
    """
    import torch

    try:
        import onnx_ir
        from onnxscript import optimizer
    except ImportError as error:
        raise failure("input", f"a module is exported with `onnxscript`: `pip install 'shardloom[torch]'` ({error})") from error

    device = next((it.device for it in module.parameters()), torch.device("cpu"))
    if not isinstance(inputs, Mapping) or not inputs:
        found = "none" if inputs is None else f"`{type(inputs).__name__}`"
        raise failure("input", f"inputs: found {found}, {_EXPECTED}")
    sizes: dict[str, int] = {}
    examples = {name: _example(name, it, sizes, device) for name, it in inputs.items()}
    shapes = {name: _named(it) for name, it in inputs.items()}
    with _answering(module):
        try:
            program = torch.onnx.export(
                module,
                (),
                kwargs=examples,
                dynamo=True,
                dynamic_shapes=shapes if any(shapes.values()) else None,
                input_names=list(examples),
                optimize=False,
                verbose=False,
            )
        except Exception as error:
            raise failure("input", f"PyTorch cannot export the module `{type(module).__name__}`: {error}") from error
    model = program.model
    numbers = _set_aside(model.graph, {name for name, _ in module.named_parameters(remove_duplicate=False)})
    # What numbers of parameters would be folded into is left as it is: they are inputs for the moment.
    optimizer.optimize_ir(model)
    _put_back(model.graph, numbers, onnx_ir)
    _name_outputs(model.graph, program.exported_program.call_spec.out_spec)
    onnx_ir.save(model, path)


def _example(name: str, given: Any, sizes: dict[str, int], device: Any) -> Any:
    """A tensor for an argument of `forward`."""
    import torch

    if isinstance(given, torch.Tensor):
        return given
    kind, dims = _type(name, given)
    for dim in dims:
        if isinstance(dim, str) and dim not in sizes:
            sizes[dim] = _EXAMPLES[len(sizes) % len(_EXAMPLES)]
    shape = [sizes[dim] if isinstance(dim, str) else dim for dim in dims]
    return torch.zeros(shape, dtype=getattr(torch, _TYPES[kind]), device=device)


def _named(given: Any) -> Any:
    """The dimensions that have a name; none of a tensor."""
    if not isinstance(given, (str, tuple, list)):
        return None
    _, dims = _type("", given)
    return {place: dim for place, dim in enumerate(dims) if isinstance(dim, str)} or None


def _type(name: str, given: Any) -> tuple[str, list[Any]]:
    """The type of elements and the dimensions: `f32[batch,64]`, or `('batch', 64)` of integers."""
    kind, dims = "i64", given
    if isinstance(given, str):
        found = re.fullmatch(r"(\w+)\[([^\]]*)\]", given.strip())
        if found is None or found[1] not in _TYPES:
            raise failure("input", f"inputs: `{name}` is `{given}`, {_EXPECTED}")
        kind, dims = found[1], [it.strip() for it in found[2].split(",") if it.strip()]
    if not isinstance(dims, (tuple, list)) or not all(isinstance(it, (int, str)) for it in dims):
        raise failure("input", f"inputs: `{name}` is `{given!r}`, {_EXPECTED}")
    return kind, [int(it) if str(it).isdigit() else it for it in dims]


@contextmanager
def _answering(module: Any) -> Iterator[None]:
    """A module as it answers, without dropout, and without the cache of a model of `transformers`."""
    training = [it for it in module.modules() if it.training]
    config = getattr(module, "config", None)
    cached = getattr(config, "use_cache", None)
    module.eval()
    if cached is not None:
        config.use_cache = False
    try:
        yield
    finally:
        for it in training:
            it.training = True
        if cached is not None:
            config.use_cache = cached


def _name_outputs(graph: Any, structure: Any) -> None:
    """Calls outputs by the fields of what `forward` returns, `output` what is no field."""
    from torch.utils import _pytree

    taken = {value.name for node in graph for value in (*node.inputs, *node.outputs) if value is not None}

    def name(words: str, part: Any) -> None:
        if isinstance(part, int):
            if words not in taken:
                graph.outputs[part].name = words
                taken.add(words)
        elif isinstance(part, Mapping):
            for key, inner in part.items():
                name(str(key) if words == "output" else f"{words}.{key}", inner)
        elif isinstance(part, (tuple, list)):
            for place, inner in enumerate(part):
                name(f"{words}.{place}", inner)

    name("output", _pytree.tree_unflatten(list(range(len(graph.outputs))), structure))


def _set_aside(graph: Any, parameters: set[str]) -> list[tuple[Any, Any]]:
    """Makes parameters inputs of a graph, and what has no numbers: these, and what they are."""
    aside = []
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        raw = getattr(tensor, "raw", None)
        if name in parameters or getattr(getattr(raw, "device", None), "type", None) == "meta":
            del graph.initializers[name]
            value.const_value = None
            graph.inputs.append(value)
            aside.append((value, tensor))
    return aside


def _put_back(graph: Any, aside: list[tuple[Any, Any]], onnx_ir: Any) -> None:
    """Makes them weights again whose numbers are in a file that nobody writes: the same place for the same tensor."""
    places: dict[Any, int] = {}
    end = 0
    for value, tensor in aside:
        graph.inputs.remove(value)
        if not value.uses():
            continue
        raw = tensor.raw
        place = (raw.untyped_storage()._cdata, raw.storage_offset(), tuple(raw.shape))
        if place not in places:
            places[place] = end
            end += tensor.nbytes
        value.const_value = onnx_ir.ExternalTensor(
            "model.onnx.data", places[place], tensor.nbytes, tensor.dtype, shape=tensor.shape, name=value.name
        )
        graph.initializers[value.name] = value

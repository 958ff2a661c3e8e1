"""Modules of PyTorch as ONNX: graphs with the names of parameters, without their numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from math import isqrt
from pathlib import Path
from typing import Any

from ._command import failure

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
        import onnxscript  # noqa: F401: PyTorch exports with it
    except ImportError as error:
        message = f"a module is exported with `onnxscript`: `pip install 'shardloom[torch]'` ({error})"
        raise failure("input", message) from error
    device = next((it.device for it in module.parameters()), torch.device("cpu"))
    if not isinstance(inputs, Mapping) or not inputs:
        found = "none" if inputs is None else f"`{type(inputs).__name__}`"
        raise failure("input", f"inputs: found {found}, {_EXPECTED}")
    sizes: dict[str, int] = {}
    examples = {name: _example(name, it, sizes, device) for name, it in inputs.items()}
    shapes = {name: _named(it) for name, it in inputs.items()}
    with _answering(module):
        try:
            program: Any = torch.onnx.export(
                module,
                (),
                kwargs=examples,
                dynamo=True,
                dynamic_shapes=shapes if any(shapes.values()) else None,
                input_names=list(examples),
                # The planner folds and simplifies by itself.
                optimize=False,
                verbose=False,
            )
        except Exception as error:
            words = re.sub("\x1b[^m]*m", "", str(error))
            raise failure("input", f"PyTorch cannot export the module `{type(module).__name__}`: {words}") from error
    model = program.model
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    _without_numbers(model.graph, parameters, path.name + ".data", onnx_ir)
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
            sizes[dim] = _size(len(sizes))
    shape = [sizes[dim] if isinstance(dim, str) else dim for dim in dims]
    return torch.zeros(shape, dtype=getattr(torch, _TYPES[kind]), device=device)


def _size(number: int) -> int:
    """The size of the dimension of that number among those that have a name while a module is exported: primes, as
    none may be 0 or 1, which would be special, and no two alike."""
    primes = (it for it in count(2) if all(it % by for by in range(2, isqrt(it) + 1)))
    return next(islice(primes, number, None))


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


# What a configuration of `transformers` says while its model is exported: there is no cache, and experts are products
# that ONNX has.
_EXPORTED = {"use_cache": False, "_experts_implementation": "batched_mm"}


@contextmanager
def _answering(module: Any) -> Iterator[None]:
    """A module as it answers, without dropout."""
    training = [it for it in module.modules() if it.training]
    config = getattr(module, "config", None)
    before = {name: getattr(config, name) for name in _EXPORTED if hasattr(config, name)}
    module.eval()
    for name in before:
        setattr(config, name, _EXPORTED[name])
    try:
        yield
    finally:
        for it in training:
            it.training = True
        for name, value in before.items():
            setattr(config, name, value)


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


def _without_numbers(graph: Any, parameters: set[str], file: str, onnx_ir: Any) -> None:
    """Puts numbers of parameters, and what there are none of, into a file that nobody writes. Other numbers, such as
    those of buffers, stay. What is one tensor is one weight already."""
    end = 0
    for name, value in graph.initializers.items():
        tensor = value.const_value
        device = getattr(getattr(tensor, "raw", None), "device", None)
        if name not in parameters and getattr(device, "type", None) != "meta":
            continue
        value.const_value = onnx_ir.ExternalTensor(
            file, end, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=value.name
        )
        end += tensor.nbytes

"""Plans: how they are made, read, looked at and taken elsewhere."""

from __future__ import annotations

import html
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from . import _shardloom
from ._command import (
    PathLike, Progress, Settings, failure, machine_with, mesh as _mesh, option, repeated, said, stages as _stages,
)  # fmt: skip
from ._model import source
from ._report import Report

Mesh = Union[str, int, Sequence[int], Mapping[str, int]]


def _content(path: Path) -> Union[str, bytes]:
    binary = path.suffix in (".et", ".pickle")
    return path.read_bytes() if binary else path.read_text(encoding="utf-8")


class Export:
    """A plan in the words of another runtime."""

    def __init__(self, text: str, fields: dict[str, Any]) -> None:
        self._text = text
        self._fields = fields
        paths = [Path(it) for it in fields["paths"]]
        self.files: dict[str, Any] = {path.name: _content(path) for path in paths}
        """The files, by their names: texts, and bytes of traces."""
        self.lost: list[str] = fields["lost"]
        """What of the plan the runtime does not run."""

    @property
    def time_ms(self) -> Optional[float]:
        """What a step takes there (milliseconds), if that is known."""
        seconds = (self._fields["there"] or {}).get("seconds")
        return None if seconds is None else seconds * 1e3

    def json(self) -> dict[str, Any]:
        """What the command line prints with `--json`."""
        return self._fields

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    def __repr__(self) -> str:
        return str(self)


class Plan:
    """An execution plan: what each device computes of each operation, what moves, and what that costs."""

    def __init__(self, path: PathLike, machine: Optional[str] = None, folder: Optional[str] = None) -> None:
        self._folder = folder
        if folder is not None:
            # What was made for this plan is there as long as it.
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._text, facts = _shardloom.facts(Path(path), machine)
        # The working directory may become another one.
        self._path = Path(path).absolute()
        self._machine = os.path.abspath(machine) if machine is not None and _is_file(machine) else machine
        self._facts: dict[str, Any] = json.loads(facts)

    @property
    def kind(self) -> str:
        """`plan`, `pipeline` (in stages) or `generation` (prompts and tokens)."""
        return str(self._facts["kind"])

    @property
    def time_ms(self) -> float:
        """What a step takes (milliseconds): predicted; of a plan of generation the step of a token."""
        return float(self._facts["seconds"] * 1e3)

    @property
    def memory_bytes(self) -> int:
        """What the fullest device holds (bytes)."""
        return int(self._facts["memory_bytes"])

    @property
    def capacity_bytes(self) -> int:
        """What that device may hold (bytes)."""
        return int(self._facts["capacity_bytes"])

    @property
    def tokens_per_second(self) -> Optional[float]:
        """Tokens a second on all devices, if the model has tokens."""
        return self._facts.get("tokens_per_second")

    @property
    def mfu(self) -> Optional[float]:
        """Which part of the devices' peak rates the model uses, if the machine is known."""
        return self._facts.get("mfu")

    @property
    def gap(self) -> Optional[float]:
        """How far the plan may be above the best of the space, as a part of it: 0 is proven optimal. None where
        nothing is proven, as where stages are said."""
        bound = self._facts["lower_bound"]
        return self._facts["seconds"] / bound - 1 if bound > 0 else None

    @property
    def devices(self) -> int:
        """On how many devices it runs."""
        return int(self._facts["devices"])

    @property
    def machine(self) -> str:
        """The machine that it is for."""
        return str(self._facts["machine"])

    @property
    def mesh(self) -> str:
        """The devices' coordinates; in stages, those of each."""
        return str(self._facts["mesh"])

    @property
    def strategy(self) -> list[str]:
        """How the model is split, in the field's words."""
        return list(self._facts["strategy"])

    @property
    def terms(self) -> dict[str, float]:
        """What the step's time is made of (milliseconds)."""
        return {it["name"]: it["seconds"] * 1e3 for it in self._facts["terms"]}

    def json(self) -> dict[str, Any]:
        """The plan file."""
        plan: dict[str, Any] = json.loads(self._path.read_bytes())
        return plan

    def save(self, path: PathLike) -> None:
        """Writes the plan file; the model beside it, `<name>.<model>`, if there is no other file of that."""
        path = Path(path)
        model = Path(self._facts["model"])
        if self._folder is not None and model.parent == Path(self._folder):
            beside = path.with_name(f"{path.stem}.{model.name}")
            shutil.copyfile(model, beside)
            _shardloom.relocated(self._path, beside.name, path)
        else:
            shutil.copyfile(self._path, path)

    def explain(
        self, *, alternatives: bool = False, diagram: Optional[str] = None, svg: Optional[PathLike] = None,
        html: Optional[PathLike] = None, set: Settings = None, force: bool = False, progress: Progress = False,
    ) -> Report:
        """What was decided, what it costs, and what it would cost otherwise; with `html` as a page for a browser
        too. Files that are there are overwritten with `force` alone."""
        given = {"alternatives": alternatives, "diagram": diagram, "svg": svg, "html": html, "force": force}
        return self._said("explain", given, set, progress)

    def simulate(
        self, *, machine: Optional[PathLike] = None, one_by_one: bool = False, trace: Optional[PathLike] = None,
        memory_trace: Optional[PathLike] = None, set: Settings = None, force: bool = False,
        progress: Progress = False,
    ) -> Report:
        """Runs the programs of all ranks by the clock of the plan's machine, or of another, or with some of its
        numbers set: `set={"network.adapter_bandwidth": "25GB/s"}`."""
        given = {
            "machine": machine, "one_by_one": one_by_one, "trace": trace, "memory_trace": memory_trace, "force": force,
        }  # fmt: skip
        return self._said("simulate", given, set, progress)

    def check(
        self, *, model: Optional[PathLike] = None, inputs: Optional[PathLike] = None, set: Settings = None,
        progress: Progress = False,
    ) -> Report:
        """Checks the plan, trusting nothing that made it; against its model, too, if that is given. A plan that is
        rejected is an `Error`."""
        return self._said("check", {"model": model, "inputs": inputs}, set, progress)

    def diff(self, other: Union[Plan, PathLike]) -> Report:
        """What differs from this plan to another, and what that buys."""
        after = other._path if isinstance(other, Plan) else other
        return Report(*said("diff", [str(self._path), os.fspath(after)]))

    def export(
        self, target: str, output: Optional[PathLike] = None, *, force: bool = False, progress: Progress = False
    ) -> Export:
        """The plan for another runtime: what `shardloom export --to` knows. Files are written to a folder, if one is
        given."""
        with tempfile.TemporaryDirectory(prefix="shardloom-") as folder:
            given = {"to": target, "output": folder if output is None else output, "machine": self._machine}
            arguments = [argument for name, value in given.items() for argument in option(name, value)]
            return Export(*said("export", [str(self._path), *arguments, *option("force", force)], progress))

    def to_megatron(self, output: Optional[PathLike] = None, *, force: bool = False) -> Export:
        """Arguments of Megatron-LM."""
        return self.export("megatron", output, force=force)

    def to_bridge(self, output: Optional[PathLike] = None, *, force: bool = False) -> Export:
        """A configuration of Megatron-Bridge."""
        return self.export("bridge", output, force=force)

    def to_hf(self, output: Optional[PathLike] = None, *, force: bool = False) -> Export:
        """A module for transformers."""
        return self.export("hf", output, force=force)

    def to_torchtitan(self, output: Optional[PathLike] = None, *, force: bool = False) -> Export:
        """A configuration of torchtitan."""
        return self.export("torchtitan", output, force=force)

    def to_deepspeed(self, output: Optional[PathLike] = None, *, force: bool = False) -> Export:
        """A configuration of DeepSpeed."""
        return self.export("deepspeed", output, force=force)

    def to_dtensor(self, output: Optional[PathLike] = None, *, force: bool = False) -> Export:
        """Placements of DTensor, and a module that applies them."""
        return self.export("dtensor", output, force=force)

    def to_jax(self, output: Optional[PathLike] = None, *, force: bool = False) -> Export:
        """Partition specs of JAX."""
        return self.export("jax", output, force=force)

    def _said(self, command: str, given: dict[str, Any], settings: Settings, progress: Progress) -> Report:
        given = {"machine": self._machine, **{name: it for name, it in given.items() if it is not None}}
        arguments = [argument for name, value in given.items() for argument in option(name, value)]
        return Report(*said(command, [str(self._path), *arguments, *repeated("set", settings)], progress))

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    def __repr__(self) -> str:
        return (
            f"<shardloom.Plan of {Path(self._facts['model']).name} for {self.machine}: {_milliseconds(self.time_ms)}, "
            f"{_size(self.memory_bytes)}>"
        )

    def _repr_html_(self) -> str:
        rows = {
            "model": self._facts["model"],
            "machine": f"{self.machine}, mesh {self.mesh}",
            "strategy": "\n".join(self.strategy),
            "step": f"{_milliseconds(self.time_ms)} predicted{_proven(self.gap)}",
            **{f"– {name}": _milliseconds(taken) for name, taken in self.terms.items()},
            "memory": f"{_size(self.memory_bytes)} of {_size(self.capacity_bytes)} on the fullest device",
        }
        if self.tokens_per_second is not None:
            rows["tokens"] = f"{self.tokens_per_second:.0f} tokens/s"
        if self.mfu is not None:
            rows["MFU"] = f"{100 * self.mfu:.1f} %"
        cells = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left;white-space:pre-line">{html.escape(str(words))}</td></tr>'
            for name, words in rows.items()
        )
        return f"<table>{cells}</table>{self._drawn()}"

    def _drawn(self) -> str:
        """The schedule of a pipeline, if it is short enough to be drawn."""
        if self.kind != "pipeline":
            return ""
        with tempfile.TemporaryDirectory(prefix="shardloom-") as folder:
            picture = Path(folder, "schedule.svg")
            try:
                self.explain(svg=picture)
            except _shardloom.Error:
                return ""
            return picture.read_text(encoding="utf-8")


def load(path: PathLike, *, machine: Optional[PathLike] = None) -> Plan:
    """The plan of a file, checked; with the machine file that it was made by, if that is none of the machines that
    are known."""
    return Plan(path, None if machine is None else os.fspath(machine))


def plan(
    model: Any,
    *,
    machine: PathLike,
    inputs: Any = None,
    dims: Optional[Mapping[str, int]] = None,
    devices: Optional[int] = None,
    mesh: Optional[Mesh] = None,
    memory: Union[str, int, None] = None,
    reserve: Union[str, int, None] = None,
    set: Settings = None,
    in_time: Optional[str] = None,
    for_: Optional[str] = None,
    mode: Optional[str] = None,
    loss: Optional[str] = None,
    optimizer: Optional[str] = None,
    betas: Optional[Sequence[float]] = None,
    epsilon: Optional[float] = None,
    momentum: Optional[float] = None,
    weight_decay: Optional[float] = None,
    no_decay: Union[str, Sequence[str], None] = None,
    clip: Optional[float] = None,
    precision: Optional[str] = None,
    masters: Optional[str] = None,
    microbatches: Optional[int] = None,
    recompute: Optional[str] = None,
    phases: Optional[str] = None,
    freeze: Union[str, Sequence[str], None] = None,
    train: Union[str, Sequence[str], None] = None,
    untie: Union[str, Sequence[str], None] = None,
    stages: Union[str, int, Sequence[Mesh], None] = None,
    global_batch: Optional[int] = None,
    batch_dim: Optional[str] = None,
    pin: Union[str, Sequence[str], None] = None,
    thorough: bool = False,
    schedule: Optional[PathLike] = None,
    chunks: Optional[int] = None,
    cut: Optional[Sequence[int]] = None,
    batch: Optional[int] = None,
    prompt: Optional[int] = None,
    context: Optional[int] = None,
    cache_layout: Optional[str] = None,
    role: Optional[Mapping[str, str]] = None,
    kept: Optional[Mapping[str, str]] = None,
    output: Optional[PathLike] = None,
    html: Optional[PathLike] = None,
    force: bool = False,
    progress: Progress = False,
) -> Plan:
    """The cheapest plan of a model on a machine, with its proof.

    `model` is a path (ONNX, or a `config.json` of Hugging Face), a configuration of Hugging Face as a dictionary or
    an object of `transformers`, or a `torch.nn.Module`, which is exported with `inputs`: for each argument of
    `forward` its dimensions (`('batch', 'sequence')`, of integers), its type (`'f32[batch,64]'`) or a tensor. Its
    parameters may be on the device `meta`; their numbers are not looked at. Of a path, `inputs` is a file of arrays.

    `machine` is a name such as `h100-80g-8x` (see `machines`) or a machine file, `dims` says the sizes of dimensions
    that have names, `set` numbers of the machine: `{"network.adapter_bandwidth": "25GB/s"}`. All else is what
    `shardloom plan --help` says of the option of the same name: `for_` of `--for`, and lists for options that may be
    repeated. With `output` the plan is written there, with `html` a page about it; what is there is overwritten
    with `force` alone.

    `progress` is called with what is being done; `True` prints it on the standard error. Ctrl-C ends the search.
    """
    once = {
        "machine": machine, "devices": devices, "mesh": _mesh(mesh), "memory": memory, "reserve": reserve,
        "in_time": in_time, "for": for_, "mode": mode, "loss": loss, "optimizer": optimizer, "betas": betas,
        "epsilon": epsilon, "momentum": momentum, "weight_decay": weight_decay, "clip": clip, "precision": precision,
        "masters": masters,
        "microbatches": microbatches, "recompute": recompute, "phases": phases, "stages": _stages(stages),
        "global_batch": global_batch, "batch_dim": batch_dim, "thorough": thorough, "schedule": schedule,
        "chunks": chunks, "cut": cut, "batch": batch, "prompt": prompt, "context": context,
        "cache_layout": cache_layout, "force": force,
    }  # fmt: skip
    several = {
        "dim": dims, "no_decay": no_decay, "freeze": freeze, "train": train, "untie": untie, "pin": pin,
        "role": role, "kept": kept, "set": set,
    }  # fmt: skip
    arguments = [argument for name, value in once.items() for argument in option(name, value)]
    arguments += [argument for name, values in several.items() for argument in repeated(name, values)]
    named = os.fspath(machine)
    folder = tempfile.mkdtemp(prefix="shardloom-")
    try:
        path, arrays = source(model, Path(folder), inputs)
        # A model that is in the folder goes with it: the plan is saved with a copy.
        beside = Path(path).parent == Path(folder)
        if output is not None and beside and not force and Path(output).is_file():
            raise failure("usage", f"{output}: is there already, expected a free name: give another, or `force=True`")
        made = Path(folder, "plan.json") if output is None or beside else Path(output)
        said("plan", [path, *arguments, *option("inputs", arrays), *option("output", made)], progress)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    result = Plan(made, machine_with(named, set) if _is_file(named) else None, folder)
    if output is not None and beside:
        result.save(output)
    if html is not None:
        result.explain(html=html, force=force, progress=progress)
    return result


def _is_file(machine: str) -> bool:
    """Whether a machine is a file, and not one that is known by its name."""
    name, *_ = machine.split(" with ")
    return name.endswith(".json") or os.sep in name


def _proven(gap: Optional[float]) -> str:
    if gap is None:
        return ""
    return ", optimal" if gap <= 0 else f", at most {100 * gap:.2f} % above the best"


def _milliseconds(taken: float) -> str:
    return f"{taken:.3f} ms"


def _size(held: int) -> str:
    return f"{held / 1e9:.2f} GB" if held >= 1e9 else f"{held / 1e6:.2f} MB"

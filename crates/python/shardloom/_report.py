"""What commands say: of plans, of machines, of stated setups and of configurations of frameworks."""

from __future__ import annotations

import html
import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from ._command import PathLike, Progress, Settings, option, repeated, said
from ._model import config_file


class Report(Mapping[str, Any]):
    """What a command says: `str()` of it for people, its fields for programs."""

    def __init__(self, text: str, fields: dict[str, Any]) -> None:
        self._text = text
        self._fields = fields

    @property
    def text(self) -> str:
        """What the command line prints."""
        return self._text

    def json(self) -> dict[str, Any]:
        """What the command line prints with `--json`."""
        return self._fields

    def __getitem__(self, key: str) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


def machines() -> list[str]:
    """The devices that are known: `h100-80g` in a node of eight is the machine `h100-80g-8x`."""
    devices: list[str] = said("machines", [])[1]["devices"]
    return devices


def machine(name: PathLike) -> Report:
    """Every number of a machine, and where it comes from; of a device type or of a machine file, too."""
    return Report(*said("machines", ["show", os.fspath(name)]))


def predict(
    setup: Union[PathLike, Mapping[str, Any]], *, reserve: Optional[str] = None, set: Settings = None,
    progress: Progress = False,
) -> Report:
    """What a stated setup takes, without a search: a TOML file in Megatron's words, or a dictionary of its keys."""
    with tempfile.TemporaryDirectory(prefix="shardloom-") as folder:
        if isinstance(setup, Mapping):
            path = Path(folder, "setup.toml")
            path.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in setup.items()), encoding="utf-8")
            setup = path
        arguments = [*option("config", setup), *option("reserve", reserve), *repeated("set", set)]
        return Report(*said("predict", arguments, progress))


def score(
    *,
    machine: PathLike,
    set: Settings = None,
    megatron: Union[str, Sequence[str], None] = None,
    bridge: Optional[PathLike] = None,
    torchtitan: Optional[PathLike] = None,
    deepspeed: Union[PathLike, Mapping[str, Any], None] = None,
    config: Any = None,
    sequence: Optional[int] = None,
    imbalance: Optional[float] = None,
    framework_year: Optional[int] = None,
    output: Optional[PathLike] = None,
    force: bool = False,
    progress: Progress = False,
) -> Report:
    """A configuration of one training framework, scored: what it takes, the best that the framework runs, and the
    changes that help most.

    `megatron` is a script, or arguments as a string or a list; `deepspeed` a JSON file or a dictionary; `config` the
    model, where the configuration does not state it: as `plan` takes configurations.
    """
    with tempfile.TemporaryDirectory(prefix="shardloom-") as folder:
        if isinstance(megatron, (list, tuple)):
            megatron = shlex.join(megatron)
        if isinstance(deepspeed, Mapping):
            path = Path(folder, "deepspeed.json")
            path.write_text(json.dumps(deepspeed), encoding="utf-8")
            deepspeed = path
        if config is not None:
            config = config_file(config, Path(folder, "config.json"))
        given = {
            "megatron": megatron,
            "bridge": bridge,
            "torchtitan": torchtitan,
            "deepspeed": deepspeed,
            "machine": machine,
            "config": config,
            "sequence": sequence,
            "imbalance": imbalance,
            "framework_year": framework_year,
            "output": output,
            "force": force,
        }
        arguments = [argument for name, value in given.items() for argument in option(name, value)]
        return Report(*said("score", [*arguments, *repeated("set", set)], progress))


def _toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_toml(it)}" for key, it in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(it) for it in value) + "]"
    # Strings, numbers and truth values are written as in JSON.
    return json.dumps(value, ensure_ascii=False)

"""Commands of the command line: their arguments, and what they say."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union

from . import _shardloom

PathLike = Union[str, "os.PathLike[str]"]
Progress = Union[bool, Callable[[str], object]]
# Numbers of a machine that are set beside its file.
Settings = Union[str, Iterable[str], Mapping[str, Any], None]


def said(command: str, arguments: Iterable[str], progress: Progress = False) -> tuple[str, Any]:
    """What a command says, for people and as JSON; remarks are warnings of who calls who calls this."""

    def tell(kind: str, words: str) -> None:
        if kind == "remark":
            # Behind this one are `said`, a function of this package, and who has called that.
            warnings.warn(words.removeprefix("warning: "), stacklevel=4)
        elif callable(progress):
            progress(words)
        elif progress:
            print(words, file=sys.stderr, flush=True)

    text, found = _shardloom.call([command, *arguments], tell)
    return text, json.loads(found)


def failure(kind: Literal["usage", "input"], message: str) -> _shardloom.Error:
    """An error that is found before anything is called."""
    error = _shardloom.Error(message)
    error.kind = kind
    return error


def option(name: str, value: Any) -> list[str]:
    """An option as an argument: none where it is not given."""
    name = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    return [f"--{name}={written(value)}"]


def repeated(name: str, values: Any) -> list[str]:
    """An option that is given once for each of several values: of a dictionary, `name=value`."""
    if values is None:
        return []
    if isinstance(values, str):
        values = [values]
    if isinstance(values, Mapping):
        values = [f"{key}={written(value)}" for key, value in values.items()]
    return [argument for value in values for argument in option(name, value)]


def machine_with(name: str, settings: Settings) -> str:
    """A machine, and what is set beside its file, as one name."""
    said_so = [it.removeprefix("--set=") for it in repeated("set", settings)]
    return f"{name} with {', '.join(said_so)}" if said_so else name


def written(value: Any) -> str:
    """A value as the command line has it: of several, with commas between them."""
    if isinstance(value, (list, tuple)):
        return ",".join(written(it) for it in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def mesh(value: Any) -> Any:
    """A mesh: `2x4` of `(2, 4)`, `data=2,model=4` of a dictionary."""
    if isinstance(value, Mapping):
        return ",".join(f"{axis}={size}" for axis, size in value.items())
    if isinstance(value, (list, tuple)):
        return "x".join(str(size) for size in value)
    return value


def stages(value: Any) -> Any:
    """A number of stages, `auto`, or the mesh of each."""
    return ",".join(str(mesh(it)) for it in value) if isinstance(value, (list, tuple)) else value

"""The compiled part of the package."""

from collections.abc import Callable
from os import PathLike
from typing import Literal

class Error(Exception):
    """What was asked for cannot be done: the message says what was found, what was expected, and how to go on."""

    kind: Literal["usage", "input", "full", "internal"]
    """`usage`: arguments that contradict each other; `input`: a bad file, or a plan that is rejected or does not
    fit; `full`: no room for a file; `internal`: an error of Shardloom's own."""

def call(arguments: list[str], tell: Callable[[str, str], object] | None, /) -> tuple[str, str]:
    """What a command says, for people and as JSON; `tell` hears what is being done (`now`) and remarks (`remark`)."""

def facts(path: str | PathLike[str], machine: str | None, /) -> tuple[str, str]:
    """What a plan file comes to, for people and as JSON; with the machine file that it was made by."""

def relocated(path: str | PathLike[str], model: str, to: str | PathLike[str], /) -> None:
    """Writes the plan of a file to another, as of a model that lies there."""

def options(command: str, /) -> list[str]:
    """The options of a command, as they are written behind `--`."""

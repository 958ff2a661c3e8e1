"""Models that are not in a file yet: configurations and modules."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from . import _module
from ._command import failure


def source(model: Any, folder: Path, inputs: Any) -> tuple[str, Any]:
    """The file of a model, written to a folder if there is none, and the file of its inputs, if they are one."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model), inputs
    if _module.is_module(model):
        path = folder / f"{type(model).__name__}.onnx"
        _module.export(model, inputs, path)
        return str(path), None
    return str(config_file(model, folder / "config.json")), inputs


def config_file(config: Any, path: Path) -> Path:
    """The file of a configuration of Hugging Face, written if it is a dictionary or an object of `transformers`."""
    if isinstance(config, (str, os.PathLike)):
        return Path(config)
    text = _config(config)
    if text is None:
        raise failure(
            "usage",
            f"model: found a value of type `{type(config).__name__}`, expected a path, a `torch.nn.Module`, or a "
            "configuration of Hugging Face as a dictionary or an object",
        )
    path.write_text(text, encoding="utf-8")
    return path


def _config(config: Any) -> Optional[str]:
    if isinstance(config, Mapping):
        return json.dumps(config)
    if hasattr(config, "to_json_string"):
        # All keys: what a class takes for granted is not known here.
        return str(config.to_json_string(use_diff=False))
    return None

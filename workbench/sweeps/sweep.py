"""The sweep file: a notebook, fixed parameters, a grid."""

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .notebook import typed

Value = int | float | bool | str | None | list[int | float | bool | str]


class Sweep(BaseModel):
    """What a sweep file holds. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    notebook: Path = Field(description="path, relative to the sweep file or to the current folder")
    parameters: dict[str, Value] = Field(default={}, description="the same for every point")
    grid: dict[str, list[Value]] = Field(default={}, description="every combination is a point")

    def points(self) -> list[dict[str, Any]]:
        """The parameters of each point, typed. Raises ValueError where a name or value is off."""
        combinations = itertools.product(*self.grid.values())
        return [
            typed(self.notebook, dict(self.parameters) | dict(zip(self.grid, c, strict=True)))
            for c in combinations
        ]


def point_id(notebook: Path, point: dict[str, Any]) -> str:
    """Name of a point, from its content: the varying text a reader knows, and a digest."""
    content = notebook.read_bytes() + json.dumps(point, sort_keys=True).encode()
    return f"{notebook.stem}-{hashlib.sha256(content).hexdigest()[:10]}"


def read_sweep(path: Path) -> Sweep:
    """Read and check a sweep file. Raises ValueError or FileNotFoundError with what is wrong."""
    if not path.is_file():
        raise FileNotFoundError(f"no sweep file at {path}")
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__}, not a mapping")
    try:
        sweep = Sweep(**content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path}: {where}: {first['msg']}, got {first['input']!r}") from None
    beside = path.parent / sweep.notebook
    if beside.is_file():
        sweep = sweep.model_copy(update={"notebook": beside})
    empty = [name for name, values in sweep.grid.items() if not values]
    if empty:
        raise ValueError(f"{path}: grid.{empty[0]} has no value")
    both = sorted(sweep.grid.keys() & sweep.parameters.keys())
    if both:
        raise ValueError(f"{path}: {both[0]} stands in parameters and in grid")
    return sweep

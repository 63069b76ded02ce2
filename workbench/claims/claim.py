"""The claim file: a question with the variants and workloads that answer it."""

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .. import study
from ..arms import Arm, arm_named, workloads_of
from ..comparison import BAND
from ..op import Op, Workload

Value = int | float | bool | str | None


class Claim(BaseModel):
    """What a claim file holds. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    question: str = Field(min_length=1)
    module: str | None = Field(default=None, description="a file with variants, from the claim's")
    op: str
    a: str = Field(description="an arm: a variant, and config fields behind it: union group=4")
    b: str = Field(description="the arm that is asked about: a ratio below 1 says b is faster")
    clock: str
    workload: dict[str, Value] = Field(default={}, description="fields that stay")
    axis: str | None = Field(default=None, description="a field along which b may overtake a")
    values: list[int | float] = Field(default=[], description="of the axis")
    refine: float = Field(default=0.0, ge=0.0, description="add points until high / low - 1 of "
                          "every crossing is at most this; 0: none")  # fmt: skip
    most_points: int = Field(default=24, ge=2, description="of the axis, refinement included")
    band: float = Field(default=BAND, ge=0.0, description="relative difference of no interest")
    blocks: int = Field(default=study.BLOCKS, ge=2)
    repeats: int | None = Field(default=None, ge=5)

    @model_validator(mode="after")
    def _axis_has_values(self):
        if (self.axis is None) != (not self.values) or len(set(self.values)) == 1:
            raise ValueError(f"axis {self.axis} with values {self.values}: an axis takes two "
                             "values or more, and values take an axis")  # fmt: skip
        if self.axis in self.workload:
            raise ValueError(f"{self.axis} is the axis, and a field that stays")
        return self

    def arms(self, op: Op) -> list[Arm]:
        """The two arms. Raises ValueError where an arm is unknown or both are the same."""
        a, b = arm_named(op, self.a), arm_named(op, self.b)
        if (a.variant, a.asked) == (b.variant, b.asked):
            raise ValueError(f"{self.a!r} and {self.b!r} are the same arm")
        return [a, b]

    def workloads(self, op: Op, values: list | None = None) -> list[Workload]:
        """The workloads of the claim, or those at other `values` of its axis.

        Raises ValueError on a field or a value that the op refuses, and on several lines.
        """
        values = values or self.values
        found = workloads_of(op, None, self.workload | ({self.axis: values} if self.axis else {}))
        if self.axis and len(found) > len(set(values)):
            raise ValueError(f"{len(found)} workloads for {len(set(values))} values of {self.axis}:"
                             " a claim along an axis is of one line")  # fmt: skip
        return found


def read_claim(path: Path) -> Claim:
    """Read and check a claim file. Raises ValueError or FileNotFoundError with what is wrong."""
    if not path.is_file():
        raise FileNotFoundError(f"no claim file at {path}")
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__}, not a mapping")
    try:
        return Claim.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{path}: {first_fault(error)}") from None


def first_fault(error: ValidationError) -> str:
    """The first fault in words: where it is, what it is, and the value that is there."""
    first = error.errors()[0]
    where = "".join(f"{part}: " for part in first["loc"])
    if first["type"] in ("missing", "value_error"):  # the value is the whole mapping
        return where + first["msg"].removeprefix("Value error, ")
    return f"{where}{first['msg']}, got {first['input']!r:.80}"


def modules_of(claim: Claim, file: Path) -> list[Path]:
    """The file with variants that a claim names, from its own folder; none where it names none."""
    return [file.parent / claim.module] if claim.module else []

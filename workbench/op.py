"""The few types everything else is made of.

An `Op` says what is computed, a `Variant` is one way to compute it, a `Verdict` says whether that
way is right. Nothing here chooses a variant: whoever runs a kernel names it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, NamedTuple

Workload = Any  # a frozen dataclass of numbers and strings, one type an op
Config = Any  # a frozen dataclass of numbers, one type a variant, or None
Inputs = Any  # a NamedTuple of tensors and scalars
Output = Any  # a NamedTuple of tensors

STATUSES = ("passed", "incorrect", "unsupported", "error", "timeout")


@dataclass(frozen=True)
class Verdict:
    """Whether a variant computes what its op says; the only door to a clock."""

    status: str  # one of STATUSES
    error: float = float("nan")  # relative L2 against the reference, where one was computed
    budget: float = float("nan")
    why: str = ""

    def __post_init__(self):
        if self.status not in STATUSES:
            raise ValueError(f"status={self.status!r} is none of {', '.join(STATUSES)}")

    @property
    def passed(self) -> bool:
        return self.status == "passed"


class Tile(NamedTuple):
    """What a variant does at a time: counts of work that it executes follow from it."""

    rows: int  # query rows of one matrix product, padding included, all tokens of a group
    group: int  # neighbouring tokens that share a gather
    block_k: int  # cache rows a step
    programs: int = 1  # of one group, each of which gathers its rows and takes its share of heads


class Cost(NamedTuple):
    """The least any variant must do: the floor of a roofline, never a measurement."""

    bytes: int
    flops: int


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to compute an op. Made only by `@op.variant`; calling it runs it."""

    name: str
    op: "Op" = field(repr=False)
    run: Callable[[Inputs, Config], Output]
    config: Config  # the default, an instance of the variant's own Config
    idea: str  # first line of the docstring
    step_from: str | None = None  # the variant that this one changes, by one idea
    requires: Callable[[Workload, Config], str | None] = lambda w, config: None
    # What a config leaves to the workload, filled in: a record then names what ran
    settled: Callable[[Workload, Config], Config] = lambda w, config: config
    # The question it answers, where that is a wider one: the gate compares with the reference of
    # `widens(x)`. A copy of the whole pool, say, answers for any choice of touched pages.
    widens: Callable[[Inputs], Inputs] = lambda x: x
    tile: Callable[[Workload, Config], Tile | None] = lambda w, config: None
    # Declared properties; a test proves each one.
    capturable: bool = True  # no device-to-host read: may be captured in a CUDA graph
    repeatable: bool = True  # two runs on equal inputs agree bit for bit
    independent: bool = True  # a token's result does not depend on which tokens stand beside it
    interpretable: bool = True  # False: written in Gluon, which Triton's interpreter does not run
    # Bytes of the tensors a run makes beside its output; None: not stated (a reference, say)
    workspace_bytes: Callable[[Workload, Config], int] | None = None
    archs: tuple[str, ...] = ()  # such as ("sm_90",), whose instructions it is written in; (): any
    stack_bytes: int = 0  # a thread, that the compiled kernel is known to need; more is a fault

    def __call__(self, x: Inputs, config: Config = None) -> Output:
        self.op.validate(x)
        return self.run(x, self.config if config is None else config)


@dataclass(eq=False)
class Op:
    """The contract of a computation, and the variants that claim to meet it."""

    name: str
    Workload: type  # frozen, keyword-only, every field with a default
    Output: type
    dtypes: Mapping[str, str]  # torch dtype of each output field, such as {"lse": "float32"}
    suites: Mapping[str, tuple[Workload, ...]]
    make_inputs: Callable[[Workload, str], Inputs]  # (workload, device)
    validate: Callable[[Inputs], None]  # host-side checks of shape, dtype, stride; ValueError
    reference: Callable[[Inputs], Output]  # float64, written for reading
    compare: Callable[[Inputs, Output, Output], Verdict]  # (inputs, actual, expected)
    cost: Callable[[Inputs], Cost]
    statistics: Callable[[Inputs], dict]  # what of the inputs decides the result: overlap, pages
    lse_base: int | None = None  # of the logarithm in the output's lse; None: it has no lse
    writes: tuple[str, ...] = ()  # inputs a run may change; every other one must come back bitwise
    fills: tuple[str, ...] = ()  # so may these, which it writes whole and never reads: no state
    # (first inputs, fresh ones) -> the fresh ones on the first one's memory, where a server would
    # share it: what a clock rotates through. The first one's answer must not change.
    rotated: Callable[[Inputs, Inputs], Inputs] = lambda first, fresh: fresh
    # Of the least bytes of several such sets, how many are counted more than once
    shared_bytes: Callable[[Sequence[Inputs]], int] = lambda sets: 0
    # What of the inputs makes a time say nothing: indices that are dummies, out of range or twice
    doubts: Callable[[Inputs], list[str]] = lambda x: []
    # Names of variants: without a time, measured or modelled, the first that serves is taken, then
    # any other
    preference: tuple[str, ...] = ()
    variants: dict[str, Variant] = field(default_factory=dict)

    def variant(self, *, config: Config = None, **declared):
        """Register the decorated `run(inputs, config) -> output` under its own name.

        `declared` are the fields of `Variant` from `step_from` on. Raises ValueError where the
        name is taken, the docstring is missing or the config is no dataclass.
        """

        def register(run: Callable[[Inputs, Config], Output]) -> Variant:
            name = run.__name__
            if name in self.variants:
                raise ValueError(f"{self.name} has two variants called {name!r}")
            if not (run.__doc__ or "").strip():
                raise ValueError(f"{name} needs a docstring: its first line is the idea")
            if config is not None and (isinstance(config, type) or not is_dataclass(config)):
                raise ValueError(f"{name}: config={config!r} is no instance of a dataclass")
            idea = run.__doc__.strip().splitlines()[0]
            self.variants[name] = Variant(name, self, run, config, idea, **declared)
            return self.variants[name]

        return register

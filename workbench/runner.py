"""What a server holds for sparse decode: one object that plans its calls and has memory for them.

A kernel that allocates in each call costs a server time in eager calls, and a graph memory of its
own. So a runner has its outputs and the parts of splits from the start, sized for the largest call.
Which variant runs is decided on the host, once for each form of a call; a graph replays what was
decided when it was captured, and `captured` says what that was. Seed 002's second half
(flashinfer-ai/flashinfer#4802: scratch that the instance owns, dispatch that is memoised).

Two runners share no memory. That of one is for one stream, and a call writes over what the one
before returned, unless the caller gives `out` and `out_lse`. Who keeps a graph keeps its runner.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import NamedTuple

import torch

from . import dispatch, interpreter
from .dispatch import Plan, Table
from .layouts import LAYOUTS
from .machine import resolve_device
from .op import Config, Variant
from .ops import OPS
from .ops.sparse_decode.definition import Inputs, Memory, Output
from .ops.sparse_decode.workload import Workload

OP = OPS["sparse_decode"]
ALIGNED = 16  # bytes: Triton compiles another kernel for an address that is no multiple of it


class Buffers(NamedTuple):
    """A runner's memory, each a flat tensor."""

    out: torch.Tensor  # [T * H * d_v] bf16
    lse: torch.Tensor  # [T * H] float32, base 2
    parts: torch.Tensor  # [n] float32: what splits leave for the merge
    counters: torch.Tensor  # [T * H] int32, 0 between calls


TYPES = Buffers(torch.bfloat16, torch.float32, torch.float32, torch.int32)


class Captured(NamedTuple):
    """A call that was made while a graph was captured: what its replays run."""

    workload: Workload
    plan: Plan


class Call(NamedTuple):
    """How calls of one form run."""

    workload: Workload
    plan: Plan
    variant: Variant
    out: torch.Tensor  # [T, H, d_v] bf16 of the runner's
    lse: torch.Tensor  # [T, H] float32 of the runner's


class SparseMLARunner:
    """Sparse decode calls of one rank, on memory that is there before them.

    `largest` is the largest call; page sizes, row stride, layout and scale format are those of
    every call. What tensors do not tell a plan (rows of the pool, law, padding) is taken from it,
    too: let it name the place that the table has measured. `variant` and `config` force one.

    Raises ValueError where `largest` is no call, the device is not here, or no variant (or not the
    forced one) serves each of its token counts.
    """

    def __init__(
        self, largest: Workload, *, device: str = "auto", table: Table | None = None,
        variant: str | None = None, config: Config = None,
        plan: Callable[..., Plan] = dispatch.plan,
        capturing: Callable[[], bool] | None = None,
    ):  # fmt: skip
        if not isinstance(largest, Workload) or largest.tokens < 1:
            raise ValueError(f"largest={largest!r} is no sparse_decode workload with a token")
        self.largest = largest
        self.device = torch.empty(0, device=resolve_device(device)).device  # cuda:0, not cuda
        self.captured: list[Captured] = []
        self.growths, self._turn = 0, Lock()
        gpu, arch = self.device.type == "cuda", "cpu"
        if not gpu and interpreter.active():
            interpreter.repair()
        if gpu:
            arch = "sm_{}{}".format(*torch.cuda.get_device_capability(self.device))
        self._plan = partial(plan, OP, table=table, variant=variant, config=config, arch=arch)
        # a build of torch for CPUs raises where it is asked
        self._capturing = capturing or (lambda: gpu and torch.cuda.is_current_stream_capturing())
        self._calls: dict[tuple, Call] = {}  # of the forms that have run
        steps = (self._workload(tokens, largest.heads, largest.topk, largest.extra_topk)
                 for tokens in range(1, largest.tokens + 1))  # fmt: skip
        needs = [self._needs(w, self._plan(w)) for w in steps]
        self.buffers = self._allocated(map(max, zip(*needs, strict=True)))

    def __getstate__(self):
        return {name: held for name, held in vars(self).items() if name != "_turn"}

    def __setstate__(self, state: dict):
        vars(self).update(state, _turn=Lock())

    def explain(self, workload: Workload) -> Plan:
        """What a call of that many tokens, heads and lanes runs, and why.

        Graphs replay the calls that `captured` lists.
        """
        w = self._workload(workload.tokens, workload.heads, workload.topk, workload.extra_topk)
        return self._plan(w)

    def run(
        self, q: torch.Tensor, cache: torch.Tensor, indices: torch.Tensor, *, sm_scale: float,
        positions: torch.Tensor | None = None, topk_length: torch.Tensor | None = None,
        extra_cache: torch.Tensor | None = None, extra_indices: torch.Tensor | None = None,
        extra_topk_length: torch.Tensor | None = None, attn_sink: torch.Tensor | None = None,
        out: torch.Tensor | None = None, out_lse: torch.Tensor | None = None,
    ) -> Output:  # fmt: skip
        """The answer, in `out` [T, H, d_v] and `out_lse` [T, H]; where not given, in the runner's.

        The other tensors are those of `sparse_decode.Inputs`; the host reads none of them. A call
        that needs more memory than there is gets it, and `growths` counts it. Raises ValueError on
        a shape, dtype, stride or device that would be read as something else. Raises RuntimeError
        where memory would have to grow while a graph is captured or after one was, where a form is
        captured that has not run before, and where another GPU is the current one.
        """
        self._on_current_device()
        if not isinstance(sm_scale, int | float) or not math.isfinite(sm_scale):
            raise ValueError(f"sm_scale={sm_scale!r} is no finite number")
        with self._turn:  # outputs and parts are one call's at a time
            return self._run(
                q, cache, indices, positions, topk_length, extra_cache, extra_indices,
                extra_topk_length, attn_sink, sm_scale, out, out_lse,
            )  # fmt: skip

    def _run(
        self, q, cache, indices, positions, topk_length, extra_cache, extra_indices,
        extra_topk_length, attn_sink, sm_scale, out, out_lse,
    ) -> Output:  # fmt: skip
        """`run`, whose turn it is."""
        w = self.largest
        x = Inputs(
            q, cache, w.page_size, w.row_stride or LAYOUTS[w.layout].row_bytes, indices, positions,
            topk_length, extra_cache, w.extra_page_size, extra_indices, extra_topk_length,
            attn_sink, sm_scale, w.layout, w.scale_format, rounded_rows=False, out_lse=out_lse,
        )  # fmt: skip
        form = tuple([_form(t) for t in (
            q, cache, indices, positions, topk_length, extra_cache, extra_indices,
            extra_topk_length, attn_sink, out, out_lse,
        )])  # fmt: skip
        capturing, known = self._capturing(), self._calls.get(form)
        call = known or self._prepared(x, out, capturing)
        to = call.out if out is None else out
        lse = call.lse if out_lse is None else out_lse
        if len(q):
            memory = Memory(to, self.buffers.parts, self.buffers.counters)
            with torch.inference_mode():  # a caller's tensors may be inference tensors
                found = call.variant.run(x._replace(out_lse=lse, memory=memory), call.plan.config)
                if found.out is not to:  # of a variant that takes no memory
                    to.copy_(found.out)
            if capturing:
                self.captured.append(Captured(call.workload, call.plan))
        if known is None:  # only now: what failed is not there for a capture
            self._calls[form] = call
        return Output(to, lse)

    def _prepared(self, x: Inputs, out: torch.Tensor | None, capturing: bool) -> Call:
        """How a call of a new form runs. Raises ValueError and RuntimeError as `run` does."""
        self._validate(x, out)
        (tokens, heads, _), topk = x.q.shape, x.indices.shape[1]
        extra_topk = 0 if x.extra_indices is None else x.extra_indices.shape[1]
        w = self._workload(tokens, heads, topk, extra_topk)
        plan = self._plan(w)
        self._grow(w, self._needs(w, plan), capturing)
        if capturing and tokens:
            raise RuntimeError(f"{_told(w)} has not run in this form: run it once before the "
                               "capture, so that its kernels are compiled and loaded")  # fmt: skip
        rows, d_v = tokens * heads, LAYOUTS[w.layout].d_v
        out = self.buffers.out[: rows * d_v].view(tokens, heads, d_v)
        lse = self.buffers.lse[:rows].view(tokens, heads)
        return Call(w, plan, OP.variants[plan.variant], out, lse)

    def _validate(self, x: Inputs, out: torch.Tensor | None) -> None:
        """Raise ValueError on tensors that would be read as something else."""
        for name, tensor in (*x._asdict().items(), ("out", out)):
            if isinstance(tensor, torch.Tensor) and tensor.device != self.device:
                raise ValueError(f"{name} is on {tensor.device}, this runner on {self.device}")
        if x.out_lse is None:
            lse = torch.empty(x.q.shape[:2], dtype=torch.float32, device="meta")
            x = x._replace(out_lse=lse)
        memory = Memory(out, self.buffers.parts, self.buffers.counters)
        OP.validate(x if out is None else x._replace(memory=memory))

    def _workload(self, tokens: int, heads: int, topk: int, extra_topk: int) -> Workload:
        """A call of these sizes as a plan sees it."""
        largest = self.largest
        whole = tokens % largest.tokens_per_request == 0
        return replace(
            largest, tokens=tokens, heads=heads, topk=topk, extra_topk=extra_topk,
            extra_rows=largest.extra_rows if extra_topk else 0,
            tokens_per_request=largest.tokens_per_request if whole else 1,
        )  # fmt: skip

    def _needs(self, w: Workload, plan: Plan) -> tuple[int, ...]:
        """How many numbers of each of `Buffers` a call takes."""
        variant, rows = OP.variants[plan.variant], w.tokens * w.heads
        stated = variant.workspace_bytes
        parts = -(-stated(w, plan.config) // TYPES.parts.itemsize) if stated else 0
        return rows * LAYOUTS[w.layout].d_v, rows, parts, rows

    def _grow(self, w: Workload, needs: tuple[int, ...], capturing: bool) -> None:
        """Have memory for `needs`. Raises RuntimeError where a graph holds what there is."""
        has = tuple(map(len, self.buffers))
        if all(need <= size for need, size in zip(needs, has, strict=True)):
            return
        if capturing or self.captured:
            when = "while a graph is captured" if capturing else "after a graph was captured"
            raise RuntimeError(f"{_told(w)} needs more memory than the largest call, "
                               f"{_told(self.largest)}: it cannot grow {when}")  # fmt: skip
        self.buffers = self._allocated(map(max, needs, has))
        self.growths += 1
        self._calls.clear()  # they name the old memory

    def _allocated(self, sizes) -> Buffers:
        """Normal tensors, whoever asks: an inference tensor cannot be written later."""
        with torch.inference_mode(False):
            made = Buffers(*(torch.zeros(size, dtype=dtype, device=self.device)
                             for size, dtype in zip(sizes, TYPES, strict=True)))  # fmt: skip
        if self.device.type == "cuda":  # zeros before another stream counts, and older calls done
            torch.cuda.current_stream(self.device).synchronize()
        return made

    def _on_current_device(self) -> None:
        if self.device.type == "cuda" and torch.cuda.current_device() != self.device.index:
            raise RuntimeError(f"launches go to the current device, cuda:"
                               f"{torch.cuda.current_device()}; this runner is on {self.device}")


def _form(t: torch.Tensor | None) -> tuple | None:
    """All of a tensor that a plan, a check or a compiled kernel depends on."""
    return t if t is None else (t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % ALIGNED)


def _told(w: Workload) -> str:
    extra = f", extra_topk={w.extra_topk}" if w.extra_topk else ""
    return f"a call of tokens={w.tokens}, heads={w.heads}, topk={w.topk}{extra}"

"""Gluon's language on tensors of PyTorch, program by program: what a kernel computes, not how.

A copy arrives when it is waited for, so that one that is read before is seen. Warp groups that work
apart are those of `emulated_groups`.
"""

import threading
from collections import defaultdict
from itertools import product
from random import Random
from types import FunctionType, SimpleNamespace

import torch
from emulated_groups import Groups, Products
from emulated_values import TYPES, Shared, Value, byte_places, raw, read, write
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper.mbarrier import MBarrierLayout
from triton.runtime.jit import JITFunction

NAMES = {kind: name for name, kind in TYPES.items()}
SEED = 0  # of the order in which warp groups go on
COPIERS = 128  # threads of a warp group that copies


class Machine:
    """One program's shared memory, and copies under way."""

    def __init__(self, program, grid=(1, 1, 1)):
        self.program, self.grid, self.open, self.groups = program, grid, [], []
        self.warp_groups, self.products = Groups(Random(SEED)), defaultdict(Products)

    def arrive_behind_copies(self, barrier, increment_count):
        assert not increment_count
        copies, self.open = self.open, []
        self.warp_groups.arrive_behind(copies, barrier, COPIERS)

    def mine(self):
        """Products of the warp group that asks."""
        return self.products[threading.current_thread()]

    def allocate(self, dtype, shape, layout, value=None):
        dtype = TYPES[dtype]
        places = byte_places(shape, layout, dtype.itemsize)
        memory = torch.full((places.numel() * dtype.itemsize,), 0xFF, dtype=torch.uint8)  # NaN
        made = Shared(memory, places, dtype, layout)
        if value is not None:
            made.store(value)
        return made

    def copy(self, to, pointers, mask=None):
        found = load(pointers, mask, 0)
        assert list(found.data.shape) == to.shape
        self.open.append((to, found))

    def commit(self):
        self.groups.append(self.open)
        self.open = []

    def wait(self, outstanding):
        """The oldest groups arrive, until `outstanding` are left."""
        while len(self.groups) > outstanding:
            for to, found in self.groups.pop(0):
                to.store(found)


def load(pointer, mask=None, other=0):
    memory, dtype = pointer.memory
    places = pointer.data
    if mask is None:
        return Value(read(memory, places, dtype))
    mask = mask.data.expand(places.shape)
    found = torch.full(places.shape, other, dtype=torch.float32).to(dtype)
    found[mask] = read(memory, places[mask], dtype)  # a place that is masked may be any number
    return Value(found)


def _store(pointer, value, mask=None):
    memory, dtype = pointer.memory
    data = raw(value).to(dtype).expand(pointer.data.shape)
    mask = torch.ones(data.shape, dtype=torch.bool) if mask is None else mask.data
    mask = mask.expand(data.shape)
    write(memory, pointer.data[mask], data[mask])


def _where(condition, a, b):
    a, b = (raw(x) for x in (a, b))
    a, b = (x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in (a, b))
    if not a.is_floating_point():
        a, b = a.int(), b.int()
    return Value(torch.where(condition.data, a, b))


def _two(function):
    def apply(a, b):
        a, b = (x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in map(raw, (a, b)))
        return Value(function(a, b.to(a.dtype)))

    return apply


def _mma(a, b, acc):
    assert a.data.dtype == b.data.dtype and a.data.dtype.itemsize < 4
    return Value(acc.data + a.data.float() @ b.data.float())


def _assembly(text, constraints, args, **declared):
    if text.startswith("rcp.approx.ftz.f32"):
        return Value(1.0 / args[0].data)
    apart = ("0x4420" in text and "0x4431" in text) or "0x3120" in text
    assert apart, "another piece of assembly"
    words = args[0].data.contiguous()
    halves = words[..., None].view(torch.uint8).view(torch.float8_e4m3fn).float().half()
    return Value(halves[..., 0]), Value(halves[..., 1])


def _language(machine):
    made = {
        "arange": lambda a, b, layout=None: Value(torch.arange(a, b, dtype=torch.int32)),
        "zeros": lambda shape, dtype, layout=None: Value(torch.zeros(shape, dtype=TYPES[dtype])),
        "full": lambda shape, v, dtype, layout=None: Value(
            torch.full(shape, v, dtype=TYPES[dtype])),
        "where": _where, "maximum": _two(torch.maximum), "minimum": _two(torch.minimum),
        "max": lambda x, axis: Value(x.data.amax(axis)),
        "min": lambda x, axis: Value(x.data.amin(axis)),
        "sum": lambda x, axis: Value(x.data.sum(axis)),
        "exp2": lambda x: Value(x.data.exp2()), "log2": lambda x: Value(x.data.log2()),
        "abs": lambda x: Value(x.data.abs()), "load": load, "store": _store,
        # shared memory tells its type as one of PyTorch
        "pointer_type": lambda of: SimpleNamespace(element_ty=NAMES.get(of, of)),
        "join": lambda a, b: Value(torch.stack((a.data, b.data), -1)),
        "convert_layout": lambda x, layout, assert_trivial=False: x,
        "to_tensor": lambda x: Value(torch.tensor(x)), "static_range": range,
        "program_id": lambda axis: Value(torch.tensor(machine.program[axis], dtype=torch.int32)),
        "num_programs": lambda axis: Value(torch.tensor(machine.grid[axis], dtype=torch.int32)),
        "split": lambda x: (Value(x.data[..., 0]), Value(x.data[..., 1])),
        "warp_specialize": lambda parts, warps, registers: machine.warp_groups.run(parts),
        "cdiv": lambda a, b: (a + (b - 1)) // b,
        "num_warps": lambda: 8, "allocate_shared_memory": machine.allocate,
        "inline_asm_elementwise": _assembly, "constexpr": object,
    }  # fmt: skip
    return SimpleNamespace(**vars(gl) | made)


def _emulated(function, machine, known):
    """The Python function of a kernel or a step, on a language of its own."""
    if id(function) in known:
        return known[id(function)]
    scope = dict(function.fn.__globals__)
    run = FunctionType(function.fn.__code__, scope, function.fn.__name__)
    run.__defaults__ = function.fn.__defaults__
    known[id(function)] = run
    for name, held in list(scope.items()):
        if isinstance(held, JITFunction):
            scope[name] = _emulated(held, machine, known)
        elif isinstance(held, gl.constexpr):
            scope[name] = held.value
    scope |= {
        "gl": _language(machine), "mma_v2": _mma, "cp_async": machine.copy, "range": _range,
        "cta_barrier": lambda: None, "reinterpret": Shared.reinterpret,
        "async_copy": SimpleNamespace(commit_group=machine.commit, wait_group=machine.wait,
                                      mbarrier_arrive=machine.arrive_behind_copies),
        "mbarrier": SimpleNamespace(
            init=machine.warp_groups.barriers.init, arrive=machine.warp_groups.arrive,
            wait=machine.warp_groups.wait, MBarrierLayout=MBarrierLayout),
        "warpgroup_mma": lambda *args, **how: machine.mine().start(*args, **how),
        "warpgroup_mma_wait": lambda outstanding, deps: machine.mine().wait(outstanding, deps),
        "fence_async_shared": lambda: None, "gdc_wait": lambda: None,
        "gdc_launch_dependents": lambda: None, "prefetch": load,
    }  # fmt: skip
    return run


def _range(*bounds):
    return range(*(int(raw(bound)) for bound in bounds))


def run(kernel, grid: tuple, args: tuple, options: dict) -> None:
    """Run a Gluon kernel over `grid`; tensors among `args` are its memory."""
    given = {}
    for name, arg in zip(kernel.arg_names, args, strict=False):
        if isinstance(arg, torch.Tensor):
            flat = torch.empty(0, dtype=torch.uint8).set_(arg.untyped_storage())
            place = torch.tensor(arg.storage_offset() * arg.element_size())
            arg = Value(place, (flat, arg.dtype))
        elif isinstance(arg, int) and not isinstance(arg, bool):
            arg = Value(torch.tensor(arg, dtype=torch.int32))
        given[name] = arg
    options = {k: v for k, v in options.items() if k in kernel.arg_names}
    grid = (*grid, 1, 1)[:3]
    for program in product(*(range(n) for n in grid)):
        _emulated(kernel, Machine(program, grid), {})(**given, **options)

"""Values and shared memory of the language in `emulated_gluon`, as tensors of PyTorch.

Layouts of registers are left out. Shared memory is bytes, so that a view of it is what it says.
"""

import math
from types import SimpleNamespace

import torch
from triton.experimental.gluon import language as gl

TYPES = {
    gl.float32: torch.float32, gl.bfloat16: torch.bfloat16, gl.float16: torch.float16,
    gl.float8e4nv: torch.float8_e4m3fn, gl.int64: torch.int64, gl.int32: torch.int32,
    gl.int16: torch.int16, gl.uint8: torch.uint8,
}  # fmt: skip


class Value:
    """A tensor in registers, or a tensor of pointers: byte places in `memory`."""

    def __init__(self, data, memory=None):
        self.data, self.memory = data, memory
        self.shape, self.type = list(data.shape), SimpleNamespace(layout=None)

    @property
    def dtype(self):
        """Of a pointer."""
        kinds = {kind: name for name, kind in TYPES.items()}
        return SimpleNamespace(element_ty=kinds[self.memory[1]])

    def _with(self, data):
        return Value(data, self.memory)

    def __getitem__(self, key):
        return self._with(self.data[key])

    def expand_dims(self, dim):
        return self._with(self.data.unsqueeze(dim))

    def permute(self, order):
        return self._with(self.data.permute(order))

    def reshape(self, shape):
        return self._with(self.data.reshape(shape))

    def trans(self):
        return self._with(self.data.mT)

    def to(self, dtype, bitcast=False):
        if self.memory is not None:  # a pointer to something else
            return Value(self.data, (self.memory[0], TYPES[dtype.element_ty]))
        data, dtype = self.data, TYPES[dtype]
        if bitcast:
            return Value(data.contiguous().view(dtype))
        if dtype in (torch.float16, torch.bfloat16) and data.dtype == torch.float8_e4m3fn:
            data = data.float()
        return Value(data.to(dtype))

    def __add__(self, other):
        other = raw(other)
        if self.memory is not None:
            return self._with(self.data + raw(other) * self.memory[1].itemsize)
        return Value(self.data + other)

    __radd__ = __add__


def raw(x):
    return x.data if isinstance(x, Value) else x


def _binary(name):
    def apply(self, other):
        if name == "__truediv__":
            return Value(self.data.float() / raw(other))
        if name == "__floordiv__":
            return Value(torch.div(self.data, raw(other), rounding_mode="trunc"))
        return Value(getattr(self.data, name)(raw(other)))

    return apply


for _name in ("__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__floordiv__",
              "__mod__", "__and__", "__rand__", "__or__", "__xor__", "__rshift__", "__lshift__",
              "__lt__", "__ge__", "__gt__", "__eq__", "__ne__", "__neg__"):  # fmt: skip
    setattr(Value, _name, _binary(_name) if _name != "__neg__" else lambda self: Value(-self.data))
Value.__rtruediv__ = lambda self, other: Value(other / self.data.float())
Value.__index__ = lambda self: int(self.data)
Value.__bool__ = lambda self: bool(self.data)
Value.__hash__ = None


class Shared:
    """Shared memory: the byte places [shape] of each element in `memory`."""

    def __init__(self, memory, places, dtype, layout):
        self.memory, self.places, self.dtype, self.layout = memory, places, dtype, layout
        self.shape = list(places.shape)

    def _with(self, places):
        return Shared(self.memory, places, self.dtype, self.layout)

    def index(self, i):
        return self._with(self.places[int(i)])

    def permute(self, order):
        return self._with(self.places.permute(order))

    def slice(self, start, length, dim=0):
        return self._with(self.places.narrow(dim, start, length))

    def reinterpret(self, dtype, shape, layout):
        places = self.places.min() + byte_places(shape, layout, TYPES[dtype].itemsize)
        return Shared(self.memory, places, TYPES[dtype], layout)

    def load(self, layout):
        return Value(read(self.memory, self.places, self.dtype))

    def store(self, value):
        write(self.memory, self.places, value.data.to(self.dtype))


def read(memory, places, dtype):
    bytes_ = memory[places[..., None] + torch.arange(dtype.itemsize)]
    return bytes_.contiguous().view(dtype)[..., 0]


def write(memory, places, data):
    size = data.dtype.itemsize
    memory[places[..., None] + torch.arange(size)] = data.contiguous()[..., None].view(torch.uint8)


def byte_places(shape, layout, size):
    """Byte places of the elements of `shape` in `layout`, its last dimensions; [..., shape].

    What a matrix product reads from is never seen as something else: rows stand there in order.
    """
    if hasattr(layout, "swizzle_byte_width"):
        return torch.arange(math.prod(shape)).view(*shape) * size
    rank = len(layout.offset_bases[0] if hasattr(layout, "offset_bases") else layout.order)
    lead, inner = list(shape[: len(shape) - rank]), list(shape[len(shape) - rank :])
    count = math.prod(inner)
    offset = torch.arange(count)
    if hasattr(layout, "offset_bases"):
        coordinates = torch.zeros(count, rank, dtype=torch.int64)
        for bit, basis in enumerate(layout.offset_bases):
            coordinates ^= ((offset >> bit) & 1)[:, None] * torch.tensor(basis)
        places = torch.full(inner, -1)
        places[tuple(coordinates.T)] = offset
        assert (places >= 0).all(), "a layout that leaves elements out"
    elif rank == 1:
        places = offset
    else:
        row, column = offset // inner[1], offset % inner[1]
        phase = row // layout.per_phase % layout.max_phase
        places = row * inner[1] + (column // layout.vec ^ phase) * layout.vec + column % layout.vec
        places = places.view(inner)
    first = torch.arange(math.prod(lead)).view([*lead, *[1] * rank]) * count
    return (first + places) * size

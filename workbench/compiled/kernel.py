"""One launch through the compiler: a kernel, and what there is to say about it.

`compile_for` compiles what a variant launches, for an architecture that may not be here; `report`
says what the compiler made of it, as numbers that fit into JSON.
"""

import contextlib
import io
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import triton

from ..interpreter import active
from ..op import Config, Inputs, Variant
from . import sass
from .launches import Source, recorded_launches, specialised
from .targets import occupancy

DISASSEMBLER = "nvdisasm"


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel of a variant."""

    name: str
    warps: int  # a block, those of specialised workers included
    shared_bytes: int  # a block, that the launch asks for
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    said: str = field(repr=False)  # by the assembler; "" where the kernel came from Triton's cache


def compile_for(v: Variant, x: Inputs, config: Config = None, *, arch: int = 90) -> list[Kernel]:
    """Compile every kernel that `v` launches on `x`, for compute capability `arch`.

    Raises RuntimeError in a process in which Triton interprets: library functions are replaced.
    """
    if active():
        raise RuntimeError("kernels cannot be compiled while TRITON_INTERPRET=1 is set")
    with recorded_launches() as launches:
        v(x, config)
    return [compiled(specialised(launch, arch)) for launch in launches]


def compiled(source: Source, afresh: bool = False) -> Kernel:
    """Compile `source`; `afresh` past Triton's cache, so that the assembler says what it used."""
    knobs, printed = triton.knobs, io.StringIO()
    with contextlib.ExitStack() as stack:
        if afresh:
            stack.enter_context(knobs.compilation.scope())
            stack.enter_context(knobs.nvidia.scope())
            knobs.compilation.always_compile = knobs.nvidia.dump_ptxas_log = True
        stack.enter_context(contextlib.redirect_stdout(printed))
        made = triton.compile(source.ast, target=source.target, options=source.options.__dict__)
    return Kernel(made.metadata.name, made.metadata.num_warps, made.metadata.shared,
                  made.asm["ptx"], made.asm["cubin"], printed.getvalue())  # fmt: skip


def report(kernel: Kernel, arch: int, disassembler: str | None) -> dict:
    """Registers, stack, spills, shared memory, occupancy, instructions and loops of `kernel`.

    Without a disassembler, or where it fails, `sass` holds the reason and what would be read from
    instructions is None. Raises RuntimeError where the assembler did not say what it used.
    """
    used = re.search(r"Used (\d+) registers", kernel.said)
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill l",
                        kernel.said)  # fmt: skip
    if not used or not frames:
        said = kernel.said[:200]
        raise RuntimeError(f"the assembler did not say what {kernel.name} uses: {said!r}")
    registers = int(used[1])
    stack, stores, loads = ([int(frame[i]) for frame in frames] for i in range(3))
    held = occupancy(arch, registers, kernel.warps, kernel.shared_bytes)
    return {
        "kernel": kernel.name, "warps": kernel.warps, "registers": registers,
        "stack_bytes": max(stack), "spill_store_bytes": sum(stores), "spill_load_bytes": sum(loads),
        "shared_bytes": kernel.shared_bytes, "blocks_per_sm": held.blocks,
        "warps_per_sm": held.warps, "occupancy_limit": held.limit,
    } | _instructions(kernel, disassembler)  # fmt: skip


def _instructions(kernel: Kernel, disassembler: str | None) -> dict:
    row = dict.fromkeys(("mma", "instructions", "looped", "hot_loop"))
    if disassembler is None:
        return row | {"sass": f"no {DISASSEMBLER} beside Triton or on the PATH"}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.cubin)
        done = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True)
    try:
        code = sass.read(done.stdout)
    except ValueError as error:
        said = (done.stderr.strip().splitlines() or [str(error)])[-1]
        return row | {"sass": f"{DISASSEMBLER}: {said[:200]}"}
    return {
        "mma": sass.products(code.opcodes), "instructions": sass.histogram(code.opcodes),
        "looped": sass.histogram(code.looped),
        "hot_loop": sass.histogram(code.hot.opcodes) if code.hot else {}, "sass": "",
    }  # fmt: skip


def disassembler() -> str | None:
    """The disassembler in Triton's wheel, or on the PATH."""
    shipped = Path(triton.__file__).parent / "backends/nvidia/bin" / DISASSEMBLER
    return str(shipped) if shipped.is_file() else shutil.which(DISASSEMBLER)

"""What the compiler made of a variant, read without a GPU: registers, spills, shared memory, SASS.

`table` compiles in processes of its own and may be called anywhere. `compile_for` compiles in this
process, which must not interpret Triton's kernels.
"""

from .changes import changes as changes
from .fitting import DoesNotFit as DoesNotFit
from .fitting import fit as fit
from .fitting import smaller as smaller
from .table import Compiler as Compiler
from .table import table as table
from .targets import TARGETS as TARGETS
from .targets import arch_number as arch_number
from .targets import arch_numbers as arch_numbers
from .targets import occupancy as occupancy


def __getattr__(name: str):
    if name == "compile_for":  # what imports Triton is imported when it is used
        from .kernel import compile_for

        return compile_for
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""FlashInfer-Bench's files: our op, workloads and records as its own, and its files read here.

It keeps definitions, workloads, solutions and traces as JSON, tensors as safetensors, in one
folder. Of its operations this workbench knows one, sparse attention over a paged latent cache
(`dsa_paged`), which is `sparse_prefill`: rows of pages numbered through, lse in base 2, -1 where a
lane is padding. Schema: flashinfer-ai/flashinfer-bench, docs/flashinfer-trace and its `data` models
of version 0.1.2; the operation: its docs/op-types/dsa-paged.
"""

from .definitions import Contract as Contract
from .definitions import contract as contract
from .definitions import document as document
from .definitions import named as named
from .export import export as export
from .export import recorded as recorded
from .selection import Imported as Imported
from .selection import imported as imported
from .solutions import answer as answer
from .survey import survey as survey
from .traces import Run as Run

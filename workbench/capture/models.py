"""`capture_selections(model)`: what each layer of a `transformers` model selects, as a capture.

    with capture_selections(model, "mine.safetensors", weights="trained", source="README.md"):
        model.generate(**inputs)

Indexers are hooked by what they are (`indexers.KINDS`); nothing of the model is changed. A step is
a forward call. Layers that reuse another layer's choice (GLM-5.2's index sharing) are named in
`Header.shared`; layers without an indexer (sliding windows, C128A) read what their positions say
and are no part of a capture.
"""

import inspect
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from ..selections import capture_files
from ..selections.captures import Capture, Header, capture
from .indexers import KINDS, Part, refuse_padding

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "q_lora_rank", "kv_lora_rank",
         "head_dim", "index_n_heads", "index_head_dim", "index_topk", "sliding_window")  # fmt: skip


class Taken:
    """What was selected so far; `captures` can be read inside the context and after it."""

    def __init__(self, header: Header, join: bool):
        self.header = header
        self._join = join
        self._calls: dict[int, list[list[Part]]] = defaultdict(list)  # of each layer

    def add(self, layer: int, parts: list[Part]) -> None:
        self._calls[layer].append(parts)

    @property
    def captures(self) -> tuple[Capture, ...]:
        """One for each layer and step; one for each layer where steps are joined."""
        found = []
        for layer, calls in sorted(self._calls.items()):
            steps = [[p for call in calls for p in call]] if self._join else calls
            found += [self._capture(layer, step, parts) for step, parts in enumerate(steps)]
        return tuple(found)

    def _capture(self, layer: int, step: int, parts: list[Part]) -> Capture:
        parts = sorted(parts, key=lambda p: p.request)  # stable: the steps of each stay in order
        starts, tokens, before = [], 0, None
        for part in parts:
            if part.request != before:
                starts.append(tokens)
            tokens, before = tokens + len(part.places), part.request
        if not parts:
            raise ValueError(f"layer {layer}, step {step}: the attention mask hides every token")
        places, indices, masked = (torch.cat(each) for each in list(zip(*parts, strict=True))[1:])
        back = (places[1:] <= places[:-1]).nonzero().flatten() + 1
        if again := sorted(set(back.tolist()) - set(starts)):
            at, behind = int(places[again[0]]), int(places[again[0] - 1])
            raise ValueError(f"position {at} comes behind {behind}: steps that do not follow one "
                             "another cannot be joined")  # fmt: skip
        return capture(self.header, layer, step, indices, places, starts, masked=masked)


@contextmanager
def capture_selections(
    model: torch.nn.Module,
    to: Path | str | None = None,
    *,
    weights: str,
    source: str,
    provenance: str = "live",
    layers: Iterable[int] | None = None,
    join: bool = False,
    tokens: slice = slice(None),
    ordered: bool = True,
    page_size: int = 0,
    made_by: dict[str, str] | None = None,
):
    """Yield a `Taken` that collects what the indexers of `model` select; write `to` at the end.

    `weights` is "trained" or "random-weights", `source` says what the input is. `layers`: only
    those. `join`: all steps of a layer are one capture, as of a prefill in chunks and the decode
    steps behind it. `tokens`, `ordered`: as `capture_files.write` takes them; `made_by` is added to
    the versions in the header. Rows of the batch and packed sequences are requests, without their
    padding.

    The file is written when the body ends without an error, whole or not at all; hooks are removed
    in any case. Raises ValueError where the model has no known indexer, where a layer of `layers`
    has none, and where nothing was selected that could be written.
    """
    found = _indexers(model)
    chosen = set(found if layers is None else layers)
    if missing := sorted(chosen - set(found)):
        raise ValueError(f"layers {missing} have no indexer: those of this model are "
                         f"{sorted(found)}")  # fmt: skip
    header = _header(model, found, chosen, made_by or {}, weights=weights, source=source,
                     provenance=provenance, page_size=page_size)  # fmt: skip
    taken = Taken(header, join)
    with _hooked(found, chosen, taken):
        yield taken
    if to is not None:
        capture_files.write(to, header, taken.captures, tokens, ordered)


@contextmanager
def _hooked(found: dict, chosen: set, taken: Taken):
    """Watch the indexers of the chosen layers; refuse padding where it would be pooled."""
    with ExitStack() as hooks:
        for layer, (indexer, attention) in found.items():
            if layer in chosen:
                handle = indexer.register_forward_hook(_hook(taken, layer), with_kwargs=True)
                hooks.callback(handle.remove)
            if KINDS[type(indexer).__name__].pools:
                handle = attention.register_forward_pre_hook(refuse_padding, with_kwargs=True)
                hooks.callback(handle.remove)
        yield


def _hook(taken: Taken, layer: int):
    def hook(module, args, kwargs, output):
        call = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        with torch.no_grad():
            taken.add(layer, KINDS[type(module).__name__].read(module, call, output))

    return hook


def _indexers(model) -> dict[int, tuple[torch.nn.Module, torch.nn.Module]]:
    """{layer: (its indexer, the attention around it)}. Raises ValueError where there is none."""
    found = {}
    for module in model.modules():  # what stands inside comes later: the innermost one stays
        inside = [m for m in module.modules() if type(m).__name__ in KINDS and m is not module]
        if "layer_idx" in vars(module) and len(inside) == 1:
            found[module.layer_idx] = inside[0], module
    if not found:
        raise ValueError(f"{type(model).__name__} has no indexer that is known here: "
                         f"{', '.join(KINDS)} of transformers")  # fmt: skip
    return found


def _header(model, found: dict, chosen: set, made_by: dict[str, str], **told) -> Header:
    import transformers

    indexer, attention = next(iter(found.values()))
    config, shared, source = attention.config, {}, None
    for module in model.modules():
        layer = vars(module).get("layer_idx")
        if layer in found and module is found[layer][1]:
            source = layer
        elif getattr(module, "skip_topk", False) and source in chosen:
            shared[layer] = source
    sizes = {name: size for name in SIZES if isinstance(size := getattr(config, name, None), int)}
    versions = {"transformers": transformers.__version__, "torch": str(torch.__version__)}
    return Header(model=config.model_type, scope="request-local", config=sizes, shared=shared,
                  compress_ratio=getattr(indexer, "compress_rate", 1),
                  made_by=versions | made_by, **told)  # fmt: skip

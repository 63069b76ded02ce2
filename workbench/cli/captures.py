"""selections capture, and what `selections show` says of a file of captures."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as o
from . import selection_tables as tables

GROUPS = (2, 4, 8, 16)  # whose unions are shown of each layer
PAGE = 64  # rows, where the file names no page size


def capture(
    architecture: Annotated[str, typer.Option(help="glm_moe_dsa, deepseek_v32, deepseek_v4.")],
    to: Annotated[Path, typer.Option(help="Write the captures there: NAME.safetensors.")],
    widths: Annotated[str, typer.Option(help="small, or real: those of GLM-5, DeepSeek-V3.2 or "
                                        "DeepSeek-V4-Flash, with 8 narrow experts.")] = "small",
    layers: Annotated[int, typer.Option(min=1, help="Of the model.")] = 4,
    tokens: Annotated[int, typer.Option(min=1, help="Of the prompt.")] = 512,
    text: Annotated[Path | None, typer.Option(help="What the model reads; a byte is a token. "
                                              "Default: Python's help topics.")] = None,
    keep_tokens: Annotated[int | None, typer.Option(min=1, help="Write only the last ones.")] =
    None,
    keep_layers: Annotated[str | None, typer.Option(help="Write only these: 0,3,7.")] = None,
    keep_order: Annotated[bool, typer.Option("--keep-order", help="Keep the order of lanes, best "
                                             "first, though bits are smaller.")] = False,
    chunk: Annotated[int, typer.Option(min=1, help="Tokens of the prefill at a time.")] = 512,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights.")] = 0,
    device: o.Device = "auto",
) -> int:  # fmt: skip
    """Run a model with random weights over a text; write what each layer selected.

    For trained weights, `workbench.capture.capture_selections(model)` does the same in Python.
    """
    from ..capture import random_models
    from ..capture.models import capture_selections
    from ..machine import resolve_device

    if to.suffix != _suffix():
        raise ValueError(f"--to {to}: captures are written as NAME{_suffix()}")
    device = resolve_device(device)
    prompt, source = random_models.bytes_of(text, tokens)
    with o.waiting(f"drawing the weights of {architecture}"):
        model = random_models.random_model(architecture, widths, layers, seed).to(device)
    settings = {"widths": widths, "seed": str(seed), "dtype": "bfloat16", "chunk": str(chunk),
                "device": device.partition(":")[0]}  # fmt: skip
    kept = slice(None) if keep_tokens is None else slice(-keep_tokens, None)
    watched = capture_selections(model, to, weights="random-weights", source=source, join=True,
                                 layers=_numbers(keep_layers), tokens=kept, ordered=keep_order,
                                 made_by=settings)  # fmt: skip
    with watched, o.progress(-(-tokens // chunk)) as (advance, say):
        say(f"{architecture}: {tokens:,} tokens")
        random_models.prefill(model, prompt.to(device), chunk, advance)
    return show(to)


def _suffix() -> str:
    from ..selections.capture_files import SUFFIX

    return SUFFIX


def _numbers(text: str | None) -> list[int] | None:
    from ..fields import convert

    return None if text is None else [convert("layer", n, int) for n in text.split(",")]


def show(
    file: Path, layer: int | None = None, step: int = 0, across: bool = False, json: bool = False
) -> int:
    """Header, and each layer's unions and faults; of one layer, all. Exit code 1 with a fault."""
    if layer is not None:
        return _show_layer(file, layer, step, across, json)
    return _show_all(file, across, json)


def _show_all(file: Path, across: bool, json: bool) -> int:
    from dataclasses import asdict

    from ..record import plain
    from ..selections import capture_files

    header, captures = capture_files.read(file)
    with o.waiting(f"reading {file}"):
        found = [_described(c, _page(header), across) for c in captures]
    if json:
        o.print_json(plain({"file": str(file), **asdict(header), "captures": found}))
    else:
        _print(file, header, found)
    return 1 if any(each["refusals"] for each in found) else 0


def _show_layer(file: Path, layer: int, step: int, across: bool, json: bool) -> int:
    from ..record import plain
    from ..selections import capture_files, refusals, statistics

    _, c = capture_files.find(file, layer, step)
    found, wrong = statistics(c.selection, across=across), refusals(c.selection)
    if json:
        told = {"file": str(file), "layer": layer, "step": step, "refusals": wrong}
        o.print_json(plain(told | {"masked_lanes": int(c.masked.sum())} | found))
    else:
        tables.print_statistics(f"{file}, layer {layer}, step {step}", found)
        _refused(layer, step, wrong)
    return 1 if wrong else 0


def _page(header) -> int:
    """Rows of a page that statistics are of: the file's own where they can count it."""
    rows = header.page_size // header.compress_ratio
    return rows if rows and rows % PAGE == 0 and header.scope != "page" else PAGE


def _described(c, page: int, across: bool) -> dict:
    from ..selections import refusals, statistics

    found = statistics(c.selection, GROUPS, (1,), (page,), across)
    return {"layer": c.layer, "step": c.step, "masked_lanes": int(c.masked.sum()),
            "refusals": refusals(c.selection), **found}  # fmt: skip


def _print(file: Path, header, found: list[dict]) -> None:
    sizes = ", ".join(f"{k} {v:,}" for k, v in header.config.items())
    made = ", ".join(f"{k} {v}" for k, v in header.made_by.items())
    paged = f"pages of {header.page_size} tokens" if header.page_size else "no pages"
    lines = [
        f"{file}: {header.model}, {header.weights}, {header.provenance}",
        f"input: {header.source}",
        f"sizes: {sizes or '-'}",
        f"made by: {made or '-'}",
        f"an index is {header.scope}; tokens of a row: {header.compress_ratio}; {paged}",
    ]
    for layer, of in header.shared.items():
        lines.append(f"layer {layer} reuses the choice of layer {of}")
    for line in lines:
        o.out.print(line, markup=False, highlight=False)
    number = "{:,.3f}".format
    page = next(iter(found[0]["pages"])) if found else PAGE
    columns = ["layer", "step", "tokens", "rows", "rows a token", "masked lanes",
               *(f"union of {g}" for g in GROUPS), "Jaccard", "churn",
               f"pages of {page}"]  # fmt: skip
    rows = [[each["layer"], each["step"], f"{each['tokens']:,}", f"{each['rows']:,}",
             f"{each['valid_rows_per_token']:,.1f}", f"{each['masked_lanes']:,}",
             *(number(each["union_ratio"][g]) for g in GROUPS), number(each["jaccard"][1]),
             number(each["churn"]), f"{each['pages'][page]['touched_per_token']:,.1f}"]
            for each in found]  # fmt: skip
    o.out.print(o.grid("", columns, rows, 0))
    for each in found:
        _refused(each["layer"], each["step"], each["refusals"])


def _refused(layer: int, step: int, sentences: list[str]) -> None:
    for sentence in sentences:
        o.out.print(f"refused: layer {layer}, step {step}: {sentence}", markup=False,
                    highlight=False)  # fmt: skip

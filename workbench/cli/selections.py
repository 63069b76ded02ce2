"""selections fit, show: laws solved for a union curve, and what a selection is like."""

import json as json_text
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import captures, groups
from . import options as o
from . import selection_tables as tables

LawText = Annotated[str | None, typer.Option(help="A law, a preset, or a law with parameters: "
                                             "boundary:core=0.8:pool=2.4.")]  # fmt: skip
Context = Annotated[int, typer.Option(min=0, help="Cache rows of each request before its tokens.")]
Seed = Annotated[int, typer.Option(min=0, help="What decides the draw.")]


def register(app: typer.Typer) -> None:
    selections = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    selections.command("fit")(o.told(fit))
    selections.command("show")(o.told(show))
    selections.command("capture")(o.told(captures.capture))
    selections.command("best-group")(o.told(groups.best_group))
    app.add_typer(selections, name="selections", help="Which rows tokens select and share.")


def fit(
    target: Annotated[str, typer.Option(help="Union ratio by tokens of a group: 2=1.12,4=1.23.")],
    tokens: Annotated[int, typer.Option(min=1, help="Of the whole batch.")] = 8192,
    topk: Annotated[int, typer.Option(min=1, help="Slots of a token.")] = 2048,
    law: Annotated[str, typer.Option(help="The law to solve; parameters that it gives, as in "
                                     "boundary:drift=0.01, are where it starts.")] = "boundary",
    context: Context = 0,
    requests: Annotated[int, typer.Option(min=1, help="Requests that share the batch.")] = 1,
    seed: Seed = 0,
    to: Annotated[Path | None, typer.Option(help="Write the result there, as JSON.")] = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Solve a law for a union curve; say what was reached on the whole batch.

    As many parameters are solved for as there are targets. Exit code 1 when a ratio is missed by
    more than 0.01.
    """
    from .. import atomic
    from ..selections import calibration

    if to is not None and to.is_dir():
        raise ValueError(f"{to} is a folder")
    with o.waiting(f"solving {law}"):
        found = calibration.fit(_ratios(target), tokens, topk, law, context, requests, seed)
    text = json_text.dumps(asdict(found), indent=1)
    if to is not None:
        to.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(to, text + "\n")
    if json:
        o.out.print(text, markup=False, highlight=False)
    else:
        o.out.print(o.grid(found.law, ["tokens of a group", "wanted", "reached"],
                           [[g, f"{ratio:.3f}", f"{found.reached[g]:.3f}"]
                            for g, ratio in found.target.items()], 0))  # fmt: skip
        if not found.close:
            o.out.print(f"missed by {found.error:.3f}")
    return 0 if found.close else 1


def _ratios(text: str) -> dict[int, float]:
    """{2: 1.12} of "2=1.12". Raises ValueError with the item that is something else."""
    from ..fields import convert, pairs

    return {convert("tokens of a group", g, int): convert(f"ratio of {g} tokens", ratio, float)
            for g, ratio in pairs(text.split(",")).items()}  # fmt: skip


def show(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A result of `selections fit`, or "
                                    "captures: NAME.safetensors.")
    ] = None,
    law: LawText = None,
    tokens: Annotated[int | None, typer.Option(min=0, help="Of the whole batch. Default: 8192, or "
                                               "those of the preset or file.")] = None,
    topk: Annotated[int | None, typer.Option(min=1, help="Slots of a token. Default: 2048, or "
                                             "as with tokens.")] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Requests that share the batch.")] =
    None,
    context: Annotated[int | None, typer.Option(min=0, help="Cache rows of each request before its "
                                                "tokens.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="What decides the draw.")] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Of captures: all of this one.")] = None,
    step: Annotated[int, typer.Option(min=0, help="Of captures, with --layer.")] = 0,
    across: Annotated[bool, typer.Option("--across", help="Groups may hold tokens of two "
                                         "requests.")] = False,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """What a selection is like: unions, overlap, churn, reuse, pages.

    Of a law that is drawn, of what `selections fit` found, or of captures. Exit code 1 where a
    capture is none of a model: dummies, rows that a query cannot see, rows outside the cache.
    """
    from ..selections import PRESETS
    from ..selections.capture_files import SUFFIX

    if (file is None) == (law is None):
        raise ValueError("give a FILE or --law, one of them")
    asked = {"tokens": tokens, "topk": topk, "requests": requests, "context": context, "seed": seed}
    given = {name: value for name, value in asked.items() if value is not None}
    if file is not None and file.suffix == SUFFIX:
        if given:
            raise ValueError(f"--{next(iter(given))} is of laws: {file} holds what was captured")
        return captures.show(file, layer, step, across, json)
    if layer is not None:
        raise ValueError("--layer is of captures: NAME.safetensors")
    shape = {"tokens": 8192, "topk": 2048, "requests": 1, "context": 0, "seed": 0}
    if file is not None:
        law, told = _fitted(file)
        shape |= told
    elif law.split(":")[0] in PRESETS:
        preset = PRESETS[law.split(":")[0]]
        shape |= {name: getattr(preset, name) for name in ("tokens", "topk", "requests")}
    shape |= given
    return _drawn(law, shape, across, json)


def _drawn(law: str, shape: dict, across: bool, json: bool) -> int:
    from ..record import plain
    from ..selections import selection, statistics
    from ..selections.requests import split

    sizes = [(n, shape["context"] + n) for n in split(shape["tokens"], shape["requests"])]
    with o.waiting(f"drawing {law}"):
        found = statistics(selection(law, sizes, shape["topk"], shape["seed"]), across=across)
    if json:
        o.print_json(plain({"law": law, "seed": shape["seed"], **found}))
    else:
        tables.print_statistics(law, found)
    return 0


def _fitted(file: Path) -> tuple[str, dict]:
    """(law, shape) of a file that `fit` wrote. Raises ValueError on another one."""
    try:
        held = json_text.loads(file.read_text())
        shape = {k: int(held[k]) for k in ("tokens", "topk", "requests", "context", "seed")}
        return str(held["law"]), shape
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file} is no result of `workbench selections fit`") from None

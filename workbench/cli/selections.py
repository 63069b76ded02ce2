"""selections fit, show: laws solved for a union curve, and what a selection is like."""

import json as json_text
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import options as o

LawText = Annotated[str | None, typer.Option(help="A law, a preset, or a law with parameters: "
                                             "boundary:core=0.8:pool=2.4.")]  # fmt: skip
Context = Annotated[int, typer.Option(min=0, help="Cache rows of each request before its tokens.")]
Seed = Annotated[int, typer.Option(min=0, help="What decides the draw.")]


def register(app: typer.Typer) -> None:
    selections = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    selections.command("fit")(o.told(fit))
    selections.command("show")(o.told(show))
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
        Path | None, typer.Argument(metavar="FILE", help="A result of `selections fit`.")
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
    across: Annotated[bool, typer.Option("--across", help="Groups may hold tokens of two "
                                         "requests.")] = False,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """What a selection is like: unions, overlap, churn, reuse, pages.

    Of a law that is drawn, or of what `selections fit` found.
    """
    from ..record import plain
    from ..selections import PRESETS, selection, statistics
    from ..selections.requests import split

    if (file is None) == (law is None):
        raise ValueError("give a FILE or --law, one of them")
    shape = {"tokens": 8192, "topk": 2048, "requests": 1, "context": 0, "seed": 0}
    if file is not None:
        law, told = _fitted(file)
        shape |= told
    elif law.split(":")[0] in PRESETS:
        preset = PRESETS[law.split(":")[0]]
        shape |= {name: getattr(preset, name) for name in ("tokens", "topk", "requests")}
    asked = {"tokens": tokens, "topk": topk, "requests": requests, "context": context, "seed": seed}
    shape |= {name: value for name, value in asked.items() if value is not None}
    sizes = [(n, shape["context"] + n) for n in split(shape["tokens"], shape["requests"])]
    with o.waiting(f"drawing {law}"):
        found = statistics(selection(law, sizes, shape["topk"], shape["seed"]), across=across)
    if json:
        o.print_json(plain({"law": law, "seed": shape["seed"], **found}))
    else:
        _print(law, found)
    return 0


def _fitted(file: Path) -> tuple[str, dict]:
    """(law, shape) of a file that `fit` wrote. Raises ValueError on another one."""
    try:
        held = json_text.loads(file.read_text())
        shape = {k: int(held[k]) for k in ("tokens", "topk", "requests", "context", "seed")}
        return str(held["law"]), shape
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file} is no result of `workbench selections fit`") from None


def _print(law: str, found: dict) -> None:
    number = "{:,.3f}".format
    o.out.print(f"{law}: {found['tokens']:,} tokens, requests {found['requests']}, topk "
                f"{found['topk']:,}, {found['rows']:,} rows; {found['valid_rows_per_token']:,.1f} "
                f"rows a token, {found['churn']:.1%} of them not the token's before",
                markup=False, highlight=False)  # fmt: skip
    pages = found["pages"]
    columns = ["tokens of a group", "union ratio", "if independent", "Jaccard bounds",
               *(f"pages of {p}" for p in pages)]  # fmt: skip
    rows = [[g, number(ratio), number(found["uniform_union_ratio"][g]),
             "{:.3f} - {:.3f}".format(*found["jaccard_bounds"][g]),
             *(number(each["union_ratio"][g]) for each in pages.values())]
            for g, ratio in found["union_ratio"].items()]  # fmt: skip
    o.out.print(o.grid("", columns, rows, 0))
    near = {d: (found["jaccard"].get(d), found["reused_within"].get(d), found["working_set"].get(d))
            for d in {**found["jaccard"], **found["reused_within"]}}  # fmt: skip
    formats = (number, number, "{:,.1f}".format)
    rows = [[d, *("-" if v is None or v != v else said(v)
                  for v, said in zip(values, formats, strict=True))]
            for d, values in sorted(near.items())]  # fmt: skip
    o.out.print(o.grid("", ["distance, tokens", "Jaccard", "reused within", "working set, rows"],
                       rows, 0))  # fmt: skip
    rows = [[p, f"{each['touched_per_token']:,.1f}", f"{each['most_touched']:,}",
             f"{each['rows_per_touched_page']:,.1f}", number(each["churn"])]
            for p, each in pages.items()]  # fmt: skip
    o.out.print(o.grid("", ["page", "touched a token", "at most", "rows of a touched one",
                            "churn"], rows, 0))  # fmt: skip

"""The tables of `workbench selections show`."""

from . import options as o


def print_statistics(what: str, found: dict) -> None:
    """All that `selections.statistics` found of `what`."""
    number = "{:,.3f}".format
    o.out.print(f"{what}: {found['tokens']:,} tokens, requests {found['requests']}, topk "
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

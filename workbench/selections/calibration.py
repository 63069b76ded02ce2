"""Parameters of a law that give a wanted union curve: solved on a small batch, corrected on the
whole one, and told with what was reached there.
"""

from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, logit

from . import bits
from .draw import selection
from .laws import REGISTRY, parsed, written
from .requests import first_tokens, split
from .statistics import starts

TOLERANCE = 0.01  # of a ratio: what published tables are rounded to
GOOD = TOLERANCE / 4  # good enough not to be corrected once more
ROUNDS = 4  # of solving and looking at the whole batch
LEAST_TOPK = 256  # of the small batch; a slot of it is 0.4 % of a ratio
SHRINK = 8  # the small batch has at least 1 / SHRINK of the tokens
STEP = 0.2  # to either side for a slope, in logits of a parameter's limits
DIGITS = 4  # of a parameter


@dataclass(frozen=True, kw_only=True)
class Fit:
    law: str  # as a workload takes it
    parameters: dict  # all of the law's, those that were not solved for too
    target: dict[int, float]  # union ratio by tokens of a group
    reached: dict[int, float]  # on the whole batch
    error: float  # the largest distance between the two
    tokens: int  # of the batch
    topk: int
    context: int  # rows of each request before its first token
    requests: int
    seed: int

    @property
    def close(self) -> bool:
        return self.error <= TOLERANCE


def fit(
    target: dict[int, float],
    tokens: int = 8192,
    topk: int = 2048,
    law: str = "boundary",
    context: int = 0,
    requests: int = 1,
    seed: int = 0,
) -> Fit:
    """Solve a law for union ratios `target` {tokens of a group: ratio}.

    As many of the law's parameters are solved for as there are targets, in the order of its
    `solved`; the others stay as `law` gives them. Raises ValueError on a law without any, on a
    target that no selection reaches (below 1, above its group), and on sizes below 1.
    """
    _check(target, tokens, topk, context, requests)
    name, base = parsed(law)
    limits = dict(list(REGISTRY[name].solved.items())[: len(target)])
    if not limits:
        raise ValueError(f"law {name} has no parameter to solve for")
    factor = max(1, min(SHRINK, topk // LEAST_TOPK)) if REGISTRY[name].scales else 1
    small = (max(1, tokens // factor), max(1, topk // factor), context // factor, requests, seed)
    aim, best = target, None
    starts_from = [base, *_elsewhere(base, limits)]
    for _ in range(ROUNDS):
        start = min((_solved(name, at, limits, aim, small) for at in starts_from),
                    key=lambda solved: solved[1])[0]  # fmt: skip
        starts_from = [start]
        reached = curve(written(name, start), list(target), tokens, topk, context, requests, seed)
        error = max(abs(reached[g] - target[g]) for g in target)
        if best is None or error < best.error:
            best = Fit(law=written(name, start), parameters=asdict(start), target=dict(target),
                       reached=reached, error=error, tokens=tokens, topk=topk, context=context,
                       requests=requests, seed=seed)  # fmt: skip
        if error <= GOOD or factor == 1:
            break
        aim = {g: min(max(1.0, aim[g] + target[g] - reached[g]), float(g)) for g in target}
    return best


def curve(law, groups, tokens, topk, context=0, requests=1, seed=0) -> dict[int, float]:
    """Union ratio by group of an even batch that is drawn for it."""
    s = selection(law, [(n, context + n) for n in split(tokens, requests)], topk, seed)
    packed = bits.packed(s.indices.numpy(), s.rows)
    sizes = bits.counts(packed)
    found = {}
    for g in groups:
        firsts = first_tokens(tokens, g, starts(s))
        members = np.diff([*firsts, tokens])
        single = (np.add.reduceat(sizes, firsts) / members).sum()
        found[g] = float(bits.counts(bits.unions(packed, firsts)).sum() / single)
    return found


def _check(target, tokens, topk, context, requests) -> None:
    if not target:
        raise ValueError("no target: give the union ratio of at least one group")
    for g, ratio in target.items():
        if g < 2 or not 1.0 <= ratio <= g:
            raise ValueError(f"a union of {g} tokens of {ratio:g} times one: a group has 2 tokens "
                             "or more, its ratio lies between 1 and its tokens")  # fmt: skip
    for what, value, least in (("tokens", tokens, 1), ("topk", topk, 1), ("context", context, 0),
                               ("requests", requests, 1)):  # fmt: skip
        if value < least:
            raise ValueError(f"{what}={value} is below {least}")


def _elsewhere(base, limits: dict) -> list:
    """Other places to begin at where three parameters are solved for: two valleys are common."""
    names = list(limits)[2:]
    return [replace(base, **{k: limits[k][0] + share * (limits[k][1] - limits[k][0])})
            for k in names for share in (0.1, 0.3)]  # fmt: skip


def _solved(name: str, start, limits: dict, target: dict, small: tuple) -> tuple:
    """(parameters with those of `limits` at the least squares on the small batch, the squares)."""

    def at(x):
        values = {k: round(low + float(expit(u)) * (high - low), DIGITS)
                  for (k, (low, high)), u in zip(limits.items(), x, strict=True)}  # fmt: skip
        return replace(start, **values)

    def off(x) -> np.ndarray:
        found = curve(written(name, at(x)), list(target), *small)
        return np.array([found[g] - ratio for g, ratio in target.items()])

    def slopes(x) -> np.ndarray:
        """By steps that are wide enough to look past whole rows and chance."""
        return np.stack([(off(x + STEP * e) - off(x - STEP * e)) / (2 * STEP)
                         for e in np.eye(len(x))], axis=1)  # fmt: skip

    inside = [np.clip((getattr(start, k) - low) / (high - low), 1e-3, 1 - 1e-3)
              for k, (low, high) in limits.items()]  # fmt: skip
    found = least_squares(off, logit(np.array(inside)), jac=slopes, bounds=(-10, 10), xtol=1e-3,
                          ftol=1e-4, max_nfev=15)  # fmt: skip
    return at(found.x), found.cost

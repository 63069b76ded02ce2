"""What the gate computes of a workload once, for all of its variants."""

from collections.abc import Callable

from .op import Inputs, Op, Output, Variant, Workload

KEPT = 6  # three seeds of a workload: inputs of two, answers of all


class Answers:
    """Inputs of a workload's seeds and the reference's answers, for one variant after another.

    A reference of thousands of tokens takes seconds, and each variant needs three of them. Kept are
    the newest few, which are those of one workload, and only where a run changes no input: else the
    answers depend on the variant.
    """

    def __init__(self):
        self.held: dict = {}

    def inputs(self, op: Op, w: Workload, device: str) -> Inputs:
        return self._kept(op, ("inputs", w), lambda: op.make_inputs(w, device))

    def expected(self, v: Variant, w: Workload | None, before: Inputs) -> Output:
        """The reference's answer to `before`; `w` says which inputs these are, None: no one's."""
        key = None if w is None else ("expected", v.widens, w)
        return self._kept(v.op, key, lambda: v.op.reference(v.widens(before)))

    def _kept(self, op: Op, key, make: Callable):
        if op.writes or key is None:
            return make()
        key = (op.name, *key)
        if key not in self.held:
            self.held = dict(list(self.held.items())[1 - KEPT :])
            self.held[key] = make()
        return self.held[key]

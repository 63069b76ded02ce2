"""One process of a study: what the gate says of each arm, then the samples of those that passed."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from statistics import median

from . import flags
from .arms import Arm
from .isolate import Died, Worker
from .op import Op, Verdict, Workload
from .timing import Clock

Report = Callable[[str], None]


@dataclass(frozen=True)
class Checked:
    """What the gate said of an arm, and the config that it ran."""

    arm: Arm
    verdict: Verdict
    config: dict
    flags: tuple[str, ...] = ()
    cost: dict | None = None  # of the question the variant answers; None where no inputs were made
    ledger: dict | None = None  # counts of the work it does; None where it did not pass
    own_kernels: tuple[str, ...] = ()  # of which at least one must run
    digest: str | None = None  # of its answer, where every run gives the same
    interpreted: bool = False  # its kernels ran in Triton's interpreter


def gate_says(
    worker: Worker, op: Op, arm: Arm, w: Workload, limit_s: float, before: Checked | None = None
) -> Checked:
    """The gate's word on an arm; `before` is what it said of it in an earlier process."""
    task = {"do": "check", "op": op.name, "workload": asdict(w), "variant": arm.variant.name,
            "config": dict(arm.changes)}  # fmt: skip
    if before is not None and before.digest:
        task["digest"] = before.digest
    try:
        reply = worker.call(task, limit_s)
    except Died as death:
        return Checked(arm, Verdict(death.status, why=str(death)), arm.asked)
    verdict = Verdict(**reply["verdict"])
    if verdict.status in ("incorrect", "error"):
        worker.stop()  # what a wrong kernel did to its process ends with it
    if before is not None and verdict.passed:
        return before
    notes = (f"another tile: {reply['note']}",) if reply["note"] else ()
    return Checked(arm, verdict, reply["config"], notes, reply["cost"], reply.get("ledger"),
                   tuple(reply.get("own_kernels", ())), reply.get("digest"),
                   reply["interpreted"])  # fmt: skip


@dataclass
class Bench:
    """One process of a study."""

    worker: Worker
    op: Op
    clocks: list[Clock]
    plan: dict
    limit_s: float
    report: Report

    def measure(
        self, arms: list[Arm], w: Workload, gated: dict, told: dict, block: int
    ) -> Iterator[dict]:
        """The fields of a record for each clock and arm.

        `gated` keeps what the gate found, `told` who failed: a failure is told once in a study,
        by the first block in which it happens, and such an arm is not timed again.
        """
        if w not in gated:
            self.report("inputs")
            described = self.described(w)
            self.report("gate")
            gated[w] = described, [self.checked(arm, w) for arm in arms]
        else:
            self.report("gate")
            described, known = gated[w]
            gated[w] = described, [self.again(c, w) for c in known]
        described, checked = gated[w]
        for clock in self.clocks:
            self.report(clock.name)
            keys = [(w, clock.name, i) for i in range(len(checked))]
            known = [told.get(key, c) for key, c in zip(keys, checked, strict=True)]
            found, taken = self.timed(w, known, clock)
            profiles = self.profiles(w, found, clock) if block == 0 else {}
            for i, (key, c) in enumerate(zip(keys, found, strict=True)):
                if c.verdict.passed or key not in told:
                    yield _fields(self.op, w, c, i, taken, profiles, described, clock)
                if not c.verdict.passed:
                    told[key] = c

    def described(self, w: Workload) -> dict:
        """What the inputs say of themselves; empty where they cannot even be made."""
        task = {"do": "describe", "op": self.op.name, "workload": asdict(w)}
        try:
            return self.worker.call(task, self.limit_s)
        except Died:
            return {}

    def checked(self, arm: Arm, w: Workload) -> Checked:
        asked = Checked(arm, Verdict("passed"), arm.asked)
        return _unfit(asked, self.clocks) or gate_says(self.worker, self.op, arm, w, self.limit_s)

    def again(self, before: Checked, w: Workload) -> Checked:
        if not before.verdict.passed:
            return before
        return gate_says(self.worker, self.op, before.arm, w, self.limit_s, before)

    def task(self, do: str, w: Workload, left: dict[str, Checked], clock: Clock) -> dict:
        arms = {i: {"variant": c.arm.variant.name, "config": c.config} for i, c in left.items()}
        return {"do": do, "op": self.op.name, "workload": asdict(w), "clock": clock.name,
                "arms": arms}  # fmt: skip

    def timed(self, w: Workload, checked: list[Checked], clock: Clock):
        """(what is known of each arm, the worker's reply); an arm that dies is told, not timed."""
        found = [_unfit(c, [clock]) or c for c in checked]
        if clock.rotates:
            found = [self.rotated(c, w) for c in found]
        left = {str(i): c for i, c in enumerate(found) if c.verdict.passed}
        plan = self.plan | {"repeats": self.plan["repeats"] or clock.repeats}
        while left:
            task = self.task("measure", w, left, clock) | {"plan": plan}
            try:
                return found, self.worker.call(task, self.limit_s)
            except Died as death:
                turn = next(iter(left)) if death.turn == "twin" else death.turn
                # without a turn no arm had begun: the inputs or the clock failed, for all
                for at in [turn] if turn in left else list(left):
                    verdict = Verdict(death.status, why=f"while it was timed: {death}")
                    found[int(at)] = replace(left.pop(at), verdict=verdict)
        return found, {}

    def profiles(self, w: Workload, found: list[Checked], clock: Clock) -> dict:
        """What a profiler saw of each arm that was timed; it costs no samples where it fails."""
        left = {str(i): c for i, c in enumerate(found) if c.verdict.passed}
        if not left or not clock.needs_gpu:
            return {}
        try:
            return self.worker.call(self.task("profile", w, left, clock), self.limit_s)["profiles"]
        except Died:
            return {}

    def rotated(self, c: Checked, w: Workload) -> Checked:
        """`c` where it passes the gate on all sets of inputs that a rotating clock uses."""
        if not c.verdict.passed:
            return c
        task = {"do": "rotate", "op": self.op.name, "workload": asdict(w),
                "variant": c.arm.variant.name, "config": c.config}  # fmt: skip
        try:
            verdict = Verdict(**self.worker.call(task, self.limit_s)["verdict"])
            if not verdict.passed:
                self.worker.stop()  # as after the gate
        except Died as death:
            verdict = Verdict(death.status, why=f"on a further set of inputs: {death}")
        return c if verdict.passed else replace(c, verdict=verdict)


def _unfit(found: Checked, clocks: list[Clock]) -> Checked | None:
    """`found` as unsupported where none of `clocks` can time it, else None."""
    if not found.verdict.passed:
        return None
    why = None
    if all(clock.captures for clock in clocks) and not found.arm.variant.capturable:
        why = f"reads the device on the host, {clocks[0].name} needs a CUDA graph: use events"
    elif found.interpreted:
        why = "passed the gate in Triton's interpreter, whose time says nothing of the kernel"
    return replace(found, verdict=Verdict("unsupported", why=why)) if why else None


def _fields(
    op: Op, w: Workload, c: Checked, i: int, reply: dict, profiles: dict, described: dict,
    clock: Clock,
) -> dict:  # fmt: skip
    """The fields of a record but those of its study."""
    samples = reply.get("samples", {}) if c.verdict.passed else {}
    taken, floor = samples.get(str(i)), samples.get("floor")
    # the twin ran the first arm that was left
    twin = samples["twin"]["samples_us"] if taken and str(i) == next(iter(samples)) else []
    profile, empty = profiles.get(str(i)), profiles.get("floor")
    floor_us = median(floor["samples_us"]) if floor else None
    seen = list(c.flags)
    if taken:
        span = {"us": floor_us, "span_us": empty["span_us"] if empty else None}
        seen += flags.of_samples(taken) + flags.of_state(reply["state"])
        seen += flags.of_profile(taken, profile, c.own_kernels, span)
        seen += flags.of_inputs(described.get("doubts", ()))
    return {
        "op": op.name, "variant": c.arm.variant.name, "config": c.config,
        "config_asked": c.arm.asked_on(w), "workload": asdict(w), "verdict": c.verdict,
        "cost": c.cost, "statistics": described.get("statistics"), "ledger": c.ledger,
        "lse_base": op.lse_base, "clock": clock.name, "cache": clock.cache,
        "calls_per_sample": taken["calls"] if taken else 0,
        "samples_us": taken["samples_us"] if taken else [], "twin_us": twin,
        "floor_us": floor_us, "index_sets": taken["sets"] if taken else 0,
        "reuse_bytes": taken["reuse_bytes"] if taken else None, "profile": profile,
        "state": reply.get("state") if taken else None, "flags": seen,
    }  # fmt: skip

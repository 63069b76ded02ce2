"""Threads, copies and odd numbers: a runner answers one call at a time, on a mended interpreter."""

import copy
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import DEVICE
from test_runner import alone, call, inputs, runner, same

from workbench import interpreter
from workbench.runner import SparseMLARunner


@pytest.mark.parametrize("sm_scale", [None, float("nan"), "x"])
def test_a_scale_that_is_no_number_is_refused_in_a_known_form_too(sm_scale):
    r, x = runner(), inputs()
    call(r, x)
    with pytest.raises(ValueError, match="sm_scale="):
        r.run(x.q, x.cache, x.indices, sm_scale=sm_scale)


def test_threads_take_turns(monkeypatch):
    """Each writes parts and reads them again: of two at a time one would read the other's."""
    r, among, most_at_once = runner(), [], []
    run = SparseMLARunner._run

    def slow(self, *given):
        among.append(1)
        most_at_once.append(len(among))
        time.sleep(0.01)
        try:
            return run(self, *given)
        finally:
            among.pop()

    monkeypatch.setattr(SparseMLARunner, "_run", slow)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda seed: call(r, inputs(seed=seed)), range(8)))
    assert max(most_at_once) == 1


def test_a_copy_has_memory_and_turns_of_its_own():
    r, x = runner(), inputs()
    other = copy.deepcopy(r)
    assert same(call(other, x), alone(x)) and other._turn is not r._turn
    mine, its = ({b.data_ptr() for b in of.buffers if len(b)} for of in (r, other))
    assert mine and not mine & its


@pytest.mark.skipif(DEVICE != "cpu", reason="the interpreter is for CPUs")
def test_a_runner_mends_the_interpreter_that_it_runs_on(monkeypatch):
    mended = []
    monkeypatch.setattr(interpreter, "repair", lambda: mended.append(1))
    runner()
    assert mended

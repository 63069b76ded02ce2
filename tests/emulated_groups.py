"""Warp groups of an emulated kernel: one runs at a time, and who is next is drawn.

Groups change at barriers, which is where they tell each other something. A copy lands at a drawn
moment between its start and the arrival that speaks for it, as does a product's look at shared
memory: what is read too early, or written too early, is another number. The warps of a group go on
together: what one may overwrite while another still reads it is not seen here.
"""

import threading

import torch
from emulated_values import Shared, Value, raw


class Deadlock(AssertionError):
    pass


class Barriers:
    """The mbarriers of a program: [arrivals of a phase, those still missing, phases completed]."""

    def __init__(self):
        self.held = {}

    def _of(self, barrier):
        return self.held[id(barrier.memory), int(barrier.places.min())]

    def memories(self):
        """Of the barriers, in the order in which they were made."""
        return list(dict.fromkeys(memory for memory, _ in self.held))

    def init(self, barrier, count):
        self.held[id(barrier.memory), int(barrier.places.min())] = [count, count, 0]

    def arrive(self, barrier, count):
        state = self._of(barrier)
        state[1] -= count
        assert state[1] >= 0, "more arrivals than a phase has"
        if not state[1]:
            state[1], state[2] = state[0], state[2] + 1

    def passed(self, barrier, parity):
        """Whether the phase of this parity is over."""
        return self._of(barrier)[2] & 1 != parity


class Groups:
    """Threads of which one holds the baton; `later` are copies under way, which land when drawn."""

    def __init__(self, draw):
        self.draw, self.barriers = draw, Barriers()
        self.later, self.needs, self.rank, self.holder = [], {}, {}, None
        self.changed, self.error = threading.Condition(), None

    def run(self, parts):
        threads = [threading.Thread(target=self._run, args=part, daemon=True) for part in parts]
        self.needs = {thread: lambda: True for thread in threads}
        self.rank = {thread: self.draw.random() for thread in threads}
        for thread in threads:
            thread.start()
        with self.changed:
            self._next()
        for thread in threads:
            thread.join()
        if self.error:
            raise self.error
        while self.later:
            self.later.pop(0)()

    def _run(self, function, args):
        me = threading.current_thread()
        with self.changed:
            self.changed.wait_for(lambda: self.holder is me or self.error)
        try:
            if not self.error:
                function(*args)
        except BaseException as error:
            self.error = self.error or error
        with self.changed:
            self.needs.pop(me)
            self._next()

    def _next(self):
        """Who goes on; copies that are under way may land first, and must where nobody else can."""
        while self.needs and not self.error:
            able = [thread for thread, need in self.needs.items() if need()]
            if self.later and (not able or self.draw.random() < 0.3):
                self.later.pop(0)()
                continue
            if not able:
                self.error = Deadlock(f"{len(self.needs)} groups wait for each other")
            else:
                if self.draw.random() < 0.05:  # one that waits long makes others run ahead
                    self.rank = {thread: self.draw.random() for thread in self.needs}
                self.holder = max(able, key=self.rank.get)
            break
        self.changed.notify_all()

    def pause(self, need=lambda: True):
        """Let others go on, at least until `need` is met."""
        me = threading.current_thread()
        if me not in self.needs:  # before there are groups
            assert need(), "a program waits for itself"
            return
        with self.changed:
            self.needs[me] = need
            self._next()
            self.changed.wait_for(lambda: self.holder is me or self.error)
            self.needs[me] = lambda: True
        if self.error:
            raise Deadlock("another group has ended")

    def wait(self, barrier, phase):
        parity = int(raw(phase))
        self.pause(lambda: self.barriers.passed(barrier, parity))

    def arrive(self, barrier, count=1):
        self.barriers.arrive(barrier, count)
        self.pause()

    def arrive_behind(self, copies, barrier, count):
        """Arrive when the copies have landed, each at a moment of its own."""
        for to, found in copies:
            self.later.append(lambda to=to, found=found: to.store(found))
        self.later.append(lambda: self.barriers.arrive(barrier, count))
        self.pause()


class Promise(Value):
    """What a product on its way will be: there is no number in it until it was waited for."""

    def __init__(self, a, b, acc):
        self.a, self.b, self.acc, self.done = a, b, acc, None
        self.seen = self._operands()
        super().__init__(torch.zeros(self.seen[0].shape[0], self.seen[1].shape[1]))

    def _operands(self):
        return [x.load(None).data.clone() if isinstance(x, Shared) else x.data
                for x in (self.a, self.b)]  # fmt: skip

    @property
    def data(self):
        assert self.done is not None, "a product that nobody has waited for"
        return self.done

    @data.setter
    def data(self, shaped):
        self.made = shaped

    def finish(self):
        if self.done is not None:
            return
        for before, now in zip(self.seen, self._operands(), strict=True):
            same = torch.equal(before.float().nan_to_num(7), now.float().nan_to_num(7))
            assert same, "an operand changed under a product"
        before = 0.0 if self.acc is None else self.acc.data
        self.done = before + self.seen[0].float() @ self.seen[1].float()


class Products:
    """A warp group's products under way, in order."""

    def __init__(self):
        self.under_way = []

    def start(self, a, b, acc, use_acc=True, is_async=False):
        made = Promise(a, b, acc if bool(use_acc) else None)
        self.under_way.append(made)
        if not is_async:
            self.wait(0, [made])
        return made

    def wait(self, outstanding, deps):
        while len(self.under_way) > outstanding:
            self.under_way.pop(0).finish()
        deps = tuple(made if made.done is None else Value(made.done) for made in deps)
        return deps[0] if len(deps) == 1 else deps

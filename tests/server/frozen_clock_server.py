"""A server with a fake clock, so that tests can assert durations exactly.

Its background jobs have no thread: `settle` runs them.
"""

from itertools import count
from typing import Any

from taskyard.core.fleet import MISSING_WITHIN_MS, SWEEP_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Hello, Lease, Poll, Report
from taskyard.lifecycle.poll import PollOutcome
from taskyard.server.serve import Server
from taskyard.server.settings import Settings, load_signer, prepare
from taskyard.store.connection import open_store
from tests.engine.harness import TURNS_MAX, FakeClock
from tests.server.running_server import Made, RunningServer

MINUTE = 60_000


class FrozenClockServer(RunningServer):
    """A server with a fake clock, and helpers to read why tasks wait."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock()
        self.engine = Engine(open_store(url), self.clock)
        self.engine.writer_thread.start()
        made = prepare(self.engine)
        assert made is not None
        self.admin = made
        self.http = Server(self.engine, Settings(public_url="http://yard"))
        self.http.start()
        self.signer = load_signer(self.engine)
        self._polls = count(1)

    def settle(self) -> None:
        """Run background jobs until none is due."""
        for _ in range(TURNS_MAX):
            if not self.engine.background.run_once():
                return
        raise AssertionError("the ticker is never done")

    def advance(self, ms: int) -> None:
        """Advance the clock, and run what is due."""
        self.clock.advance(ms)
        self.settle()

    def be_silent(self) -> None:
        """Advance the clock without polls until the bots are marked missing."""
        for _ in range(MISSING_WITHIN_MS // SWEEP_MS + 1):
            self.advance(SWEEP_MS)

    def submit(self, document: object, **said: Any) -> Made:
        made = super().submit(document, **said)
        self.settle()
        return made

    def bot(self, name: str = "b1", slots: int = 8, pool: str = "default", **said: Any) -> None:
        """Send the hello of a bot."""
        states = {key: said.pop(key) for key in ("quarantined", "maintenance", "draining") if key in said}
        has = canonical({"id": name, "pool": pool, **said})
        assert self.engine.hello(Hello(name, "s1", has, slots, **states)) is None
        self.settle()

    def report(self, lease: Lease, signal: Signal, bot: str = "b1", **said: Any) -> None:
        """Report the end of an attempt, and run what follows."""
        shown = Report(lease.task, lease.attempt, lease.fence, signal, **said)
        assert isinstance(self.engine.poll(Poll(bot, "s1", reports=(shown,))), PollOutcome)
        self.settle()

    def lease(self, made: Made, label: str) -> Lease:
        """Return the lease of a running task."""
        with self.engine.store.read() as repo:
            (one,) = repo.tasks.read([made.key(label)])
        assert one.lease_until_ms is not None
        return Lease(one.id, one.life.attempt, one.fence, one.lease_until_ms, one.life.slice_index)

    def lease_of(self, made: Made, label: str) -> Lease:
        """Let b1 claim, and return the lease of a task."""
        return next(lease for lease in self.claim() if lease.task == made.key(label))

    def why(self, made: Made, label: str, **said: Any) -> Any:
        """Read why a task does not run; check that lists and the view of the task have the same reason."""
        shown = self.get(f"/api/v1/tasks/{made.tasks[label]}/why", **said)
        (listed,) = self.get(f"/api/v1/graphs/{made.id}/tasks?label={label}", **said)["items"]
        seen = self.get(f"/api/v1/tasks/{made.tasks[label]}", **said)
        assert shown["why"]["reason"] == listed["reason"] == seen["reason"]
        return shown

    def sentence(self, made: Made, label: str, **said: Any) -> str:
        return str(self.why(made, label, **said)["sentence"])

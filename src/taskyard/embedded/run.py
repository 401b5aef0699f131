"""The run itself: a yard is opened, the graph is submitted and watched, and everything ends with it.

One loop thinks: it tells what happened, heeds signals, and sees that the bot lives. `watch` is called from it.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from taskyard.core.words import GraphState
from taskyard.embedded.feed import Feed
from taskyard.embedded.places import placed
from taskyard.embedded.signals import signals_to
from taskyard.embedded.yard import Yard
from taskyard.lifecycle.commands import Cancel
from taskyard.lifecycle.outcomes import Refusal
from taskyard.views.outline import Outline, outline
from taskyard.wire.progress import Outcome, Progress

Watch = Callable[[Progress], None]

#: How often it is looked what happened; that the graph is settled is heard at once.
LOOK_SECONDS: Final = 0.05
#: Two signals closer than this are one wish: `timeout` sends its signal twice, and nobody presses Ctrl-C that fast.
ONE_WISH_SECONDS: Final = 0.3
ACTOR: Final = "run"


class Refused(Exception):
    """The engine does not take the document; the plan should have said so."""


def run_graph(
    document: Mapping[str, Any], labels: tuple[str, ...], jobs: int, watch: Watch, logs: Path | None
) -> Outcome:
    """Run a graph to its end, at most `jobs` tasks at a time, and say how it ended; `logs` is a folder for all output.

    The first signal asks running tasks to end, a second one kills them; both make the graph `canceled`. A signal that
    comes before anything was started is a KeyboardInterrupt.
    """
    wishes = _Wishes()
    with signals_to(wishes.add), Yard(jobs) as yard:
        if not yard.wait_for_bot(unless=wishes.any):
            raise KeyboardInterrupt
        graph = _submit(yard, placed(document, Path.cwd()))
        return _Run(yard, graph, Feed(graph, labels, logs), wishes).to_its_end(watch)


def _submit(yard: Yard, document: Mapping[str, Any]) -> int:
    made = yard.engine.submit(document, actor=ACTOR)
    if isinstance(made, Refusal):
        raise Refused("; ".join([made.text, *(f"{fault.path}: {fault.message}" for fault in made.faults)]))
    return made.graph


class _Wishes:
    """How often somebody wanted the run to end."""

    def __init__(self) -> None:
        self.count = 0
        self.woken = threading.Event()
        self._last = -math.inf

    def add(self) -> None:
        """Take note, from any thread."""
        now = time.monotonic()
        if now - self._last >= ONE_WISH_SECONDS:
            self._last = now
            self.count += 1
            self.woken.set()

    def any(self) -> bool:
        """Whether anybody wanted that."""
        return self.count > 0


class _Run:
    def __init__(self, yard: Yard, graph: int, feed: Feed, wishes: _Wishes) -> None:
        self._yard = yard
        self._graph = graph
        self._feed = feed
        self._wishes = wishes
        self._began = time.monotonic()
        self._heeded = 0
        yard.engine.listeners.append(lambda _: wishes.woken.set())

    def to_its_end(self, watch: Watch) -> Outcome:
        while not self._look(watch).settled:
            self._heed()
            if self._heeded < 2:
                self._yard.check()
            elif self._yard.is_deserted:
                break  # it was killed; what it could still say has been heard
            self._wishes.woken.wait(LOOK_SECONDS)
            self._wishes.woken.clear()
        return self._outcome(self._look(watch))

    def _look(self, watch: Watch) -> Outline:
        with self._yard.engine.store.read() as txn:
            seen, news = outline(txn, self._graph), self._feed.news(txn)
        assert seen is not None, "it was submitted"
        for progress in news:
            watch(progress)
        return seen

    def _heed(self) -> None:
        """Start nothing more and have what runs ended; asked again, killed."""
        wished = min(self._wishes.count, 2)
        if wished > 0 and self._heeded == 0:
            self._yard.engine.cancel(Cancel(graph=self._graph, actor=ACTOR))
        if wished > 1 and self._heeded < 2:
            self._yard.kill()
        self._heeded = wished

    def _outcome(self, seen: Outline) -> Outcome:
        with self._yard.engine.store.read() as txn:
            tasks = self._feed.outcome(txn)
        state = GraphState.CANCELED if self._heeded else seen.state
        return Outcome(seen.name, state, round((time.monotonic() - self._began) * 1000), tasks)

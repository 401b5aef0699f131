"""The run itself: the graph is submitted and watched until nothing in it can move any more.

One loop thinks: it tells what happened, heeds signals, and sees that the bot lives. The observer is called from it.
"""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from taskyard.core.states import GraphState
from taskyard.embedded.companion import Companion
from taskyard.embedded.feed import Feed
from taskyard.embedded.opening import Wish
from taskyard.embedded.places import placed
from taskyard.embedded.questions import Decide, Questions
from taskyard.embedded.stuck import is_stuck
from taskyard.embedded.wishes import Wishes
from taskyard.embedded.yard import serving, wait_for_bot
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Cancel, Refusal
from taskyard.views import deadlock
from taskyard.views.explain_graph import explain_graph
from taskyard.views.graphs import GraphOutline, outline
from taskyard.wire.progress import STILL_SECONDS, Observer, Outcome, Printed

#: How often it is looked what happened; that the graph is settled is heard at once.
LOOK_SECONDS: Final = 0.05
#: When nothing has happened for so long, it is looked whether anything still can.
STUCK_SECONDS: Final = 0.5
#: How often what holds the graph is told anew while nothing happens: it has times that pass.
HELD_SECONDS: Final = 1.0
ACTOR: Final = "run"


class Refused(Exception):
    """The engine does not take the document; the plan should have said so."""


def run(wish: Wish, bot: Companion, wishes: Wishes, observer: Observer, decide: Decide) -> Outcome:
    """Run a graph to its end, with a bot that is on its way; `decide` answers what it asks.

    Raise KeyboardInterrupt if somebody wants to end before anything was started.
    """
    with serving(bot) as engine:
        if not wait_for_bot(engine, bot, unless=wishes.any):
            raise KeyboardInterrupt
        engine.listeners.append(lambda _: wishes.news.set())
        graph = _submit(engine, wish)
        questions = Questions(engine, decide, ACTOR)
        return _Run(engine, graph, Feed(wish.labels, wish.logs, wish.show_output), bot, wishes, questions).to_its_end(
            observer
        )


def _submit(engine: Engine, wish: Wish) -> int:
    for name, total in wish.limits.items():
        engine.set_limit(name, total, actor=ACTOR)
    made = engine.submit(placed(wish.document, Path.cwd()), actor=ACTOR)
    if isinstance(made, Refusal):
        raise Refused("; ".join([made.text, *(f"{fault.path}: {fault.message}" for fault in made.faults)]))
    return made.graph


class _Everything:
    """Whoever runs a graph may see all of it."""

    def graph(self, graph: int) -> bool:  # noqa: ARG002 - any
        return True

    def bots_of(self, pools: Collection[str]) -> bool:  # noqa: ARG002 - any
        return True


class _Run:
    def __init__(
        self, engine: Engine, graph: int, feed: Feed, bot: Companion, wishes: Wishes, questions: Questions
    ) -> None:
        self._engine = engine
        self._graph = graph
        self._feed = feed
        self._bot = bot
        self._wishes = wishes
        self._questions = questions
        self._began = time.monotonic()
        self._moved_at = self._began
        self._held_at = self._began + STILL_SECONDS
        self._heeded = 0
        self._deadlock = ""

    def to_its_end(self, observer: Observer) -> Outcome:
        while not self._look(observer).settled and not self._is_stuck():
            self._tell_held(observer)
            self._heed()
            self._questions.answer()
            if self._heeded < 2:
                self._bot.check()
            elif self._bot.is_gone:
                break  # it was killed; what it could still say has been heard
            self._wishes.news.wait(LOOK_SECONDS)
            self._wishes.news.clear()
        return self._outcome(self._look(observer))

    def _look(self, observer: Observer) -> GraphOutline:
        with self._engine.store.read() as repo:
            seen, news = outline(repo, self._graph), self._feed.news(repo, self._graph)
        assert seen is not None, "it was submitted"
        if news:
            self._moved_at = time.monotonic()
            self._held_at = self._moved_at + STILL_SECONDS
            observer.hold(None)
        for one in news:
            observer.printed(one) if isinstance(one, Printed) else observer.show(one)
        return seen

    def _tell_held(self, observer: Observer) -> None:
        """Tell what holds the graph, when nothing has happened for a while."""
        if time.monotonic() < self._held_at:
            return
        self._held_at = time.monotonic() + HELD_SECONDS
        with self._engine.store.read() as repo:
            observer.hold(explain_graph(repo, self._graph, self._engine.clock.now(), _Everything()))

    def _is_stuck(self) -> bool:
        """Tell whether nothing here can go on by itself; it is only asked when nothing has happened for a while."""
        if time.monotonic() < self._moved_at + STUCK_SECONDS:
            return False
        self._moved_at = time.monotonic()
        with self._engine.store.read() as repo:
            if is_stuck(repo, self._graph, self._bot.name):
                return True
            found = deadlock.of_graph(repo, self._graph, _Everything())
        if found is not None and found.stuck:
            self._deadlock = found.sentence
        return bool(self._deadlock)

    def _heed(self) -> None:
        """Start nothing more and have what runs ended; asked again, killed."""
        wished = min(self._wishes.count, 2)
        if wished > 0 and self._heeded == 0:
            self._engine.cancel(Cancel(graph=self._graph, actor=ACTOR))
        if wished > 1 and self._heeded < 2:
            self._bot.kill()
        self._heeded = wished

    def _outcome(self, seen: GraphOutline) -> Outcome:
        with self._engine.store.read() as repo:
            tasks = self._feed.outcome(repo, self._graph)
        told = seen.settled or self._deadlock
        state = GraphState.CANCELED if self._heeded else seen.state if told else GraphState.BLOCKED
        return Outcome(seen.name, state, round((time.monotonic() - self._began) * 1000), tasks, self._deadlock)

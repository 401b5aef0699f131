"""The run itself: the graph is submitted and watched until nothing in it can move any more.

One loop thinks: it tells what happened, heeds signals, and sees that the bot lives. `watch` is called from it.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from taskyard.core.words import GraphState
from taskyard.embedded.companion import Companion
from taskyard.embedded.feed import Feed
from taskyard.embedded.opening import Wish
from taskyard.embedded.places import placed
from taskyard.embedded.questions import Decide, Questions
from taskyard.embedded.stuck import is_stuck
from taskyard.embedded.wishes import Wishes
from taskyard.embedded.yard import serving, wait_for_bot
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Cancel
from taskyard.lifecycle.outcomes import Refusal
from taskyard.views.outline import Outline, outline
from taskyard.wire.progress import Outcome, Progress

Watch = Callable[[Progress], None]

#: How often it is looked what happened; that the graph is settled is heard at once.
LOOK_SECONDS: Final = 0.05
#: When nothing has happened for so long, it is looked whether anything still can.
STILL_SECONDS: Final = 0.5
ACTOR: Final = "run"


class Refused(Exception):
    """The engine does not take the document; the plan should have said so."""


def run(wish: Wish, bot: Companion, wishes: Wishes, watch: Watch, decide: Decide) -> Outcome:
    """Run a graph to its end, with a bot that is on its way; `decide` answers what it asks.

    Raise KeyboardInterrupt if somebody wants to end before anything was started.
    """
    with serving(bot) as engine:
        if not wait_for_bot(engine, bot, unless=wishes.any):
            raise KeyboardInterrupt
        engine.listeners.append(lambda _: wishes.news.set())
        graph = _submit(engine, wish)
        questions = Questions(engine, decide, ACTOR)
        return _Run(engine, graph, Feed(wish.labels, wish.logs), bot, wishes, questions).to_its_end(watch)


def _submit(engine: Engine, wish: Wish) -> int:
    for name, total in wish.limits.items():
        engine.set_limit(name, total, actor=ACTOR)
    made = engine.submit(placed(wish.document, Path.cwd()), actor=ACTOR)
    if isinstance(made, Refusal):
        raise Refused("; ".join([made.text, *(f"{fault.path}: {fault.message}" for fault in made.faults)]))
    return made.graph


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
        self._heeded = 0

    def to_its_end(self, watch: Watch) -> Outcome:
        while not self._look(watch).settled and not self._is_stuck():
            self._heed()
            self._questions.answer()
            if self._heeded < 2:
                self._bot.check()
            elif self._bot.is_gone:
                break  # it was killed; what it could still say has been heard
            self._wishes.news.wait(LOOK_SECONDS)
            self._wishes.news.clear()
        return self._outcome(self._look(watch))

    def _look(self, watch: Watch) -> Outline:
        with self._engine.store.read() as txn:
            seen, news = outline(txn, self._graph), self._feed.news(txn, self._graph)
        assert seen is not None, "it was submitted"
        if news:
            self._moved_at = time.monotonic()
        for progress in news:
            watch(progress)
        return seen

    def _is_stuck(self) -> bool:
        """Tell whether no bot that is here can go on; it is only asked when nothing has happened for a while."""
        if time.monotonic() < self._moved_at + STILL_SECONDS:
            return False
        self._moved_at = time.monotonic()
        with self._engine.store.read() as txn:
            return is_stuck(txn, self._graph, self._bot.name)

    def _heed(self) -> None:
        """Start nothing more and have what runs ended; asked again, killed."""
        wished = min(self._wishes.count, 2)
        if wished > 0 and self._heeded == 0:
            self._engine.cancel(Cancel(graph=self._graph, actor=ACTOR))
        if wished > 1 and self._heeded < 2:
            self._bot.kill()
        self._heeded = wished

    def _outcome(self, seen: Outline) -> Outcome:
        with self._engine.store.read() as txn:
            tasks = self._feed.outcome(txn, self._graph)
        state = GraphState.CANCELED if self._heeded else seen.state if seen.settled else GraphState.BLOCKED
        return Outcome(seen.name, state, round((time.monotonic() - self._began) * 1000), tasks)

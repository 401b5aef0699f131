"""The loop of a run: submit the graph, show what happens, answer approvals, and stop when nothing can move any more."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from taskyard.core.graph.model import EXPIRES_MS
from taskyard.core.matching import Dimensions, combinations, matches
from taskyard.core.states import ENDED, LEASED, GraphState, State
from taskyard.embedded.approvals import Decide, Questions
from taskyard.embedded.events import RunEvents
from taskyard.embedded.interrupts import Interrupts
from taskyard.embedded.local_bot import LocalBot
from taskyard.embedded.local_server import serving, wait_for_bot
from taskyard.embedded.run import RunSpec
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Cancel, Refusal
from taskyard.lifecycle.definitions import decoded
from taskyard.store.connection import Repo
from taskyard.store.rows import TaskRecord
from taskyard.views import deadlock
from taskyard.views.explain_graph import explain_graph
from taskyard.views.graphs import GraphOutline, outline
from taskyard.wire.progress import STILL_SECONDS, Observer, Outcome, Printed

#: Time between two looks at the events; a settled graph wakes the loop at once.
LOOK_SECONDS: Final = 0.05
#: When nothing has happened for so long, the loop checks whether anything still can.
STUCK_SECONDS: Final = 0.5
#: How often the reason why nothing moves is refreshed: it contains times.
HELD_SECONDS: Final = 1.0
ACTOR: Final = "run"
#: With more waiting tasks than this the check is put off until there are fewer.
LOOKED_MAX: Final = 500
#: States of tasks that rest until others move, that wait for a bot, and that may have a graph inside.
_RESTS: Final = frozenset(state.text for state in ENDED | {State.UNSCHEDULED, State.BLOCKED})
_WAITING: Final = frozenset({State.WAITING.text})
_RUNNING: Final = frozenset({State.RUNNING.text})


class Refused(Exception):
    """The engine refused the document, which the plan should have done."""


def run(spec: RunSpec, bot: LocalBot, interrupts: Interrupts, observer: Observer, decide: Decide) -> Outcome:
    """Run a graph to its end, with a bot that is starting; `decide` answers approvals.

    Raise KeyboardInterrupt if the run is interrupted before anything was started.
    """
    with serving(bot) as engine:
        if not wait_for_bot(engine, bot, unless=interrupts.any):
            raise KeyboardInterrupt
        engine.listeners.append(lambda _: interrupts.changed.set())
        graph = _submit(engine, spec)
        questions = Questions(engine, decide, ACTOR)
        return _Run(
            engine, graph, RunEvents(spec.labels, spec.logs, spec.show_output), bot, interrupts, questions
        ).to_its_end(observer)


def _submit(engine: Engine, spec: RunSpec) -> int:
    for name, total in spec.limits.items():
        engine.set_limit(name, total, actor=ACTOR)
    made = engine.submit(with_absolute_folders(spec.document, Path.cwd()), actor=ACTOR)
    if isinstance(made, Refusal):
        raise Refused("; ".join([made.text, *(f"{fault.path}: {fault.message}" for fault in made.faults)]))
    return made.graph


class _Everything:
    """The scope of the user of a run, who may see everything."""

    def graph(self, graph: int) -> bool:  # noqa: ARG002 - any
        return True

    def bots_of(self, pools: Collection[str]) -> bool:  # noqa: ARG002 - any
        return True


class _Run:
    def __init__(
        self, engine: Engine, graph: int, feed: RunEvents, bot: LocalBot, interrupts: Interrupts, questions: Questions
    ) -> None:
        self._engine = engine
        self._graph = graph
        self._feed = feed
        self._bot = bot
        self._interrupts = interrupts
        self._questions = questions
        self._began = time.monotonic()
        self._moved_at = self._began
        self._held_at = self._began + STILL_SECONDS
        self._stops = 0
        self._deadlock = ""

    def to_its_end(self, observer: Observer) -> Outcome:
        while not self._update(observer).settled and not self._is_stuck():
            self._show_held(observer)
            self._stop()
            self._questions.answer()
            if self._stops < 2:
                self._bot.check()
            elif self._bot.is_gone:
                break  # it was killed; its last reports are in
            self._interrupts.changed.wait(LOOK_SECONDS)
            self._interrupts.changed.clear()
        return self._outcome(self._update(observer))

    def _update(self, observer: Observer) -> GraphOutline:
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

    def _show_held(self, observer: Observer) -> None:
        """Show why nothing moves, when nothing has moved for a while."""
        if time.monotonic() < self._held_at:
            return
        self._held_at = time.monotonic() + HELD_SECONDS
        with self._engine.store.read() as repo:
            observer.hold(explain_graph(repo, self._graph, self._engine.clock.now(), _Everything()))

    def _is_stuck(self) -> bool:
        """Check whether nothing can go on by itself, once nothing has happened for a while."""
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

    def _stop(self) -> None:
        """Cancel the graph at the first interrupt, kill its tasks at the second."""
        asked = min(self._interrupts.count, 2)
        if asked > 0 and self._stops == 0:
            self._engine.cancel(Cancel(graph=self._graph, actor=ACTOR))
        if asked > 1 and self._stops < 2:
            self._bot.kill()
        self._stops = asked

    def _outcome(self, seen: GraphOutline) -> Outcome:
        with self._engine.store.read() as repo:
            tasks = self._feed.outcome(repo, self._graph)
        told = seen.settled or self._deadlock
        state = GraphState.CANCELED if self._stops else seen.state if told else GraphState.BLOCKED
        return Outcome(seen.name, state, round((time.monotonic() - self._began) * 1000), tasks, self._deadlock)


def is_stuck(repo: Repo, graph: int, bot: str) -> bool:
    """Check whether nothing in a graph, or in those inside it, can move with this bot alone.

    What still moves by itself is waited for: a slice that expires, a deadline.
    """
    left = {state for state, count in repo.read.counts(graph).items() if count} - _RESTS
    found = repo.bots.read([bot])
    if not left or not left <= _WAITING | _RUNNING or bot not in found:
        return False
    ids = [id for state in sorted(left) for id in repo.read.tasks(graph, -1, state, LOOKED_MAX + 1)]
    return len(ids) <= LOOKED_MAX and all(
        _is_stuck_inside(repo, task, bot)
        if task.state in LEASED
        else _is_beyond(repo, task, found[bot].facts.dimensions)
        for task in repo.tasks.read(ids)
    )


def _is_stuck_inside(repo: Repo, task: TaskRecord, bot: str) -> bool:
    """Check whether a running task is a graph in which nothing can move and which has no time limit."""
    inner = repo.graphs.subgraphs([task.id]).get((task.id, task.life.attempt))
    return inner is not None and task.due_ms is None and is_stuck(repo, inner, bot)


def _is_beyond(repo: Repo, task: TaskRecord, has: Dimensions) -> bool:
    """Check whether a task needs another bot, now and later."""
    rules, place = task.rules, task.life.slice_index
    if rules.deadline_ms is not None or rules.slices[place].expires_ms < EXPIRES_MS or place + 1 < len(rules.slices):
        return False
    wanted = decoded(repo.tasks.definitions([task.id])[task.id][1]).slices[place].dimensions
    return not any(matches(one, has) for one in combinations(wanted))


def with_absolute_folders(document: Mapping[str, Any], here: Path) -> dict[str, Any]:
    """Return a copy of a document whose folders are absolute: the bot runs in another folder."""
    return {**document, "tasks": {label: _node(node, here) for label, node in document["tasks"].items()}}


def _node(node: Any, here: Path) -> Any:
    return {**node, "task": _task(node["task"], here)} if _has(node, "task") else node


def _task(task: Any, here: Path) -> Any:
    changed = _slice(task, here)
    if _has(changed, "slices") and isinstance(changed["slices"], list):
        changed = {**changed, "slices": [_slice(one, here) for one in changed["slices"]]}
    return changed


def _slice(one: Any, here: Path) -> Any:
    """Make the folders in the payload of a task or a slice absolute."""
    if not _has(one, "payload") or not isinstance(one["payload"], dict):
        return one
    payload = dict(one["payload"])
    if isinstance(payload.get("cwd"), str):
        payload["cwd"] = str(here / payload["cwd"])
    if _has(payload.get("graph"), "tasks"):
        payload["graph"] = with_absolute_folders(payload["graph"], here)
    return {**one, "payload": payload}


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value

"""The loop of a run: submit the graph, read what happens, answer approvals, and end when nothing can move any more."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from taskyard.core.graph.model import EXPIRES_MS
from taskyard.core.ids import key_of
from taskyard.core.matching import Dimensions, combinations, matches
from taskyard.core.states import ENDED, LEASED, GraphState, State
from taskyard.embedded.events import RunEvents
from taskyard.embedded.interrupts import Interrupts
from taskyard.embedded.local_bot import LocalBot
from taskyard.embedded.local_server import serving, wait_for_bot
from taskyard.embedded.run import RunSpec
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Approve, Cancel, Refusal
from taskyard.lifecycle.definitions import decoded
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST
from taskyard.store.rows import TaskRecord
from taskyard.views import deadlock, graphs
from taskyard.views.approvals import approvals
from taskyard.views.explain_graph import explain_graph
from taskyard.wire.api import GraphView
from taskyard.wire.explain import WhyGraphView
from taskyard.wire.progress import Decide, Outcome, Printed, Progress, Question, RunningTask

if TYPE_CHECKING:
    from taskyard.sdk.local_inputs import LocalTree
    from taskyard.server.file_store import ServerFiles

#: Time between two looks at the events; a settled graph wakes the loop at once.
LOOK_SECONDS: Final = 0.05
#: When nothing has happened for so long, the loop checks whether anything still can happen.
STUCK_SECONDS: Final = 0.5
#: The tasks are counted at most this often, and with a pause of this many times what the last count took.
COUNT_SECONDS: Final = 0.1
COUNT_PAUSE: Final = 20
ACTOR: Final = "run"
#: What is kept of a label that is too long for the name of a folder, before a digest of it.
LABEL_PART: Final = 200
#: With more active tasks than this the check is put off until there are fewer.
LOOKED_MAX: Final = 500
#: States of tasks that move only after others, that wait for a bot, and that may have a graph inside.
_RESTS: Final = frozenset(state.text for state in ENDED | {State.UNSCHEDULED, State.BLOCKED})
_WAITING: Final = frozenset({State.WAITING.text})
_RUNNING: Final = frozenset({State.RUNNING.text})


class Refused(Exception):
    """The engine refused a document that was validated before."""


@contextmanager
def started_on(bot: LocalBot, spec: RunSpec, interrupts: Interrupts, decide: Decide) -> "Iterator[LocalRun]":
    """Start a graph on a bot that is starting; raise KeyboardInterrupt if the run is interrupted before that."""
    with serving(bot) as engine:
        if not wait_for_bot(engine, bot, unless=interrupts.any):
            raise KeyboardInterrupt
        engine.listeners.graphs.append(lambda _: interrupts.changed.set())
        yield LocalRun(engine, bot, spec, interrupts, decide)


def _submit(engine: Engine, spec: RunSpec) -> int:
    for name, total in spec.limits.items():
        engine.set_limit(name, total, actor=ACTOR)
    if spec.trees:
        _store_trees(engine, spec.document, spec.trees)
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


class LocalRun:
    """A graph that runs on a server and a bot of its own; it goes on while its looks are read."""

    #: The server is in this process.
    transient_errors: tuple[type[Exception], ...] = ()

    def __init__(self, engine: Engine, bot: LocalBot, spec: RunSpec, interrupts: Interrupts, decide: Decide) -> None:
        self._engine = engine
        self._graph = _submit(engine, spec)
        self._bot = bot
        self._name = spec.name
        self._labels = spec.labels
        self._interrupts = interrupts
        self._decide = decide
        self._events = RunEvents(self._graph, spec.labels, spec.logs, spec.show_output)
        self._news: list[Progress | Printed] = []
        self._running: list[RunningTask] = []
        self._counts: tuple[dict[str, int], int] = {}, 0
        self._count_at = 0.0
        self._began = self._moved_at = time.monotonic()
        self._stops = 0
        self._state = ""
        self._deadlock = ""

    def looks(self) -> Iterator[GraphView]:
        """Yield the graph at each look, and carry it on in between, until nothing in it can move."""
        while True:
            is_killed = self._stops > 1 and self._bot.is_gone  # its last reports are in
            seen = self._look()
            yield seen
            if seen.settled or is_killed or self._is_stuck():
                break
            self._stop()
            self._answer_approval()
            if self._stops < 2:
                self._bot.check()
            self._interrupts.changed.wait(LOOK_SECONDS)
            self._interrupts.changed.clear()
        ended = seen.settled or self._deadlock
        self._state = GraphState.CANCELED if self._stops else seen.state if ended else GraphState.BLOCKED

    def news(self, seen: GraphView) -> list[Progress | Printed]:  # noqa: ARG002 - it is the last one
        return self._news

    def running(self, seen: GraphView) -> list[RunningTask]:  # noqa: ARG002 - it is the last one
        return self._running

    def why(self) -> WhyGraphView:
        with self._engine.store.read() as repo:
            found = explain_graph(repo, self._graph, self._engine.clock.now(), _Everything())
        assert found is not None, "it was submitted"
        return found

    def outcome(self) -> Outcome:
        with self._engine.store.read() as repo:
            tasks = self._events.outcome(repo)
        elapsed_ms = round((time.monotonic() - self._began) * 1000)
        return Outcome(self._name, GraphState(self._state), elapsed_ms, tasks, self._deadlock)

    def write_outputs(self, folder: Path) -> None:
        """Write the output files of each task into a folder of its own."""
        _write_outputs(self._engine, self._graph, self._labels, folder)

    def _look(self) -> GraphView:
        with self._engine.store.read() as repo:
            seen, self._news = graphs.brief(repo, self._graph), self._events.news(repo)
            self._count(repo)
        assert seen is not None, "it was submitted"
        if self._news:
            self._moved_at = time.monotonic()
        counts, assigned = self._counts
        return replace(seen, counts=counts, assigned=assigned)

    def _count(self, repo: Repo) -> None:
        """Count the tasks and find those that run; not at every look, because that takes long in a large graph."""
        began = time.monotonic()
        if began < self._count_at:
            return
        self._counts = repo.read.counts_with_assigned(self._graph)
        self._running = self._events.running(repo)
        ended = time.monotonic()
        self._count_at = ended + max(COUNT_SECONDS, COUNT_PAUSE * (ended - began))

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

    def _answer_approval(self) -> None:
        """Answer the first pending approval of the graph or the graphs inside it, if there is an answer."""
        with self._engine.store.read() as repo:
            found, _ = approvals(repo, None, FIRST, 1)
        approved = self._decide(Question(found[0].task, found[0].label, found[0].message) if found else None)
        if found and approved is not None:
            self._engine.approve(Approve(key_of(found[0].task), approved, actor=ACTOR))

    def _stop(self) -> None:
        """Cancel the graph at the first interrupt, kill its tasks at the second."""
        asked = min(self._interrupts.count, 2)
        if asked > 0 and self._stops == 0:
            self._engine.cancel(Cancel(graph=self._graph, actor=ACTOR))
        if asked > 1 and self._stops < 2:
            self._bot.kill()
        self._stops = asked


def is_stuck(repo: Repo, graph: int, bot: str) -> bool:
    """Check whether nothing in a graph, or in those inside it, can move with this bot alone.

    A slice that expires and a deadline are moves, too.
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
    """Check whether this bot can never run a task."""
    rules, place = task.rules, task.life.slice_index
    if rules.deadline_ms is not None or rules.slices[place].expires_ms < EXPIRES_MS or place + 1 < len(rules.slices):
        return False
    wanted = decoded(repo.tasks.definitions([task.id])[task.id][1]).slices[place].dimensions
    return not any(matches(one, has) for one in combinations(wanted))


def with_absolute_folders(document: Any, here: Path) -> Any:
    """Return a copy of a document whose folders are absolute: the bot runs in another folder."""

    def payload(one: Any) -> Any:
        # Beside files, a relative folder is inside the new one, where the files are.
        if isinstance(one, dict) and not (one.get("inputs") or one.get("outputs")):
            one = _changed(one, "cwd", lambda cwd: str(here / cwd) if isinstance(cwd, str) else cwd)
        return _changed(one, "graph", lambda inner: with_absolute_folders(inner, here))

    def task(one: Any) -> Any:
        one = _changed(one, "payload", payload)
        return _changed(one, "slices", lambda slices: [_changed(each, "payload", payload) for each in slices])

    return _changed(
        document, "tasks", lambda tasks: {label: _changed(node, "task", task) for label, node in tasks.items()}
    )


def _changed(whole: Any, key: str, change: Callable[[Any], Any]) -> Any:
    """Return a copy of an object with one value changed, if it has that value."""
    return {**whole, key: change(whole[key])} if isinstance(whole, dict) and whole.get(key) is not None else whole


# Files: what the document names on this machine goes to the server of the run, what tasks left comes back.


def _store_trees(engine: Engine, document: Mapping[str, Any], trees: "Sequence[LocalTree]") -> None:
    """Store the trees that a document names, for each pool that needs them."""
    from taskyard.core.graph.parse import trees_named  # noqa: PLC0415 - most runs have no files
    from taskyard.engine import submit  # noqa: PLC0415
    from taskyard.files import store as files  # noqa: PLC0415
    from taskyard.files.collect import read_part  # noqa: PLC0415
    from taskyard.files.place import batches  # noqa: PLC0415

    graph = submit.read(document, None, engine.scheduler_id).graph
    assert graph is not None, "the document was validated"
    kept, by_digest = _files(engine), {one.digest: one for one in trees}
    for pool, digest in {one[1:] for one in trees_named(graph.tasks.values())}:
        found = by_digest.get(digest)
        if found is None:
            continue
        where = {chunk: (one.path, start, size) for one in found.tree.files for chunk, start, size in one.parts()}
        for batch in batches(found.tree.chunks()):
            kept.store.put(files.blobs(pool), {chunk: read_part(found.root, *where[chunk]) for chunk in batch})
        kept.add_tree(pool, found.tree)


def _write_outputs(engine: Engine, graph: int, labels: Sequence[str], folder: Path) -> None:
    """Write the output files of each task into a folder of its own."""
    from taskyard.files import store as files  # noqa: PLC0415
    from taskyard.files.place import place  # noqa: PLC0415

    kept = _files(engine)
    with engine.store.read() as repo:
        known = repo.tasks.with_labels(graph, labels)
        tasks = {task.id: task.life.attempt for task in repo.tasks.read(list(known.values()))}
        left = {label: repo.files.outputs(id).get(tasks[id]) for label, id in known.items()}
    for label, row in left.items():
        if row is None:
            continue
        space, tree = files.blobs(row.pool), kept.tree(row.pool, row.tree)

        def fetch(chunks: Sequence[str], space: files.Space = space) -> dict[str, bytes]:
            return {chunk: body for chunk in chunks if (body := kept.store.get(space, chunk)) is not None}

        place(tree, str(folder / _folder_name(label)), fetch, fresh=False)


def _folder_name(label: str) -> str:
    """Make a name of a label that is one name on every machine."""
    from taskyard.files.digests import NAME_BYTES_MAX, sha256  # noqa: PLC0415

    name = quote(label, safe="[],=+@ ")
    if len(name) > NAME_BYTES_MAX:
        name = f"{name[:LABEL_PART]}~{sha256(label.encode())[:16]}"
    return name.replace(".", "%2E") if not name.strip(".") else name


def _files(engine: Engine) -> "ServerFiles":
    from taskyard.server.file_store import ServerFiles  # noqa: PLC0415

    return ServerFiles("", engine.store.url)

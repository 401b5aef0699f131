"""Bearing the graphs inside tasks: whatever waits to begin is read, checked again and stored like any other graph.

The transaction that shows the graph begins its task, so whoever comes second, here or at another server, comes too
late. A large graph is stored by a thread of its own, one at a time: the ticker has others to see to. What could not be
born now is set aside until the next sweep.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from taskyard.core.graph.payload import patience_ms
from taskyard.core.ids import Key, text_of
from taskyard.core.states import Kind
from taskyard.engine.bulk_load import Transact
from taskyard.engine.errors import Trouble, outages
from taskyard.engine.failpoints import Boundary
from taskyard.engine.submit import GraphSubmission
from taskyard.lifecycle import subgraph
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.subgraph import ParentAttempt
from taskyard.lifecycle.submit import Submitted
from taskyard.store.connection import Store
from taskyard.store.queries import DuplicateKey

#: How many are born, a transaction each, before the other chores have a turn.
STARTED_MAX: Final = 20
#: From how many characters on a definition is stored by a thread of its own: some hundred tasks.
LARGE_CHARS: Final = 20_000
_GRAPHS: Final = (Kind.GRAPH.text,)

_LOG = logging.getLogger(__name__)


class SubgraphStarter:
    """Begins the tasks of one engine that have a graph inside."""

    def __init__(self, submission: GraphSubmission, store: Store, transact: Transact) -> None:
        self._submission = submission
        self._store = store
        self._transact = transact
        self._set_aside: set[int] = set()
        self._loading: set[int] = set()
        self._loader: ThreadPoolExecutor | None = None

    def next(self) -> bool:
        """Begin some; say whether there were any, so that there may be more."""
        found = self._waiting()
        for task, (attempt, text, submitter) in found.items():
            if len(text) < LARGE_CHARS:
                self._start(task, attempt, text, submitter)
            else:
                self._load(task, attempt, text, submitter)
        return bool(found)

    def retry_set_aside(self) -> None:
        """Look again at what was set aside."""
        self._set_aside.clear()

    def stop(self) -> None:
        """Begin nothing more. Whoever is still loading ends with the writer."""
        if self._loader is not None:
            self._loader.shutdown(wait=False, cancel_futures=True)

    def _waiting(self) -> Mapping[int, tuple[int, str, str]]:
        """Find what waits to begin and is in nobody's hands here: the attempt, the definition and the submitter."""
        ours = self._set_aside | self._loading
        with outages(), self._store.read() as repo:
            ids = [
                id
                for id in repo.tasks.waiting_of_kinds(SERVER_QUEUE, _GRAPHS, STARTED_MAX + len(ours))
                if id not in ours
            ]
            tasks, texts = repo.tasks.read(ids[:STARTED_MAX]), repo.tasks.owned_definitions(ids[:STARTED_MAX])
        return {task.id: (task.life.attempt + 1, *texts[task.id][1:]) for task in tasks}

    def _load(self, task: int, attempt: int, text: str, submitter: str) -> None:
        self._loader = self._loader or ThreadPoolExecutor(1, "taskyard-inner")
        self._loading.add(task)
        loaded = self._loader.submit(self._start, task, attempt, text, submitter)
        loaded.add_done_callback(lambda _: self._loading.discard(task))

    def _start(self, task: int, attempt: int, text: str, submitter: str) -> None:
        """Begin one; whatever goes wrong with it keeps nobody else waiting."""
        try:
            payload = decoded(text).slices[0].payload
            inside = ParentAttempt(task, attempt, patience_ms(payload), submitter)
            answer = self._submission.submit_subgraph(payload[Kind.GRAPH], inside)
            if isinstance(answer, Refusal) and answer.code is Code.INVALID:
                self._transact(lambda transaction: subgraph.fail_attempt(transaction, inside, answer), Boundary.OWN)
            elif not isinstance(answer, Submitted):
                self._set_aside.add(task)
        except (Trouble, DuplicateKey) as trouble:
            self._set_task_aside(task, trouble)
        except Exception as fault:  # noqa: BLE001 - a bug, and this one's only
            _LOG.exception("the graph inside a task cannot be stored")
            self._set_task_aside(task, fault)

    def _set_task_aside(self, task: int, fault: Exception) -> None:
        self._set_aside.add(task)
        _LOG.warning("the graph inside task %s is left for the next sweep: %s", text_of(Key(task)), fault)

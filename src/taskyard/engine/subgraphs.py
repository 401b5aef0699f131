"""Start tasks with a graph inside: validate and store that graph like any other.

The transaction that shows the inner graph also starts its task, so a second attempt, here or at another server, changes
nothing. A thread of its own stores large graphs, one at a time, so that the other background jobs go on. A task whose
graph cannot be stored now is set aside until the next sweep.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from taskyard.core.graph.payload import patience_ms
from taskyard.core.ids import Key, text_of
from taskyard.core.states import Kind
from taskyard.engine.bulk_load import Transact
from taskyard.engine.errors import EngineError, outages
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

#: How many tasks are started, a transaction each, before the other jobs have a turn.
STARTED_MAX: Final = 20
#: Definitions of at least this many characters, some hundred tasks, are stored by a thread of its own.
LARGE_CHARS: Final = 20_000
_GRAPHS: Final = (Kind.GRAPH.text,)

_LOG = logging.getLogger(__name__)


class SubgraphStarter:
    """Starts the tasks that have a graph inside."""

    def __init__(self, submission: GraphSubmission, store: Store, transact: Transact) -> None:
        self._submission = submission
        self._store = store
        self._transact = transact
        self._set_aside: set[int] = set()
        self._loading: set[int] = set()
        self._loader: ThreadPoolExecutor | None = None

    def next(self) -> bool:
        """Start some tasks; return whether there were any, so that there may be more."""
        found = self._waiting()
        for task, (attempt, text, submitter) in found.items():
            if len(text) < LARGE_CHARS:
                self._start(task, attempt, text, submitter)
            else:
                self._load(task, attempt, text, submitter)
        return bool(found)

    def retry_set_aside(self) -> None:
        """Retry the tasks that were set aside."""
        self._set_aside.clear()

    def stop(self) -> None:
        """Start nothing more. A load that is under way ends with the writer."""
        if self._loader is not None:
            self._loader.shutdown(wait=False, cancel_futures=True)

    def _waiting(self) -> Mapping[int, tuple[int, str, str]]:
        """Find the tasks that wait to start and are not loading here: attempt, definition and submitter of each."""
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
        """Start one task; an error with it delays no other."""
        try:
            payload = decoded(text).slices[0].payload
            inside = ParentAttempt(task, attempt, patience_ms(payload), submitter)
            answer = self._submission.submit_subgraph(payload[Kind.GRAPH], inside)
            if isinstance(answer, Refusal) and answer.code is Code.INVALID:
                self._transact(lambda transaction: subgraph.fail_attempt(transaction, inside, answer), Boundary.OWN)
            elif not isinstance(answer, Submitted):
                self._set_aside.add(task)
        except (EngineError, DuplicateKey) as trouble:
            self._set_task_aside(task, trouble)
        except Exception as fault:  # noqa: BLE001 - a bug with this one must not stop the others
            _LOG.exception("the graph inside a task cannot be stored")
            self._set_task_aside(task, fault)

    def _set_task_aside(self, task: int, fault: Exception) -> None:
        self._set_aside.add(task)
        _LOG.warning("the graph inside task %s is left for the next sweep: %s", text_of(Key(task)), fault)

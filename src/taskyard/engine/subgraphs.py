"""Start tasks with a graph inside: validate and store that graph like any other.

The transaction that shows the inner graph also starts its task, so a second attempt, here or at another server, changes
nothing. A thread of its own stores large graphs, one at a time, so that the other background jobs go on. A task whose
graph cannot be stored now is set aside until the next sweep.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from taskyard.core.graph.model import Payload
from taskyard.core.graph.payload import GRAPH_KINDS, patience_ms
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.states import Kind
from taskyard.core.structs import struct_replace
from taskyard.engine.bulk_load import Transact
from taskyard.engine.errors import EngineError, outages
from taskyard.engine.failpoints import Boundary
from taskyard.engine.launch import Launcher
from taskyard.engine.rerun_graph import GraphRerun
from taskyard.engine.submit import GraphSubmission
from taskyard.lifecycle import subgraph
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.launch import LaunchStored
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.subgraph import ParentAttempt
from taskyard.lifecycle.submit import Submitted
from taskyard.lifecycle.workflow import read_variables
from taskyard.store.connection import Store
from taskyard.store.queries import DuplicateKey

#: The refusals that an attempt cannot mend by trying again.
_FAILS: Final = frozenset({Code.INVALID, Code.NOT_FOUND})
#: How many tasks are started, a transaction each, before the other jobs have a turn.
STARTED_MAX: Final = 20
#: Definitions of at least this many characters, some hundred tasks, are stored by a thread of its own.
LARGE_CHARS: Final = 20_000
_GRAPHS: Final = tuple(sorted(kind.text for kind in GRAPH_KINDS))

_LOG = logging.getLogger(__name__)


class SubgraphStarter:
    """Starts the tasks that have a graph inside."""

    def __init__(
        self,
        submission: GraphSubmission,
        rerun: GraphRerun,
        launcher: Launcher,
        store: Store,
        transact: Transact,
    ) -> None:
        self._submission = submission
        self._rerun = rerun
        self._launcher = launcher
        self._store = store
        self._transact = transact
        self._set_aside: set[int] = set()
        self._loading: set[int] = set()
        self._loader: ThreadPoolExecutor | None = None

    def next(self) -> bool:
        """Start some tasks; return whether there were any, so that there may be more."""
        found = self._waiting()
        for text, inside in found.values():
            if len(text) < LARGE_CHARS:
                self._start(text, inside)
            else:
                self._load(text, inside)
        return bool(found)

    def retry_set_aside(self) -> None:
        """Retry the tasks that were set aside."""
        self._set_aside.clear()

    def stop(self) -> None:
        """Start nothing more. A load that is under way ends with the writer."""
        if self._loader is not None:
            self._loader.shutdown(wait=False, cancel_futures=True)

    def _waiting(self) -> Mapping[int, tuple[str, ParentAttempt]]:
        """Find the tasks that wait to start and are not loading here: the definition and the next attempt of each."""
        ours = self._set_aside | self._loading
        with outages(), self._store.read() as repo:
            ids = [
                id
                for id in repo.tasks.waiting_of_kinds(SERVER_QUEUE, _GRAPHS, STARTED_MAX + len(ours))
                if id not in ours
            ][:STARTED_MAX]
            tasks, texts, owners = repo.tasks.read(ids), repo.tasks.definitions(ids), repo.task_list.owners(ids)
        return {
            task.id: (texts[task.id][1], ParentAttempt(task.id, task.life.attempt + 1, None, *owners[task.id]))
            for task in tasks
        }

    def _load(self, text: str, inside: ParentAttempt) -> None:
        self._loader = self._loader or ThreadPoolExecutor(1, "taskyard-inner")
        self._loading.add(inside.task)
        loaded = self._loader.submit(self._start, text, inside)
        loaded.add_done_callback(lambda _: self._loading.discard(inside.task))

    def _start(self, text: str, inside: ParentAttempt) -> None:
        """Start one task; an error with it delays no other."""
        task = inside.task
        try:
            payload = decoded(text).slices[0].payload
            inside = struct_replace(inside, timeout_ms=patience_ms(payload))
            answer = self._store_graph(payload, inside)
            if isinstance(answer, Refusal) and answer.code in _FAILS:
                self._transact(lambda transaction: subgraph.fail_attempt(transaction, inside, answer), Boundary.OWN)
            elif not isinstance(answer, Submitted | LaunchStored):
                self._set_aside.add(task)
        except (EngineError, DuplicateKey) as trouble:
            self._set_task_aside(task, trouble)
        except Exception as fault:  # noqa: BLE001 - a bug with this one must not stop the others
            _LOG.exception("the graph inside a task cannot be stored")
            self._set_task_aside(task, fault)

    def _store_graph(self, payload: Payload, inside: ParentAttempt) -> Submitted | LaunchStored | Refusal | None:
        """Store the graph of an attempt; None if this must be tried again."""
        launch = payload.get(Kind.LAUNCH)
        if isinstance(launch, dict):
            with outages(), self._store.read() as repo:
                variables = read_variables(repo, inside.task, launch)
            return self._launcher.launch_node(launch, variables, inside)
        pools = frozenset(payload.get(subgraph.POOLS, ()))  # type: ignore[call-overload]
        if subgraph.RESUME in payload:
            return self._rerun.resume(key_of(str(payload[subgraph.RESUME])), inside, pools)
        return self._submission.submit_subgraph(payload[Kind.GRAPH], inside, pools)

    def _set_task_aside(self, task: int, fault: Exception) -> None:
        self._set_aside.add(task)
        _LOG.warning("the graph inside task %s is left for the next sweep: %s", text_of(Key(task)), fault)

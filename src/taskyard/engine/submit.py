"""Submit graphs: validate a document, make the keys, and store it in one transaction or in pages."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from threading import Lock
from typing import Final

import msgspec

from taskyard.core import ids
from taskyard.core.graph.errors import Fault
from taskyard.core.graph.model import NOTHING, Existing, GraphDefinition, Slice, Task
from taskyard.core.graph.parse import Validation, pools_named, trees_named, validate
from taskyard.core.graph.payload import HAS_SECRET_BYTES
from taskyard.core.graph.scalars import SUBS
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import DEFAULT_POOL
from taskyard.core.states import Millis
from taskyard.core.structs import struct_replace
from taskyard.engine.bulk_load import Pages
from taskyard.engine.clock import Clock
from taskyard.engine.errors import Unavailable
from taskyard.engine.secrets import RequestBytes
from taskyard.engine.writer import WriterThread, answer_of
from taskyard.lifecycle.children import ChildOf
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.lifecycle.idempotency import KeyedSubmission, Submitter, answer_to, digest_under_key
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.subgraph import ParentAttempt
from taskyard.lifecycle.submit import PAGE_MAX, NewGraph, Submitted, refuse_unmet
from taskyard.store.connection import Repo, Store
from taskyard.store.queries import DuplicateKey

# Keys of new graphs and tasks. A generator never makes one twice; other engines have generators of their own.


@dataclass(frozen=True, slots=True)
class NewKeys:
    """The keys of a new graph and its tasks, and the moment of their creation, which no other graph shares."""

    graph: Key
    tasks: list[Key]  # in the order in which they shall sort
    created_ms: Millis


class KeyGenerator:
    """Makes the keys of new graphs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._newest: Key | None = None

    def generate(self, tasks: int) -> NewKeys:
        """Make the keys of a graph and of so many tasks."""
        with self._lock:
            created = self._clock.tick()
            chance = self._clock.chance()
            graph = ids.mint(created, 1, chance, self._newest)[0]
            keys = ids.mint(created, tasks, chance, graph)
            self._newest = keys[0] if keys else graph
            return NewKeys(graph, keys, created)


# From a document to rows, or to its faults. This runs on the caller's thread and does not use the store.


#: Stands for an id that is not known yet and has the same length.
_SOME_ID: Final = "0" * ids.KEY_DIGITS
_SUBS: Final = f'"{SUBS}"'.encode()


def body_of(document: object) -> bytes:
    """Encode a valid document, the same for every order of its keys."""
    return msgspec.json.encode(document, order="sorted")


def digest_of(body: bytes, child_of: ChildOf | None = None, of_request: RequestBytes | None = None) -> str:
    """Return the digest of a body, of the task with which its graph ends, and of secret bytes by a keyed hash."""
    if child_of is not None:
        body += f" child of {text_of(Key(child_of.task))}".encode()
    if of_request is not None:
        body += f" with {of_request.digest}".encode()
    return hashlib.sha256(body).hexdigest()


def key_of(text: str | None) -> Key | Refusal | None:
    """Parse an id that the caller has chosen."""
    try:
        return None if text is None else ids.key_of(text)
    except ValueError as fault:
        return Refusal(Code.INVALID, "the id is malformed", (Fault("graph_id", str(fault)),))


def read(
    document: object,
    now: Millis | None,
    scheduler_id: str,
    graph: Key | None = None,
    existing: Existing = NOTHING,
    launched: bool = False,
) -> Validation:
    """Validate a document; `launched`: the server made it."""
    graph_id = _SOME_ID if graph is None else ids.text_of(graph)
    return validate(
        document, scheduler_id=scheduler_id, graph_id=graph_id, existing=existing, now=now, launched=launched
    )


def refusal(validation: Validation) -> Refusal:
    """Return the refusal of a document that is invalid, or that would redefine existing tasks."""
    count = len(validation.faults)
    code = Code.CONFLICT if validation.redefines else Code.INVALID
    return Refusal(code, f"the document has {count} fault{'s' * (count > 1)}", validation.faults)


def new_tasks_of(
    graph: GraphDefinition, body: bytes, minted: NewKeys, id: Key, known: Mapping[str, int], sender: Submitter
) -> NewTasks:
    """Give the tasks of a graph their ids; `known` has the ids of the labels that exist already."""
    ids = {**known, **{label: int(key) for label, key in zip(graph.tasks, minted.tasks, strict=True)}}
    return NewTasks(
        id,
        _in_order(list(graph.tasks.values())),
        ids,
        minted.created_ms,
        substitutes=_SUBS in body,
        submitter=sender.submitter,
        user=sender.user,
    )


def with_secret_bytes(new_tasks: NewTasks, of_request: RequestBytes) -> NewTasks:
    """Give new tasks the secret bytes of their request, and have them say so: no document can."""
    tasks = [struct_replace(task, slices=tuple(map(_with_flag, task.slices))) for task in new_tasks.tasks]
    return replace(new_tasks, tasks=tasks, secret_bytes=of_request.row)


def _with_flag(one: Slice) -> Slice:
    return struct_replace(one, payload={**one.payload, HAS_SECRET_BYTES: True})


def definition_of(graph: GraphDefinition, scheduler_id: str, digest: str) -> tuple[str, str, str, str, str, str]:
    """Return what is stored of a graph beside its tasks."""
    tags = msgspec.json.encode(graph.tags).decode()
    return (scheduler_id, graph.name, graph.routing, graph.description, tags, digest)


def gc_paused_for(document: object) -> AbstractContextManager[None]:
    """Pause the garbage collector while a large document is stored."""
    tasks = document.get("tasks") if isinstance(document, dict) else None
    return gc_paused() if isinstance(tasks, dict) and len(tasks) > PAGE_MAX else nullcontext()


def _in_order(tasks: list[Task]) -> list[Task]:
    """Order tasks by their requirements: a page may only name tasks that are stored already."""
    named = {task.label: task for task in tasks}
    before: set[str] = set()
    for task in tasks:
        if any(edge.task in named and edge.task not in before for edge in task.requires):
            break
        before.add(task.label)
    else:
        return tasks  # most documents are in order
    requires = {task.label: [edge.task for edge in task.requires if edge.task in named] for task in tasks}
    return [named[label] for label in TopologicalSorter(requires).static_order()]


#: How often new keys are made, or a load that another loader took over is begun again.
TRIES_MAX: Final = 5


#: The pools of a graph in which nothing names one.
_UNNAMED: Final = frozenset({DEFAULT_POOL})


class GraphSubmission:
    """Stores new graphs."""

    def __init__(
        self,
        writer_thread: WriterThread,
        store: Store,
        clock: Clock,
        keys: KeyGenerator,
        pages: Pages,
        scheduler_id: str,
    ) -> None:
        self._writer_thread = writer_thread
        self._store = store
        self._clock = clock
        self._keys = keys
        self._pages = pages
        self._scheduler_id = scheduler_id

    def submit(
        self,
        document: object,
        graph_id: str | None,
        key: str,
        sender: Submitter,
        child_of: ChildOf | None = None,
        of_request: RequestBytes | None = None,
    ) -> Submitted | Refusal:
        """Store the graph of a document; its tasks get the secret bytes of the request, if there are any."""
        id = key_of(graph_id)
        if isinstance(id, Refusal):
            return id
        validation = read(document, self._clock.now(), self._scheduler_id, id)
        if validation.graph is None:
            return self._repeat(document, id, key, sender, (child_of, of_request)) or refusal(validation)
        graph, body = validation.graph, body_of(document)
        if missing := refuse_missing_trees(graph, sender):
            return missing

        def make() -> KeyedSubmission:
            named = self._named(graph, body, id, key, sender, child_of=child_of, of_request=of_request)
            sender.check(named.submission.new_tasks.pools or _UNNAMED, graph.tasks.values())
            return named

        return self.store(make, is_chosen=id is not None)

    async def submit_small(
        self, document: object, key: str, sender: Submitter, child_of: ChildOf | None
    ) -> Submitted | Refusal | None:
        """Store the graph of a small document from an event loop; None if `submit` has to do it, which may read."""
        graph = read(document, self._clock.now(), self._scheduler_id).graph
        if graph is None or trees_named(graph.tasks.values()):
            return None
        named = self._named(graph, body_of(document), None, key, sender, child_of=child_of)
        sender.check(named.submission.new_tasks.pools or _UNNAMED, graph.tasks.values())
        if named.submission.new_tasks.weight > PAGE_MAX:
            return None
        try:
            answer: Submitted | Refusal = await asyncio.wrap_future(self._writer_thread.put(named))
        except DuplicateKey:
            return None
        if isinstance(answer, Refusal) and answer.code in {Code.CONFLICT, Code.LOADING}:
            return None
        return _with_names(answer, named)

    def store(self, make: Callable[[], KeyedSubmission], *, is_chosen: bool = False) -> Submitted | Refusal:
        """Store what `make` makes; if one of its keys is in use, make it again with other keys.

        An id that the caller has chosen stays, so the graph that has it is the answer.
        """
        answer: Submitted | Refusal | None = None
        for _ in range(TRIES_MAX):
            named = make()
            try:
                answer = self._try(named)
            except DuplicateKey:
                continue
            if answer is not None and (is_chosen or not _is_conflict(answer)):
                return _with_names(answer, named)
        if answer is None:
            raise Unavailable(f"the graph could not be stored in {TRIES_MAX} tries")
        return answer  # the idempotency key is in use, not the generated id

    def submit_subgraph(
        self, document: object, inside: ParentAttempt, other_pools: frozenset[str] = frozenset()
    ) -> Submitted | Refusal | None:
        """Store the graph inside a task and start that task; None if this must be tried again.

        Tasks of it may launch templates that run in `other_pools`.
        """
        validation = read(document, self._clock.now(), self._scheduler_id, launched=True)
        if validation.graph is None:
            return refusal(validation)
        sender = Submitter(f"task {text_of(Key(inside.task))}-{inside.attempt}", inside.submitter, user=inside.user)
        with gc_paused_for(document):
            named = self._named(validation.graph, body_of(document), None, "", sender, inside)
            new_tasks = replace(named.submission.new_tasks, other_pools=other_pools)
            return self.store_inside(replace(named, submission=replace(named.submission, new_tasks=new_tasks)))

    def store_inside(self, named: KeyedSubmission) -> Submitted | Refusal | None:
        """Store a graph inside a task and start that task; None if this must be tried again."""
        return self._try(named)

    def _try(self, named: KeyedSubmission) -> Submitted | Refusal | None:
        """Store it; None if this must be tried again."""
        if named.submission.new_tasks.weight > PAGE_MAX:
            answer = self._pages.load(named)
        else:
            answer = answer_of(self._writer_thread.put(named))
        if not isinstance(answer, Refusal) or answer.code is not Code.LOADING:
            return answer
        return None if self._pages.drop_if_stale(named.submission.new_tasks.graph_id) else answer

    def _named(  # noqa: PLR0913, PLR0917 - the last two exclude each other
        self,
        graph: GraphDefinition,
        body: bytes,
        id: Key | None,
        key: str,
        sender: Submitter,
        inside: ParentAttempt | None = None,
        child_of: ChildOf | None = None,
        of_request: RequestBytes | None = None,
    ) -> KeyedSubmission:
        minted = self._keys.generate(len(graph.tasks))
        new_tasks = new_tasks_of(graph, body, minted, minted.graph if id is None else id, {}, sender)
        if of_request is not None:
            new_tasks = with_secret_bytes(new_tasks, of_request)
        definition = definition_of(graph, self._scheduler_id, digest_of(body, child_of, of_request))
        submission = NewGraph(graph, new_tasks, definition, self._clock.word(), sender.actor, inside, child_of=child_of)
        return KeyedSubmission(submission, key, chosen=id is not None)

    def _repeat(
        self,
        document: object,
        id: Key | None,
        key: str,
        sender: Submitter,
        beside: tuple[ChildOf | None, RequestBytes | None],
    ) -> Submitted | None:
        """Find a graph that was submitted in time and is submitted again after its deadline."""
        if id is None and not key:
            return None
        graph = read(document, None, self._scheduler_id, id).graph
        if graph is None:
            return None
        sender.may(pools_of(graph))
        digest = digest_of(body_of(document), *beside)
        with self._store.read() as repo:
            if id is None:
                answer = answer_to(repo, key, digest_under_key(digest))
                return answer if isinstance(answer, Submitted) else None
            graphs, definition = repo.graphs.peek([id]), repo.graphs.definition(id)
        is_whole = bool(graphs) and graphs[0].loader is None
        return Submitted(id, echo=True) if is_whole and definition and definition[5] == digest else None


def refuse_missing_trees(graph: GraphDefinition, sender: Submitter) -> Refusal | None:
    """Refuse a graph that takes trees that are not stored in the pools where they are needed."""
    if not trees_named(graph.tasks.values()):
        return None
    sender.may(pools_of(graph))
    return refuse_tasks_without_trees(graph.tasks.values(), sender)


def refuse_tasks_without_trees(tasks: Iterable[Task], sender: Submitter) -> Refusal | None:
    """Refuse tasks that take trees that are not stored; those that are stored stay for a while."""
    wanted = trees_named(tasks)
    faults = tuple(
        Fault(
            f"tasks.{label}.task.payload.inputs", f"tree {tree} is not stored in pool {pool}; `taskyard put` stores it"
        )
        for label, pool, tree in (sorted(sender.missing_trees(wanted)) if wanted else ())
    )
    return Refusal(Code.INVALID, "some files are not stored", faults) if faults else None


def pools_of(graph: GraphDefinition) -> frozenset[str]:
    """Return the pools of a new graph: the default pool, if it names none."""
    return pools_named(graph.tasks.values()) or _UNNAMED


def _with_names(answer: Submitted | Refusal, named: KeyedSubmission) -> Submitted | Refusal:
    """Add the ids of the tasks, unless the graph was stored before: it may have been extended since."""
    if isinstance(answer, Submitted) and not answer.echo:
        return replace(answer, names=named.submission.new_tasks.ids)
    return answer


def _is_conflict(answer: Submitted | Refusal) -> bool:
    return isinstance(answer, Refusal) and answer.code is Code.CONFLICT


# A dry run: the checks of a submission, which store nothing.


def check_document(document: object, now: Millis, scheduler_id: str) -> GraphDefinition | Refusal:
    """Validate a document as a submission does before it uses the store."""
    with gc_paused_for(document):
        validation = read(document, now, scheduler_id)
    return refusal(validation) if validation.graph is None else validation.graph


def refused(repo: Repo, graph: GraphDefinition) -> Refusal | None:
    """Return the refusal of a graph with demands that cannot be met."""
    return refuse_unmet(repo, graph.tasks.values())

"""Launch templates and updates: read the catalogue, make the graphs that may be needed, and store them in one step.

The graphs are made on the caller's thread, from the catalogue as it is there. If it has changed by the time they are
stored, they are made again.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from taskyard.core.catalogue.launched import (
    WORKFLOW,
    Launched,
    LaunchedGraph,
    Options,
    Wanted,
    launched,
    template_kind,
)
from taskyard.core.catalogue.model import Document, DocumentKind, Inventory, Raw
from taskyard.core.catalogue.parse import stored_document
from taskyard.core.fleet import CapacityUnit
from taskyard.core.graph.model import GraphDefinition, Slice, Task
from taskyard.core.graph.parse import validate
from taskyard.core.ids import Key, text_of
from taskyard.core.launch import LaunchType
from taskyard.core.states import Kind, Millis
from taskyard.core.structs import struct_replace
from taskyard.engine.clock import Clock
from taskyard.engine.errors import Unavailable, outages
from taskyard.engine.failpoints import Boundary
from taskyard.engine.submit import (
    TRIES_MAX,
    KeyGenerator,
    body_of,
    definition_of,
    digest_of,
    new_tasks_of,
    refuse_missing_trees,
)
from taskyard.engine.writer import WriterThread, answer_of
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.idempotency import Submitter
from taskyard.lifecycle.launch import CatalogueChanged, Launch, LaunchGraph, LaunchStored, LinkedUpdate, preview
from taskyard.lifecycle.subgraph import POOLS, RESUME, ParentAttempt
from taskyard.lifecycle.submit import NewGraph
from taskyard.store.connection import Repo, Store
from taskyard.store.queries import DuplicateKey
from taskyard.store.repo.catalogue import DocumentRow
from taskyard.store.repo.launches import LaunchRow

#: How many documents are kept as they were read: reading one takes as long as launching it.
DOCUMENTS_KEPT: Final = 2_000
#: Stands for the kind of a template that is only named.
TEMPLATE: Final = "template"


@dataclass(frozen=True, slots=True)
class Origin:
    """Why something is launched."""

    type: LaunchType = LaunchType.MANUAL
    parent: ParentAttempt | None = None  # the attempt of a workflow that it is
    schedule: str | None = None  # that launches it,
    due_ms: Millis | None = None  # and the moment that it is for
    relaunch_of: int | None = None  # the graph that it repeats
    resume: str | None = None  # the graph inside a workflow whose results it takes over, as an id


BY_HAND: Final = Origin()
NO_OPTIONS: Final = Options()
_READ_OPTIONS: Final = msgspec.json.Decoder(Options)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a launch would do: the graph that it would store, and the updates that it would use or make."""

    graph: LaunchedGraph
    updates: tuple[LinkedUpdate, ...]


LaunchAnswer: TypeAlias = LaunchStored | Refusal


@dataclass(frozen=True, slots=True)
class _Made:
    """A launch that can be stored, and the graph that it is."""

    launch: Launch
    graph: LaunchedGraph


class Launcher:
    """Launches templates and updates."""

    def __init__(
        self, writer_thread: WriterThread, store: Store, clock: Clock, keys: KeyGenerator, scheduler_id: str
    ) -> None:
        self._writer_thread = writer_thread
        self._store = store
        self._clock = clock
        self._keys = keys
        self._scheduler_id = scheduler_id

    def launch(self, wanted: Wanted, key: str, sender: Submitter, origin: Origin = BY_HAND) -> LaunchAnswer:
        """Launch something; repeated with the same key, it is an echo."""
        for _ in range(TRIES_MAX):
            made = self._make(wanted, key, sender, origin)
            if isinstance(made, Refusal):
                return made
            try:
                answer: LaunchAnswer | CatalogueChanged = answer_of(self._writer_thread.put(made.launch))
            except DuplicateKey:
                continue
            if not isinstance(answer, CatalogueChanged):
                return answer
        raise Unavailable(f"the catalogue changed in each of {TRIES_MAX} tries")

    def preview(self, wanted: Wanted, sender: Submitter) -> Preview | Refusal:
        """Say what a launch would do; nothing is stored."""
        for _ in range(TRIES_MAX):
            made = self._make(wanted, "", sender, BY_HAND)
            if isinstance(made, Refusal):
                return made
            launch = made.launch
            found = self._writer_thread.transact(lambda transaction: preview(transaction, launch), Boundary.OTHER)  # noqa: B023 - it runs at once
            if isinstance(found, Refusal):
                return found
            if not isinstance(found, CatalogueChanged):
                return Preview(made.graph, found)
        raise Unavailable(f"the catalogue changed in each of {TRIES_MAX} tries")

    def relaunch(self, graph: Key, key: str, sender: Submitter, from_failed: bool) -> LaunchAnswer:
        """Launch again what a graph was launched from, with the same variables; everything is planned anew.

        A workflow can take over what its successful nodes left.
        """
        with outages(), self._store.read() as repo:
            row = repo.launches.of([graph]).get(graph)
            graphs = repo.graphs.peek([graph])
            inner = _inner_graph(repo, graph) if row is not None and from_failed else None
        if row is None or not graphs or graphs[0].loader is not None:
            return Refusal(Code.NOT_FOUND, f"there is no launch {text_of(graph)}")
        if from_failed and inner is None:
            return Refusal(Code.CONFLICT, f"graph {text_of(graph)} is no workflow that has begun: relaunch all of it")
        origin = Origin(LaunchType.RELAUNCH, relaunch_of=graph, resume=inner)
        return self.launch(wanted_of(row), key, sender, origin)

    def launch_node(self, payload: Mapping[str, object], variables: Raw, inside: ParentAttempt) -> LaunchAnswer:
        """Launch the template of a node of a workflow, as an attempt of that node."""
        name = str(payload["template"])
        sender = Submitter(f"task {text_of(Key(inside.task))}-{inside.attempt}", inside.submitter, user=inside.user)
        wanted = Wanted(TEMPLATE, name, variables, open_ended=True)
        return self.launch(wanted, "", sender, Origin(LaunchType.WORKFLOW, parent=inside))

    # From the catalogue to graphs that can be stored.

    def _make(self, wanted: Wanted, key: str, sender: Submitter, origin: Origin) -> _Made | Refusal:
        with outages(), self._store.read() as repo:
            catalogue = _Catalogue(repo)
            if wanted.kind == TEMPLATE:
                kind = template_kind(catalogue.find, wanted.name)
                if kind is None:
                    return Refusal(Code.NOT_FOUND, f"there is no template {wanted.name}")
                wanted = struct_replace(wanted, kind=str(kind))
            forks = {pool.name for pool in repo.admission.pools() if pool.unit == CapacityUnit.FORKS}
            found = launched(wanted, catalogue.find, catalogue.version, forks)
        if found.graph is None:
            return Refusal(Code.INVALID, f"{wanted.name} cannot be launched as it is", found.faults)
        sender.may(found.graph.pools | {found.graph.pool})
        return self._graphs(found, catalogue, wanted, key, sender, origin)

    def _graphs(
        self, found: Launched, catalogue: "_Catalogue", wanted: Wanted, key: str, sender: Submitter, origin: Origin
    ) -> _Made | Refusal:
        assert found.graph is not None
        updates: dict[str, LaunchGraph] = {}
        dependent = Origin(LaunchType.DEPENDENT)
        for name, update in found.updates.items():
            of_resource = Submitter(sender.actor, name, user=sender.user)
            made = self._graph(update, of_resource, dependent)
            if isinstance(made, Refusal):
                return made
            updates[name] = made
        if found.graph.updates is not None:
            sender = Submitter(sender.actor, found.graph.updates.name, sender.may, sender.user)
        graph = self._graph(found.graph, sender, origin, options=wanted.options)
        if isinstance(graph, Refusal):
            return graph
        digest = f"launch {_digest(wanted, origin)}"
        versions = catalogue.versions(found.used)
        return _Made(Launch(graph, found.graph.resources, updates, versions, key, digest), found.graph)

    def _graph(
        self, one: LaunchedGraph, sender: Submitter, origin: Origin, options: Options = NO_OPTIONS
    ) -> LaunchGraph | Refusal:
        """Make one graph; its keys, and so the moment of its creation, come after those of graphs made before."""
        validation = validate(one.document, scheduler_id=self._scheduler_id, now=self._clock.now(), launched=True)
        if validation.graph is None:
            said = f"{one.name} cannot be launched with these variables"
            return Refusal(Code.INVALID, said, validation.faults)
        graph = _with_server_tasks(validation.graph, one, origin)
        if missing := refuse_missing_trees(graph, sender):
            return missing
        body = body_of(one.document)
        minted = self._keys.generate(len(graph.tasks))
        new_tasks = new_tasks_of(graph, body, minted, minted.graph, {}, sender)
        updates = {} if one.updates is None else {one.label: (one.updates.name, one.updates.content)}
        new_tasks = replace(new_tasks, updates=updates, other_pools=one.pools)
        definition = definition_of(graph, self._scheduler_id, digest_of(body))
        submission = NewGraph(graph, new_tasks, definition, self._clock.word(), sender.actor, origin.parent)
        row = LaunchRow(
            int(minted.graph),
            one.kind,
            one.name,
            one.version,
            origin.type.value,
            _json(one.variables),
            _json(options),
            sender.actor,
            origin.schedule,
            origin.due_ms,
            origin.relaunch_of,
        )
        return LaunchGraph(submission, row, one.links, one.updates)


class _Catalogue:
    """The catalogue as one read transaction sees it."""

    def __init__(self, repo: Repo) -> None:
        self._repo = repo
        self._rows: dict[tuple[str, str], DocumentRow | None] = {}

    def find(self, kind: DocumentKind, name: str) -> Document | None:
        """Read a document."""
        row = self._row((str(kind), name))
        return None if row is None else _document(row.body)

    def version(self, kind: DocumentKind, name: str) -> int:
        """Return the version of a document that was found."""
        row = self._row((str(kind), name))
        return 0 if row is None else row.version

    def versions(self, used: Iterable[tuple[DocumentKind, str]]) -> dict[tuple[str, str], int]:
        """Return the versions of documents."""
        return {(str(kind), name): self.version(kind, name) for kind, name in used}

    def _row(self, named: tuple[str, str]) -> DocumentRow | None:
        if named not in self._rows:
            self._rows[named] = self._repo.catalogue.read([named]).get(named)
        return self._rows[named]


@lru_cache(maxsize=DOCUMENTS_KEPT)
def _document(body: str) -> Document | None:
    return stored_document(body)


def sources_of(repo: Repo, inventory: str) -> list[str] | None:
    """Return the names of the sources of an inventory; None if there is no such inventory."""
    found = _Catalogue(repo).find(DocumentKind.INVENTORY, inventory)
    if found is None or not isinstance(found.definition, Inventory):
        return None
    return [one.name for one in found.definition.sources]


def wanted_of(row: LaunchRow) -> Wanted:
    """Return what a graph was launched from."""
    return Wanted(
        row.kind, row.name, msgspec.json.decode(row.variables), _READ_OPTIONS.decode(row.options), open_ended=True
    )


def _inner_graph(repo: Repo, graph: int) -> str | None:
    """Return the last graph inside the task of a workflow, if it has begun."""
    task = repo.tasks.with_labels(graph, [WORKFLOW]).get(WORKFLOW)
    inside = repo.graphs.subgraphs([] if task is None else [task])
    last = max(inside, default=None)
    return None if last is None else text_of(Key(inside[last]))


def _with_server_tasks(graph: GraphDefinition, one: LaunchedGraph, origin: Origin) -> GraphDefinition:
    """Put links in the place of the no-ops that stand for them, and say more about the graph of a workflow."""
    tasks = dict(graph.tasks)
    for label, resource in one.links.items():
        tasks[label] = struct_replace(tasks[label], slices=(Slice((), {Kind.LINK.text: resource}, Kind.LINK),))
    if one.label == WORKFLOW:
        tasks[WORKFLOW] = _workflow_task(tasks[WORKFLOW], one, origin)
    return struct_replace(graph, tasks=MappingProxyType(tasks))


def _workflow_task(task: Task, one: LaunchedGraph, origin: Origin) -> Task:
    more: dict[str, object] = {POOLS: sorted(one.pools)}
    if origin.resume is not None:
        more[RESUME] = origin.resume
    (only,) = task.slices
    return struct_replace(task, slices=(struct_replace(only, payload={**only.payload, **more}),))


def _digest(wanted: Wanted, origin: Origin) -> str:
    """Return the digest of what is asked for."""
    asked = (wanted, origin.type, origin.relaunch_of, origin.resume)
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()


def _json(item: object) -> str:
    return msgspec.json.encode(item).decode()

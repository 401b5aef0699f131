"""Launch a template, or an update of a resource: decide which updates are needed, and store all graphs at once.

Every graph that may be needed is made outside the transaction, the updates before the launch. The transaction locks the
documents of the catalogue that all this was made of, so that two launches of one resource come one after the other; if
one of them has changed meanwhile, everything is made again. Then it looks at the latest update of each resource: one
that is fresh is linked, one that is in flight is joined, and where neither is there the graph of a new one is stored.
So each update is made once, whatever crashes and however many servers launch the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskyard.core.graph.errors import Fault
from taskyard.core.ids import Key, text_of
from taskyard.core.launch import Freshness, Resource, Update, is_good, plan
from taskyard.core.retention import Kept
from taskyard.core.states import QUEUED, TaskId
from taskyard.lifecycle import links, submit
from taskyard.lifecycle.commands import BulkOutcome, Code, Refusal
from taskyard.lifecycle.idempotency import answer_to, encoded
from taskyard.lifecycle.submit import NewGraph, Submitted
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.launches import LaunchRow, LinkRow, UpdateRow

#: The audit action.
LAUNCH: Final = "launch"
#: The parts of a graph without which nothing can be taken over of its tasks.
_TAKEN: Final = frozenset({Kept.FILES, Kept.RESULTS})


@dataclass(frozen=True, slots=True)
class LaunchGraph:
    """A graph of a launch that may be stored, and the links in it."""

    submission: NewGraph
    row: LaunchRow
    links: Mapping[str, str]  # the resource of each link, by label
    updates: Resource | None = None  # the resource that it updates

    @property
    def weight(self) -> int:
        """How much work it is to store it, counted in ordinary tasks."""
        return self.submission.new_tasks.weight + len(self.links)


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch, with everything that it may need."""

    graph: LaunchGraph
    resources: tuple[Resource, ...]  # that it uses
    updates: Mapping[str, LaunchGraph]  # by resource, a project before sources that come from it
    versions: Mapping[tuple[str, str], int]  # of the documents of which it was made, by kind and name
    key: str = ""  # idempotency key
    digest: str = ""  # compared when the key is used again

    @property
    def weight(self) -> int:
        """How much work it is to store all of it, counted in ordinary tasks."""
        return self.graph.weight + sum(one.weight for one in self.updates.values())


@dataclass(frozen=True, slots=True)
class LinkedUpdate:
    """The update that a launch uses of a resource."""

    resource: str
    task: int
    graph: int
    freshness: Freshness


@dataclass(frozen=True, slots=True)
class LaunchStored:
    """A launch is stored, now or before."""

    graph: int
    echo: bool = False
    names: Mapping[str, int] = field(default_factory=dict, compare=False)
    updates: tuple[LinkedUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogueChanged:
    """A document has changed since the launch was made: make it again."""


def launch(transaction: Transaction, commands: Sequence[Launch]) -> list[LaunchStored | CatalogueChanged | Refusal]:
    """Store launches, each key once."""
    return [_launch(transaction, one) for one in commands]


def preview(transaction: Transaction, one: Launch) -> tuple[LinkedUpdate, ...] | CatalogueChanged | Refusal:
    """Say which updates a launch would use and make; nothing is stored. A new one has no task yet."""
    if _have_changed(transaction, one):
        return CatalogueChanged()
    refusal = submit.refuse(transaction, one.graph.submission)
    if refusal is not None:
        return refusal
    found = _Planner(transaction, one).plan()
    if isinstance(found, Refusal):
        return found
    new = [LinkedUpdate(name, 0, 0, Freshness.UPDATE) for name in found.to_make]
    return (*new, *found.linked.values())


def _launch(transaction: Transaction, one: Launch) -> LaunchStored | CatalogueChanged | Refusal:
    if one.key and (known := answer_to(transaction.repo, one.key, one.digest)) is not None:
        return LaunchStored(known.graph, echo=True) if isinstance(known, Submitted) else known
    if before := _stored_before(transaction, one):
        return before
    if _have_changed(transaction, one):
        return CatalogueChanged()
    refusal = submit.refuse(transaction, one.graph.submission)
    if refusal is not None:
        return refusal
    found = _Planner(transaction, one).plan()
    if isinstance(found, Refusal):
        return found
    refused = [submit.refuse(transaction, one.updates[name].submission) for name in found.to_make]
    if any(refused):
        return next(filter(None, refused))
    for name in found.to_make:
        found.linked[name] = _store(transaction, one.updates[name], found.linked)
    stored = _store(transaction, one.graph, found.linked)
    _remember(transaction, one)
    names = one.graph.submission.new_tasks.ids
    used = {resource for graph in (one.graph, *one.updates.values()) for resource in graph.links.values()}
    linked = tuple(link for resource, link in found.linked.items() if resource in used)
    return LaunchStored(stored.graph, names=names, updates=linked)


def _stored_before(transaction: Transaction, one: Launch) -> LaunchStored | None:
    """Return the answer if this very launch is stored: the outcome of an earlier commit was lost."""
    new_tasks = one.graph.submission.new_tasks
    known = transaction.repo.launches.of([new_tasks.graph_id])
    return LaunchStored(new_tasks.graph_id, names=new_tasks.ids) if known else None


def _have_changed(transaction: Transaction, one: Launch) -> bool:
    """Lock the documents of which a launch was made; tell whether one has changed or gone."""
    found = transaction.repo.catalogue.lock_documents(one.versions.keys())
    return {name: row.version for name, row in found.items()} != dict(one.versions)


@dataclass(slots=True)
class _Plan:
    """Which updates a launch uses."""

    linked: dict[str, LinkedUpdate]  # those that exist, by resource
    to_make: list[str]  # the resources of those that do not, each after what its update needs


class _Planner:
    """Decides which updates a launch uses. What it looks at is locked, so it stays so."""

    def __init__(self, transaction: Transaction, one: Launch) -> None:
        self._transaction = transaction
        self._launch = one
        self._repo = transaction.repo.launches

    def plan(self) -> _Plan | Refusal:
        """Decide; or refuse, if a resource that is not updated on launch was never updated."""
        latest = self._latest()
        needs = plan(
            self._launch.resources, {name: update for name, (update, _) in latest.items()}, self._transaction.now
        )
        found = _Plan({}, [])
        for need in needs:
            if need.freshness is Freshness.UPDATE:
                found.to_make.append(need.resource)
            else:
                row = latest[need.resource][1]
                found.linked[need.resource] = LinkedUpdate(need.resource, row.task, row.graph, need.freshness)
        faults = self._link_others(found)
        if faults:
            return Refusal(Code.INVALID, "a resource that is not updated on launch has no successful update", faults)
        return found

    def _latest(self) -> dict[str, tuple[Update, UpdateRow]]:
        """Return the latest update of each resource that has one."""
        rows = {one.name: self._repo.newest_update(one.name, one.content) for one in self._all()}
        known = {name: row for name, row in rows.items() if row is not None}
        tasks = self._transaction.lock_tasks({row.task for row in known.values()})
        purged = self._transaction.repo.retention.purged_parts({row.graph for row in known.values()})
        found = {}
        for name, row in known.items():
            task = tasks.get(row.task)
            if task is None or purged.get(row.graph, frozenset()) & _TAKEN:
                continue
            ended = task.moved_ms if is_good(task.life.state) else None
            found[name] = (Update(name, TaskId(text_of(Key(row.task))), task.life.state, ended), row)  # type: ignore[arg-type]
        return found

    def _all(self) -> Iterable[Resource]:
        resources = {one.name: one for one in self._launch.resources}
        inside = [one.comes_from for one in self._launch.resources if one.comes_from is not None]
        return {**{one.name: one for one in inside}, **resources}.values()

    def _link_others(self, found: _Plan) -> tuple[Fault, ...]:
        """Link the last good update of each resource that is used and not updated on launch."""
        made = {resource for name in found.to_make for resource in self._launch.updates[name].links.values()}
        wanted = {*self._launch.graph.links.values(), *made} - found.linked.keys() - set(found.to_make)
        known = {one.name: one for one in self._all()}
        faults = []
        for name in sorted(wanted):
            row = self._repo.good_update(name, known[name].content)
            if row is None:
                faults.append(Fault(name, f"was never updated: `taskyard update {_update_words(name)}` does that"))
            else:
                found.linked[name] = LinkedUpdate(name, row.task, row.graph, Freshness.FRESH)
        return tuple(faults)


def _update_words(resource: str) -> str:
    """Return the words of the command that updates a resource."""
    what, _, name = resource.partition(":")
    return f"project {name}" if what == "project" else f"inventory {name}"


def _store(transaction: Transaction, one: LaunchGraph, linked: Mapping[str, LinkedUpdate]) -> LinkedUpdate:
    """Store a graph of a launch, and begin the links in it."""
    (answer,) = submit.submit(transaction, [one.submission])
    assert isinstance(answer, Submitted), f"{answer} was not refused before"
    new_tasks = one.submission.new_tasks
    transaction.repo.launches.add([one.row])
    rows = [(new_tasks.ids[label], linked[resource]) for label, resource in one.links.items()]
    transaction.repo.launches.add_links(
        [LinkRow(id, to.resource, to.task, to.graph, to.freshness.value) for id, to in rows]
    )
    tasks = transaction.lock_tasks([id for id, _ in rows])
    waiting = [task for task in tasks.values() if task.life.state in QUEUED]
    if waiting:
        links.begin(transaction, waiting)
    if one.updates is None:
        return LinkedUpdate("", 0, answer.graph, Freshness.UPDATE)
    return LinkedUpdate(one.updates.name, new_tasks.ids[one.updates.name], answer.graph, Freshness.UPDATE)


def _remember(transaction: Transaction, one: Launch) -> None:
    """Store which graph a key has created. It is kept as long as the graph."""
    if one.key:
        id = one.graph.submission.new_tasks.graph_id
        answer = encoded(BulkOutcome(id, len(one.graph.submission.new_tasks.tasks)))
        transaction.repo.events.add_answers([(one.key, one.digest, answer, None)], id)

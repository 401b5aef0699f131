"""What belongs to a task and stands in rows of its own: its name, its graph, its edges, its mutexes and its demands.

All of it follows from the definition, which is the truth. To which graph a task belongs is said in three places, and
two of them outvote the third.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from taskyard.core.ids import Key, text_of
from taskyard.lifecycle import finding
from taskyard.lifecycle.evidence import Evidence
from taskyard.lifecycle.finding import Finding, Value
from taskyard.store.txn import Txn
from taskyard.store.verbs.care import TaskRow

Name = TypeVar("Name", bound=Hashable)
Kept = TypeVar("Kept")


def graph_of(task: TaskRow, known: Evidence) -> int | None:
    """Say to which graph a task belongs: as most of its row, its definition and its events say; None if none do."""
    asked, told = known.asked.get(task.id), known.pasts[task.id].graphs
    said = Counter([task.graph_id])
    said.update([] if asked is None else [asked.graph_id])
    said.update([told.most_common(1)[0][0]] if told else [])
    (graph, votes), *_ = said.most_common(1)
    return graph if votes > 1 or len(said) == 1 else None


def belongings(task: TaskRow, known: Evidence) -> Iterator[Finding]:
    """Say what is wrong with the rows beside a task."""
    yield from _graphs(task, known)
    definition = known.definitions.get(task.id)
    if definition is None:
        return
    if known.asked[task.id].label != definition.label:
        yield Finding(finding.DEFINITION, task.id, "label", known.asked[task.id].label, definition.label)
    for label in known.unnamed.get(task.id, ()):
        yield Finding(finding.EDGE, task.id, f"to {label}", None, "a task of that name", mendable=False)
    yield from _edges(task, known)
    for key, have, want in _unlike(_mutexes(task, known), {one.key: _party(one.party) for one in definition.mutexes}):
        yield Finding(finding.TASK_MUTEX, task.id, key, have, want)
    for name, before, after in _unlike(dict(known.limits.get(task.id, ())), dict(definition.limits)):
        yield Finding(finding.TASK_LIMIT, task.id, name, before, after)


def mend(txn: Txn, task: TaskRow, known: Evidence) -> list[Finding]:
    """Write the rows beside a task as they should be; say what was wrong with them."""
    found = [one for one in belongings(task, known) if one.mendable]
    kinds = {one.kind for one in found}
    graph, definition = graph_of(task, known), known.definitions.get(task.id)
    if finding.EVENT in kinds and graph is not None:
        txn.care.mend_events([(task.id, graph)])
    if finding.DEFINITION in kinds:
        asked = known.asked[task.id]
        label = asked.label if definition is None else definition.label
        txn.care.mend_definitions([(task.id, asked.graph_id if graph is None else graph, label)])
    if finding.EDGE in kinds:
        _mend_edges(txn, task, known)
    if definition is not None and finding.TASK_MUTEX in kinds:
        mutexes = {one.key: one.party for one in definition.mutexes}
        gone = [(task.id, key) for key in _mutexes(task, known) if key not in mutexes]
        txn.care.mend_mutexes([(task.id, *one) for one in mutexes.items()], gone)
    if definition is not None and finding.TASK_LIMIT in kinds:
        limits = dict(definition.limits)
        unasked = [(task.id, name) for name, _ in known.limits.get(task.id, ()) if name not in limits]
        txn.care.mend_limits([(task.id, *one) for one in limits.items()], unasked)
    return found


def edges_to_mend(task: TaskRow, known: Evidence) -> set[tuple[tuple[int, str], int | None]]:
    """Give the in-edges of a task that are there and should not be so, and those that should be and are not there."""
    have = known.edges[task.id]
    return set(have.items() ^ known.wanted.get(task.id, have).items())


def _graphs(task: TaskRow, known: Evidence) -> Iterator[Finding]:
    graph, asked = graph_of(task, known), known.asked.get(task.id)
    if graph is None:
        other = None if asked is None else text_of(Key(asked.graph_id))
        yield Finding(finding.TASK, task.id, "graph_id", text_of(Key(task.graph_id)), other, mendable=False)
        return
    wrong = {one for one in known.pasts[task.id].graphs if one != graph}
    for kind, stored in (
        (finding.DEFINITION, graph if asked is None else asked.graph_id),
        (finding.EVENT, next(iter(wrong), graph)),
    ):
        if stored != graph:
            yield Finding(kind, task.id, "graph_id", text_of(Key(stored)), text_of(Key(graph)))


def _edges(task: TaskRow, known: Evidence) -> Iterator[Finding]:
    have, want = known.edges[task.id], known.wanted.get(task.id)
    if want is None:
        return
    for prerequisite, on in sorted(have.keys() | want.keys()):
        end, name = (prerequisite, on), text_of(Key(prerequisite))
        if (end in have) is not (end in want):
            words = ("there", None) if end in have else (None, "there")
            yield Finding(finding.EDGE, task.id, f"{on} of {name}", *words)
        elif have[end] != want[end]:
            yield Finding(finding.EDGE, task.id, f"ran_for {on} of {name}", have[end], want[end])


def _mend_edges(txn: Txn, task: TaskRow, known: Evidence) -> None:
    want, wrong = known.wanted.get(task.id, {}), edges_to_mend(task, known)
    there = [(id, task.id, on, ran_for) for (id, on), ran_for in want.items() if ((id, on), ran_for) in wrong]
    gone = [(id, task.id, on) for (id, on), _ in wrong if (id, on) not in want]
    txn.care.mend_edges(there, gone)


def _mutexes(task: TaskRow, known: Evidence) -> dict[str, Value]:
    return {one.key: _party(one.party) for one in known.mutexes.get(task.id, ())}


def _party(party: str | None) -> Value:
    return "alone" if party is None else f"shared by {party}"


def _unlike(have: Mapping[Name, Kept], want: Mapping[Name, Kept]) -> Iterator[tuple[Name, Kept | None, Kept | None]]:
    """Name what two mappings do not have alike."""
    for name in sorted({*have, *want}, key=str):
        if have.get(name) != want.get(name):
            yield name, have.get(name), want.get(name)

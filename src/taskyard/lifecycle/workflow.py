"""The variables with which a node of a workflow launches its template.

They are, the later over the earlier: those of the node; what the tasks before it left as their results, those further
away first; and those of the workflow, with the answers to its survey. So it is in AWX, too. What a task leaves is its
result, if that is an object: of a play what it has set with `set_stats`, of a nested workflow what its tasks left.
"""

from collections.abc import Collection, Mapping
from graphlib import TopologicalSorter
from typing import Any, Final

import msgspec

from taskyard.core.states import Kind
from taskyard.store.connection import Repo

#: How many tasks before a node are looked at; those that are further away are left out.
ANCESTORS_MAX: Final = 1_000
#: The result of a play has what it set here, beside its hosts.
_SET: Final = "stats"
_HOSTS: Final = "hosts"
#: The result of a workflow has here what its tasks left.
ARTIFACTS: Final = "artifacts"
#: The fields of the result of a node whose launch was refused.
REFUSED: Final = frozenset({"refused", "faults"})
#: What these leave says something about themselves.
_SILENT: Final = frozenset({Kind.APPROVAL.text, Kind.NOOP.text, Kind.LINK.text})


def read_variables(repo: Repo, task: int, launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables with which a node launches its template."""
    return {**launch.get("variables", {}), **inherited(repo, task), **launch.get("over", {})}


def inherited(repo: Repo, task: int) -> dict[str, Any]:
    """Return what the tasks before a task left, of those further away first."""
    before = _ancestors(repo, task)
    left = _artifacts(repo, before.keys() - {task})
    labels = repo.read.labels(before.keys())
    known: dict[int, dict[str, Any]] = {}
    for one in TopologicalSorter(before).static_order():
        found: dict[str, Any] = {}
        for prerequisite in sorted(before.get(one, ()), key=lambda id: labels.get(id, "")):
            found |= known[prerequisite]
        for prerequisite in sorted(before.get(one, ()), key=lambda id: labels.get(id, "")):
            found |= left.get(prerequisite, {})
        known[one] = found
    return known.get(task, {})


def left_by(kind: str, result: object) -> dict[str, Any]:
    """Return the variables that a result of a task of a kind has for the tasks behind it."""
    if kind in _SILENT or not isinstance(result, dict) or result.keys() == REFUSED:
        return {}
    is_play = isinstance(result.get(_SET), dict) and isinstance(result.get(_HOSTS), dict)
    if is_play and kind in {Kind.ANSIBLE.text, Kind.LAUNCH.text}:
        return dict(result[_SET])
    if kind == Kind.GRAPH.text:
        return dict(result[ARTIFACTS]) if isinstance(result.get(ARTIFACTS), dict) else {}
    return result


def left_in(repo: Repo, graph: int, results: Mapping[int, str]) -> dict[str, Any]:
    """Return what the tasks of a graph left, in the order in which they ended; `results` are theirs, as JSON."""
    found: dict[str, Any] = {}
    tasks = [task for task in repo.tasks.read(list(results)) if task.graph == graph]
    for task in sorted(tasks, key=lambda one: (one.moved_ms, -one.id)):
        found |= left_by(task.kind, msgspec.json.decode(results[task.id]))
    return found


def _ancestors(repo: Repo, task: int) -> dict[int, set[int]]:
    """Return the prerequisites of a task and of all tasks before it."""
    found: dict[int, set[int]] = {}
    frontier: Collection[int] = [task]
    while frontier and len(found) < ANCESTORS_MAX:
        found |= {one: set() for one in frontier}
        for edge in repo.edges.into(frontier):
            found[edge.dependent].add(edge.prerequisite)
        frontier = {before for one in frontier for before in found[one]} - found.keys()
    return {one: {id for id in before if id in found} for one, before in found.items()}


def _artifacts(repo: Repo, tasks: Collection[int]) -> dict[int, dict[str, Any]]:
    kinds = {task.id: task.kind for task in repo.tasks.read(list(tasks))}
    results = repo.read.last_results(list(tasks))
    return {id: left_by(kinds[id], msgspec.json.decode(body)) for id, body in results.items() if id in kinds}

"""Launches: what graphs were launched from, and the updates in other graphs that they use."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from taskyard.core.catalogue.launched import WORKFLOW
from taskyard.core.catalogue.parse import JOB
from taskyard.core.ids import Key, text_of
from taskyard.core.launch import Freshness, status
from taskyard.lifecycle.launch import LinkedUpdate
from taskyard.store.connection import Repo
from taskyard.store.repo.launches import LaunchRow
from taskyard.wire.api import LaunchView, LinkView

_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
#: How many links of one graph are shown: as many as an inventory has sources, and its project.
LINKS_MAX: Final = 100


def launches(
    repo: Repo, kind: str, name: str, pools: frozenset[str] | None, after: int, count: int
) -> tuple[list[LaunchView], int | None]:
    """Show launches after a graph, the newest first; return where the next page begins, None at the end."""
    rows = repo.launches.page(kind, name, pools, after, count + 1)
    return _views(repo, rows[:count]), rows[count - 1].graph if len(rows) > count else None


def last_launches(
    repo: Repo, named: Collection[tuple[str, str]], pools: frozenset[str] | None
) -> dict[tuple[str, str], LaunchView]:
    """Show the newest launch of each kind and name, where the caller may see its graph."""
    rows = repo.launches.last(named)
    owners = repo.graphs.pools_of([row.graph for row in rows])
    shown = [row for row in rows if pools is None or not pools.isdisjoint(owners.get(row.graph, ()))]
    return {(one.kind, one.name): one for one in _views(repo, shown)}


def launch_of(repo: Repo, graph: int) -> LaunchView | None:
    """Show what a graph was launched from; None if it was not launched."""
    found = _views(repo, list(repo.launches.of([graph]).values()))
    return found[0] if found else None


def links_of(repo: Repo, graph: int) -> list[LinkView]:
    """Show the updates in other graphs that a launch uses."""
    labels = {id: label for label, id in repo.read.labels_page(graph, -1, LINKS_MAX + 1)}
    links = repo.launches.links(list(labels)[:LINKS_MAX])
    updates = {task.id: task.life.state.text for task in repo.tasks.read([one.update for one in links.values()])}
    return [
        LinkView(
            labels[one.task],
            one.resource,
            one.freshness,
            text_of(Key(one.update)),
            text_of(Key(one.update_graph)),
            updates.get(one.update, ""),
        )
        for one in links.values()
    ]


def update_view(one: LinkedUpdate) -> LinkView:
    """Show an update that a launch uses or would use."""
    if one.freshness is Freshness.UPDATE and not one.task:
        return LinkView("", one.resource, one.freshness.value, None, None, "")
    return LinkView("", one.resource, one.freshness.value, text_of(Key(one.task)), text_of(Key(one.graph)), "")


def _views(repo: Repo, rows: Sequence[LaunchRow]) -> list[LaunchView]:
    graphs = {one.id: one for one in repo.graphs.peek([row.graph for row in rows])}
    words = _statuses(repo, rows)
    return [
        LaunchView(
            text_of(Key(row.graph)),
            row.kind,
            row.name,
            row.version,
            row.launch_type,
            _OBJECT.decode(row.variables),
            {name: item for name, item in _OBJECT.decode(row.options).items() if item is not None},
            row.actor,
            graphs[row.graph].created_ms,
            words.get(row.graph, ""),
            graphs[row.graph].state.text,
            row.schedule,
            row.due_ms,
            None if row.relaunch_of is None else text_of(Key(row.relaunch_of)),
        )
        for row in rows
        if row.graph in graphs
    ]


def _statuses(repo: Repo, rows: Sequence[LaunchRow]) -> Mapping[int, str]:
    """Return the state of the task of each launch in the words of AWX."""
    tasks = {row.graph: _task_of(repo, row) for row in rows}
    records = {task.id: task for task in repo.tasks.read([id for id in tasks.values() if id is not None])}
    return {
        graph: status(records[id].life.state, records[id].reason)
        for graph, id in tasks.items()
        if id is not None and id in records
    }


def _task_of(repo: Repo, row: LaunchRow) -> int | None:
    """Return the task that does the work of a launch."""
    wanted = (JOB, WORKFLOW, f"project:{row.name}", f"source:{row.name}")
    found = repo.tasks.with_labels(row.graph, wanted)
    return next((found[label] for label in _labels(row, wanted) if label in found), None)


def _labels(row: LaunchRow, wanted: Sequence[str]) -> Sequence[str]:
    return wanted[2:] if row.kind in {"project", "source"} else wanted[:2]

"""Repository of launches: what graphs were launched from, the updates of resources, and the links to them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from taskyard.core.states import Millis, State
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session

#: What can be launched. An index finds the launches of a name by these.
KINDS: Final = ("job_template", "workflow_template", "system_job_template", "project", "source", "ad_hoc")


@value
class LaunchRow:
    """What a graph was launched from: a template, or a resource that it updates."""

    graph: int
    kind: str
    name: str
    version: int
    launch_type: str
    variables: str  # as JSON
    options: str  # as JSON
    actor: str
    schedule: str | None = None  # that launched it,
    due_ms: Millis | None = None  # and the moment that it is for
    relaunch_of: int | None = None  # the graph that it repeats


@value
class UpdateRow:
    """The update of a resource."""

    task: int
    graph: int


@value
class LinkRow:
    """A link, and the update for which it stands."""

    task: int
    resource: str
    update: int
    update_graph: int
    freshness: str


class LaunchRepo:
    """The tables `launch`, `resource_update` and `link`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[LaunchRow]) -> None:
        """Store what graphs were launched from."""
        self._session.execute_many(
            "insert_launches",
            [
                (
                    row.graph, row.kind, row.name, row.version, row.launch_type, row.variables, row.options, row.actor,
                    row.schedule, row.due_ms, row.relaunch_of,
                )
                for row in rows
            ],
        )  # fmt: skip

    def of(self, graphs: Collection[int]) -> dict[int, LaunchRow]:
        """Return what graphs were launched from; others are left out."""
        return {row[0]: LaunchRow(*row) for row in self._session.fetch("select_launches", graphs)} if graphs else {}

    def page(self, kind: str, name: str, pools: Collection[str] | None, after: int, count: int) -> list[LaunchRow]:
        """Return launches after a graph, newest first; empty texts stand for any kind and name, None for all pools."""
        visible = (int(pools is None), sorted(pools or ()))
        if name:
            kinds = [kind] if kind else KINDS
            found = self._session.fetch("select_launch_page_of", kinds, name, *visible, after, count)
        else:
            found = self._session.fetch("select_launch_page", kind, *visible, after, count)
        return [LaunchRow(*row) for row in found]

    def last(self, named: Collection[tuple[str, str]]) -> list[LaunchRow]:
        """Return the newest launch of each kind and name; those that were never launched are left out."""
        for kind, name in named:
            self._session.prefetch("select_last_launch", kind, name)
        found = [row[0] for pair in named for row in self._session.fetch("select_last_launch", *pair)]
        return list(self.of(found).values())

    # Updates.

    def add_updates(self, rows: Sequence[Row]) -> None:
        """Insert updates: task, resource, digest of its content, graph."""
        self._session.execute_many("insert_updates", rows)

    def resources(self, tasks: Collection[int]) -> dict[int, str]:
        """Return the resources that tasks update; others are left out."""
        return {row[0]: row[1] for row in self._session.fetch("select_updates", tasks)} if tasks else {}

    def newest_update(self, resource: str, digest: str) -> UpdateRow | None:
        """Return the newest update of a resource with some digest, in whatever state."""
        found = self._session.fetch("select_newest_update", resource, digest)
        return UpdateRow(*found[0]) if found else None

    def good_update(self, resource: str, digest: str) -> UpdateRow | None:
        """Return the newest successful update of a resource with some digest."""
        found = self._session.fetch("select_good_update", resource, digest, State.SUCCESSFUL.text)
        return UpdateRow(*found[0]) if found else None

    def current_updates(self, graphs: Collection[int]) -> set[int]:
        """Return those of some graphs that have the newest successful update of a resource."""
        found = self._session.fetch("select_current_updates", graphs, State.SUCCESSFUL.text) if graphs else ()
        return {row[0] for row in found}

    # Links.

    def add_links(self, rows: Sequence[LinkRow]) -> None:
        """Insert links."""
        self._session.execute_many(
            "insert_links", [(row.task, row.resource, row.update, row.update_graph, row.freshness) for row in rows]
        )

    def copy_links(self, rows: Sequence[Row]) -> None:
        """Insert links to the updates of other links: task, the other task."""
        self._session.execute_many("copy_links", rows)

    def links(self, tasks: Collection[int]) -> dict[int, LinkRow]:
        """Return the links that tasks are; others are left out."""
        return {row[0]: LinkRow(*row) for row in self._session.fetch("select_links", tasks)} if tasks else {}

    def links_to(self, updates: Collection[int], states: Iterable[State], count: int) -> list[LinkRow]:
        """Return at most `count` links to updates that are in some states, by update, the oldest first."""
        if not updates:
            return []
        names = [state.text for state in states]
        return [LinkRow(*row) for row in self._session.fetch("select_links_in", names, updates, count)]

    def overdue_links(self, bot: str, kind: str, states: Iterable[State], count: int) -> list[int]:
        """Return at most `count` links that are run although their update is in one of some states, or deleted."""
        names = [state.text for state in states]
        return [row[0] for row in self._session.fetch("select_overdue_links", bot, kind, names, count)]

    def graphs_linked_to(self, graph: int, count: int) -> list[int]:
        """Return graphs with links to the updates in a graph."""
        return [row[0] for row in self._session.fetch("select_graphs_linked_to", graph, count)]

    def result_sizes(self, tasks: Collection[int]) -> dict[int, int]:
        """Return how long the results of the last attempts of tasks are; those without one are left out."""
        return {row[0]: row[1] for row in self._session.fetch("select_result_sizes", tasks)} if tasks else {}

    def copy_results(self, links: Collection[int]) -> None:
        """Copy the results, the output files and the named files of updates to links."""
        for name in ("copy_update_results", "copy_update_files", "copy_update_artifacts") if links else ():
            self._session.execute(name, links)

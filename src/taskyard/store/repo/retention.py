"""Repository of what is kept for a time: the times, and the deletion of what is over, some rows at once."""

from collections.abc import Collection, Sequence
from typing import Final

from taskyard.core.ids import BLOCK
from taskyard.core.retention import PARTS, Kept, RetentionTimes, SettledGraph
from taskyard.core.states import GraphState, Millis
from taskyard.store.queries import Row, Session
from taskyard.store.repo.tasks import PURGED
from taskyard.store.row_cache import RowCache

#: The rows of each part of a graph: statements that delete at most so many rows of some tasks.
PART_STATEMENTS: Final = {
    Kept.OUTPUT: ("purge_output",),
    Kept.FILES: ("purge_attempt_files", "purge_artifacts"),
    Kept.RESULTS: ("purge_results", "purge_progress"),
}
#: All that belongs to tasks, in the order in which it is deleted: what refers to something else comes before that. A
#: table with rows of tasks has its statement here, or below.
TASK_STATEMENTS: Final = (
    *(name for part in PARTS for name in PART_STATEMENTS[part]),
    "purge_stats", "purge_attempts", "purge_events", "purge_edges_into", "purge_edges_out_of", "purge_tags",
)  # fmt: skip
#: What has a few rows for each task, and is deleted with the tasks.
LAST_STATEMENTS: Final = (
    "delete_holds_of", "delete_mutexes", "delete_limits", "delete_task_secrets", "delete_secret_bytes",
    "delete_definitions", "delete_reuses", "delete_reuse_followers", "delete_input_trees", "delete_links",
    "delete_resource_updates", "delete_tasks",
)  # fmt: skip
#: What has rows for each graph.
GRAPH_STATEMENTS: Final = (
    "delete_graph_definition", "delete_graph_pools", "delete_rerun", "delete_child", "delete_purged",
    "delete_launch",
)  # fmt: skip
_GRAPH_STATES = {state.value: state for state in GraphState}
#: How many rows a chunk of output weighs: it has up to 100 KiB.
_WEIGHTS: Final = {"purge_output": 20}


class RetentionRepo:
    """The tables `retention` and `purged_graph`, and deletions in all others."""

    __slots__ = ("_cache", "_session")

    def __init__(self, session: Session, cache: RowCache) -> None:
        self._session = session
        self._cache = cache

    def times(self) -> RetentionTimes:
        """Return the times that are set."""
        rows = self._session.fetch("select_retention")
        return RetentionTimes({(pool, Kept(kind)): keep_ms for pool, kind, keep_ms in rows})

    def set_times(self, rows: Sequence[Row]) -> None:
        """Set times: pool, kind, time; None: for ever."""
        self._session.execute_many("upsert_retention", rows)

    def unset_times(self, rows: Sequence[Row]) -> None:
        """Let the times for all pools hold again: pool, kind."""
        self._session.execute_many("delete_retention", rows)

    def settled(
        self, after: tuple[int, int], before: Millis, count: int
    ) -> list[tuple[int, GraphState, int, int | None, frozenset[Kept]]]:
        """Return graphs that settled before a time, after one of them: id, state, since when, parent, purged parts."""
        rows = self._session.fetch("select_settled_graphs", *after, before, count)
        return [(row[0], _GRAPH_STATES[row[1]], row[2], row[3], _parts(row[4])) for row in rows]

    def hidden(self, count: int) -> list[int]:
        """Return graphs that are being purged."""
        return [row[0] for row in self._session.fetch("select_hidden_graphs", PURGED, count)]

    def mark_part(self, graph: SettledGraph, part: Kept) -> None:
        """Store that a part of a graph is purged; what was purged before it settled now does not count any more."""
        bit = 1 << PARTS.index(part)
        self._session.execute_many("upsert_purged", [(graph.id, graph.settled_ms, bit)])

    def forget_keys(self, graphs: Collection[int]) -> None:
        """Delete the idempotency keys that created graphs."""
        if graphs:
            self._session.execute("delete_keys_of_graphs", graphs)

    def purged_parts(self, graphs: Collection[int]) -> dict[int, frozenset[Kept]]:
        """Return the parts of graphs that were purged; graphs that are whole are left out."""
        return {row[0]: _parts(row[1]) for row in self._session.fetch("select_purged", graphs)} if graphs else {}

    def inside(self, graph: int, count: int) -> list[int]:
        """Return graphs inside the tasks of a graph, except for those that are being purged."""
        return [row[0] for row in self._session.fetch("select_graphs_inside", graph, count)]

    def purge_part(self, part: Kept, tasks: Collection[int], rows_max: int) -> int:
        """Delete a part of tasks; return how many rows more could have been deleted: below 1, there may be more."""
        return self._purge(PART_STATEMENTS[part], tasks, rows_max)

    def purge_tasks(self, tasks: Collection[int], rows_max: int) -> bool:
        """Delete tasks and all that belongs to them, at most so many rows; return whether nothing is left."""
        if self._purge(TASK_STATEMENTS, tasks, rows_max) < 1:
            return False
        for name in LAST_STATEMENTS:
            self._session.execute(name, tasks)
        self._cache.mark_stale()
        return True

    def purge_graph(self, id: int, rows_max: int) -> bool:
        """Delete a hidden graph without tasks; return whether it is deleted."""
        if self._purge(("purge_events",), [id], rows_max) < 1:
            return False
        for name in GRAPH_STATEMENTS:
            self._session.execute(name, id)
        self._session.execute("delete_hidden_graph", id, PURGED)
        self._cache.graphs.pop(id, None)
        return True

    def bots(self, after: str, count: int) -> list[tuple[str, str | None]]:
        """Return bots after a name, with their pools."""
        return [(row[0], row[1]) for row in self._session.fetch("select_bot_pools", after, count)]

    def purge_bot_events(self, bot: str, before: Millis, kinds: Collection[str], count: int) -> int:
        """Delete old events of a bot, except for the newest, and the newest of some kinds."""
        return self._session.execute("purge_bot_events", bot, before, kinds, count)

    def idle_queues(self, before: Millis, after: int, count: int) -> list[tuple[int, str, int]]:
        """Return queues after one of them into which no task has come since a time: id, pool, when they were used."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_idle_queues", before, after, count)]

    def queues_of_tasks(self, after: int, count: int) -> list[tuple[int, int]]:
        """Return tasks after one of them, and their queues."""
        return [(row[0], row[1]) for row in self._session.fetch("select_queues_of_tasks", after, count)]

    def purge_queues(self, ids: Collection[int], before: Millis) -> int:
        """Delete queues into which no task has come since a time; return how many."""
        return self._session.execute("purge_queues", sorted(ids), before) if ids else 0

    def purge_tokens(self, before: Millis, count: int) -> int:
        """Delete tokens that expired or were revoked before a time."""
        return self._session.execute("purge_tokens", before, count)

    def old_audits(self, after: int, before: Millis, count: int) -> list[int]:
        """Return audit rows after one of them, up to a time."""
        return [row[0] for row in self._session.fetch("select_old_audits", after, before, count)]

    def purge_audits(self, ids: Collection[int]) -> int:
        """Delete those of some audit rows that concern no task or graph that exists."""
        return self._session.execute("purge_audits", ids) if ids else 0

    def attempt_blocks(self, after: int, count: int) -> list[int]:
        """Return blocks of task ids after one of them in which bots had attempts: older ones are greater."""
        return [row[0] for row in self._session.fetch("select_attempt_blocks", after, count)]

    def purge_attempt_blocks(self, blocks: Collection[int]) -> None:
        """Forget which bots had attempts in those of some blocks that have no tasks any more."""
        if blocks:
            self._session.execute("purge_attempt_blocks", blocks, BLOCK)

    def _purge(self, names: Sequence[str], tasks: Collection[int], rows_max: int) -> int:
        """Run statements until so many rows are deleted; return how many more could have been."""
        left = rows_max
        for name in names:
            weight = _WEIGHTS.get(name, 1)
            most = max(1, left // weight)
            deleted = self._session.execute(name, tasks, most)
            left -= deleted * weight
            if deleted >= most or left < 1:
                return 0
        return left


def _parts(bits: int) -> frozenset[Kept]:
    return frozenset(part for place, part in enumerate(PARTS) if bits >> place & 1)

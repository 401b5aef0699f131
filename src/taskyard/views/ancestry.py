"""The tasks that a task hangs on, from its prerequisites back, so many at most. Nothing here writes."""

from typing import Final

from taskyard.store.connection import Txn

#: How many tasks are named, and how many prerequisites of one of them are followed.
ANCESTORS_MAX: Final = 200


def ancestors(txn: Txn, task: int) -> list[int]:
    """Name the tasks that one hangs on, the nearest first."""
    found: dict[int, None] = {}
    level = [task]
    while level and len(found) < ANCESTORS_MAX:
        edges = [edge for one in level for edge in txn.edges.page_into(one, -1, ANCESTORS_MAX)]
        fresh = [id for id in dict.fromkeys(edge.prerequisite for edge in edges) if id not in found]
        level = fresh[: ANCESTORS_MAX - len(found)]
        found |= dict.fromkeys(level)
    return list(found)

"""Whether all that is left of a run waits for a bot that will never come: it has one, and never gets another.

What still moves by itself in less than the longest time is waited for: a slice that gives way, a deadline.
"""

from typing import Final

from taskyard.core.graph.model import EXPIRES_MS
from taskyard.core.matching import Dimensions, combinations, matches
from taskyard.core.states import ENDED, LEASED, State
from taskyard.lifecycle.definitions import decoded
from taskyard.store.connection import Repo
from taskyard.store.rows import TaskRecord

#: More tasks than this that wait are looked at when there are fewer of them.
LOOKED_MAX: Final = 500
#: Where a task rests unless others move, and where it waits for a bot.
_RESTS: Final = frozenset(state.text for state in ENDED | {State.UNSCHEDULED, State.BLOCKED})
_WAITING: Final = frozenset({State.WAITING.text})
#: Where a task is that may have a graph inside.
_RUNNING: Final = frozenset({State.RUNNING.text})


def is_stuck(repo: Repo, graph: int, bot: str) -> bool:
    """Tell whether nothing in a graph, or in those inside it, can move with this bot alone."""
    left = {state for state, count in repo.read.counts(graph).items() if count} - _RESTS
    found = repo.bots.read([bot])
    if not left or not left <= _WAITING | _RUNNING or bot not in found:
        return False
    ids = [id for state in sorted(left) for id in repo.read.tasks(graph, -1, state, LOOKED_MAX + 1)]
    return len(ids) <= LOOKED_MAX and all(
        _is_stuck_inside(repo, task, bot)
        if task.state in LEASED
        else _is_beyond(repo, task, found[bot].facts.dimensions)
        for task in repo.tasks.read(ids)
    )


def _is_stuck_inside(repo: Repo, task: TaskRecord, bot: str) -> bool:
    """Tell whether what runs is a graph in which nothing can move, and whose time is never over."""
    inner = repo.graphs.subgraphs([task.id]).get((task.id, task.life.attempt))
    return inner is not None and task.due_ms is None and is_stuck(repo, inner, bot)


def _is_beyond(repo: Repo, task: TaskRecord, has: Dimensions) -> bool:
    """Tell whether a task is for others, and stays so."""
    rules, place = task.rules, task.life.slice_index
    if rules.deadline_ms is not None or rules.slices[place].expires_ms < EXPIRES_MS or place + 1 < len(rules.slices):
        return False
    wanted = decoded(repo.tasks.definitions([task.id])[task.id][1]).slices[place].dimensions
    return not any(matches(one, has) for one in combinations(wanted))

"""What tasks share: named limits with what is in use of them, and mutexes with who holds each and who waits for it.

Tasks are looked at up to a number, and the answer says whether these were all. Nothing here writes.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from taskyard.core.admission.rules import STAKE_AFTER_MS
from taskyard.core.ids import Key, text_of
from taskyard.core.states import HOLDING, Reason, Signal, sources
from taskyard.store.connection import Repo
from taskyard.store.repo.admission import MutexRow
from taskyard.wire import api

#: How many tasks in one state are looked at for one answer.
LOOKED_MAX: Final = 10_000
#: How many holders of a mutex, and how many that wait for it, are named; all that were looked at are counted.
NAMED_MAX: Final = 20
_ADMISSIBLE: Final = sources(Signal.ADMIT)


class Sight(Protocol):
    """What the asker may see."""

    def graph(self, graph: int) -> bool:
        """Tell whether they may see a graph."""


def limits(repo: Repo) -> list[api.LimitView]:
    """Tell how much there is of each named limit, and how much of it is in use."""
    return [
        api.LimitView(name, total, repo.read.limit_use(name, HOLDING))
        for name, total in sorted(repo.admission.named_limits().items())
    ]


def mutexes(repo: Repo, sight: Sight, after: str, count: int, key: str | None = None) -> tuple[api.Mutexes, str | None]:
    """Tell who holds each mutex beyond a key, and who waits for it; and the last key if there are more of them.

    A mutex is told of if a task holds it or waits for it, or if somebody has set its `stake_after`.
    """
    known, whole = _in_use(repo)
    policies = repo.admission.stake_after()
    keys = sorted(one for one in {*known, *policies} if one > after) if key is None else [key]
    told = [_view(repo, sight, one, known[one], policies.get(one, STAKE_AFTER_MS)) for one in keys[:count]]
    return api.Mutexes(told, whole=whole), keys[count - 1] if len(keys) > count else None


@dataclass(slots=True)
class _InUse:
    holders: list[MutexRow] = field(default_factory=list)
    waiting: list[MutexRow] = field(default_factory=list)


def _in_use(repo: Repo) -> tuple[defaultdict[str, _InUse], bool]:
    """Find who holds which mutex and who waits for it; tell whether all of them were looked at."""
    found: defaultdict[str, _InUse] = defaultdict(_InUse)
    whole = True
    for state in (*sorted(HOLDING), *sorted(_ADMISSIBLE)):
        rows = repo.admission.mutexes_in_state(state, LOOKED_MAX + 1)
        whole = whole and len(rows) <= LOOKED_MAX
        for row in rows[:LOOKED_MAX]:
            if state in HOLDING:
                found[row.key].holders.append(row)
            elif row.reason == Reason.MUTEX and row.held_at == row.key:
                found[row.key].waiting.append(row)
    return found, whole


def _view(repo: Repo, sight: Sight, key: str, use: _InUse, stake_after_ms: int | None) -> api.MutexView:
    holders = sorted(use.holders, key=lambda row: row.moved_ms)
    waiting = sorted(use.waiting, key=_since)
    return api.MutexView(
        key,
        stake_after_ms,
        [_task(*one, one[0].moved_ms) for one in _named(repo, sight, holders)],
        len(holders),
        [_task(*one, one[0].mutex_since_ms) for one in _named(repo, sight, waiting)],
        len(waiting),
    )


def _named(repo: Repo, sight: Sight, rows: Sequence[MutexRow]) -> Iterable[tuple[MutexRow, str | None]]:
    """Give the first rows with their labels; without one if the asker may not see the task."""
    shown = rows[:NAMED_MAX]
    may_see = {graph for graph in {row.graph for row in shown} if sight.graph(graph)}
    labels = repo.read.labels([row.task for row in shown if row.graph in may_see])
    return [(row, labels.get(row.task)) for row in shown]


def _task(row: MutexRow, label: str | None, since_ms: int | None) -> api.MutexTask:
    if label is None:
        return api.MutexTask(None, "", "", row.state, row.party, since_ms)
    return api.MutexTask(text_of(Key(row.task)), label, text_of(Key(row.graph)), row.state, row.party, since_ms)


def _since(row: MutexRow) -> int:
    return row.mutex_since_ms or 0

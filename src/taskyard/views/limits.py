"""Named limits with their use, and mutexes with their holders and the tasks that wait for them.

A limited number of tasks is looked at, and the answer says whether these were all.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskyard.core.admission.rules import STAKE_AFTER_MS
from taskyard.core.ids import Key, text_of
from taskyard.core.states import HOLDING, Reason, Signal, sources
from taskyard.store.connection import Repo
from taskyard.store.repo.admission import MutexRow
from taskyard.views.visibility import Visibility
from taskyard.wire import api

#: How many tasks in one state are looked at for one answer.
LOOKED_MAX: Final = 10_000
#: How many holders and waiting tasks of a mutex are named; all that were looked at are counted.
NAMED_MAX: Final = 20
_ADMISSIBLE: Final = sources(Signal.ADMIT)


def limits(repo: Repo) -> list[api.LimitView]:
    """Show each named limit, and how much of it is in use."""
    return [
        api.LimitView(name, total, repo.read.limit_use(name, HOLDING))
        for name, total in sorted(repo.admission.named_limits().items())
    ]


def mutexes(
    repo: Repo, visibility: Visibility, after: str, count: int, key: str | None = None
) -> tuple[api.Mutexes, str | None]:
    """Show the mutexes after a key, with holders and waiting tasks; return the last key if there are more.

    A mutex is shown if a task holds it or waits for it, or if its `stake_after` is configured.
    """
    known, whole = _in_use(repo)
    policies = repo.admission.stake_after()
    keys = sorted(one for one in {*known, *policies} if one > after) if key is None else [key]
    views = [_view(repo, visibility, one, known[one], policies.get(one, STAKE_AFTER_MS)) for one in keys[:count]]
    return api.Mutexes(views, whole=whole), keys[count - 1] if len(keys) > count else None


@dataclass(slots=True)
class _InUse:
    holders: list[MutexRow] = field(default_factory=list)
    waiting: list[MutexRow] = field(default_factory=list)


def _in_use(repo: Repo) -> tuple[defaultdict[str, _InUse], bool]:
    """Return who holds which mutex and who waits for it, and whether all tasks were looked at."""
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


def _view(repo: Repo, visibility: Visibility, key: str, use: _InUse, stake_after_ms: int | None) -> api.MutexView:
    holders = sorted(use.holders, key=lambda row: row.moved_ms)
    waiting = sorted(use.waiting, key=_since)
    return api.MutexView(
        key,
        stake_after_ms,
        [_task(*one, one[0].moved_ms) for one in _named(repo, visibility, holders)],
        len(holders),
        [_task(*one, one[0].mutex_since_ms) for one in _named(repo, visibility, waiting)],
        len(waiting),
    )


def _named(repo: Repo, visibility: Visibility, rows: Sequence[MutexRow]) -> Iterable[tuple[MutexRow, str | None]]:
    """Return the first rows with their labels; the label is None if the caller may not see the task."""
    shown = rows[:NAMED_MAX]
    may_see = {graph for graph in {row.graph for row in shown} if visibility.graph(graph)}
    labels = repo.read.labels([row.task for row in shown if row.graph in may_see])
    return [(row, labels.get(row.task)) for row in shown]


def _task(row: MutexRow, label: str | None, since_ms: int | None) -> api.MutexTask:
    if label is None:
        return api.MutexTask(None, "", "", row.state, row.party, since_ms)
    return api.MutexTask(text_of(Key(row.task)), label, text_of(Key(row.graph)), row.state, row.party, since_ms)


def _since(row: MutexRow) -> int:
    return row.mutex_since_ms or 0

"""What a pass would say of new tasks, if they were stored now: the rule of admission over what there is, and them.

Holders are all looked at, for the rule needs them; of those that are pending already, so many at most, and a forecast
says whether these were all. Nothing here writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from taskyard.core import fleet
from taskyard.core.admission import FOR_CAPACITY, decide
from taskyard.core.explain import Other
from taskyard.core.graph.document import Task
from taskyard.core.graph.payload import SERVER_KINDS
from taskyard.core.ids import key_of
from taskyard.core.machine import HOLDING, sources
from taskyard.core.matching import Dimensions, pool_of
from taskyard.core.partials import Contender, Facts, Held, Pool
from taskyard.core.words import Signal, State, TaskId
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.store.repo.admission import ContenderRow
from taskyard.views import why_facts
from taskyard.views.why_holds import capacity, text

#: How many tasks that are pending already are taken into account.
PENDING_MAX: Final = 2_000
#: How many holders one query reads.
READ_MAX: Final = 2_000

_ADMISSIBLE: Final = sources(Signal.ADMIT)
#: Before the number of a task that is not stored: it sorts behind every id, as who comes last does.
_NEW: Final = "new "


@dataclass(frozen=True, slots=True)
class Forecast:
    """What would hold new tasks, by label; whoever is not held would be let in."""

    held: Mapping[str, Held] = field(default_factory=dict)
    whole: bool = True  # whether everybody who is pending was taken into account
    labels: Mapping[TaskId, str] = field(default_factory=dict)  # of the new tasks
    admitted: frozenset[TaskId] = frozenset()

    def other(self, look: why_facts.Facts, held: Held) -> Other | None:
        """Name who is in the way."""
        if held.by is None:
            return None
        if held.by in self.labels:
            return Other(State.WAITING if held.by in self.admitted else State.PENDING, label=self.labels[held.by])
        return look.other(key_of(held.by))


def forecast(look: why_facts.Facts, tasks: Sequence[Task], wanted: Mapping[str, Dimensions]) -> Forecast:
    """Say what would hold tasks that wait for nobody; `wanted` has what the first slice of each asks for."""
    limits = {pool.name: capacity(look, pool.name) for pool in look.txn.passes.pools()}
    new = {_id(number): task for number, task in enumerate(tasks) if _may_be_held(task, wanted[task.label], limits)}
    if not new:
        return Forecast()
    facts, whole = _facts(look, limits)
    fresh = tuple(_contender(look, id, task, wanted[task.label]) for id, task in new.items())
    decision = decide(replace(facts, pending=(*facts.pending, *fresh)), look.now)
    return Forecast(
        held={new[one.id].label: _unaged(one) for one in decision.held if one.id in new},
        whole=whole,
        labels={id: task.label for id, task in new.items()},
        admitted=frozenset(decision.admitted),
    )


def _may_be_held(task: Task, dimensions: Dimensions, limits: Mapping[str, int | None]) -> bool:
    limited = task.weight > 0 and limits.get(pool_of(dimensions)) is not None
    return bool(task.mutexes or task.limits or task.not_before) or limited


def _facts(look: why_facts.Facts, limits: Mapping[str, int | None]) -> tuple[Facts, bool]:
    """Read what a pass looks at; tell whether that is all of it."""
    holding = [row for state in sorted(HOLDING) for row in _all(look, state)]
    pending = [row for state in sorted(_ADMISSIBLE) for row in look.txn.passes.contenders(state, 0, PENDING_MAX + 1)]
    contenders = _contenders(look, [*holding, *pending[:PENDING_MAX]])
    since = {text(row.id): row.moved_ms for row in holding}
    facts = Facts(
        pending=tuple(one for one in contenders if one.id not in since),
        holding=tuple(one.admitted(since[one.id]) for one in contenders if one.id in since),
        pools=tuple(Pool(name, total) for name, total in limits.items()),
        limits=look.txn.passes.named_limits(),
        stake_after=look.txn.passes.stake_after(),
    )
    return facts, len(pending) <= PENDING_MAX


def _all(look: why_facts.Facts, state: State) -> Iterator[ContenderRow]:
    after = 0
    while page := look.txn.passes.contenders(state, after, READ_MAX):
        yield from page
        after = page[-1].id


def _contenders(look: why_facts.Facts, rows: Sequence[ContenderRow]) -> list[Contender]:
    ids = [row.id for row in rows]
    excluding = [row.id for row in rows if row.excludes]
    mutexes, demands = look.txn.passes.mutexes_of(excluding), look.txn.passes.limits_of(excluding)
    holds = look.txn.passes.holds_of(ids)
    found = []
    for row in rows:
        pool, dimensions = look.queue(row.queue)
        hold = holds.get(row.id)
        since = hold.since_ms if hold is not None and hold.reason in FOR_CAPACITY and hold.name == pool else None
        what = (mutexes.get(row.id, ()), demands.get(row.id, ()))
        served = not what[0] or row.queue == SERVER_QUEUE or _served(look, dimensions)
        by_mutex = None if hold is None else hold.mutex_since_ms
        rest = (pool, row.weight, *what, row.not_before_ms, served, since, by_mutex)
        found.append(Contender(text(row.id), row.priority, row.created_ms, *rest))
    return found


def _contender(look: why_facts.Facts, id: TaskId, task: Task, dimensions: Dimensions) -> Contender:
    begins = task.not_before.moment(look.now) if task.not_before else None
    served = not task.mutexes or task.slices[0].kind in SERVER_KINDS or _served(look, dimensions)
    what = (task.weight, task.mutexes, task.limits)
    return Contender(id, task.priority, look.now, pool_of(dimensions), *what, begins, served)


def _served(look: why_facts.Facts, dimensions: Dimensions) -> bool:
    return fleet.served(dimensions, look.fleet[0])


def _unaged(held: Held) -> Held:
    """Leave out since when a task waits that does not wait yet."""
    return replace(held, since=None if held.reason in FOR_CAPACITY else held.since, mutex_since=None)


def _id(number: int) -> TaskId:
    return TaskId(f"{_NEW}{number:09}")

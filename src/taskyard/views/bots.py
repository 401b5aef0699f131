"""Bots and pools for people: how each stands, what happened to it, and which dimensions there are. Nothing writes."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from taskyard.core.fleet import BotFacts, Condition, alive, stands
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import POOL, Dimensions
from taskyard.core.states import BotId, Millis
from taskyard.core.structs import value
from taskyard.store.connection import Repo
from taskyard.store.queries import Row
from taskyard.store.repo.admission import PoolRow
from taskyard.store.repo.bots import decode_dimensions
from taskyard.store.repo.read import FIRST_NAME, BotRow
from taskyard.wire.api import BotEventView, BotView, DimensionAggregation, PoolView

#: How many bots are read at once, and how many are looked at for one page.
PAGE_MAX: Final = 500
LOOKED_MAX: Final = 5_000
#: How many tasks of a bot are named.
TASKS_MAX: Final = 1_000


@value
class BotFilter:
    """Which bots are asked for; what is left empty asks for any."""

    pools: frozenset[str] | None = None  # of one of these
    condition: Condition | None = None
    dimensions: tuple[tuple[str, str], ...] = ()  # all of these


def bots(repo: Repo, wanted: BotFilter, after: str, count: int) -> tuple[list[BotView], str | None]:
    """Show bots beyond an id, and say where to go on; None at the end."""
    found: list[BotView] = []
    looked = 0
    for row in _rows(repo, after):
        if len(found) == count or looked == LOOKED_MAX:
            return found, after
        after, looked = row.id, looked + 1
        if _is_wanted(row, wanted):
            found.append(_view(row))
    return found, None


def bot(repo: Repo, id: str) -> BotView | None:
    """Show one bot, with the tasks it has."""
    row = repo.read.bot(id)
    if row is None:
        return None
    return _view(row, [text_of(Key(task)) for task, _ in repo.tasks.leased_by([id], TASKS_MAX)])


def aggregation(repo: Repo, pools: frozenset[str] | None = None) -> DimensionAggregation:
    """Put together which values of which dimensions the bots of some pools have that have not said goodbye."""
    found: dict[str, set[str]] = defaultdict(set)
    count = 0
    for row in _rows(repo, FIRST_NAME):
        has = decode_dimensions(row.dimensions)
        if not row.terminated and (pools is None or not pools.isdisjoint(_pools(has))):
            count += 1
            for key, values in has:
                found[key].update(values)
    return DimensionAggregation({key: sorted(found[key]) for key in sorted(found)}, count)


def pools(repo: Repo) -> list[PoolView]:
    """Show every pool that an admin described or that has a bot, with its live bots."""
    count: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    for row in _rows(repo, FIRST_NAME):
        facts = _facts(row)
        for pool in () if facts.terminated else _pools(facts.dimensions):
            count[pool] += alive(facts)
            slots[pool] += row.slots if alive(facts) else 0
    described = {one.name: one for one in repo.admission.pools()}
    every = {**{name: PoolRow(name, None, False) for name in count}, **described}
    return [
        PoolView(name, one.capacity, one.from_bots, count[name], slots[name]) for name, one in sorted(every.items())
    ]


def fleet(repo: Repo) -> tuple[tuple[BotFacts, ...], bool]:
    """Give what the rules know about bots, as many as are looked at; tell whether these are all."""
    found = list(islice(_rows(repo, FIRST_NAME), LOOKED_MAX + 1))
    return tuple(map(_facts, found[:LOOKED_MAX])), len(found) <= LOOKED_MAX


def _rows(repo: Repo, after: str) -> Iterator[BotRow]:
    """Read bots page by page, as far as somebody wants them."""
    while rows := repo.read.bots(after, PAGE_MAX):
        yield from rows
        if len(rows) < PAGE_MAX:
            return
        after = rows[-1].id


def _is_wanted(row: BotRow, wanted: BotFilter) -> bool:
    facts = _facts(row)
    has = {(key, value) for key, values in facts.dimensions for value in values}
    return (
        (wanted.pools is None or not wanted.pools.isdisjoint(_pools(facts.dimensions)))
        and (wanted.condition is None or stands(facts, [wanted.condition]))
        and has.issuperset(wanted.dimensions)
    )


def _facts(row: BotRow) -> BotFacts:
    return BotFacts(
        BotId(row.id),
        decode_dimensions(row.dimensions),
        Millis(row.last_seen_ms),
        row.slots,
        row.busy,
        row.quarantined,
        row.maintenance,
        row.draining == 1,
        row.terminated == 1,
        row.missing == 1,
        row.ending == 1,
    )


def _pools(dimensions: Dimensions) -> tuple[str, ...]:
    return dict(dimensions).get(POOL, ())


def _view(row: BotRow, tasks: list[str] | None = None) -> BotView:
    facts = _facts(row)
    return BotView(
        id=row.id,
        pool=next(iter(_pools(facts.dimensions)), ""),
        dimensions={key: list(values) for key, values in facts.dimensions},
        slots=row.slots,
        busy=row.busy - row.assigned,
        assigned=row.assigned,
        alive=alive(facts),
        first_seen_ms=row.first_seen_ms,
        last_seen_ms=row.last_seen_ms,
        quarantined=row.quarantined,
        maintenance=row.maintenance,
        draining=facts.draining,
        terminated=facts.terminated,
        ending=facts.ending,
        tasks=tasks or [],
    )


# What happened to a bot, for people: what was noted of it, and what it ran, in the order of time. Nothing here writes.
#
# Nothing is noted when a task begins or ends, since that happens thousands of times a second. It is read from
# attempts: those that a bot has in hand, and those of the newest tasks, as many as are looked through in a moment.


#: Among how many attempts, those of the newest tasks first, it is looked for what a bot ran.
EVENTS_LOOKED_MAX: Final = 20_000
STARTED: Final = "task_started"
ENDED: Final = "task_ended"
#: Where a list begins: a moment that is never reached.
NEWEST: Final = (2**63 - 1, "")


def events(
    repo: Repo, id: str, after: tuple[int, str], count: int
) -> tuple[list[BotEventView], tuple[int, str] | None]:
    """Show what happened to a bot, the newest first, beyond an event of a moment; say where to go on."""
    found = [_noted(row) for row in repo.read.bot_events(id, *after, count + 1)]
    for row in repo.read.bot_attempts(id, EVENTS_LOOKED_MAX):
        found += [one for one in _ran(row) if _place(one) > _place_of(*after)]
    found.sort(key=_place)
    page = found[:count]
    return page, (page[-1].at_ms, page[-1].id) if len(found) > count else None


def _noted(row: Row) -> BotEventView:
    id, at_ms, kind, task, attempt, note = row
    return BotEventView(id, at_ms, kind, None if task is None else text_of(Key(task)), attempt, note)


def _ran(row: Row) -> Iterator[BotEventView]:
    key, number, claimed_ms, ended_ms, signal, reason = row
    task = text_of(Key(key))
    yield BotEventView(f"{task}-{number}-started", claimed_ms, STARTED, task, number, "")
    if ended_ms is not None:
        yield BotEventView(f"{task}-{number}-ended", ended_ms, ENDED, task, number, f"{signal}: {reason}")


def _place(one: BotEventView) -> tuple[int, str]:
    return _place_of(one.at_ms, one.id)


def _place_of(at_ms: int, id: str) -> tuple[int, str]:
    """Where an event stands in a list that has the newest first; of one moment, an end is before its start."""
    return -at_ms, id

"""Bots and pools: their state, their events, and the dimensions that there are."""

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

#: How many bots one query reads, and how many are looked at for one page.
PAGE_MAX: Final = 500
LOOKED_MAX: Final = 5_000
#: How many tasks of a bot are named.
TASKS_MAX: Final = 1_000


@value
class BotFilter:
    """Which bots to show; empty fields match all."""

    pools: frozenset[str] | None = None  # of one of these
    condition: Condition | None = None
    dimensions: tuple[tuple[str, str], ...] = ()  # all of these


def bots(repo: Repo, wanted: BotFilter, after: str, count: int) -> tuple[list[BotView], str | None]:
    """Show bots after an id; return where the next page begins, None at the end."""
    found: list[BotView] = []
    seen = 0
    for row in _rows(repo, after):
        if len(found) == count or seen == LOOKED_MAX:
            return found, after
        after, seen = row.id, seen + 1
        if _is_wanted(row, wanted):
            found.append(_view(row))
    return found, None


def bot(repo: Repo, id: str) -> BotView | None:
    """Show one bot, with the tasks that it holds."""
    row = repo.read.bot(id)
    if row is None:
        return None
    return _view(row, [text_of(Key(task)) for task, _ in repo.tasks.leased_by([id], TASKS_MAX)])


def aggregation(repo: Repo, pools: frozenset[str] | None = None) -> DimensionAggregation:
    """Combine the dimensions of all bots of some pools that have not said goodbye."""
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
    """Show all pools that are configured or have a bot, with their live bots."""
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
    """Return what the rules need to know about bots, up to a limit; and whether these are all."""
    found = list(islice(_rows(repo, FIRST_NAME), LOOKED_MAX + 1))
    return tuple(map(_facts, found[:LOOKED_MAX])), len(found) <= LOOKED_MAX


def _rows(repo: Repo, after: str) -> Iterator[BotRow]:
    """Read bots page by page, as long as the caller wants more."""
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


# Events of a bot. The begin and end of tasks have no stored events, because they happen thousands of times per second;
# they are read from attempts: those that the bot runs, and its own among the newest ones.

#: How many attempts, newest tasks first, are searched for those of a bot.
EVENTS_LOOKED_MAX: Final = 20_000
STARTED: Final = "task_started"
ENDED: Final = "task_ended"
#: Sorts before every event.
NEWEST: Final = (2**63 - 1, "")


def events(
    repo: Repo, id: str, after: tuple[int, str], count: int
) -> tuple[list[BotEventView], tuple[int, str] | None]:
    """Show the events of a bot after one of them, newest first; return where the next page begins."""
    found = [_stored_event(row) for row in repo.read.bot_events(id, *after, count + 1)]
    for row in repo.read.bot_attempts(id, EVENTS_LOOKED_MAX):
        found += [one for one in _attempt_events(row) if _sort_key(one) > _sort_key_of(*after)]
    found.sort(key=_sort_key)
    page = found[:count]
    return page, (page[-1].at_ms, page[-1].id) if len(found) > count else None


def _stored_event(row: Row) -> BotEventView:
    id, at_ms, kind, task, attempt, note = row
    return BotEventView(id, at_ms, kind, None if task is None else text_of(Key(task)), attempt, note)


def _attempt_events(row: Row) -> Iterator[BotEventView]:
    key, number, claimed_ms, ended_ms, signal, reason = row
    task = text_of(Key(key))
    yield BotEventView(f"{task}-{number}-started", claimed_ms, STARTED, task, number, "")
    if ended_ms is not None:
        yield BotEventView(f"{task}-{number}-ended", ended_ms, ENDED, task, number, f"{signal}: {reason}")


def _sort_key(one: BotEventView) -> tuple[int, str]:
    return _sort_key_of(one.at_ms, one.id)


def _sort_key_of(at_ms: int, id: str) -> tuple[int, str]:
    """The sort key of an event: newest first; at the same time the end of an attempt comes before its begin."""
    return -at_ms, id

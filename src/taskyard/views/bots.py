"""Bots and pools: their state, their events, and the dimensions that there are."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import islice
from typing import Final

from taskyard.core import resources
from taskyard.core.caches import cache_name
from taskyard.core.comparison import TAKEN
from taskyard.core.fleet import BotFacts, Condition, alive, capacity, counts, is_older, stands
from taskyard.core.ids import Key, bot_root, pool_root, text_of
from taskyard.core.matching import ID, POOL, Dimensions, matches
from taskyard.core.resources import NOTHING, ONE_SLOT, Resources
from taskyard.core.reuse import ReusePolicy
from taskyard.core.states import QUEUED, BotId, Millis
from taskyard.core.structs import value
from taskyard.lifecycle.reuse import reuse_policy
from taskyard.store.connection import Repo
from taskyard.store.queries import Row
from taskyard.store.repo.admission import PoolRow
from taskyard.store.repo.bots import decode_caches, decode_dimensions
from taskyard.store.repo.read import FIRST_NAME, BotRow
from taskyard.wire.api import BotEventView, BotQueueView, BotView, DimensionAggregation, PoolView

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
    seen, taken = 0, _taken(repo)
    for row in _rows(repo, after):
        if len(found) == count or seen == LOOKED_MAX:
            return found, after
        after, seen = row.id, seen + 1
        if _is_wanted(_facts(row, taken.get(row.id, NOTHING)), wanted):
            found.append(_view(row))
    return found, None


def bot(repo: Repo, id: str) -> BotView | None:
    """Show one bot, with the tasks that it holds."""
    row = repo.read.bot(id)
    if row is None:
        return None
    return _view(row, [text_of(Key(task)) for task, _ in repo.tasks.leased_by([id], TASKS_MAX)])


def pool_of_name(repo: Repo, id: str) -> str | None:
    """Return the pool of a bot, or to which the name of a forgotten bot belongs."""
    row = repo.read.bot(id)
    if row is None:
        return repo.bots.bound_names([id]).get(id)
    return next(iter(_pools(decode_dimensions(row.dimensions))), "")


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
    working: list[BotFacts] = []
    for row in _rows(repo, FIRST_NAME):
        facts = _facts(row)
        working.append(facts)
        for pool in () if facts.terminated else _pools(facts.dimensions):
            count[pool] += alive(facts)
            slots[pool] += row.slots if alive(facts) else 0
    described = {one.name: one for one in repo.admission.pools()}
    every = {**{name: PoolRow(name, None, False) for name in count}, **described}
    return [
        PoolView(
            name,
            one.capacity,
            one.from_bots,
            one.unit,
            one.adjustment,
            _total(one, working),
            count[name],
            slots[name],
            reuse.window_ms,
            reuse.shared,
            one.external,
        )
        for name, one, reuse in _with_reuse(repo, every)
    ]


def _total(pool: PoolRow, bots: Sequence[BotFacts]) -> int | None:
    """Return the capacity that a pool has now; None if it is unlimited."""
    return capacity(pool.name, bots, pool.unit, pool.adjustment) if pool.from_bots else pool.capacity


def _with_reuse(repo: Repo, pools: Mapping[str, PoolRow]) -> Iterator[tuple[str, PoolRow, ReusePolicy]]:
    """Give pools by name, with what they allow for the reuse of results."""
    known = {row.pool: row for row in repo.reuse.policies()}
    for name in sorted(pools):
        yield name, pools[name], reuse_policy(known.get(name))


def fleet(repo: Repo) -> tuple[tuple[BotFacts, ...], bool]:
    """Return what the rules need to know about bots, up to a limit; and whether these are all."""
    found = list(islice(_rows(repo, FIRST_NAME), LOOKED_MAX + 1))
    taken, kept = _taken(repo), repo.read.kept_bots(QUEUED)
    facts = [_facts(row, taken.get(row.id, NOTHING), kept.get(row.id)) for row in found[:LOOKED_MAX]]
    return tuple(facts), len(found) <= LOOKED_MAX


def _rows(repo: Repo, after: str) -> Iterator[BotRow]:
    """Read bots page by page, as long as the caller wants more."""
    while rows := repo.read.bots(after, PAGE_MAX):
        yield from rows
        if len(rows) < PAGE_MAX:
            return
        after = rows[-1].id


def _is_wanted(facts: BotFacts, wanted: BotFilter) -> bool:
    has = {(key, value) for key, values in facts.dimensions for value in values}
    return (
        (wanted.pools is None or not wanted.pools.isdisjoint(_pools(facts.dimensions)))
        and (wanted.condition is None or stands(facts, [wanted.condition]))
        and has.issuperset(wanted.dimensions)
    )


def _taken(repo: Repo) -> Mapping[str, Resources]:
    """Return what the tasks of each bot take beside one slot for each."""
    with_mark = repo.read.queues_with_text(TAKEN)
    takes = {queue: one for queue, has in with_mark.items() if (one := resources.taken(has)) != ONE_SLOT}
    found: dict[str, Resources] = {}
    for bot, queue, count in repo.read.held_of_queues(takes):
        one = takes[queue]
        more = Resources((one.slots - 1) * count, one.cpus * count, one.memory * count, one.gpus * count)
        found[bot] = found.get(bot, NOTHING) + more
    return found


def _facts(row: BotRow, taken: Resources = NOTHING, kept_for: Dimensions | None = None) -> BotFacts:
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
        taken,
        kept_for,
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
        version=row.version or None,
        outdated=row.version is not None and is_older(row.version, _own_version()),
        caches=sorted({cache_name(key) for key in decode_caches(row.caches)}),
        failures=row.failures,
    )


@cache
def _own_version() -> str:
    return version("taskyard")


# Queues of a bot. Nothing stores them: a server keeps in memory which queues each bot serves.

#: How many queues are looked at for one page, and how many waiting tasks are counted in each.
QUEUES_LOOKED_MAX: Final = 5_000
WAITING_COUNTED_MAX: Final = 1_000


def queues(repo: Repo, id: str, after: int, count: int) -> tuple[list[BotQueueView], int | None]:
    """Show the queues that a bot looks at, after a queue number; return where the next page begins."""
    row = repo.read.bot(id)
    assert row is not None, "the caller has found the bot"
    has = decode_dimensions(row.dimensions)
    looked = repo.read.queues_of_roots(_roots(has), after, QUEUES_LOOKED_MAX)
    found = [one for one in looked if matches(one.dimensions, has)]
    page = found[:count]
    waiting = repo.read.waiting_in([one.id for one in page], WAITING_COUNTED_MAX)
    shown = [
        BotQueueView(one.hash, {key: list(values) for key, values in one.dimensions}, waiting[one.id]) for one in page
    ]
    if len(found) > count:
        return shown, page[-1].number
    return shown, looked[-1].number if len(looked) == QUEUES_LOOKED_MAX else None


def _roots(has: Dimensions) -> list[str]:
    """Return the roots of all queues that a bot can look at: those of its own id, and those of its pools."""
    had = dict(has)
    return [*map(bot_root, map(BotId, had.get(ID, ()))), *map(pool_root, had.get(POOL, ()))]


def states(repo: Repo) -> dict[Condition, int]:
    """Count the bots for each word that describes bots."""
    return dict(counts(map(_facts, _rows(repo, FIRST_NAME))))


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

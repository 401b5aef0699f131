"""What is stored beside the work and may have gone astray: numbers of the fleet, holds, what nobody has, overuse.

Everything is read in pages, and nothing here writes.
"""

from collections.abc import Iterator
from typing import Final

from taskyard.core.admission import carries, excludes
from taskyard.core.ids import Key, bot_event_number, text_of
from taskyard.core.machine import HOLDING, sources
from taskyard.core.matching import POOL, dimension_hash, matches, queue_root
from taskyard.core.words import Signal
from taskyard.lifecycle import finding
from taskyard.lifecycle.births import SERVER_QUEUE
from taskyard.lifecycle.finding import Finding
from taskyard.store.sessions import Row
from taskyard.store.txn import Txn
from taskyard.store.verbs.fleet import QueueRow

#: How many rows are in memory at once.
PAGE_MAX: Final = 1_000
#: Who stands before admission, and so can be held by it.
HELD: Final = sources(Signal.ADMIT)


def strays(txn: Txn) -> Iterator[Finding]:
    """Say what is wrong with everything but tasks and graphs."""
    yield from _holds(txn)
    yield from _edges(txn)
    yield from _queues(txn)
    yield from _bots(txn)
    yield from _served(txn)
    yield from _clashes(txn)
    yield from _overuse(txn)
    yield from _unattempted(txn)


def queue_row(queue: QueueRow) -> Row:
    """Give a queue as it follows from its dimensions: id, hash, root, pool."""
    pool = next(iter(dict(queue.dimensions).get(POOL, ())), "")
    return (queue.id, dimension_hash(queue.dimensions), queue_root(queue.dimensions), pool)


def events_of_bot(newest: str | None) -> int:
    """Say how many events a bot has had whose newest has this key."""
    return 0 if newest is None else bot_event_number(newest) + 1


def _holds(txn: Txn) -> Iterator[Finding]:
    after, (held,) = -1, HELD
    while page := txn.care.holds(held, after, PAGE_MAX):
        for task, state in page:
            yield Finding(finding.HOLD, task, "task", f"held though it is {state}", "not held")
        after = page[-1][0]


def _edges(txn: Txn) -> Iterator[Finding]:
    for prerequisite, dependent, ran_for in txn.care.ran(PAGE_MAX):
        column = f"ran_for to {text_of(Key(dependent))}"
        yield Finding(finding.EDGE, prerequisite, column, ran_for, None)


def _queues(txn: Txn) -> Iterator[Finding]:
    told, queues, highest = txn.care.queue_counts()
    if told != highest:
        yield Finding(finding.SERVICE, "here", "queues", told, highest)
    if queues != highest + 1:
        # Servers remember queues by their numbers: they cannot be given others.
        yield Finding(finding.SERVICE, "here", "number of queues", queues, highest + 1, mendable=False)
    after = -1
    while page := txn.care.queues(after, PAGE_MAX):
        for queue in page:
            if queue.id != SERVER_QUEUE:
                yield from _queue(queue)
        after = page[-1].number


def _queue(queue: QueueRow) -> Iterator[Finding]:
    have: Row = (queue.hash, queue.root, queue.pool)
    for column, before, after in zip(("hash", "root", "pool"), have, queue_row(queue)[1:], strict=True):
        if before != after:
            yield Finding(finding.QUEUE, queue.id, column, before, after)


def _bots(txn: Txn) -> Iterator[Finding]:
    after = ""
    while page := txn.care.bots(after, PAGE_MAX):
        for bot, told, newest in page:
            if told != events_of_bot(newest):
                yield Finding(finding.BOT, bot, "events", told, events_of_bot(newest))
        after = page[-1][0]


def _served(txn: Txn) -> Iterator[Finding]:
    bot, queue = "", -1
    while page := txn.care.bot_queues(bot, queue, PAGE_MAX):
        for bot, queue, had, asked in page:
            if queue == SERVER_QUEUE or not matches(asked, had):
                yield Finding(finding.BOT_QUEUE, bot, "queue_id", queue, None)


def _clashes(txn: Txn) -> Iterator[Finding]:
    """Find holders of one key that exclude each other: some have run together that never should."""
    key, task = "", -1
    first: tuple[str, int, str | None] | None = None
    while page := txn.care.mutexes(HOLDING, key, task, PAGE_MAX):
        for key, task, party in page:
            if first is None or first[0] != key:
                first = (key, task, party)
            elif excludes(first[2], party):
                holders = f"{text_of(Key(first[1]))} and {text_of(Key(task))}"
                yield Finding(finding.MUTEX, key, "holders", holders, "one party", mendable=False)


def _overuse(txn: Txn) -> Iterator[Finding]:
    """Find limits and fixed capacities that are overused; if one was lowered a while ago, this passes."""
    totals = txn.passes.named_limits()
    for name, used in txn.care.limits(HOLDING).items():
        if used > totals.get(name, 0):
            yield Finding(finding.LIMIT, name, "use", used, f"at most {totals.get(name, 0)}", mendable=False)
    capacities = {pool.name: pool.capacity for pool in txn.passes.pools() if not pool.from_bots}
    for name, (used, holders) in txn.care.pools(HOLDING).items():
        capacity = capacities.get(name)
        if holders > 1 and not carries(capacity, used, 0):
            yield Finding(finding.POOL, name, "use", used, f"at most {capacity}", mendable=False)


def _unattempted(txn: Txn) -> Iterator[Finding]:
    """Find what was kept for attempts that are not there. It may be all that is left of somebody's work."""
    for table, task, attempt in txn.care.strays(PAGE_MAX):
        yield Finding(table, task, "attempt", attempt, None, mendable=False)

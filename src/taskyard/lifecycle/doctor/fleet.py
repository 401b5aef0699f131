"""What is stored beside the work and may have gone astray: numbers of the fleet, holds, what nobody has, overuse.

Everything is read in pages, and nothing here writes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from taskyard.core.admission.rules import carries, excludes
from taskyard.core.fleet import GUARD_MS
from taskyard.core.ids import Key, bot_event_number, text_of
from taskyard.core.matching import dimension_hash, matches, pool_of, queue_root
from taskyard.core.states import HOLDING, Kind, Signal, sources
from taskyard.lifecycle.bot_sessions import CONNECTED, ENDED, MISSING
from taskyard.lifecycle.doctor import finding
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.store.connection import Repo
from taskyard.store.queries import Row
from taskyard.store.repo.bots import QueueRow
from taskyard.store.repo.doctor import BotRow

#: How many rows are in memory at once.
PAGE_MAX: Final = 1_000
#: What says that a bot came, left, or was missed.
PRESENCE: Final = (CONNECTED, ENDED, MISSING)
#: So many queues can share a hash; the rest of the id of a queue is its hash.
TWINS_MAX: Final = 256
#: Who stands before admission, and so can be held by it.
HELD: Final = sources(Signal.ADMIT)


def strays(repo: Repo) -> Iterator[Finding]:
    """Say what is wrong with everything but tasks and graphs."""
    yield from mendable_strays(repo, _MENDABLE)
    yield from _clashes(repo)
    yield from _overuse(repo)
    yield from _unattempted(repo)


def mendable_strays(repo: Repo, kinds: Collection[str]) -> Iterator[Finding]:
    """Say what is wrong with some kinds of what can be mended."""
    for kind, survey in _MENDABLE.items():
        if kind in kinds:
            yield from survey(repo)


def queue_row(queue: QueueRow) -> Row:
    """Give a queue as it follows from its dimensions: id, hash, root, pool."""
    return (queue.id, dimension_hash(queue.dimensions), queue_root(queue.dimensions), pool_of(queue.dimensions))


def is_of_its_dimensions(queue: QueueRow) -> bool:
    """Tell whether a queue asks for what it was made for: its id tells the hash of that."""
    return queue.id // TWINS_MAX == dimension_hash(queue.dimensions)


def _holds(repo: Repo) -> Iterator[Finding]:
    after, (held,) = -1, HELD
    while page := repo.doctor.holds(held, after, PAGE_MAX):
        for task, state in page:
            yield Finding(finding.HOLD, task, "task", f"held though it is {state}", "not held")
        after = page[-1][0]


def _service(repo: Repo) -> Iterator[Finding]:
    """Compare what the service counts and since when servers are up: were that later than now, leases would last."""
    told, queues, highest = repo.doctor.queue_counts()
    if told != highest:
        yield Finding(finding.SERVICE, "here", "queues", told, highest)
    if queues != highest + 1:
        # Servers remember queues by their numbers: they cannot be given others.
        yield Finding(finding.SERVICE, "here", "number of queues", queues, highest + 1, mendable=False)
    for name, server in sorted(repo.servers.all().items()):
        if server.since_ms > server.seen_ms + GUARD_MS:
            yield Finding(finding.SERVICE, name or "here", "since_ms", server.since_ms, server.seen_ms)


def _queues(repo: Repo) -> Iterator[Finding]:
    after = -1
    while page := repo.doctor.queues(after, PAGE_MAX):
        for queue in page:
            if queue.id != SERVER_QUEUE:
                yield from _queue(queue)
        after = page[-1].number


def _queue(queue: QueueRow) -> Iterator[Finding]:
    have: Row = (queue.hash, queue.root, queue.pool)
    want = queue_row(queue)[1:]
    if not is_of_its_dimensions(queue):
        yield Finding(finding.QUEUE, queue.id, "dimensions", want[0], queue.id // TWINS_MAX, mendable=False)
        return
    for column, before, after in zip(("hash", "root", "pool"), have, want, strict=True):
        if before != after:
            yield Finding(finding.QUEUE, queue.id, column, before, after)


def _bots(repo: Repo) -> Iterator[Finding]:
    for bot in bots(repo):
        for column, before, after in zip(BotRow._fields, bot, counted_bot(bot), strict=True):
            if before != after:
                yield Finding(finding.BOT, bot.id, column, before, after)


def bots(repo: Repo) -> Iterator[BotRow]:
    """Read every bot, with what its events say."""
    after = ""
    while page := repo.doctor.bots(after, PRESENCE, PAGE_MAX):
        yield from page
        after = page[-1].id


def counted_bot(bot: BotRow) -> BotRow:
    """Give a bot as its events say. Whoever came back within its session has left no event of that."""
    return bot._replace(
        events=0 if bot.newest is None else bot_event_number(bot.newest) + 1,
        first_seen_ms=bot.first_seen_ms if bot.first_ms is None else bot.first_ms,
        terminated=int(bot.terminated != 0 and bot.left == ENDED),
        missing=int(bot.missing != 0 and bot.missed == MISSING),
    )


def _served(repo: Repo) -> Iterator[Finding]:
    bot, queue = "", -1
    while page := repo.doctor.bot_queues(bot, queue, PAGE_MAX):
        for bot, queue, had, asked in page:
            if queue == SERVER_QUEUE or not matches(asked, had):
                yield Finding(finding.BOT_QUEUE, bot, "queue_id", queue, None)


def _clashes(repo: Repo) -> Iterator[Finding]:
    """Find holders of one key that exclude each other: some have run together that never should."""
    key, task = "", -1
    first: tuple[str, int, str | None] | None = None
    while page := repo.doctor.mutexes(HOLDING, key, task, PAGE_MAX):
        for key, task, party in page:
            if first is None or first[0] != key:
                first = (key, task, party)
            elif excludes(first[2], party):
                holders = f"{text_of(Key(first[1]))} and {text_of(Key(task))}"
                yield Finding(finding.MUTEX, key, "holders", holders, "one party", mendable=False)


def _overuse(repo: Repo) -> Iterator[Finding]:
    """Find limits and fixed capacities that are overused; if one was lowered a while ago, this passes."""
    totals = repo.admission.named_limits()
    for name, used in repo.doctor.limits(HOLDING).items():
        if used > totals.get(name, 0):
            yield Finding(finding.LIMIT, name, "use", used, f"at most {totals.get(name, 0)}", mendable=False)
    capacities = {pool.name: pool.capacity for pool in repo.admission.pools() if not pool.from_bots}
    for name, (used, holders) in repo.doctor.pools(HOLDING).items():
        capacity = capacities.get(name)
        if holders > 1 and not carries(capacity, used, 0):
            yield Finding(finding.POOL, name, "use", used, f"at most {capacity}", mendable=False)


def _unattempted(repo: Repo) -> Iterator[Finding]:
    """Find what was kept for attempts that are not there. It may be all that is left of somebody's work."""
    for table, task, attempt in repo.doctor.strays(PAGE_MAX):
        yield Finding(table, task, "attempt", attempt, None, mendable=False)
    for task in repo.doctor.hollow(SERVER.bot, Kind.GRAPH.text, PAGE_MAX):
        yield Finding(finding.TASK, task, "graph inside", None, "there", mendable=False)


#: How to find what can be mended.
_MENDABLE: Final[Mapping[str, Callable[[Repo], Iterator[Finding]]]] = {
    finding.HOLD: _holds,
    finding.SERVICE: _service,
    finding.QUEUE: _queues,
    finding.BOT: _bots,
    finding.BOT_QUEUE: _served,
}

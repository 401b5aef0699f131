"""The fleet, holds of admission, overuse of mutexes, limits and pools, orphans, equal tasks, and the catalogue."""

from collections.abc import Collection, Iterator
from typing import Final

from taskyard.core.admission.rules import carries, excludes
from taskyard.core.catalogue.model import references
from taskyard.core.catalogue.parse import stored_document
from taskyard.core.fleet import GUARD_MS
from taskyard.core.graph.payload import GRAPH_KINDS
from taskyard.core.ids import Key, bot_event_number, text_of
from taskyard.core.matching import dimension_hash, matches, pool_of, queue_root
from taskyard.core.states import ACTIVE, BEHIND, GONE_WRONG, HOLDING, Reason, Signal, sources
from taskyard.lifecycle.bot_events import CONNECTED, ENDED, MISSING
from taskyard.lifecycle.catalogue import STORED_KINDS
from taskyard.lifecycle.doctor import finding
from taskyard.lifecycle.doctor.finding import Finding, broken, differences
from taskyard.lifecycle.reuse import SERVE
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.store.connection import Repo
from taskyard.store.queries import Row
from taskyard.store.repo.bots import QueueRow
from taskyard.store.repo.catalogue import FIRST as NO_DOCUMENT
from taskyard.store.repo.catalogue import DocumentRow, Name
from taskyard.store.repo.doctor import CheckedBot

#: How many rows are in memory at once.
PAGE_MAX: Final = 1_000
#: How many documents, each of up to a megabyte.
DOCUMENTS_MAX: Final = 50
#: The events that say whether a bot is connected, terminated or missing.
PRESENCE: Final = (CONNECTED, ENDED, MISSING)
#: So many queues can share a hash; the rest of the id of a queue is its hash.
QUEUES_PER_HASH: Final = 256
#: The state before admission, in which a pass can hold a task.
(HELD,) = sources(Signal.ADMIT)


def findings(repo: Repo) -> Iterator[Finding]:
    """Report what is wrong with everything but tasks and graphs."""
    yield from counts(repo)
    yield from _clashes(repo)
    yield from _overuse(repo)
    yield from _orphans(repo)
    yield from _equal_tasks(repo)
    yield from _documents(repo)


def counts(repo: Repo) -> Iterator[Finding]:
    """Report the stored values of the fleet and of admission that do not follow from other rows."""
    yield from _holds(repo)
    yield from _service(repo)
    yield from _queues(repo)
    for bot in bots(repo):
        yield from differences(finding.BOT, bot.id, CheckedBot._fields, bot, recount_bot(bot))
    yield from _bot_queues(repo)


def bots(repo: Repo) -> Iterator[CheckedBot]:
    """Read every bot, with what its events say."""
    after = ""
    while page := repo.doctor.bots(after, PRESENCE, PAGE_MAX):
        yield from page
        after = page[-1].id


def recount_bot(bot: CheckedBot) -> CheckedBot:
    """Return a bot as its events say. One that came back within its session has no event of that."""
    return bot._replace(
        events=0 if bot.newest is None else bot_event_number(bot.newest) + 1,
        terminated=int(bot.terminated != 0 and bot.left == ENDED),
        missing=int(bot.missing != 0 and bot.missed == MISSING),
    )


def queue_row(queue: QueueRow) -> Row:
    """Return a queue as it follows from its dimensions: id, hash, root, pool."""
    return (queue.id, dimension_hash(queue.dimensions), queue_root(queue.dimensions), pool_of(queue.dimensions))


def _holds(repo: Repo) -> Iterator[Finding]:
    after = -1
    while page := repo.doctor.holds(HELD, after, PAGE_MAX):
        for task, state in page:
            yield Finding(finding.HOLD, task, "task", f"held though it is {state}", "not held")
        after = page[-1][0]


def _service(repo: Repo) -> Iterator[Finding]:
    stored, highest = repo.doctor.queue_counts()
    if stored != highest:
        yield Finding(finding.SERVICE, "here", "queues", stored, highest)
    for name, server in sorted(repo.servers.all().items()):
        # No lease ends within its full length after a server started: one that starts in the future keeps them all.
        if server.since_ms > server.seen_ms + GUARD_MS:
            yield broken(finding.SERVICE, name or "here", "since_ms", server.since_ms, f"at most {server.seen_ms}")


def _queues(repo: Repo) -> Iterator[Finding]:
    after = -1
    while page := repo.doctor.queues(after, PAGE_MAX):
        for queue in page:
            if queue.id != SERVER_QUEUE:
                yield from _queue(queue)
        after = page[-1].number


def _queue(queue: QueueRow) -> Iterator[Finding]:
    stored, wanted = (queue.id, queue.hash, queue.root, queue.pool), queue_row(queue)
    if queue.id // QUEUES_PER_HASH == wanted[1]:
        yield from differences(finding.QUEUE, queue.id, ("id", "hash", "root", "pool"), stored, wanted)
    else:
        yield broken(finding.QUEUE, queue.id, "dimensions", wanted[1], queue.id // QUEUES_PER_HASH)


def _bot_queues(repo: Repo) -> Iterator[Finding]:
    """A bot serves the queues that match its dimensions."""
    bot, queue = "", -1
    while page := repo.doctor.bot_queues(bot, queue, PAGE_MAX):
        for bot, queue, had, asked in page:
            if queue == SERVER_QUEUE or not matches(asked, had):
                yield Finding(finding.BOT_QUEUE, bot, "queue_id", queue, None)


def _clashes(repo: Repo) -> Iterator[Finding]:
    """The holders of a mutex are one task, or tasks of one party."""
    key, task = "", -1
    first: tuple[str, int, str | None] | None = None
    while page := repo.doctor.mutexes(HOLDING, key, task, PAGE_MAX):
        for key, task, party in page:
            if first is None or first[0] != key:
                first = (key, task, party)
            elif excludes(first[2], party):
                holders = f"{text_of(Key(first[1]))} and {text_of(Key(task))}"
                yield broken(finding.MUTEX, key, "holders", holders, "one party")


def _overuse(repo: Repo) -> Iterator[Finding]:
    """Limits and fixed capacities are kept. One that was lowered a while ago is overused until tasks end."""
    totals = repo.admission.named_limits()
    for name, used in repo.doctor.limits(HOLDING).items():
        if used > totals.get(name, 0):
            yield broken(finding.LIMIT, name, "use", used, f"at most {totals.get(name, 0)}")
    capacities = {pool.name: pool.capacity for pool in repo.admission.pools() if not pool.from_bots}
    for name, (used, holders) in repo.doctor.pools(HOLDING).items():
        capacity = capacities.get(name)
        if holders > 1 and not carries(capacity, used, 0):
            yield broken(finding.POOL, name, "use", used, f"at most {capacity}")


def _orphans(repo: Repo) -> Iterator[Finding]:
    """Every row of an attempt has its attempt, and every task of the server that needs a graph inside has one."""
    for table, task, attempt in repo.doctor.orphans(PAGE_MAX):
        yield broken(table, task, "attempt", attempt, None)
    for task in repo.doctor.queueless(PAGE_MAX):
        yield broken(finding.TASK, task, "queue", None, "there")
    for task, mark, state in repo.doctor.wrong_marks(sorted(map(str, GONE_WRONG)), PAGE_MAX):
        yield broken(finding.TASK, task, "gone_wrong", mark, state if state in GONE_WRONG else None)
    for task in [one for kind in GRAPH_KINDS for one in repo.doctor.missing_inner(SERVER.bot, kind.text, PAGE_MAX)]:
        yield broken(finding.TASK, task, "graph inside", None, "there")


def _equal_tasks(repo: Repo) -> Iterator[Finding]:
    """Every task that waits for an equal one has a leader that is under way, and no task that has ended has a key."""
    active = {one.text for one in ACTIVE}
    for task in repo.doctor.forgotten_followers(HELD.text, Reason.DUPLICATE_OF.text, active, SERVE, PAGE_MAX):
        yield broken(finding.TASK, task, "leader", None, "a task under way")
    for task, state in repo.doctor.ended_leaders(active | {one.text for one in BEHIND}, PAGE_MAX):
        yield broken(finding.TASK, task, "leads a key", state or "deleted", "under way")


def _documents(repo: Repo) -> Iterator[Finding]:
    """Every document can be read, is its own newest version, and refers to what is there and to nothing else."""
    after = NO_DOCUMENT
    while page := repo.catalogue.page(STORED_KINDS, None, after, DOCUMENTS_MAX):
        names = [(row.kind, row.name) for row in page]
        last, stored = repo.catalogue.last_versions(names), repo.catalogue.references_of(names)
        there = repo.catalogue.exist({name for found in stored.values() for name in found})
        for row, name in zip(page, names, strict=True):
            yield from _document(row, last.get(name, 0), stored.get(name, frozenset()), there)
        after = names[-1]


def _document(row: DocumentRow, last: int, stored: Collection[Name], there: Collection[Name]) -> Iterator[Finding]:
    subject = f"{row.kind} {row.name}"
    if row.version != last:
        yield broken(finding.DOCUMENT, subject, "version", row.version, last)
    found = stored_document(row.body)
    if found is None:
        yield broken(finding.DOCUMENT, subject, "body", "faulty", "a document")
        return
    wanted = {one.name for one in references(found)}
    if wanted != {name for _, name in stored}:
        said = (", ".join(sorted(names)) or None for names in ({name for _, name in stored}, wanted))
        yield broken(finding.DOCUMENT, subject, "references", *said)
    for kind, name in sorted(set(stored) - set(there)):
        yield broken(finding.DOCUMENT, subject, f"reference to {kind} {name}", None, "there")

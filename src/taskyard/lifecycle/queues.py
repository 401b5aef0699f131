"""The cache of a server for queues, and for the queues that each bot serves.

The dimensions of a queue never change, so it can be cached. Queues are numbered in the order of their commits, so new
ones have higher numbers. One that no task has used for long is deleted; if it is made anew, it may have its old id and
has a new number. If a transaction that read a new queue is rolled back, the whole cache is cleared: the queue
may not exist. The row of a bot counts its changes, and is read again when there was another.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from taskyard.core import fleet, ids, resources
from taskyard.core.durations import HOUR_MS
from taskyard.core.matching import ID, POOL, Dimensions, dimension_hash, matches, pool_of, queue_root
from taskyard.core.resources import ONE_SLOT, Resources, Room
from taskyard.core.states import BotId, Millis
from taskyard.core.structs import struct_replace, value
from taskyard.store.connection import Repo
from taskyard.store.queries import Row
from taskyard.store.repo.bots import QueueRow, encode_dimensions

#: The ids of queues whose dimensions have the same hash differ in the last byte.
_SAME_HASH_MAX = 256
#: How old the time of the last use of a queue may be: a queue that is used by every submission is not written by each.
TOUCHED_MS: Final = HOUR_MS
#: How many bots are cached: more than a large fleet has, and fewer than come and go in a year.
_BOTS_KEPT = 20_000


@value
class ServedBot:
    """A bot, and the queues that it serves among those up to a number."""

    changes: int  # of the row of the bot
    dimensions: Dimensions
    takes_work: bool
    ending: bool  # an admin wants it to end
    newest: int
    queues: tuple[int, ...]
    caches: frozenset[str] = frozenset()  # the keys of those that it holds
    snapshot: int | None = None  # its dimensions and its version as they are now
    failures: int = 0  # how often in a row it lost attempts
    total: Resources | None = None  # what the bot has in all; None if all tasks of its queues take one slot

    @property
    def served(self) -> tuple[int, ...]:
        """The queues that it is given tasks of."""
        return self.queues if self.takes_work else ()

    @property
    def room(self) -> Room | None:
        """Its room, all of it free; None if all tasks of its queues take one slot."""
        return None if self.total is None else Room(self.total)


class Registry:
    """Every queue, and which of them each bot serves."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Clear the cache."""
        self._newest = self._settled = -1
        self._queues: dict[int, QueueRow] = {}
        self._by_root: dict[str, list[QueueRow]] = defaultdict(list)  # in the order of their numbers
        self._takes: dict[int, Resources] = {}  # by queue, where that is more than a slot
        self.bots: dict[str, ServedBot] = {}  # each as of the last `update` with it
        self._learned: set[str] = set()

    def settle(self) -> None:
        """Keep what was read: the transaction is durable."""
        self._settled = self._newest
        self._learned.clear()

    def undo(self) -> None:
        """Clear the cache if anything was read since the last commit: the transaction is rolled back."""
        if self._newest != self._settled or self._learned:
            self.forget()

    def update(self, repo: Repo, changes: Mapping[str, int]) -> None:
        """Bring `bots` up to date for some bots, given how often each has changed; with the queues known by now."""
        served, newest = self.bots, self._newest
        changed = [
            id
            for id, count in changes.items()
            if (known := served.get(id)) is None or known.changes != count or known.newest != newest
        ]
        if changed:
            self._serve(repo, {id: changes[id] for id in (changes if len(served) >= _BOTS_KEPT else changed)})

    def takes(self, queue: int) -> Resources | None:
        """Return what each task of a queue takes of its bot; None if that is one slot."""
        return self._takes.get(queue)

    def prefetch(self, repo: Repo) -> None:
        """Request at once what `refresh` will read."""
        repo.queues.prefetch(self._newest)

    def refresh(self, repo: Repo) -> None:
        """Learn of the queues that came since."""
        for queue in repo.queues.after(self._newest):
            self._forget_queue(queue.id)
            self._queues[queue.id] = queue
            self._by_root[queue.root].append(queue)
            self._newest = queue.number
            takes = resources.taken(queue.dimensions)
            if takes != ONE_SLOT:
                self._takes[queue.id] = takes

    def _forget_queue(self, id: int) -> None:
        """Forget a queue that was deleted, if it was: its id is that of another one, or of the same one made anew."""
        old = self._queues.pop(id, None)
        if old is not None:
            self._by_root[old.root].remove(old)
            self._takes.pop(id, None)

    def queue(self, repo: Repo, id: int) -> QueueRow:
        """Return a queue."""
        if id not in self._queues:
            self.refresh(repo)
        return self._queues[id]

    def _serve(self, repo: Repo, changes: Mapping[str, int]) -> None:
        """Compute which queues bots serve."""
        served = self.bots
        if len(served) >= _BOTS_KEPT:
            served.clear()
        read = [id for id, count in changes.items() if id not in served or served[id].changes != count]
        self._learned.update(read)
        bots = repo.bots.read(read)
        for id, count in changes.items():
            known, bot = served.get(id), bots.get(id)
            facts = None if bot is None else bot.facts
            if facts is not None and (known is None or known.dimensions is not facts.dimensions):
                known = ServedBot(-1, facts.dimensions, True, False, -1, ())
            assert known is not None, "a bot that is not cached is read"
            # It polls right now, so it is not missing, however long it was silent before.
            takes = known.takes_work if facts is None else fleet.takes_work(struct_replace(facts, missing=False))
            # A bot that drains ends already.
            ending = known.ending if bot is None else bot.facts.ending and not bot.drains
            found = sorted(self._matching(known.dimensions, known.newest), key=_number)
            # One that was made anew is among those that were found, if the bot serves it.
            left = (id for id in known.queues if self._queues[id].number <= known.newest)
            queues = (*left, *(queue.id for queue in found))
            kept = known if bot is None else bot
            total = known.total
            if total is None and any(queue.id in self._takes for queue in found):
                total = resources.total(known.dimensions)
            served[id] = ServedBot(
                count,
                known.dimensions,
                takes,
                ending,
                self._newest,
                queues,
                kept.caches,
                kept.snapshot,
                kept.failures,
                total,
            )

    def _matching(self, dimensions: Dimensions, after: int) -> Iterator[QueueRow]:
        """Find the queues after a number that a bot with these dimensions serves."""
        had = dict(dimensions)
        bots, pools = map(ids.bot_root, map(BotId, had.get(ID, ()))), map(ids.pool_root, had.get(POOL, ()))
        for root in (*bots, *pools):
            queues = self._by_root.get(root, [])
            for queue in queues[bisect_right(queues, after, key=_number) :]:
                if matches(queue.dimensions, dimensions):
                    yield queue


def _number(queue: QueueRow) -> int:
    return queue.number


def ensure(repo: Repo, wanted: Collection[Dimensions], now: Millis) -> dict[Dimensions, int]:
    """Return the id of the queue for each of these dimensions; create the missing ones.

    Tasks may come into these queues for as long as queues are kept at least, less `TOUCHED_MS`.
    """
    texts = {encode_dimensions(dimensions): dimensions for dimensions in wanted}
    found = repo.queues.with_dimensions(texts)
    if long_ago := [id for id, used_ms in found.values() if used_ms < now - TOUCHED_MS]:
        repo.queues.touch(long_ago, now)
        found = repo.queues.with_dimensions(texts)  # one may have been deleted before it was locked
    known = {text: id for text, (id, _) in found.items()}
    if len(known) < len(texts):
        total = repo.queues.lock_count()
        # Another server may have created one meanwhile.
        known |= {text: id for text, (id, _) in repo.queues.with_dimensions(texts).items()}
        missing = {text: dimensions for text, dimensions in texts.items() if text not in known}
        rows = _new_queues(repo, missing, total, now)
        repo.queues.add(rows, total + len(rows))
        known |= {row[5]: row[0] for row in rows}
    return {dimensions: known[text] for text, dimensions in texts.items()}


def _new_queues(repo: Repo, missing: dict[str, Dimensions], total: int, now: Millis) -> list[Row]:
    hashes = {text: dimension_hash(dimensions) for text, dimensions in missing.items()}
    taken = {id for id, _ in repo.queues.with_hashes(set(hashes.values()))}
    rows: list[Row] = []
    for number, (text, dimensions) in enumerate(missing.items(), total + 1):
        first = hashes[text] * _SAME_HASH_MAX
        id = next(id for id in range(first, first + _SAME_HASH_MAX) if id not in taken)
        taken.add(id)
        rows.append((id, number, hashes[text], queue_root(dimensions), pool_of(dimensions), text, now))
    return rows

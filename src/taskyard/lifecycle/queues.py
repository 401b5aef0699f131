"""The cache of a server for queues, and for the queues that each bot serves.

The dimensions of a queue never change, so it can be cached. Queues are numbered in the order of their commits, so new
ones have higher numbers. If a transaction that read a new queue is rolled back, the whole cache is cleared: the queue
may not exist. The row of a bot has a version, and is read again when that has changed.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from taskyard.core import fleet, ids
from taskyard.core.matching import ID, POOL, Dimensions, dimension_hash, matches, pool_of, queue_root
from taskyard.core.states import BotId
from taskyard.core.structs import struct_replace, value
from taskyard.store.connection import Repo
from taskyard.store.queries import Row
from taskyard.store.repo.bots import QueueRow, encode_dimensions

#: The ids of queues whose dimensions have the same hash differ in the last byte.
_SAME_HASH_MAX = 256
#: How many bots are cached: more than a large fleet has, and fewer than come and go in a year.
_BOTS_KEPT = 20_000


@value
class _Served:
    """The queues that a bot serves, among those up to a number."""

    version: int  # of the row of the bot
    dimensions: Dimensions
    takes_work: bool
    ending: bool  # an admin wants it to end
    newest: int
    queues: tuple[int, ...]


class Registry:
    """Every queue, and which of them each bot serves."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Clear the cache."""
        self._newest = self._settled = -1
        self._queues: dict[int, QueueRow] = {}
        self._by_root: dict[str, list[QueueRow]] = defaultdict(list)  # in the order of their numbers
        self._served: dict[str, _Served] = {}
        self._learned: set[str] = set()

    def settle(self) -> None:
        """Keep what was read: the transaction is durable."""
        self._settled = self._newest
        self._learned.clear()

    def undo(self) -> None:
        """Clear the cache if anything was read since the last commit: the transaction is rolled back."""
        if self._newest != self._settled or self._learned:
            self.forget()

    def serving(self, repo: Repo, versions: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the cached queues that bots serve, given their versions; none for a bot that takes no work."""
        served, newest = self._served, self._newest
        changed = [
            id
            for id, version in versions.items()
            if (known := served.get(id)) is None or known.version != version or known.newest != newest
        ]
        if changed:
            self._serve(repo, {id: versions[id] for id in (versions if len(served) >= _BOTS_KEPT else changed)})
        return {id: served[id].queues if served[id].takes_work else () for id in versions}

    def ending(self, id: str) -> bool:
        """Tell whether a bot is to be told to end, as of the version in which it was asked about last."""
        return self._served[id].ending

    def prefetch(self, repo: Repo) -> None:
        """Hint: this will be refreshed."""
        repo.queues.prefetch(self._newest)

    def refresh(self, repo: Repo) -> None:
        """Learn of the queues that came since."""
        for queue in repo.queues.after(self._newest):
            self._queues[queue.id] = queue
            self._by_root[queue.root].append(queue)
            self._newest = queue.number

    def queue(self, repo: Repo, id: int) -> QueueRow:
        """Return a queue."""
        if id not in self._queues:
            self.refresh(repo)
        return self._queues[id]

    def _serve(self, repo: Repo, versions: Mapping[str, int]) -> None:
        """Compute which queues bots serve."""
        served = self._served
        if len(served) >= _BOTS_KEPT:
            served.clear()
        read = [id for id, version in versions.items() if id not in served or served[id].version != version]
        self._learned.update(read)
        bots = repo.bots.read(read)
        for id, version in versions.items():
            known = served.get(id)
            facts = bots[id].facts if id in bots else None
            if facts is not None and (known is None or known.dimensions is not facts.dimensions):
                known = _Served(-1, facts.dimensions, True, False, -1, ())
            assert known is not None, "a bot that is not cached is read"
            # It polls right now, so it is not missing, however long it was silent before.
            takes = known.takes_work if facts is None else fleet.takes_work(struct_replace(facts, missing=False))
            # A bot that drains ends already.
            ending = known.ending if facts is None else facts.ending and not bots[id].drains
            found = sorted(self._matching(known.dimensions, known.newest), key=_number)
            queues = (*known.queues, *(queue.id for queue in found))
            served[id] = _Served(version, known.dimensions, takes, ending, self._newest, queues)

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


def ensure(repo: Repo, wanted: Collection[Dimensions]) -> dict[Dimensions, int]:
    """Return the id of the queue for each of these dimensions; create the missing ones."""
    texts = {encode_dimensions(dimensions): dimensions for dimensions in wanted}
    found = repo.queues.with_dimensions(texts)
    if len(found) < len(texts):
        total = repo.queues.lock_count()
        found = repo.queues.with_dimensions(texts)  # another server may have created one meanwhile
        missing = {text: dimensions for text, dimensions in texts.items() if text not in found}
        rows = _new_queues(repo, missing, total)
        repo.queues.add(rows, total + len(rows))
        found |= {row[5]: row[0] for row in rows}
    return {dimensions: found[text] for text, dimensions in texts.items()}


def _new_queues(repo: Repo, missing: dict[str, Dimensions], total: int) -> list[Row]:
    hashes = {text: dimension_hash(dimensions) for text, dimensions in missing.items()}
    taken = {id for id, _ in repo.queues.with_hashes(set(hashes.values()))}
    rows: list[Row] = []
    for number, (text, dimensions) in enumerate(missing.items(), total + 1):
        first = hashes[text] * _SAME_HASH_MAX
        id = next(id for id in range(first, first + _SAME_HASH_MAX) if id not in taken)
        taken.add(id)
        rows.append((id, number, hashes[text], queue_root(dimensions), pool_of(dimensions), text))
    return rows

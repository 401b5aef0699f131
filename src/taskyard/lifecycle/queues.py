"""Queues, as a server knows them: a cache of what never changes.

A queue, once made, asks for the same dimensions for ever, so it can be remembered. They are numbered in the order of
their commits, so what is new is what has a higher number. Should a transaction be undone, all is forgotten: what it
had seen may never have been.
"""

from collections import defaultdict
from collections.abc import Collection

from taskyard.core import ids
from taskyard.core.matching import ID, POOL, Dimensions, dimension_hash, matches, queue_root
from taskyard.core.words import BotId
from taskyard.store.sessions import Row
from taskyard.store.txn import Txn
from taskyard.store.verbs.fleet import QueueRow, dimensions_text

#: Dimensions that share a hash are told apart by the last byte of the id.
_TWINS_MAX = 256


class Registry:
    """Every queue there is, and which of them each bot serves."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Remember nothing."""
        self._newest = -1
        self._queues: dict[int, QueueRow] = {}
        self._by_root: dict[str, list[QueueRow]] = defaultdict(list)
        self._served: dict[str, tuple[Dimensions, int, tuple[int, ...]]] = {}

    def refresh(self, txn: Txn) -> None:
        """Learn of the queues that came since."""
        for queue in txn.queues.after(self._newest):
            self._queues[queue.id] = queue
            self._by_root[queue.root].append(queue)
            self._newest = queue.number

    def queue(self, txn: Txn, id: int) -> QueueRow:
        """Give a queue."""
        if id not in self._queues:
            self.refresh(txn)
        return self._queues[id]

    def served(self, bot: str, dimensions: Dimensions) -> tuple[int, ...]:
        """Name the queues that a bot serves, among those that are known."""
        known = self._served.get(bot)
        if known is not None and known[0] is dimensions and known[1] == self._newest:
            return known[2]
        had = dict(dimensions)
        roots = [
            ids.ANY_ROOT,
            *(ids.bot_root(BotId(one)) for one in had.get(ID, ())),
            *map(ids.pool_root, had.get(POOL, ())),
        ]
        queues = (queue for root in roots for queue in self._by_root.get(root, ()))
        served = tuple(queue.id for queue in queues if matches(queue.dimensions, dimensions))
        self._served[bot] = (dimensions, self._newest, served)
        return served


def ensure(txn: Txn, wanted: Collection[Dimensions]) -> dict[Dimensions, int]:
    """Give the id of the queue for each of these dimensions; make the ones that are missing."""
    texts = {dimensions_text(dimensions): dimensions for dimensions in wanted}
    found = txn.queues.with_dimensions(texts)
    if len(found) < len(texts):
        total = txn.queues.lock()
        found = txn.queues.with_dimensions(texts)  # somebody may have made one meanwhile
        missing = {text: dimensions for text, dimensions in texts.items() if text not in found}
        rows = _new_queues(txn, missing, total)
        txn.queues.add(rows, total + len(rows))
        found |= {row[5]: row[0] for row in rows}
    return {dimensions: found[text] for text, dimensions in texts.items()}


def _new_queues(txn: Txn, missing: dict[str, Dimensions], total: int) -> list[Row]:
    hashes = {text: dimension_hash(dimensions) for text, dimensions in missing.items()}
    taken = {id for id, _ in txn.queues.near(set(hashes.values()))}
    rows: list[Row] = []
    for number, (text, dimensions) in enumerate(missing.items(), total + 1):
        first = hashes[text] * _TWINS_MAX
        id = next(id for id in range(first, first + _TWINS_MAX) if id not in taken)
        taken.add(id)
        pool = next(iter(dict(dimensions).get(POOL, ())), "")
        rows.append((id, number, hashes[text], queue_root(dimensions), pool, text))
    return rows

"""Place tasks that take more than one slot on bots, and keep bots free for such tasks.

Only bots that serve a queue with such tasks come here; everything else is claimed as if there were none. The sum of
what a bot has in hand is a query, and its row is locked by the poll: so it is never given more than it has.

A bot is kept free for one task at a time, which is stored on its row. The rows of other bots are never written: what is
stored there and not true any more is noticed when that bot polls. A bot that says hello, because it begins or has
changed, is kept free for nothing until it polls.
"""

from collections.abc import Collection, Sequence
from functools import partial

from taskyard.core import fleet
from taskyard.core.admission.rules import RESERVE_AFTER_MS
from taskyard.core.caches import Warmth, preferred
from taskyard.core.matching import Turn
from taskyard.core.resources import ONE_SLOT, Reservation, Resources, Room, Waiting, may_reserve
from taskyard.core.states import LEASED, QUEUED
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.queries import Row


def placement_of(transaction: Transaction, bots: Collection[str], queues: Collection[int]) -> "Placement | None":
    """Return the placement for bots that serve the same queues; None if all tasks there take one slot."""
    rooms = {bot: room for bot in bots if (room := transaction.registry.bots[bot].room) is not None}
    return Placement(transaction, rooms, queues) if rooms else None


class Placement:
    """Which tasks the bots get that poll in one transaction, by what each of them has left."""

    def __init__(self, transaction: Transaction, rooms: dict[str, Room], queues: Collection[int]) -> None:
        self._transaction = transaction
        self._rooms = rooms  # with what each bot has in hand
        self._queues = queues  # that they serve
        self._stored: dict[str, int] = {}  # the task for which each bot is kept free, as its row says
        self._queue_of: dict[int, int] = {}
        self._given: dict[str, list[int]] = {}
        self._blocked: dict[str, list[int]] = {}
        self._count_held()

    def deal(
        self,
        turns: Sequence[Turn],
        rows: Sequence[Row],
        asked: Sequence[tuple[str, int]],
        warmth: Warmth | None = None,
    ) -> list[list[int]]:
        """Give bots, one after the other, the tasks for which they have room; each prefers those with its caches."""
        self._queue_of = {row[0]: row[1] for row in rows}
        shares = self._deal_once(turns, asked, warmth)
        # A bot that is kept free from now on gets only what fits beside that task.
        return self._deal_once(turns, asked, warmth) if self._reserve_blocked() else shares

    def _deal_once(
        self, turns: Sequence[Turn], asked: Sequence[tuple[str, int]], warmth: Warmth | None
    ) -> list[list[int]]:
        waiting = Waiting(turns, self._queue_of, self._takes)
        rooms = {bot: room.copy() for bot, room in self._rooms.items()}
        self._given = {bot: [] for bot in rooms}
        shares: list[list[int]] = [[] for _ in asked]
        for place in self._holders_first(asked, warmth):
            bot, count = asked[place]
            ordered = None if warmth is None else partial(self._preferred, bot, warmth)
            dealt = waiting.deal(bot, count, rooms[bot], ordered)
            self._given[bot] += dealt.given
            self._blocked[bot] = dealt.blocked
            shares[place] = dealt.given
        return shares

    def _holders_first(self, asked: Sequence[tuple[str, int]], warmth: Warmth | None) -> Sequence[int]:
        """Order requests: those of bots first that hold a cache which a task uses."""
        if warmth is None:
            return range(len(asked))
        used = frozenset[str]().union(*warmth.used.values())
        return sorted(range(len(asked)), key=lambda place: used.isdisjoint(warmth.held.get(asked[place][0], ())))

    def reserve(self) -> None:
        """Store for which task each bot is kept free after the last deal, where that has changed."""
        self._free_others()
        changed: list[tuple[str, int | None]] = []
        for bot, room in self._rooms.items():
            kept = room.reservation
            task = None if kept is None or kept.task in self._given[bot] else kept.task
            if task != self._stored.get(bot):
                changed.append((bot, task))
        self._transaction.repo.bots.reserve(changed)

    def _reserve_blocked(self) -> bool:
        """Keep bots free for tasks that have waited for long; tell whether any bot is newly kept."""
        taken = {room.reservation.task for room in self._rooms.values() if room.reservation is not None}
        before = len(taken)
        for bot, room in self._rooms.items():
            if room.reservation is None and self._blocked.get(bot):
                task = self._next_reservation(self._blocked[bot], taken)
                if task is not None:
                    queue = self._queue_of[task]
                    room.reservation = Reservation(task, queue, self._takes(queue))
                    taken.add(task)
        return len(taken) > before

    def _preferred(self, bot: str, warmth: Warmth, left: list[Turn]) -> list[Turn]:
        """Order tasks by the caches of a bot; a task that takes more than one slot is not passed."""
        return preferred(left, bot, warmth, lambda id: self._takes(self._queue_of[id]) == ONE_SLOT)

    def _takes(self, queue: int) -> Resources:
        return self._transaction.registry.takes(queue) or ONE_SLOT

    def _count_held(self) -> None:
        """Count what each bot has in hand, as this transaction has changed it."""
        transaction = self._transaction
        for bot, task, queue in transaction.repo.bots.held(self._rooms):
            known = transaction.known_task(task)
            if known is None or (known.state in LEASED and known.bot == bot):
                self._rooms[bot].hold(self._takes(queue))
        for leased in transaction.unwritten_leases(self._rooms):
            assert leased.bot is not None, "a leased task has a bot"
            self._rooms[leased.bot].hold(self._takes(leased.queue))
        for bot, task, queue in transaction.repo.bots.reservations(self._rooms, QUEUED):
            known = transaction.known_task(task)
            self._stored[bot] = task
            if queue in self._queues and (known is None or known.state in QUEUED):
                self._rooms[bot].reservation = Reservation(task, queue, self._takes(queue))

    def _next_reservation(self, blocked: Sequence[int], taken: Collection[int]) -> int | None:
        """Choose the task for which a bot is kept free: the first that has waited for long and has no other bot."""
        long = [id for id in self._long_waiting(blocked) if id not in taken]
        reserved = self._transaction.repo.bots.reserved_for(long)
        elsewhere = {task for facts, task in reserved if fleet.takes_work(facts)}
        return next((id for id in long if id not in elsewhere), None)

    def _free_others(self) -> None:
        """Have bots poll again that were kept free for a task which another bot gets now."""
        given = {id: bot for bot, ids in self._given.items() for id in ids}
        large = [id for id in given if self._takes(self._queue_of[id]) != ONE_SLOT]
        for facts, task in self._transaction.repo.bots.reserved_for(self._long_waiting(large)):
            if facts.id != given[task]:
                self._transaction.mark_bot_changed(facts.id)

    def _long_waiting(self, ids: Sequence[int]) -> list[int]:
        """Return those of some tasks that may have reserved a bot; the claim candidates are locked already."""
        tasks, now = self._transaction.lock_tasks(ids), self._transaction.now
        return [id for id in ids if may_reserve(tasks[id].life.waits_since_ms, now, RESERVE_AFTER_MS)]

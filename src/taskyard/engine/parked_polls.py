"""Parked polls: polls for which there was no work yet. They get what the next transactions put into their queues.

The transaction that makes a task ready also leases it to a parked poll, before it commits: the task runs one commit
later, and no thread has to be woken first. Only the writer thread uses this. A bot has one poll here; a second one
takes its place, and the first is answered with nothing. A poll that wants no tasks waits only to learn which attempts a
person has canceled.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from taskyard.core.structs import value
from taskyard.lifecycle.claim import ClaimRequest, claim, with_definitions
from taskyard.lifecycle.commands import Lease, Poll, Renewed
from taskyard.lifecycle.poll import EMPTY, PollOutcome
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.transaction import Transaction

if TYPE_CHECKING:
    from concurrent.futures import Future

#: How many polls one transaction serves; the next serves the others.
SERVED_MAX: Final = 256


@value
class PollAnswer:
    """The answer to a parked poll, given once the transaction is durable."""

    bot: str
    future: "Future[Any]"
    leases: tuple[Lease, ...] = ()
    stops: tuple[Renewed, ...] = ()


class ParkedPolls:
    """The parked polls, in the order in which they arrived."""

    def __init__(self) -> None:
        self._parked: dict[str, tuple[Poll, Future[Any]]] = {}  # by bot

    def __len__(self) -> int:
        return len(self._parked)

    def holds(self, poll: Poll) -> bool:
        """Return whether this poll, sent once more, is parked already."""
        found = self._parked.get(poll.bot)
        return found is not None and (found[0].session, found[0].poll) == (poll.session, poll.poll)

    def park(self, poll: Poll, future: "Future[Any]") -> None:
        """Park a poll."""
        self._answer(poll.bot)
        self._parked[poll.bot] = (poll, future)

    def replace_idle(self, poll: Poll) -> None:
        """Answer the parked poll of a bot if it wants no tasks, because the bot now sends one that does."""
        found = self._parked.get(poll.bot)
        if found is not None and not found[0].want:
            self._answer(poll.bot)

    def leave(self, future: "Future[Any]") -> None:
        """Answer a poll with nothing if it is still parked."""
        for bot, (_, parked) in self._parked.items():
            if parked is future:
                self._answer(bot)
                return

    def release(self, bots: Iterable[str]) -> None:
        """Answer the polls of bots that have changed: they poll again, with their new state."""
        for bot in bots:
            self._answer(bot)

    def clear(self) -> None:
        """Answer all parked polls with nothing."""
        for bot in list(self._parked):
            self._answer(bot)

    def serve(self, transaction: Transaction, everywhere: bool = False) -> list[PollAnswer]:
        """Lease to polls what this transaction has put into their queues; with `everywhere`, whatever is in them."""
        if not self._parked:
            return []
        stopped = self._stopped(transaction)
        # A poll is answered once: a bot that learns of a cancel polls again and gets tasks then.
        return [*stopped, *self._lease_ready(transaction, everywhere, {one.bot for one in stopped})]

    def _stopped(self, transaction: Transaction) -> list[PollAnswer]:
        """Answer the polls of bots that run attempts which a person has just canceled."""
        stops: dict[str, list[Renewed]] = defaultdict(list)
        for task in transaction.stopping:
            if task.bot in self._parked:
                # No end of the lease: it counts from when a poll was sent, and this one may be old.
                stops[task.bot].append(Renewed(task.id, task.life.attempt, None, stop=True))
        return [PollAnswer(bot, self._parked[bot][1], stops=tuple(found)) for bot, found in stops.items()]

    def _lease_ready(self, transaction: Transaction, everywhere: bool, others: set[str]) -> list[PollAnswer]:
        fresh = [queue for queue in transaction.entered_queues if queue != SERVER_QUEUE]
        if not (fresh or everywhere):
            return []
        requests = [
            request for request in self._requests(transaction, set(fresh), everywhere) if request[0].bot not in others
        ]
        if not requests:
            return []
        # Few tasks are shared: the first poll must not take what other bots could begin at once.
        share = -(-max(len(fresh), 1) // len(requests)) if not everywhere else SERVED_MAX
        leases_of_polls = claim(
            transaction, [ClaimRequest(poll, bot, min(count, share), parked=True) for poll, bot, count in requests]
        )
        return self._with_definitions(transaction, [poll for poll, _, _ in requests], leases_of_polls)

    def settle(self, served: Iterable[PollAnswer]) -> None:
        """Answer the polls that were served, after the commit."""
        for one in served:
            found = self._parked.get(one.bot)
            if found is not None and found[1] is one.future:
                del self._parked[one.bot]
            one.future.set_result(PollOutcome((), (), one.leases, stops=one.stops))

    def _requests(self, transaction: Transaction, fresh: set[int], everywhere: bool) -> list[tuple[Poll, Any, int]]:
        registry, repo = transaction.registry, transaction.repo
        registry.refresh(repo)
        bots = repo.bots.callers(list(self._parked))
        registry.update(repo, {id: bot.changes for id, bot in bots.items()})
        requests = []
        for id, bot in bots.items():
            poll, _ = self._parked[id]
            served = registry.bots[id].served
            if poll.want and poll.session == bot.session and (everywhere or not fresh.isdisjoint(served)):
                requests.append((poll, bot, poll.want))
        return requests[:SERVED_MAX]

    def _with_definitions(
        self, transaction: Transaction, polls: Sequence[Poll], leases_of_polls: Sequence[tuple[Lease, ...]]
    ) -> list[PollAnswer]:
        found = [(poll, leases) for poll, leases in zip(polls, leases_of_polls, strict=True) if leases]
        wanted = [lease for poll, leases in found if poll.with_definitions for lease in leases]
        with_payload = {lease.task: lease for lease in with_definitions(transaction, wanted)} if wanted else {}
        return [
            PollAnswer(
                poll.bot, self._parked[poll.bot][1], tuple(with_payload.get(lease.task, lease) for lease in leases)
            )
            for poll, leases in found
        ]

    def _answer(self, bot: str) -> None:
        found = self._parked.pop(bot, None)
        if found is not None:
            found[1].set_result(EMPTY)

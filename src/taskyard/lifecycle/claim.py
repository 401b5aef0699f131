"""Claim tasks for bots: by the queues that a bot serves, then by priority, then by age.

A repeated poll gets the leases that it got before, with the time that is left, and costs no attempt.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from taskyard.core import attempt_policy, fleet, matching
from taskyard.core.matching import Turn
from taskyard.core.states import LEASED, BotId, Millis, Reason, Signal
from taskyard.core.structs import struct_replace, value
from taskyard.lifecycle.commands import AttemptDefinition, Lease, Poll
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Claimant, Transition
from taskyard.store.queries import Row
from taskyard.store.repo.bots import QueueRow
from taskyard.store.rows import CallingBot, TaskRecord

#: How many tasks one poll can get: with more, one bot would hoard tasks while others are idle.
WANT_MAX: Final = 256
#: How often a claim reads further down its queues when the first tasks there are not for this bot.
READS_MAX: Final = 4
#: Bound here, because access through the enum class is slow.
_CLAIM: Final = Signal.CLAIM


@value
class ClaimRequest:
    """A poll that wants tasks, the bot that sent it, and how many tasks it can get."""

    poll: Poll
    bot: CallingBot
    count: int
    parked: bool = False  # it was parked, so it has got nothing before


def claim_request(poll: Poll, bot: CallingBot) -> ClaimRequest:
    """Return the claim request of a poll."""
    return ClaimRequest(poll, bot, min(poll.want, WANT_MAX))


def claim(transaction: Transaction, requests: Sequence[ClaimRequest]) -> list[tuple[Lease, ...]]:
    """Lease tasks to bots; return the leases of each request."""
    leases = _leased_before(transaction, requests)
    keys = [(request.poll.bot, request.poll.poll or f"#{place}") for place, request in enumerate(requests)]
    first: dict[tuple[str, str], int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    new = [place for place in first.values() if requests[place].count > 0 and place not in leases]
    for place, tasks in _claim_new(transaction, requests, new).items():
        leases[place] = tuple(_lease(task) for task in tasks)
    return [leases.get(first[key], ()) for key in keys]


def _leased_before(transaction: Transaction, requests: Sequence[ClaimRequest]) -> dict[int, tuple[Lease, ...]]:
    """Find the polls that were answered before, and those of their leases that the bots still hold."""
    repeats = [place for place, request in enumerate(requests) if is_repeated(request)]
    if not repeats:
        return {}
    held: dict[tuple[str, str], list[int]] = defaultdict(list)
    for bot, poll, task in transaction.repo.attempts.leased_by_poll({requests[place].poll.bot for place in repeats}):
        held[bot, poll].append(task)
    tasks = transaction.lock_tasks([task for ids in held.values() for task in ids])
    leases = {key: tuple(_lease(tasks[id]) for id in ids if _holds(key[0], tasks[id])) for key, ids in held.items()}
    return {place: leases.get((requests[place].poll.bot, requests[place].poll.poll), ()) for place in repeats}


def is_repeated(request: ClaimRequest) -> bool:
    """Tell whether a poll came before."""
    poll, known = request.poll.poll, request.bot.recent_polls
    return bool(poll) and not request.parked and poll in known and poll in known.split("\n")


def _holds(bot: str, task: TaskRecord) -> bool:
    """Tell whether a bot still holds a task: the attempt may have been lost, and the task claimed by another bot."""
    return task.state in LEASED and task.bot == bot


def _claim_new(
    transaction: Transaction, requests: Sequence[ClaimRequest], new: Sequence[int]
) -> dict[int, list[TaskRecord]]:
    """Claim tasks for new requests. Bots that serve the same queues are handled together: each queue is read once."""
    if not new:
        return {}
    registry = transaction.registry
    registry.refresh(transaction.repo)
    served = registry.serving(
        transaction.repo, {requests[place].poll.bot: requests[place].bot.version for place in new}
    )
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place in new:
        queues = served[requests[place].poll.bot]
        if queues:
            alike[queues].append(place)
    taken: set[int] = set()
    chosen: dict[int, list[int]] = {}
    for queues, places in alike.items():
        shares = _choose(transaction, queues, [requests[place] for place in places], taken)
        chosen |= dict(zip(places, shares, strict=True))
    return _lease_out(transaction, requests, chosen)


def _choose(
    transaction: Transaction, queues: tuple[int, ...], requests: Sequence[ClaimRequest], taken: set[int]
) -> list[list[int]]:
    asked = [(request.poll.bot, request.count) for request in requests]
    bots = {bot for bot, _ in asked}
    count = wanted = sum(count for _, count in asked) + len(taken)
    shares: list[list[int]] = []
    for _ in range(READS_MAX):
        rows = transaction.repo.tasks.claim_candidates(queues, count)
        full = len(rows) >= count
        rows += [_row(task) for task in transaction.unwritten_in(queues)]
        turns = _turns(transaction, rows, taken)
        shares = matching.deal(turns, asked)
        # A task that is left to another bot must not hide the tasks behind it in its queue.
        if not full or count >= wanted + sum(turn[3] in bots for turn in turns):
            break
        count *= 4
    taken.update(id for ids in shares for id in ids)
    return shares


def _row(task: TaskRecord) -> Row:
    return (task.id, task.queue, task.priority, task.created_ms, task.avoid_bot)


def _turns(transaction: Transaction, rows: Sequence[Row], taken: set[int]) -> list[Turn]:
    losers = {(row[1], row[4]) for row in rows if row[4]}
    excluded: dict[tuple[int, str | None], str | None] = {
        (queue, bot): _excluded_bot(transaction, transaction.registry.queue(transaction.repo, queue), BotId(bot))
        for queue, bot in losers
    }
    return [
        (priority, created_ms, id, excluded[queue, avoid_bot] if avoid_bot else None)
        for id, queue, priority, created_ms, avoid_bot in rows
        if id not in taken
    ]


def _excluded_bot(transaction: Transaction, queue: QueueRow, lost_by: BotId) -> BotId | None:
    """Return the bot that has lost a task, if another one could run it: that other bot gets it."""
    served = fleet.served_elsewhere(queue.dimensions, lost_by, transaction.bots())
    return lost_by if served else None


def _lease_out(
    transaction: Transaction, requests: Sequence[ClaimRequest], chosen: dict[int, list[int]]
) -> dict[int, list[TaskRecord]]:
    tasks = transaction.lock_tasks([id for ids in chosen.values() for id in ids])
    transitions: list[Transition] = []
    leased: dict[int, list[TaskRecord]] = {place: [] for place in chosen}
    for place, ids in chosen.items():
        poll = requests[place].poll
        taken = Reason.UNDER_WAY if poll.begun is None else Reason.ASSIGNED
        for id in ids:
            task = tasks[id]
            until = attempt_policy.lease_until(transaction.now, transaction.lease_ms, task.rules.deadline_ms)
            if until is None:
                continue  # its deadline has passed: the next sweep ends it
            taker = Claimant(poll.bot, poll.session, poll.poll, until)
            transitions.append(Transition(task, _CLAIM, attempt_policy.claimed(task.life), taken, taker))
            leased[place].append(task)
    transaction.apply(transitions)
    return leased


def _lease(task: TaskRecord) -> Lease:
    assert task.lease_until_ms is not None, "a claimed task has a lease"
    return Lease(task.id, task.life.attempt, task.fence, Millis(task.lease_until_ms), task.life.slice_index)


# Definitions: what a bot runs, with the results of prerequisites and the checkpoint of the last attempt. Payloads and
# results are passed on as they are stored, without parsing.


_STRICT: Final = "strict"


class _Slice(msgspec.Struct):
    payload: msgspec.Raw


class _Definition(msgspec.Struct):
    """The part of a stored definition that a bot needs."""

    slices: list[_Slice]
    disconnect: str = _STRICT


_READER: Final = msgspec.json.Decoder(_Definition)


def with_definitions(transaction: Transaction, leases: Sequence[Lease]) -> list[Lease]:
    """Add to leases what is to be run."""
    tasks = transaction.lock_tasks([lease.task for lease in leases])
    with_inputs = [id for id, task in tasks.items() if task.edges.met]
    transaction.repo.output.prefetch_inputs(with_inputs)
    definitions = transaction.repo.tasks.owned_definitions(list(tasks))
    inputs = _inputs(transaction, with_inputs)
    checkpoints = transaction.repo.output.checkpoints([lease.task for lease in leases if lease.attempt > 1])
    return [
        struct_replace(
            lease, definition=_definition(tasks[lease.task], definitions[lease.task], lease, inputs, checkpoints)
        )
        for lease in leases
    ]


def _definition(
    task: TaskRecord, stored: tuple[str, str, str], lease: Lease, inputs: dict[int, str], checkpoints: dict[int, bytes]
) -> AttemptDefinition:
    label, text, submitter = stored
    definition = _READER.decode(text)
    deadline = task.rules.deadline_ms
    return AttemptDefinition(
        task.graph,
        label,
        bytes(definition.slices[lease.slice_index].payload),
        definition.disconnect,
        None if deadline is None else Millis(deadline),
        inputs.get(task.id),
        checkpoints.get(task.id),
        submitter,
    )


def _inputs(transaction: Transaction, ids: Sequence[int]) -> dict[int, str]:
    """Return the results of the prerequisites of each task, as one JSON object by label."""
    found: dict[int, dict[str, msgspec.Raw]] = defaultdict(dict)
    for task, label, body in transaction.repo.output.inputs(ids):
        found[task][label] = msgspec.Raw(body.encode())
    return {task: msgspec.json.encode(results).decode() for task, results in found.items()}

"""The room where bots take tasks: by the queues they serve, then priority, then age.

A poll that is repeated gets the leases it got before, with the time that is left, and spends no attempt.
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

#: How many tasks one poll can get: more would be hoarded while other bots are idle.
WANT_MAX: Final = 256
#: How often a claim looks further down its queues when the first there are not for this bot.
LOOKS_MAX: Final = 4
#: The words of every life, by names of their own: a word is slow to get at through its class.
_CLAIM: Final = Signal.CLAIM


@value
class ClaimRequest:
    """A poll that wants tasks, the bot that sent it as it stands, and how many it can get."""

    poll: Poll
    bot: CallingBot
    count: int
    parked: bool = False  # it has waited, and was given nothing before


def claim_request(poll: Poll, bot: CallingBot) -> ClaimRequest:
    """Take the wish out of a poll."""
    return ClaimRequest(poll, bot, min(poll.want, WANT_MAX))


def claim(transaction: Transaction, wishes: Sequence[ClaimRequest]) -> list[tuple[Lease, ...]]:
    """Give tasks to bots."""
    given = _given_before(transaction, wishes)
    keys = [(wish.poll.bot, wish.poll.poll or f"#{place}") for place, wish in enumerate(wishes)]
    first: dict[tuple[str, str], int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    news = [place for place in first.values() if wishes[place].count > 0 and place not in given]
    for place, tasks in _take(transaction, wishes, news).items():
        given[place] = tuple(_lease(task) for task in tasks)
    return [given.get(first[key], ()) for key in keys]


def _given_before(transaction: Transaction, wishes: Sequence[ClaimRequest]) -> dict[int, tuple[Lease, ...]]:
    """Find the polls that were answered already, and what their bots still have of it."""
    repeats = [place for place, wish in enumerate(wishes) if is_repeated(wish)]
    if not repeats:
        return {}
    held: dict[tuple[str, str], list[int]] = defaultdict(list)
    for bot, poll, task in transaction.repo.attempts.leased_by_poll({wishes[place].poll.bot for place in repeats}):
        held[bot, poll].append(task)
    tasks = transaction.lock_tasks([task for ids in held.values() for task in ids])
    leases = {key: tuple(_lease(tasks[id]) for id in ids if _has(key[0], tasks[id])) for key, ids in held.items()}
    return {place: leases.get((wishes[place].poll.bot, wishes[place].poll.poll), ()) for place in repeats}


def is_repeated(wish: ClaimRequest) -> bool:
    """Tell whether a poll was heard before."""
    poll, known = wish.poll.poll, wish.bot.recent_polls
    return bool(poll) and not wish.parked and poll in known and poll in known.split("\n")


def _has(bot: str, task: TaskRecord) -> bool:
    """Tell whether a bot still has a task: it may have been lost, and given to another, before we looked at it."""
    return task.state in LEASED and task.bot == bot


def _take(transaction: Transaction, wishes: Sequence[ClaimRequest], news: Sequence[int]) -> dict[int, list[TaskRecord]]:
    """Let bots that serve the same queues choose together, so that each queue is read once."""
    if not news:
        return {}
    registry = transaction.registry
    registry.refresh(transaction.repo)
    served = registry.serving(transaction.repo, {wishes[place].poll.bot: wishes[place].bot.version for place in news})
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place in news:
        queues = served[wishes[place].poll.bot]
        if queues:
            alike[queues].append(place)
    taken: set[int] = set()
    chosen: dict[int, list[int]] = {}
    for queues, places in alike.items():
        shares = _choose(transaction, queues, [wishes[place] for place in places], taken)
        chosen |= dict(zip(places, shares, strict=True))
    return _lease_out(transaction, wishes, chosen)


def _choose(
    transaction: Transaction, queues: tuple[int, ...], wishes: Sequence[ClaimRequest], taken: set[int]
) -> list[list[int]]:
    asked = [(wish.poll.bot, wish.count) for wish in wishes]
    bots = {bot for bot, _ in asked}
    count = wanted = sum(count for _, count in asked) + len(taken)
    dealt: list[list[int]] = []
    for _ in range(LOOKS_MAX):
        rows = transaction.repo.tasks.claim_candidates(queues, count)
        full = len(rows) >= count
        rows += [_row(task) for task in transaction.unwritten_in(queues)]
        turns = _turns(transaction, rows, taken)
        dealt = matching.deal(turns, asked)
        # Whoever is passed over, because another bot should have it, must not hide those behind it in its queue.
        if not full or count >= wanted + sum(turn[3] in bots for turn in turns):
            break
        count *= 4
    taken.update(id for ids in dealt for id in ids)
    return dealt


def _row(task: TaskRecord) -> Row:
    return (task.id, task.queue, task.priority, task.created_ms, task.avoid_bot)


def _turns(transaction: Transaction, rows: Sequence[Row], taken: set[int]) -> list[Turn]:
    losers = {(row[1], row[4]) for row in rows if row[4]}
    left_to: dict[tuple[int, str | None], str | None] = {
        (queue, bot): _left_to(transaction, transaction.registry.queue(transaction.repo, queue), BotId(bot))
        for queue, bot in losers
    }
    return [
        (priority, created_ms, id, left_to[queue, avoid_bot] if avoid_bot else None)
        for id, queue, priority, created_ms, avoid_bot in rows
        if id not in taken
    ]


def _left_to(transaction: Transaction, queue: QueueRow, lost_by: BotId) -> BotId | None:
    """Name the bot that has lost a task, if another one could take it."""
    served = fleet.served_elsewhere(queue.dimensions, lost_by, transaction.bots())
    return lost_by if served else None


def _lease_out(
    transaction: Transaction, wishes: Sequence[ClaimRequest], chosen: dict[int, list[int]]
) -> dict[int, list[TaskRecord]]:
    tasks = transaction.lock_tasks([id for ids in chosen.values() for id in ids])
    moves: list[Transition] = []
    leased: dict[int, list[TaskRecord]] = {place: [] for place in chosen}
    for place, ids in chosen.items():
        poll = wishes[place].poll
        taken = Reason.UNDER_WAY if poll.begun is None else Reason.ASSIGNED
        for id in ids:
            task = tasks[id]
            until = attempt_policy.lease_until(transaction.now, transaction.lease_ms, task.rules.deadline_ms)
            if until is None:
                continue  # its deadline has passed; the next sweep ends it
            taker = Claimant(poll.bot, poll.session, poll.poll, until)
            moves.append(Transition(task, _CLAIM, attempt_policy.claimed(task.life), taken, taker))
            leased[place].append(task)
    transaction.apply(moves)
    return leased


def _lease(task: TaskRecord) -> Lease:
    assert task.lease_until_ms is not None, "only a leased task is given to a bot"
    return Lease(task.id, task.life.attempt, task.fence, Millis(task.lease_until_ms), task.life.slice_index)


# What a bot is told about the tasks it gets: what to run, what their prerequisites published, what was left for them.
#
# Payloads and results go through as they are stored, unread.


_STRICT: Final = "strict"


class _Slice(msgspec.Struct):
    payload: msgspec.Raw


class _Definition(msgspec.Struct):
    """As much of a definition as a bot needs."""

    slices: list[_Slice]
    disconnect: str = _STRICT


_READER: Final = msgspec.json.Decoder(_Definition)


def with_definitions(transaction: Transaction, leases: Sequence[Lease]) -> list[Lease]:
    """Say what is to be run by each lease."""
    tasks = transaction.lock_tasks([lease.task for lease in leases])
    fed = [id for id, task in tasks.items() if task.edges.met]
    transaction.repo.output.prefetch_inputs(fed)
    definitions = transaction.repo.tasks.owned_definitions(list(tasks))
    inputs = _inputs(transaction, fed)
    left = transaction.repo.output.checkpoints([lease.task for lease in leases if lease.attempt > 1])
    return [
        struct_replace(lease, brief=_brief(tasks[lease.task], definitions[lease.task], lease, inputs, left))
        for lease in leases
    ]


def _brief(
    task: TaskRecord, defined: tuple[str, str, str], lease: Lease, inputs: dict[int, str], left: dict[int, bytes]
) -> AttemptDefinition:
    label, text, submitter = defined
    definition = _READER.decode(text)
    deadline = task.rules.deadline_ms
    return AttemptDefinition(
        task.graph,
        label,
        bytes(definition.slices[lease.slice_index].payload),
        definition.disconnect,
        None if deadline is None else Millis(deadline),
        inputs.get(task.id),
        left.get(task.id),
        submitter,
    )


def _inputs(transaction: Transaction, ids: Sequence[int]) -> dict[int, str]:
    """Give what the prerequisites of each task published, as one JSON object by their labels."""
    found: dict[int, dict[str, msgspec.Raw]] = defaultdict(dict)
    for task, label, body in transaction.repo.output.inputs(ids):
        found[task][label] = msgspec.Raw(body.encode())
    return {task: msgspec.json.encode(results).decode() for task, results in found.items()}

"""Claim tasks for bots: by the queues that a bot serves, then by priority, then by age.

A repeated poll gets the leases that it got before, with the time that is left, and costs no attempt.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from taskyard.core import attempt_policy, caches, fleet, matching
from taskyard.core.caches import Warmth
from taskyard.core.matching import Turn
from taskyard.core.resources import Resources
from taskyard.core.states import LEASED, BotId, Millis, Reason, Signal
from taskyard.core.structs import struct_replace, value
from taskyard.lifecycle.commands import AttemptDefinition, Lease, Poll
from taskyard.lifecycle.definitions import external_lease_ms
from taskyard.lifecycle.placement import Placement, placement_of
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Claimant, Transition
from taskyard.store.queries import Row
from taskyard.store.repo.bots import QueueRow, decode_caches
from taskyard.store.rows import CallingBot, TaskRecord

#: How many tasks one poll can get: with more, one bot would hoard tasks while others are idle.
WANT_MAX: Final = 256
#: Of more queues than this, a claim reads only those whose first tasks come first. It reads a few more than it wants
#: tasks: some of those tasks may be for other bots.
QUEUES_READ_MAX: Final = 32
QUEUES_SPARE: Final = 8
#: How often a claim reads further down its queues when the first tasks there are not for this bot.
READS_MAX: Final = 4
#: Aliases of enum members: together they save a twentieth of the instructions of a life (`benchmarks.lives`, 64).
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
    """Lease tasks to bots; return the leases of each request. The registry is up to date for these bots."""
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
    """Whether a poll came before."""
    poll, known = request.poll.poll, request.bot.recent_polls
    return bool(poll) and not request.parked and poll in known and poll in known.split("\n")


def _holds(bot: str, task: TaskRecord) -> bool:
    """Whether a bot still holds a task: the attempt may have been lost, and the task claimed by another bot."""
    return task.state in LEASED and task.bot == bot


def _claim_new(
    transaction: Transaction, requests: Sequence[ClaimRequest], new: Sequence[int]
) -> dict[int, list[TaskRecord]]:
    """Claim tasks for new requests. Bots that serve the same queues are handled together: each queue is read once."""
    if not new:
        return {}
    bots = transaction.registry.bots
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place in new:
        queues = bots[requests[place].poll.bot].served
        if queues:
            alike[queues].append(place)
    groups = [_group(transaction, queues, places, requests) for queues, places in alike.items()]
    # Those that hold caches of waiting tasks come first, whatever other queues they serve.
    groups.sort(key=lambda one: not one.warm)
    taken: set[int] = set()
    chosen: dict[int, list[int]] = {}
    for one in groups:
        chosen |= dict(zip(one.places, _choose(transaction, one, taken), strict=True))
    return _lease_out(transaction, requests, chosen)


class _Group(NamedTuple):
    """Requests of bots that serve the same queues, and what is known of their caches."""

    queues: tuple[int, ...]
    places: Sequence[int]  # of the requests
    asked: Sequence[tuple[str, int]]
    held: Mapping[str, frozenset[str]]  # the caches of bots
    window: Sequence[Row]  # the first tasks of the queues, if a bot holds caches and some task uses any
    warm: Mapping[int, frozenset[str]]  # those of these tasks that use a cache which a bot holds


def _group(
    transaction: Transaction, queues: tuple[int, ...], places: Sequence[int], requests: Sequence[ClaimRequest]
) -> _Group:
    asked = [(requests[place].poll.bot, requests[place].count) for place in places]
    held = {bot: keys for bot, _ in asked if (keys := transaction.registry.bots[bot].caches)}
    count = sum(count for _, count in asked) + _window(queues)
    if not held or not _use_caches(transaction, queues, count):
        return _Group(queues, places, asked, held, (), {})
    window = transaction.repo.tasks.claim_window(queues, count)
    return _Group(queues, places, asked, held, window, _warm_tasks(transaction, queues, window, held))


def _choose(transaction: Transaction, group: _Group, taken: set[int]) -> list[list[int]]:
    queues, asked = group.queues, group.asked
    placement = placement_of(transaction, {bot for bot, _ in asked}, queues)
    wanted = sum(count for _, count in asked) + len(taken)
    first, next_turn = (queues, None) if group.window else _first_queues(transaction, queues, wanted)
    turns, shares = _deal(transaction, group, first, taken, placement)
    if next_turn is not None and not _come_first(turns, shares, asked, next_turn):
        _, shares = _deal(transaction, group, queues, taken, placement)
    if placement is not None:
        placement.reserve()
    taken.update(id for ids in shares for id in ids)
    return shares


def _deal(
    transaction: Transaction, group: _Group, queues: tuple[int, ...], taken: set[int], placement: Placement | None
) -> tuple[list[Turn], list[list[int]]]:
    """Deal the first tasks of queues to bots; return the tasks that were read, and those of each bot."""
    asked, held, warm, window = group.asked, group.held, group.warm, group.window
    bots = {bot for bot, _ in asked}
    count = wanted = sum(count for _, count in asked) + len(taken)
    count += _window(queues) if window else 0
    turns: list[Turn] = []
    shares: list[list[int]] = []
    for read in range(READS_MAX):
        if window and (read or taken):
            window = transaction.repo.tasks.claim_window(queues, count)
            warm = _warm_tasks(transaction, queues, window, held)
        rows = [row[:5] for row in window] or transaction.repo.tasks.claim_candidates(queues, count)
        full = len(rows) >= count
        rows += [_row(task) for task in transaction.unwritten_in(queues)]
        turns = _turns(transaction, rows, taken)
        since = _since(transaction, queues, window, count) if warm else {}
        if placement is not None:
            shares = placement.deal(turns, rows, asked, Warmth(held, warm, since, transaction.now) if warm else None)
        elif warm:
            shares = caches.deal(turns, asked, held, warm, since, transaction.now)
        else:
            shares = matching.deal(turns, asked)
        # A task that is left to another bot must not hide the tasks behind it in its queue.
        if not full or count >= wanted + sum(turn[3] in bots for turn in turns):
            break
        count *= 4
    return turns, shares


def _first_queues(
    transaction: Transaction, queues: tuple[int, ...], wanted: int
) -> tuple[tuple[int, ...], tuple[int, int, int] | None]:
    """Return the queues to read for so many tasks, and the turn before which no other queue has a task.

    Of a few queues all are read. Of many, the first task of each is looked up in the index alone, and few are read:
    that takes a third of the time (`benchmarks.claim`, 1 000 queues).
    """
    if len(queues) <= QUEUES_READ_MAX:
        return queues, None
    count = wanted + QUEUES_SPARE
    rows = transaction.repo.tasks.first_queues(queues, count)
    unwritten = {task.queue for task in transaction.unwritten_in(queues)}
    read = tuple(unwritten.union(row[0] for row in rows))
    return read, (rows[-1][1], rows[-1][2], rows[-1][3]) if len(rows) == count else None


def _come_first(
    turns: Sequence[Turn], shares: Sequence[Sequence[int]], asked: Sequence[tuple[str, int]], next_turn: Sequence[int]
) -> bool:
    """Whether bots got all that they wanted, and nothing that comes after a task that was not read."""
    given = {id for ids in shares for id in ids}
    if len(given) < sum(count for _, count in asked):
        return False
    return all(turn[:3] <= tuple(next_turn) for turn in turns if turn[2] in given)


# Caches: a bot prefers tasks whose caches it holds. Only what such a bot does costs anything.


#: How many more tasks a claim reads of all queues together, to look for one whose caches a bot holds.
WINDOW_ROWS_MAX: Final = 512


def _window(queues: Sequence[int]) -> int:
    """Return how many more tasks of each queue a claim looks at for caches."""
    return max(1, min(caches.WINDOW_MAX - 1, WINDOW_ROWS_MAX // len(queues)))


def _use_caches(transaction: Transaction, queues: tuple[int, ...], count: int) -> bool:
    """Whether a task uses a cache that is among the first of its queue: else none has to be read for its caches."""
    tasks = transaction.repo.tasks
    unwritten = [task.id for task in transaction.unwritten_in(queues)]
    return tasks.any_with_caches(queues, count) or bool(tasks.caches_of(unwritten))


def _warm_tasks(
    transaction: Transaction, queues: tuple[int, ...], window: Sequence[Row], held: Mapping[str, frozenset[str]]
) -> dict[int, frozenset[str]]:
    """Return the tasks that use caches which some of these bots hold, with the keys of their caches."""
    found = {row[0]: row[6] for row in window if row[6] is not None}
    found |= transaction.repo.tasks.caches_of([task.id for task in transaction.unwritten_in(queues)])
    keys = frozenset[str]().union(*held.values())
    used = {id: decode_caches(text) for id, text in found.items()}
    return {id: wanted for id, wanted in used.items() if not keys.isdisjoint(wanted)}


def _since(transaction: Transaction, queues: tuple[int, ...], window: Sequence[Row], count: int) -> dict[int, Millis]:
    """Return since when tasks wait, as far as it is known that no others come between them.

    If a queue has more than the `count` tasks that were read, nothing is known of what comes after the last of these.
    """
    now = transaction.now
    found = [((row[2], row[3], row[0]), row[5]) for row in window]
    found += [
        ((task.priority, task.created_ms, task.id), task.life.waits_since_ms)
        for task in transaction.unwritten_in(queues)
    ]
    last = _last_known(window, count)
    return {turn[2]: Millis(since or now) for turn, since in found if last is None or turn <= last}


def _last_known(window: Sequence[Row], count: int) -> tuple[int, int, int] | None:
    """Return the turn after which a queue may have tasks that were not read; None if all of all queues were read."""
    if len(window) < count:
        return None
    of_queue: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for id, queue, priority, created_ms, *_ in window:
        of_queue[queue].append((priority, created_ms, id))
    return min((max(turns) for turns in of_queue.values() if len(turns) >= count), default=None)


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
        snapshot = transaction.registry.bots[poll.bot].snapshot
        for id in ids:
            task = tasks[id]
            lasts_ms = transaction.lease_ms
            if fleet.is_external(poll.bot):
                lasts_ms = external_lease_ms(transaction.repo, task)
            until = attempt_policy.lease_until(transaction.now, lasts_ms, task.rules.deadline_ms)
            if until is None:
                continue  # its deadline has passed: the next sweep ends it
            taker = Claimant(poll.bot, poll.session, poll.poll, until, snapshot)
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
            lease,
            definition=_definition(
                tasks[lease.task],
                definitions[lease.task],
                lease,
                inputs,
                checkpoints,
                transaction.registry.takes(tasks[lease.task].queue),
            ),
        )
        for lease in leases
    ]


def _definition(
    task: TaskRecord,
    stored: tuple[str, str, str],
    lease: Lease,
    inputs: dict[int, str],
    checkpoints: dict[int, bytes],
    takes: Resources | None,
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
        takes,
    )


def _inputs(transaction: Transaction, ids: Sequence[int]) -> dict[int, str]:
    """Return the results of the prerequisites of each task, as one JSON object by label."""
    found: dict[int, dict[str, msgspec.Raw]] = defaultdict(dict)
    for task, label, body in transaction.repo.output.inputs(ids):
        found[task][label] = msgspec.Raw(body.encode())
    return {task: msgspec.json.encode(results).decode() for task, results in found.items()}

"""Sessions of bots: a session begins, a bot polls, a session ends.

A bot that begins another session in the same folder has lost what the last session ran there: those attempts end at
once. Those that it adopts, because they run outside of the bot and still do, get a new fence and go on. A bot that
begins in another folder, or on another machine, does not know what the bot of this name runs elsewhere: those attempts
end with their leases, or when that bot says goodbye. Requests of a session that was replaced are refused.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from taskyard.core import attempt_policy, fleet
from taskyard.core.matching import pool_of
from taskyard.core.resources import with_slots
from taskyard.core.states import LEASED, STOPPED, Millis, Signal
from taskyard.core.structs import struct_replace
from taskyard.lifecycle import lost_attempts
from taskyard.lifecycle.bot_care import count_failures, refuse_while_used
from taskyard.lifecycle.bot_events import CONNECTED, ENDED, ERROR, FREED, record_event
from taskyard.lifecycle.commands import NO_SUBJECT, Adopted, Begun, Code, Goodbye, Hello, Poll, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo
from taskyard.store.repo.bots import BotRecord, encode_caches, encode_dimensions
from taskyard.store.rows import CallingBot, TaskRecord
from taskyard.wire.bot_protocol import POLL_ITEMS_MAX

#: How many polls and sessions of a bot are stored, to recognize repeats. Only a few can be on their way at once.
KEPT_MAX: Final = 8
#: The text of the event of a bot that begins in another folder, or on another machine, than before.
ELSEWHERE: Final = (
    "in another folder or on another machine; what the bot of this name runs elsewhere ends with its leases"
)
#: The text of the event of a bot that goes on with attempts of its last session.
ADOPTED: Final = "it goes on with attempts of its last session: {}"
#: The audit action.
FREE: Final = "free_bot"
#: How many attempts one transaction ends as lost: about as many as a bot holds.
LOST_MAX: Final = 400


def hello(transaction: Transaction, hellos: Sequence[Hello]) -> list[Refusal | tuple[Adopted, ...] | None]:
    """Begin sessions, or update bots; answer with what those that adopt attempts still have of them.

    A hello of a replaced session is refused, and so is a bot whose name belongs to another pool.
    """
    answers: list[Refusal | tuple[Adopted, ...] | None] = []
    for some in _split_by_repeated_bot(hellos):
        known = transaction.repo.bots.read({one.bot for one in some})
        bound = transaction.repo.bots.bound_names([one.bot for one in some if one.bot not in known])
        refusals = {one.bot: _refuse_hello(known.get(one.bot), bound.get(one.bot), one) for one in some}
        transaction.repo.bots.unbind_names([bot for bot in bound if refusals[bot] is None])
        taken, adopted = _begin_sessions(transaction, known, [one for one in some if refusals[one.bot] is None])
        refusals |= {bot: _refuse_other_pool(bot) for bot in taken}
        answers += [refusals[one.bot] or adopted.get(one.bot) for one in some]
    return answers


def _split_by_repeated_bot(hellos: Sequence[Hello]) -> Iterator[Sequence[Hello]]:
    """Split hellos, in their order, so that each part has only one of each bot: a later one sees the earlier."""
    start = 0
    bots: set[str] = set()
    for place, one in enumerate(hellos):
        if one.bot in bots:
            yield hellos[start:place]
            start, bots = place, set()
        bots.add(one.bot)
    yield hellos[start:]


def _begin_sessions(
    transaction: Transaction, known: Mapping[str, BotRecord], hellos: Sequence[Hello]
) -> tuple[set[str], dict[str, tuple[Adopted, ...]]]:
    """Begin sessions.

    Return the bots whose names another server has just given to another pool, and what bots adopted.
    """
    if not hellos:
        return set(), {}
    begun = [one for one in hellos if one.bot not in known or known[one.bot].session != one.session]
    new = {one.bot for one in begun}
    now = transaction.now
    rows = []
    for one in hellos:
        fields = (one.slots, now, now, transaction.server.name, one.quarantined, one.maintenance, int(one.draining))
        rows.append(
            (one.bot, pool_of(one.dimensions), one.session, _replaced(known.get(one.bot), one.session), *fields)
        )
    transaction.repo.bots.begin_sessions(rows)
    taken = _names_taken(transaction, known, begun)
    hellos, begun = ([one for one in some if one.bot not in taken] for some in (hellos, begun))
    new -= taken
    # An admin wanted the earlier bot of this name to end, not this one.
    transaction.repo.bots.clear_terminations([id for id in new if id in known and known[id].facts.ending])
    # Only now: if two first sessions begin at once, the later one sees the earlier only after it has its own row.
    adopted = {one.bot: _adopt(transaction, one) for one in hellos if one.adopts}
    lives = [(one.bot, fleet.lives_of(one.session)) for one in begun]
    kept = {one.bot: one.session for one in begun}
    end_lost_attempts(transaction, lives, {one.bot: one.begun for one in begun}, kept=kept)
    dimensions = {one.bot: encode_dimensions(with_slots(one.dimensions, one.slots)) for one in hellos}
    transaction.repo.bots.set_dimensions(list(dimensions.items()))
    transaction.repo.bots.set_snapshots(now, [_snapshot(one, dimensions[one.bot]) for one in hellos])
    elsewhere = {one.bot for one in begun if _begins_elsewhere(known.get(one.bot), one.session)}
    going_on = {bot: ADOPTED.format(len(some)) for bot, some in adopted.items() if some and bot in new - elsewhere}
    for bot, note in going_on.items():
        record_event(transaction, [bot], CONNECTED, note)
    record_event(transaction, sorted(new - elsewhere - going_on.keys()), CONNECTED)
    record_event(transaction, sorted(elsewhere), CONNECTED, ELSEWHERE)
    for one in hellos:
        transaction.mark_bot_changed(one.bot)
    transaction.mark_dirty(None)
    return taken, adopted


def _adopt(transaction: Transaction, one: Hello) -> tuple[Adopted, ...]:
    """Move to a session the leases that an earlier one in its folder had; those that it has already stay as they are.

    An attempt is named by the fence of its claim, which its bot knows also if it missed the answer to an earlier hello.
    """
    folder = fleet.lives_of(one.session)
    if not folder or fleet.lives_of(one.replaces) != folder:
        return ()
    tasks = transaction.lock_tasks({ref.task for ref in one.adopts})
    attempts = transaction.repo.attempts.open_of(list(tasks))
    moved: list[TaskRecord] = []
    adopted: list[Adopted] = []
    for ref in dict.fromkeys(one.adopts):
        task = tasks.get(ref.task)
        number, session, fence = attempts.get(ref.task, (0, "", 0))
        if (
            task is None
            or task.state not in LEASED
            or task.bot != one.bot
            or (number, fence) != (ref.attempt, ref.fence)
        ):
            continue
        if fleet.lives_of(session) != folder:
            continue
        if session != one.session:
            _renumber(transaction, task)
            moved.append(task)
        assert task.lease_until_ms is not None, "a leased task has a lease"
        stop = task.state in STOPPED
        adopted.append(Adopted(task.id, ref.attempt, task.fence, Millis(task.lease_until_ms), stop))
    transaction.repo.attempts.adopt([(task.id, task.life.attempt, one.session, task.fence) for task in moved])
    return tuple(adopted)


def _renumber(transaction: Transaction, task: TaskRecord) -> None:
    """Give the lease of a task a new fence, and its full length."""
    assert task.lease_until_ms is not None, "a leased task has a lease"
    now = transaction.now
    task.fence = attempt_policy.fence_after(task.fence, now)
    until = attempt_policy.lease_until(now, transaction.lease_ms, task.rules.deadline_ms)
    if until is not None and until > task.lease_until_ms:
        task.lease_until_ms = until
        task.due_ms = attempt_policy.due_at(task.life, task.rules, until, now)
    transaction.mark_changed(task)


def _names_taken(transaction: Transaction, known: Mapping[str, BotRecord], begun: Sequence[Hello]) -> set[str]:
    """Return the new bots whose names already belong to another pool: another server was faster."""
    unknown = {one.bot: pool_of(one.dimensions) for one in begun if one.bot not in known}
    found = transaction.repo.bots.read(unknown)
    return {bot for bot, record in found.items() if record.pool != unknown[bot]}


def _snapshot(one: Hello, dimensions: str) -> tuple[str, int, str, str]:
    """Return the row of what a bot is from now on; equal ones have the same id."""
    digest = sha256(f"{one.version}\n{dimensions}".encode()).digest()
    return one.bot, int.from_bytes(digest[:8], "big") >> 1, dimensions, one.version


def check_in(transaction: Transaction, polls: Sequence[Poll]) -> list[CallingBot | Refusal]:
    """Record that bots have polled; return their rows, or a refusal for a session that is over."""
    bots = transaction.repo.bots.callers({poll.bot for poll in polls})
    checked: list[CallingBot | Refusal] = []
    polls_of: dict[str, str] = {}
    for poll in polls:
        bot = _check_poll(bots.get(poll.bot), poll)
        checked.append(bot)
        if isinstance(bot, CallingBot):
            known = polls_of.get(poll.bot, bot.recent_polls)
            polls_of[poll.bot] = _with_line(known, poll.poll) if poll.want and poll.poll else known
            if bot.missing:
                transaction.mark_dirty(None)  # a missing bot is back
            if poll.caches is not None:
                _set_caches(transaction, poll, bot, checked)
    now = transaction.now
    transaction.repo.bots.record_polls([(id, known, now, transaction.server.name) for id, known in polls_of.items()])
    return checked


def _set_caches(transaction: Transaction, poll: Poll, bot: CallingBot, checked: list[CallingBot | Refusal]) -> None:
    """Store which caches a bot holds; what this transaction knows of the bot changes with that."""
    assert poll.caches is not None, "the poll reports caches"
    transaction.repo.bots.set_caches([(poll.bot, encode_caches(sorted(set(poll.caches))))])
    checked[-1] = struct_replace(bot, changes=bot.changes + 1)


def goodbye(transaction: Transaction, goodbyes: Sequence[Goodbye]) -> list[Refusal | None]:
    """End sessions; their attempts are lost. For a replaced session, too, this says that none of its attempts runs."""
    bots = transaction.repo.bots.read({one.bot for one in goodbyes})
    answers = [
        _refuse_other_pool(one.bot) if _is_of_other_pool(bots.get(one.bot), one.pool) else None for one in goodbyes
    ]
    goodbyes = [one for one, answer in zip(goodbyes, answers, strict=True) if answer is None]
    sessions = [(one.bot, f"{one.session}/") for one in goodbyes if one.bot in bots]
    end_lost_attempts(transaction, sessions, are_failures=False)
    gone = sorted({one.bot for one in goodbyes if one.bot in bots and bots[one.bot].session == one.session})
    transaction.repo.bots.end_sessions(gone)
    record_event(transaction, gone, ENDED)
    for bot in gone:
        transaction.mark_bot_changed(bot)
    transaction.mark_dirty(None)
    return answers


def replace_all_sessions(repo: Repo, word: str) -> None:
    """Replace the sessions of all bots: none of them may poll or say hello again, and their next sessions may.

    `word` is unique. A session of the same folder ends what the last one left there, as after any other restart of a
    bot.
    """
    repo.bots.replace_sessions(
        [
            (bot, f"{fleet.lives_of(session)}{word}", _with_line(previous, session))
            for bot, session, previous in repo.bots.sessions()
        ]
    )


def release_name(transaction: Transaction, bot: str, actor: str) -> Refusal | None:
    """Let the next pool that uses a name own it. Refuse that while its bot is alive or has leases."""
    found = transaction.repo.bots.read([bot]).get(bot)
    if found is None:
        return Refusal(Code.NOT_FOUND, f"there is no bot {bot}")
    if refusal := refuse_while_used(transaction, found, "free the name"):
        return refusal
    if found.pool is not None:
        transaction.repo.bots.release_names([bot])
        record_event(transaction, [bot], FREED)
        transaction.audit(actor, FREE, NO_SUBJECT, f"{bot}, of pool {found.pool}")
    return None


def record_error(
    transaction: Transaction,
    bot: str,
    session: str,
    text: str,
    about: tuple[int | None, int | None] = (None, None),
    pool: str | None = None,
) -> Refusal | None:
    """Record an error that a bot reports; `about` is the task and the attempt that it concerns, if any."""
    found = transaction.repo.bots.read([bot]).get(bot)
    if _is_of_other_pool(found, pool):
        return _refuse_other_pool(bot)
    if found is None or found.session != session:
        return _refuse_replaced(bot)
    record_event(transaction, [bot], ERROR, text, about)
    return None


def end_lost_attempts(
    transaction: Transaction,
    sessions: Sequence[tuple[str, str]],
    begun: Mapping[str, Collection[Begun] | None] = {},
    *,
    kept: Mapping[str, str] = {},
    are_failures: bool = True,
) -> None:
    """End as lost the attempts of bots in sessions whose names, with a slash at the end, begin with the given prefix.

    `begun` are the attempts that each bot had begun, if known: the others are returned and cost nothing. `kept` is the
    session of each bot whose attempts do not end. `are_failures`: the bots did not end on purpose. If there are too
    many for one transaction, the leases of the rest end now, and their timeouts end the attempts.
    """
    prefixes: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for bot, prefix in sessions:
        prefixes[bot] += (prefix,)
    found = [
        one
        for one in transaction.repo.tasks.leased_with_session(sorted(prefixes), LOST_MAX + POLL_ITEMS_MAX + 1)
        if one[2] != kept.get(one[1])
    ][: LOST_MAX + 1]
    holders = {id: bot for id, bot, session in found if f"{session}/".startswith(prefixes[bot])}
    transitions = []
    for task in transaction.lock_tasks(list(holders)).values():
        if task.bot != holders[task.id]:
            continue  # the attempt was lost before we locked the task, and another bot may have claimed it
        transition = lost_attempts.transition_of(transaction, task, begun.get(holders[task.id]))
        if transition is not None:
            transitions.append(transition)
    failed = {holders[one.task.id] for one in transitions if one.signal is Signal.LOSE}
    transaction.apply(transitions)
    if are_failures:
        count_failures(transaction, failed)
    if len(found) > LOST_MAX:
        now = transaction.now
        ended = [(bot, prefix, kept.get(bot, ""), Millis(now - fleet.GUARD_MS), now) for bot, prefix in sessions]
        transaction.repo.tasks.end_leases(ended)


def _with_line(known: str, line: str) -> str:
    """Add a poll or session to those that are stored, so that a late repeat of it is recognized."""
    if not known:
        return line
    if line in known and line in known.split("\n"):
        return known
    if known.count("\n") >= KEPT_MAX - 1:
        known = known[: known.rindex("\n")]
    return f"{line}\n{known}"


def _replaced(bot: BotRecord | None, session: str) -> str:
    """Return the sessions that a session replaces."""
    if bot is None:
        return ""
    return bot.previous_sessions if bot.session == session else _with_line(bot.previous_sessions, bot.session)


def _begins_elsewhere(bot: BotRecord | None, session: str) -> bool:
    """Whether a session begins while one in another folder has not ended."""
    return bot is not None and not bot.facts.terminated and fleet.lives_of(bot.session) != fleet.lives_of(session)


def _refuse_hello(bot: BotRecord | None, bound: str | None, one: Hello) -> Refusal | None:
    """Return why a bot may not begin or update a session, if so; `bound` is the pool of a forgotten bot of the name."""
    if fleet.is_older(one.version, fleet.BOT_VERSION_MIN):
        return _refuse_old(one)
    if fleet.is_external(one.bot) and not one.external:
        return Refusal(
            Code.FORBIDDEN, f"bot {one.bot}: names that begin with {fleet.EXTERNAL} are those of external pools"
        )
    if bot is None:
        return None if bound in (None, pool_of(one.dimensions)) else _refuse_other_pool(one.bot)
    if _is_of_other_pool(bot, pool_of(one.dimensions)):
        return _refuse_other_pool(one.bot)
    is_late = bot.session != one.session and one.session in bot.previous_sessions.split("\n")
    return _refuse_replaced(one.bot) if is_late else None


def _is_of_other_pool(bot: BotRecord | CallingBot | None, pool: str | None) -> bool:
    """Whether the name of a bot belongs to another pool than that of its sender."""
    return bot is not None and bot.pool is not None and pool is not None and bot.pool != pool


def _refuse_other_pool(bot: str) -> Refusal:
    text = f"the name {bot} belongs to another pool: choose another, or have an admin free it"
    return Refusal(Code.FORBIDDEN, f"{text} (taskyard bots free, or bots delete)")


def _refuse_old(one: Hello) -> Refusal:
    text = (
        f"bot {one.bot} has version {one.version}, and this server needs {fleet.BOT_VERSION_MIN} or newer: "
        "update taskyard on the machine of the bot, and start it again"
    )
    return Refusal(Code.OUTDATED, text)


def _refuse_replaced(bot: str) -> Refusal:
    return Refusal(
        Code.SESSION_REPLACED, f"bot {bot} has begun another session, or the database was restored: this one is over"
    )


def _check_poll(bot: CallingBot | None, poll: Poll) -> CallingBot | Refusal:
    if "\n" in poll.poll:
        return Refusal(Code.INVALID, "the id of a poll must be one line of text")
    if poll.pool is not None and _is_of_other_pool(bot, poll.pool):
        return _refuse_other_pool(poll.bot)
    if bot is None or bot.pool is None:
        return Refusal(Code.NOT_FOUND, f"there is no bot {poll.bot}: it has to say hello first")
    if bot.session != poll.session:
        return _refuse_replaced(poll.bot)
    return bot

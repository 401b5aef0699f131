"""The room where bots come and go: a session begins, a bot is heard of, a session ends.

A bot that begins another session in the same folder has lost what its last one ran there: those attempts end at once.
One that begins in another folder, or on another machine, knows nothing of what the bot before it runs: those attempts
end with their leases, or when that bot says goodbye. Whoever speaks for a session that was replaced is refused.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from taskyard.core import fleet, ids
from taskyard.core.matching import pool_of
from taskyard.core.states import Millis
from taskyard.lifecycle import lost_attempts
from taskyard.lifecycle.commands import NO_SUBJECT, Begun, Code, Goodbye, Hello, Poll, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.bots import BotRecord, encode_dimensions
from taskyard.store.rows import CallingBot

# The diary of the bots: what happened to each of them, the newest first. Nothing here decides anything.


CONNECTED: Final = "connected"
ENDED: Final = "ended"
MISSING: Final = "missing"
ERROR: Final = "error"
FREED: Final = "freed"


def record_event(
    transaction: Transaction,
    bots: Sequence[str],
    kind: str,
    text: str = "",
    about: tuple[int | None, int | None] = (None, None),
) -> None:
    """Write an event for each of some bots; about a task and its attempt, if it is."""
    known = transaction.repo.bots.read(bots)
    rows = []
    for id, bot in known.items():
        rows.append((id, ids.bot_event_text(bot.events), transaction.now, kind, *about, text))
    transaction.repo.bots.add_events(rows)
    transaction.repo.bots.count_events([(id, bot.events + 1) for id, bot in known.items()])


#: How many polls and sessions of a bot are remembered. A few can be under way; a copy that comes later is news.
KEPT_MAX: Final = 8
#: What is noted of a bot that begins in another folder, or on another machine, than it was.
ELSEWHERE: Final = "in another folder or on another machine; what the bot of this name ran before ends with its leases"
#: What the audit calls it.
FREE: Final = "free_bot"
#: How many attempts are ended as lost in one transaction: as many as a bot has in hand.
LOST_MAX: Final = 400


def hello(transaction: Transaction, hellos: Sequence[Hello]) -> list[Refusal | None]:
    """Begin sessions, or take note of what changed about bots.

    Refused are a late copy of a hello that was replaced, and a bot whose name belongs to another pool.
    """
    answers: list[Refusal | None] = []
    for some in _each_bot_once(hellos):
        known = transaction.repo.bots.read({one.bot for one in some})
        told = {one.bot: _unwelcome(known.get(one.bot), one) for one in some}
        lost = _welcome(transaction, known, [one for one in some if told[one.bot] is None])
        told |= {bot: _foreign(bot) for bot in lost}
        answers += [told[one.bot] for one in some]
    return answers


def _each_bot_once(hellos: Sequence[Hello]) -> Iterator[Sequence[Hello]]:
    """Cut hellos that came together, in their order, so that each later one of a bot is heard after the earlier."""
    start = 0
    heard: set[str] = set()
    for place, one in enumerate(hellos):
        if one.bot in heard:
            yield hellos[start:place]
            start, heard = place, set()
        heard.add(one.bot)
    yield hellos[start:]


def _welcome(transaction: Transaction, known: Mapping[str, BotRecord], hellos: Sequence[Hello]) -> set[str]:
    """Begin sessions; name the bots of which another server has just given the name to another pool."""
    if not hellos:
        return set()
    begun = [one for one in hellos if one.bot not in known or known[one.bot].session != one.session]
    new = {one.bot for one in begun}
    now = transaction.now
    rows = []
    for one in hellos:
        said = (one.slots, now, now, transaction.server.name, one.quarantined, one.maintenance, int(one.draining))
        rows.append((one.bot, pool_of(one.dimensions), one.session, _replaced(known.get(one.bot), one.session), *said))
    transaction.repo.bots.begin_sessions(rows)
    lost = _enrolled_elsewhere(transaction, known, begun)
    hellos, begun = ([one for one in some if one.bot not in lost] for some in (hellos, begun))
    new -= lost
    # It is the bot before that was told to end.
    transaction.repo.bots.clear_terminations([id for id in new if id in known and known[id].facts.ending])
    # Only now: of two first sessions at once, the later one is kept from knowing of the earlier until it has its row.
    lives = [(one.bot, fleet.lives_of(one.session)) for one in begun]
    end_lost_attempts(transaction, lives, {one.bot: one.begun for one in begun})
    transaction.repo.bots.set_dimensions([(one.bot, encode_dimensions(one.dimensions)) for one in hellos])
    twins = {one.bot for one in begun if _is_twin(known.get(one.bot), one.session)}
    record_event(transaction, sorted(new - twins), CONNECTED)
    record_event(transaction, sorted(twins), CONNECTED, ELSEWHERE)
    for one in hellos:
        transaction.mark_bot_changed(one.bot)
    transaction.mark_dirty(None)
    return lost


def _enrolled_elsewhere(transaction: Transaction, known: Mapping[str, BotRecord], begun: Sequence[Hello]) -> set[str]:
    """Name the bots that were unknown and now belong to another pool than their own: another server was faster."""
    unknown = {one.bot: pool_of(one.dimensions) for one in begun if one.bot not in known}
    found = transaction.repo.bots.read(unknown)
    return {bot for bot, record in found.items() if record.pool != unknown[bot]}


def check_in(transaction: Transaction, polls: Sequence[Poll]) -> list[CallingBot | Refusal]:
    """Take note that bots were heard of; refuse those that speak for a session that is over."""
    bots = transaction.repo.bots.callers({poll.bot for poll in polls})
    greeted: list[CallingBot | Refusal] = []
    heard: dict[str, str] = {}
    for poll in polls:
        bot = _greeted(bots.get(poll.bot), poll)
        greeted.append(bot)
        if isinstance(bot, CallingBot):
            known = heard.get(poll.bot, bot.recent_polls)
            heard[poll.bot] = _with_line(known, poll.poll) if poll.want and poll.poll else known
            if bot.missing:
                transaction.mark_dirty(None)  # what was thought to be gone is back
    now = transaction.now
    transaction.repo.bots.record_polls([(id, known, now, transaction.server.name) for id, known in heard.items()])
    return greeted


def goodbye(transaction: Transaction, goodbyes: Sequence[Goodbye]) -> list[Refusal | None]:
    """End sessions; what they had is lost. One that was replaced has this to say, too: that nothing of it is left."""
    bots = transaction.repo.bots.read({one.bot for one in goodbyes})
    answers = [_foreign(one.bot) if _is_foreign(bots.get(one.bot), one.pool) else None for one in goodbyes]
    goodbyes = [one for one, answer in zip(goodbyes, answers, strict=True) if answer is None]
    end_lost_attempts(transaction, [(one.bot, f"{one.session}/") for one in goodbyes if one.bot in bots])
    gone = sorted({one.bot for one in goodbyes if one.bot in bots and bots[one.bot].session == one.session})
    transaction.repo.bots.end_sessions(gone)
    record_event(transaction, gone, ENDED)
    for bot in gone:
        transaction.mark_bot_changed(bot)
    transaction.mark_dirty(None)
    return answers


def release_name(transaction: Transaction, bot: str, actor: str) -> Refusal | None:
    """Let a name belong to whichever pool enrols it next; not while its bot lives, or has something in hand."""
    found = transaction.repo.bots.read([bot]).get(bot)
    if found is None:
        return Refusal(Code.NOT_FOUND, f"there is no bot {bot}")
    if fleet.alive(found.facts):
        return Refusal(Code.CONFLICT, f"cannot free the name {bot}: the bot lives; end it first")
    if transaction.repo.tasks.leased_with_session([bot], 1):
        return Refusal(
            Code.CONFLICT, f"cannot free the name {bot}: leases of the bot are not over yet; try again later"
        )
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
    """Note what a bot says went wrong with it, in the name of a pool; about a task and its attempt, if it is."""
    found = transaction.repo.bots.read([bot]).get(bot)
    if _is_foreign(found, pool):
        return _foreign(bot)
    if found is None or found.session != session:
        return _over(bot)
    record_event(transaction, [bot], ERROR, text, about)
    return None


def end_lost_attempts(
    transaction: Transaction, sessions: Sequence[tuple[str, str]], told: Mapping[str, Collection[Begun] | None] = {}
) -> None:
    """End as lost what bots had in sessions whose names, each with a slash behind it, begin as is said beside each bot.

    What had not begun, as is told of each bot, comes back free. Those too many for one transaction are over, and the
    clock ends them.
    """
    begins: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for bot, begin in sessions:
        begins[bot] += (begin,)
    found = transaction.repo.tasks.leased_with_session(sorted(begins), LOST_MAX + 1)
    had = {id: bot for id, bot, session in found if f"{session}/".startswith(begins[bot])}
    moves = []
    for task in transaction.lock_tasks(list(had)).values():
        if task.bot != had[task.id]:
            continue  # it was lost, and may have been given to another, before we looked at it
        move = lost_attempts.transition_of(transaction, task, told.get(had[task.id]))
        if move is not None:
            moves.append(move)
    transaction.apply(moves)
    if len(found) > LOST_MAX:
        now = transaction.now
        transaction.repo.tasks.end_leases([(*one, Millis(now - fleet.GUARD_MS), now) for one in sessions])


def _with_line(known: str, line: str) -> str:
    """Remember one more poll or session: a late copy of any that is remembered is told apart from news."""
    if not known:
        return line
    if line in known and line in known.split("\n"):
        return known
    if known.count("\n") >= KEPT_MAX - 1:
        known = known[: known.rindex("\n")]
    return f"{line}\n{known}"


def _replaced(bot: BotRecord | None, session: str) -> str:
    """Name the sessions that a session replaces."""
    if bot is None:
        return ""
    return bot.previous_sessions if bot.session == session else _with_line(bot.previous_sessions, bot.session)


def _is_twin(bot: BotRecord | None, session: str) -> bool:
    """Tell whether a session begins beside one of another folder that has not ended."""
    return bot is not None and not bot.facts.terminated and fleet.lives_of(bot.session) != fleet.lives_of(session)


def _unwelcome(bot: BotRecord | None, one: Hello) -> Refusal | None:
    """Say why a bot may not begin, or go on with, a session."""
    if bot is None:
        return None
    if _is_foreign(bot, pool_of(one.dimensions)):
        return _foreign(one.bot)
    is_late = bot.session != one.session and one.session in bot.previous_sessions.split("\n")
    return _over(one.bot) if is_late else None


def _is_foreign(bot: BotRecord | CallingBot | None, pool: str | None) -> bool:
    """Tell whether the name of a bot belongs to another pool than its sender speaks for."""
    return bot is not None and bot.pool is not None and pool is not None and bot.pool != pool


def _foreign(bot: str) -> Refusal:
    text = f"the name {bot} belongs to another pool: choose another, or have an admin free it (taskyard bots free)"
    return Refusal(Code.FORBIDDEN, text)


def _over(bot: str) -> Refusal:
    return Refusal(Code.SESSION_REPLACED, f"bot {bot} has begun another session: this one is over")


def _greeted(bot: CallingBot | None, poll: Poll) -> CallingBot | Refusal:
    if "\n" in poll.poll:
        return Refusal(Code.INVALID, "the id of a poll is one line of text")
    if _is_foreign(bot, poll.pool):
        return _foreign(poll.bot)
    if bot is None or bot.pool is None:
        return Refusal(Code.NOT_FOUND, f"there is no bot {poll.bot}: it has to say hello first")
    if bot.session != poll.session:
        return _over(poll.bot)
    return bot

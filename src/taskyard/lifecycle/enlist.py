"""The room where bots come and go: a session begins, a bot is heard of, a session ends.

A bot that begins another session has lost what its last one ran: those attempts end at once. Whoever speaks for a
session that was replaced is refused.
"""

from collections.abc import Sequence

from taskyard.core import budget
from taskyard.core.machine import REASONS, Outcome
from taskyard.core.words import Signal
from taskyard.lifecycle.commands import Goodbye, Hello, Poll
from taskyard.lifecycle.diary import CONNECTED, ENDED, note
from taskyard.lifecycle.move import Move
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Code, Refusal
from taskyard.store.verbs.fleet import BotRecord, dimensions_text


def hello(corridor: Corridor, hellos: Sequence[Hello]) -> None:
    """Begin sessions, or take note of what changed about bots."""
    known = corridor.txn.bots.look({one.bot for one in hellos})
    new = {one.bot for one in hellos if one.bot not in known or known[one.bot].session != one.session}
    now = corridor.now
    corridor.txn.bots.begin(
        [(h.bot, h.session, h.slots, now, now, h.quarantined, h.maintenance, int(h.draining)) for h in hellos]
    )
    # Only now: of two first sessions at once, the later one is kept from knowing of the earlier until it has its row.
    lose(corridor, sorted(new))
    corridor.txn.bots.set_dimensions([(one.bot, dimensions_text(one.dimensions)) for one in hellos])
    note(corridor, sorted(new), CONNECTED)
    corridor.stirred.append(None)


def greet(corridor: Corridor, polls: Sequence[Poll]) -> list[BotRecord | Refusal]:
    """Take note that bots were heard of; refuse those that speak for a session that is over."""
    bots = corridor.txn.bots.look({poll.bot for poll in polls})
    greeted = [_greeted(bots.get(poll.bot), poll) for poll in polls]
    heard = {}
    for poll, bot in zip(polls, greeted, strict=True):
        if isinstance(bot, BotRecord):
            heard[poll.bot] = (poll.bot, poll.poll if poll.want and poll.poll else bot.poll, corridor.now)
            if bot.missing:
                corridor.stirred.append(None)  # what was thought to be gone is back
    corridor.txn.bots.see(list(heard.values()))
    return greeted


def goodbye(corridor: Corridor, goodbyes: Sequence[Goodbye]) -> None:
    """End sessions; what their bots had is lost."""
    bots = corridor.txn.bots.look({one.bot for one in goodbyes})
    gone = sorted({one.bot for one in goodbyes if one.bot in bots and bots[one.bot].session == one.session})
    lose(corridor, gone)
    corridor.txn.bots.end(gone)
    note(corridor, gone, ENDED)
    corridor.stirred.append(None)


def lose(corridor: Corridor, bots: Sequence[str]) -> None:
    """End every attempt of bots as lost."""
    had = dict(corridor.txn.tasks.leased_by(bots))
    moves = []
    for task in corridor.look(list(had)).values():
        if task.bot != had[task.id]:
            continue  # it was lost, and may have been given to another, before we looked at it
        ruling = budget.report(task.life, task.rules, task.life.attempt, Signal.LOSE, corridor.now)
        if ruling.outcome is Outcome.MOVE:
            task.not_by = task.bot
            moves.append(Move(task, Signal.LOSE, ruling.life_after, ruling.reason or REASONS[Signal.LOSE]))
    corridor.send(moves)


def _greeted(bot: BotRecord | None, poll: Poll) -> BotRecord | Refusal:
    if bot is None:
        return Refusal(Code.NOT_FOUND, f"there is no bot {poll.bot}: it has to say hello first")
    if bot.session != poll.session:
        return Refusal(Code.SESSION_REPLACED, f"bot {poll.bot} has begun another session: this one is over")
    return bot

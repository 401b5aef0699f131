"""A bot's poll: its results, its renewals and its wish for more, carried out for many bots at once."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from taskyard.core.structs import value
from taskyard.lifecycle.bot_sessions import greet
from taskyard.lifecycle.claim import brief, claim, claim_request, is_repeated
from taskyard.lifecycle.commands import Done, Kept, Lease, Poll, Refusal, Renewed
from taskyard.lifecycle.report import begin, keep, note, renew, resolve
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.rows import Caller


@value
class Polled:
    """The answer to a poll: an outcome for each report and each renewal, and the leases it gets."""

    reports: tuple[Done | Refusal, ...]
    renewals: tuple[Renewed | Refusal, ...]
    leases: tuple[Lease, ...]
    outputs: tuple[Kept | Refusal, ...] = ()
    repeated: bool = False  # it was heard before
    stops: tuple[Renewed, ...] = ()  # what a person wants ended, told to a poll that waits
    ending: bool = False  # an admin wants the bot to end after what it has in hand, and it does not do so yet


#: What a poll gets for which there is nothing.
NOTHING: Final = Polled((), (), ())


def poll(corridor: Transaction, polls: Sequence[Poll]) -> list[Polled | Refusal]:
    """Carry out polls: first what ended, then what goes on, then what begins."""
    _foresee(corridor, polls)
    greeted = greet(corridor, polls)
    heard = [(place, polls[place], bot) for place, bot in enumerate(greeted) if isinstance(bot, Caller)]
    # What a result releases and a wish takes is written once, as one way from where it was to where it runs.
    corridor.deferring = True
    kept = keep(corridor, [(one.bot, output) for _, one, _ in heard if one.outputs for output in one.outputs])
    going_on = [(one.bot, renewal) for _, one, _ in heard if one.renewals for renewal in one.renewals]
    note(corridor, going_on)  # the last words of an attempt come with its end, and are for the next
    reports = resolve(corridor, [(one.bot, report) for _, one, _ in heard for report in one.reports])
    renewals = renew(corridor, going_on)
    begin(corridor, [(one.bot, begun) for _, one, _ in heard if one.begun for begun in one.begun])
    wishes = [claim_request(one, bot) for _, one, bot in heard]
    leases = _briefed(corridor, heard, claim(corridor, wishes))
    corridor.deferring = False
    corridor.registry.serving(corridor.txn, {one.bot: bot.version for _, one, bot in heard})
    answers: list[Polled | Refusal] = [bot if isinstance(bot, Refusal) else NOTHING for bot in greeted]
    told, renewed, printed = iter(reports), iter(renewals), iter(kept)
    for (place, one, _), given, wish in zip(heard, leases, wishes, strict=True):
        ended = tuple(islice(told, len(one.reports))) if one.reports else ()
        going = tuple(islice(renewed, len(one.renewals))) if one.renewals else ()
        stored = tuple(islice(printed, len(one.outputs))) if one.outputs else ()
        ending = corridor.registry.ending(one.bot)
        answers[place] = Polled(ended, going, given, stored, not given and is_repeated(wish), ending=ending)
    return answers


def _foresee(corridor: Transaction, polls: Sequence[Poll]) -> None:
    """Ask for everything at once that will be asked for in any case: bots first, since whoever locks both does so."""
    corridor.txn.bots.foresee({one.bot for one in polls})
    corridor.txn.tasks.foresee({report.task for one in polls for report in one.reports})
    if any(one.want for one in polls):
        corridor.registry.foresee(corridor.txn)


def _briefed(
    corridor: Transaction, heard: Sequence[tuple[int, Poll, Caller]], leases: Sequence[tuple[Lease, ...]]
) -> Sequence[tuple[Lease, ...]]:
    """Say what is to be run, where that is wanted."""
    wanted = [lease for (_, one, _), given in zip(heard, leases, strict=True) if one.briefed for lease in given]
    if not wanted:
        return leases
    told = {lease.task: lease for lease in brief(corridor, wanted)}
    return [tuple(told.get(lease.task, lease) for lease in given) for given in leases]

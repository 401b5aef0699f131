"""A bot's poll: its results, its renewals and its wish for more, carried out for many bots at once."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from taskyard.core.structs import value
from taskyard.lifecycle.bot_sessions import check_in
from taskyard.lifecycle.claim import claim, claim_request, is_repeated, with_definitions
from taskyard.lifecycle.commands import Done, Lease, OutputStored, Poll, Refusal, Renewed
from taskyard.lifecycle.report import end_attempts, record_begun, renew, store_output, store_progress
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.rows import CallingBot


@value
class PollOutcome:
    """The answer to a poll: an outcome for each report and each renewal, and the leases it gets."""

    reports: tuple[Done | Refusal, ...]
    renewals: tuple[Renewed | Refusal, ...]
    leases: tuple[Lease, ...]
    outputs: tuple[OutputStored | Refusal, ...] = ()
    repeated: bool = False  # it was heard before
    stops: tuple[Renewed, ...] = ()  # what a person wants ended, told to a poll that waits
    ending: bool = False  # an admin wants the bot to end after what it has in hand, and it does not do so yet


#: What a poll gets for which there is nothing.
EMPTY: Final = PollOutcome((), (), ())


def poll(transaction: Transaction, polls: Sequence[Poll]) -> list[PollOutcome | Refusal]:
    """Carry out polls: first what ended, then what goes on, then what begins."""
    _foresee(transaction, polls)
    greeted = check_in(transaction, polls)
    heard = [(place, polls[place], bot) for place, bot in enumerate(greeted) if isinstance(bot, CallingBot)]
    # What a result releases and a wish takes is written once, as one way from where it was to where it runs.
    transaction.deferring = True
    kept = store_output(
        transaction, [(one.bot, output) for _, one, _ in heard if one.outputs for output in one.outputs]
    )
    going_on = [(one.bot, renewal) for _, one, _ in heard if one.renewals for renewal in one.renewals]
    store_progress(transaction, going_on)  # the last words of an attempt come with its end, and are for the next
    reports = end_attempts(transaction, [(one.bot, report) for _, one, _ in heard for report in one.reports])
    renewals = renew(transaction, going_on)
    record_begun(transaction, [(one.bot, begun) for _, one, _ in heard if one.begun for begun in one.begun])
    wishes = [claim_request(one, bot) for _, one, bot in heard]
    leases = _briefed(transaction, heard, claim(transaction, wishes))
    transaction.deferring = False
    transaction.registry.serving(transaction.repo, {one.bot: bot.version for _, one, bot in heard})
    answers: list[PollOutcome | Refusal] = [bot if isinstance(bot, Refusal) else EMPTY for bot in greeted]
    told, renewed, printed = iter(reports), iter(renewals), iter(kept)
    for (place, one, _), given, wish in zip(heard, leases, wishes, strict=True):
        ended = tuple(islice(told, len(one.reports))) if one.reports else ()
        going = tuple(islice(renewed, len(one.renewals))) if one.renewals else ()
        stored = tuple(islice(printed, len(one.outputs))) if one.outputs else ()
        ending = transaction.registry.ending(one.bot)
        answers[place] = PollOutcome(ended, going, given, stored, not given and is_repeated(wish), ending=ending)
    return answers


def _foresee(transaction: Transaction, polls: Sequence[Poll]) -> None:
    """Ask for everything at once that will be asked for in any case: bots first, since whoever locks both does so."""
    transaction.repo.bots.prefetch_callers({one.bot for one in polls})
    transaction.repo.tasks.prefetch({report.task for one in polls for report in one.reports})
    if any(one.want for one in polls):
        transaction.registry.foresee(transaction.repo)


def _briefed(
    transaction: Transaction, heard: Sequence[tuple[int, Poll, CallingBot]], leases: Sequence[tuple[Lease, ...]]
) -> Sequence[tuple[Lease, ...]]:
    """Say what is to be run, where that is wanted."""
    wanted = [
        lease for (_, one, _), given in zip(heard, leases, strict=True) if one.with_definitions for lease in given
    ]
    if not wanted:
        return leases
    told = {lease.task: lease for lease in with_definitions(transaction, wanted)}
    return [tuple(told.get(lease.task, lease) for lease in given) for given in leases]

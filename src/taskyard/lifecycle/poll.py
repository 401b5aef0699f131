"""A bot's poll: its results, its renewals and its request for more tasks, carried out for many bots at once."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from taskyard.core.states import Signal
from taskyard.core.structs import value
from taskyard.lifecycle.bot_care import forget_failures
from taskyard.lifecycle.bot_sessions import check_in
from taskyard.lifecycle.claim import claim, claim_request, is_repeated, with_definitions
from taskyard.lifecycle.commands import Done, Lease, OutputStored, Poll, Refusal, Renewed, Report
from taskyard.lifecycle.report import end_attempts, record_begun, renew, store_output, store_progress
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.rows import CallingBot


@value
class PollOutcome:
    """The answer to a poll: an outcome for each report and each renewal, and the leases that the bot gets."""

    reports: tuple[Done | Refusal, ...]
    renewals: tuple[Renewed | Refusal, ...]
    leases: tuple[Lease, ...]
    outputs: tuple[OutputStored | Refusal, ...] = ()
    repeated: bool = False  # the same poll came before
    stops: tuple[Renewed, ...] = ()  # attempts that a person stopped while the poll was parked
    ending: bool = False  # an admin wants the bot to end after what it runs, and it does not drain yet


#: The signals of attempts that ran to their end, successful or failed.
_OWN_ENDS: Final = frozenset({Signal.SUCCEED, Signal.FAIL})
#: The answer to a poll that reports nothing and gets nothing.
EMPTY: Final = PollOutcome((), (), ())


def poll(transaction: Transaction, polls: Sequence[Poll]) -> list[PollOutcome | Refusal]:
    """Carry out polls: first the reports, then the renewals, then the requests for work."""
    registry = transaction.registry
    _prefetch(transaction, polls)
    callers = check_in(transaction, polls)
    known = [(place, polls[place], bot) for place, bot in enumerate(callers) if isinstance(bot, CallingBot)]
    # A task that a result releases and a claim takes is written once, from its old state to its last one.
    with transaction.deferred_writes():
        stored = store_output(
            transaction, [(one.bot, output) for _, one, _ in known if one.outputs for output in one.outputs]
        )
        to_renew = [(one.bot, renewal) for _, one, _ in known if one.renewals for renewal in one.renewals]
        store_progress(transaction, to_renew)  # before its end: the last checkpoint is for the next attempt
        said = [(one.bot, report) for _, one, _ in known for report in one.reports]
        ended = end_attempts(transaction, said)
        renewed = renew(transaction, to_renew)
        record_begun(transaction, [(one.bot, begun) for _, one, _ in known if one.begun for begun in one.begun])
        if any(one.want for one in polls):
            registry.refresh(transaction.repo)
        registry.update(transaction.repo, {one.bot: bot.changes for _, one, bot in known})
        requests = [claim_request(one, bot) for _, one, bot in known]
        leases = _with_definitions(transaction, known, claim(transaction, requests))
    _note_ends(transaction, said, ended)
    answers: list[PollOutcome | Refusal] = [bot if isinstance(bot, Refusal) else EMPTY for bot in callers]
    reports, renewals, outputs = iter(ended), iter(renewed), iter(stored)
    for (place, one, _), given, request in zip(known, leases, requests, strict=True):
        is_late = not given and is_repeated(request)
        if is_late:
            transaction.note_repeating(one.bot)
        answers[place] = PollOutcome(
            tuple(islice(reports, len(one.reports))) if one.reports else (),
            tuple(islice(renewals, len(one.renewals))) if one.renewals else (),
            given,
            tuple(islice(outputs, len(one.outputs))) if one.outputs else (),
            is_late,
            ending=registry.bots[one.bot].ending,
        )
    return answers


def _note_ends(
    transaction: Transaction, reports: Sequence[tuple[str, Report]], ended: Sequence[Done | Refusal]
) -> None:
    """Reset the failure counts of bots that have ended attempts: they work again."""
    bots = transaction.registry.bots
    failing = {bot for bot, _ in reports if bots[bot].failures}
    if failing:
        forget_failures(
            transaction,
            {
                bot
                for (bot, report), outcome in zip(reports, ended, strict=True)
                if bot in failing and report.signal in _OWN_ENDS and isinstance(outcome, Done) and not outcome.echo
            },
        )


def _prefetch(transaction: Transaction, polls: Sequence[Poll]) -> None:
    """Request at once what every poll reads: bots first, because all transactions lock bots before tasks."""
    transaction.repo.bots.prefetch_callers({one.bot for one in polls})
    transaction.repo.tasks.prefetch({report.task for one in polls for report in one.reports})
    if any(one.want for one in polls):
        transaction.registry.prefetch(transaction.repo)


def _with_definitions(
    transaction: Transaction, known: Sequence[tuple[int, Poll, CallingBot]], leases: Sequence[tuple[Lease, ...]]
) -> Sequence[tuple[Lease, ...]]:
    """Add to leases what is to be run, for the bots that want it."""
    wanted = [
        lease for (_, one, _), given in zip(known, leases, strict=True) if one.with_definitions for lease in given
    ]
    if not wanted:
        return leases
    found = {lease.task: lease for lease in with_definitions(transaction, wanted)}
    return [tuple(found.get(lease.task, lease) for lease in given) for given in leases]

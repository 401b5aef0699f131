"""A bot's poll: its results, its renewals and its wish for more, carried out for many bots at once."""

from collections.abc import Sequence
from itertools import islice

from taskyard.core.values import value
from taskyard.lifecycle.claim import claim, wish_of
from taskyard.lifecycle.commands import Poll
from taskyard.lifecycle.enlist import greet
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Done, Lease, Refusal, Renewed
from taskyard.lifecycle.renew import renew
from taskyard.lifecycle.resolve import resolve
from taskyard.store.records import Caller


@value
class Polled:
    """The answer to a poll: an outcome for each report and each renewal, and the leases it gets."""

    reports: tuple[Done | Refusal, ...]
    renewals: tuple[Renewed | Refusal, ...]
    leases: tuple[Lease, ...]


_NOTHING = Polled((), (), ())


def poll(corridor: Corridor, polls: Sequence[Poll]) -> list[Polled | Refusal]:
    """Carry out polls: first what ended, then what goes on, then what begins."""
    greeted = greet(corridor, polls)
    heard = [(place, polls[place], bot) for place, bot in enumerate(greeted) if isinstance(bot, Caller)]
    # What a result releases and a wish takes is written once, as one way from where it was to where it runs.
    corridor.deferring = True
    reports = resolve(corridor, [(one.bot, report) for _, one, _ in heard for report in one.reports])
    renewals = renew(corridor, [(one.bot, renewal) for _, one, _ in heard if one.renewals for renewal in one.renewals])
    leases = claim(corridor, [wish_of(one, bot) for _, one, bot in heard])
    corridor.deferring = False
    answers: list[Polled | Refusal] = [bot if isinstance(bot, Refusal) else _NOTHING for bot in greeted]
    told, renewed = iter(reports), iter(renewals)
    for (place, one, _), given in zip(heard, leases, strict=True):
        ended = tuple(islice(told, len(one.reports))) if one.reports else ()
        going = tuple(islice(renewed, len(one.renewals))) if one.renewals else ()
        answers[place] = Polled(ended, going, given)
    return answers

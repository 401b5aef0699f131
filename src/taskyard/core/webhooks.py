"""What becomes of a delivery to a webhook that failed: when it is tried again, and when it is given up."""

from enum import StrEnum, unique
from typing import Final

from taskyard.core.states import Millis

#: How often an event is tried that the receiver refuses: it reads requests, and will hardly change its mind.
REFUSALS_MAX: Final = 5
#: How long an event is tried to which the receiver answers with an error: others wait behind it.
ANSWERED_MAX_MS: Final = 60 * 60 * 1_000
#: How old an event is given up whose receiver does not answer.
AGE_MAX_MS: Final = 24 * 60 * 60 * 1_000
#: The first pause and the longest.
PAUSE_MIN_MS: Final = 1_000
PAUSE_MAX_MS: Final = 5 * 60 * 1_000
#: Answers that say that a later try may succeed, though they are 4xx.
_LATER: Final = frozenset({408, 425, 429})
_CHANCE: Final = 1 << 16


@unique
class Failure(StrEnum):
    """How a delivery failed."""

    REFUSED = "refused"  # the receiver does not take this event
    ANSWERED = "answered"  # the receiver cannot take it now
    UNREACHABLE = "unreachable"  # there was no answer


def failure_of(status: int) -> Failure | None:
    """Return what an answer means; None if the event was delivered."""
    if 200 <= status < 300:
        return None
    return Failure.REFUSED if 400 <= status < 500 and status not in _LATER else Failure.ANSWERED


def pause_after(
    failure: Failure, tries: int, first_ms: Millis, happened_ms: int, now: Millis, chance: int
) -> int | None:
    """Return how long to wait before the next try, in milliseconds; None to give the event up.

    `tries` counts those that failed since `first_ms`; the event is of `happened_ms`. `chance`, of 16 bits,
    spreads the tries of webhooks whose receivers went down together.
    """
    is_over = {
        Failure.REFUSED: tries >= REFUSALS_MAX,
        Failure.ANSWERED: now - first_ms >= ANSWERED_MAX_MS,
        Failure.UNREACHABLE: now - happened_ms >= AGE_MAX_MS,
    }
    if is_over[failure]:
        return None
    pause = min(PAUSE_MAX_MS, PAUSE_MIN_MS << min(tries - 1, 20))
    return pause // 2 + pause // 2 * chance // _CHANCE

"""How long a client waits before it repeats a request: growing, random pauses, shared by the SDK and the bot."""

import random


def backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """Choose a pause after so many failed tries before this one: at least half of a doubling span, up to all of it.

    The random part keeps clients that were cut off together from coming back together.
    """
    longest = min(longest_s, first_s * 2.0 ** min(failures, 16))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards no secret


def retry_after_s(header: str | None, longest_s: float) -> float | None:
    """Read a Retry-After header in seconds; None if there is none.

    The other form of the header, a date, is ignored: it needs a clock that is right, and a client's may not be.
    """
    return min(float(header), longest_s) if header is not None and header.isdecimal() else None

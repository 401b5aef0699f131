"""Asks again until there is an answer: with growing, uneven pauses, so that a fleet does not knock all at once."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from taskyard.bot.link import Away

#: The first pause, and the longest.
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0

_LOG = logging.getLogger("taskyard.bot")
_T = TypeVar("_T")


async def answered(ask: Callable[[], Awaitable[_T]], pause_s_max: float = PAUSE_SECONDS_MAX) -> _T:
    """Ask until the server answers, however long it is away; refusals go through."""
    away = 0
    while True:
        try:
            answer = await ask()
        except Away as error:
            if away == 0:
                _LOG.warning("the server is away, and will be asked again: %s", error)
            await asyncio.sleep(pause_s(away, error.after_s, pause_s_max))
            away += 1
        else:
            if away:
                _LOG.warning("the server is back")
            return answer


def pause_s(tries: int, after_s: float | None, longest: float = PAUSE_SECONDS_MAX) -> float:
    """Choose a pause after so many tries before this one; never less than the server asks for."""
    pause = min(longest, PAUSE_SECONDS * 2.0 ** min(tries, 16)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    return max(pause, after_s * random.uniform(1.0, 1.2)) if after_s else pause  # noqa: S311

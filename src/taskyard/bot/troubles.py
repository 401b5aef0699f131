"""Tells the server what went wrong with this bot itself, for people: beside its work, and never in its way.

Each trouble is told once in a while and there is a most of them in one life, so that a bot that ails says so and does
not shout. One that cannot be told soon is left to the log; one whose answer is lost may be noted twice.
"""

import asyncio
import contextlib
import logging
import time
from typing import Final

from taskyard.bot.config import BotConfig
from taskyard.bot.desk import Held
from taskyard.bot.link import Link, Stranger, TurnedAway
from taskyard.bot.patience import answered
from taskyard.wire.bots import TROUBLE_MAX, Trouble

#: How often the same is told, and how much in one life.
AGAIN_SECONDS: Final = 60.0
TROUBLES_MAX: Final = 200
#: How long the server may be away for a trouble to be told.
TELL_SECONDS_MAX: Final = 60.0

_LOG = logging.getLogger("taskyard.bot")


class Troubles:
    """The troubles of one session."""

    def __init__(self, config: BotConfig, session: str) -> None:
        self._config, self._session = config, session
        self._told: dict[str, float] = {}  # when each was last told
        self._count = 0
        self._telling: set[asyncio.Task[None]] = set()

    def note(self, text: str, held: Held | None = None) -> None:
        """Take note of a trouble, of one attempt if it is about one."""
        now = time.monotonic()
        if self._count >= TROUBLES_MAX or now - self._told.get(text, now - AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        self._told[text] = now
        self._count += 1
        _LOG.warning("%s", text)
        about = (held.lease.task, held.lease.attempt) if held is not None else (None, None)
        task = asyncio.get_running_loop().create_task(
            self._tell(Trouble(self._config.name, self._session, text[:TROUBLE_MAX], *about))
        )
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """Tell nothing more."""
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def _tell(self, trouble: Trouble) -> None:
        link = Link(self._config)
        try:
            with contextlib.suppress(TimeoutError, Stranger, TurnedAway):
                async with asyncio.timeout(TELL_SECONDS_MAX):
                    await answered(lambda: link.trouble(trouble))
        finally:
            link.close()

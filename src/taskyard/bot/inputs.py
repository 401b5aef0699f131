"""Fetches the results of a task's prerequisites when they are too large to come with its lease.

It speaks with the attempt's own word, not the bot's: it can see what the attempt may see, and no more.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Final

from taskyard.bot.patience import pause_s
from taskyard.sdk.http import Connection, Unreachable

#: How often the server may say that it cannot answer now. One that is away is asked for as long as the lease lasts.
TRIES_MAX: Final = 8


class InputsMissing(Exception):
    """They cannot be had."""


async def fetch_inputs(url: str, task: str, token: str, tls: ssl.SSLContext | None = None) -> bytes:
    """Fetch a JSON object: label -> result. Whoever awaits this ends it with the lease."""
    connection = Connection(url, {"authorization": f"Bearer {token}"}, tls)
    tries = answers = 0
    try:
        while True:
            with suppress(Unreachable):
                answer = await connection.ask("GET", f"/api/v1/tasks/{task}/inputs")
                if answer.status == 200:
                    return answer.body
                answers += 1
                is_refusal = answer.status < 500 and answer.status != 429
                if is_refusal or answers == TRIES_MAX:
                    raise InputsMissing(f"the inputs cannot be fetched: the server answered {answer.status}")
            await asyncio.sleep(pause_s(tries, None))
            tries += 1
    finally:
        connection.close()

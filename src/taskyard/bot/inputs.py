"""Fetches the results of a task's prerequisites when they are too large to come with its lease.

It speaks with the attempt's own word, not the bot's: it can see what the attempt may see, and no more.
"""

import asyncio
from typing import Final

from taskyard.bot.patience import pause_s
from taskyard.sdk.http import Connection, Unreachable

#: Some seconds in all. A server that is away for longer takes the lease with it.
TRIES_MAX: Final = 8


class InputsMissing(Exception):
    """They cannot be had."""


async def fetch_inputs(url: str, task: str, token: str) -> bytes:
    """Fetch a JSON object: label -> result."""
    connection = Connection(url, {"authorization": f"Bearer {token}"})
    why = ""
    try:
        for tries in range(TRIES_MAX):
            try:
                answer = await connection.ask("GET", f"/api/v1/tasks/{task}/inputs")
            except Unreachable as error:
                why = str(error)
            else:
                if answer.status == 200:
                    return answer.body
                why = f"the server answered {answer.status}"
                if answer.status < 500 and answer.status != 429:
                    break
            await asyncio.sleep(pause_s(tries, None))
    finally:
        connection.close()
    raise InputsMissing(f"the inputs cannot be fetched: {why}")

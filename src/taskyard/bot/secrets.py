"""The secrets of an attempt: fetched when it is about to begin, and given to it as variables and files.

They are in no lease, so they are in no answer that is repeated, and a task without secrets costs nothing.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from taskyard.bot.masking import Masker
from taskyard.bot.secret_files import SecretFiles
from taskyard.bot.server_client import PAUSE_SECONDS, PAUSE_SECONDS_MAX, TRIES_MAX, read_problem
from taskyard.bot.workdir import TaskFiles
from taskyard.sdk.backoff import backoff_s
from taskyard.sdk.bot_http import ConnectionFailed, ServerConnection
from taskyard.sdk.servers import ServerList
from taskyard.wire.bot_protocol import NOTHING, AttemptSecret, AttemptSecrets

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The code of a refusal that another server may not give: this one does not have the key.
_NO_KEY: Final = "no_secret_key"


class SecretsUnavailable(Exception):
    """The secrets of an attempt cannot be had; the text says why."""


class SecretsUnusable(Exception):
    """A secret cannot be given as the task asks for it; the text says what to do."""


class SecretsInHand:
    """The secrets of one attempt, as its process gets them. Nothing shows their values."""

    __slots__ = ("has_dropped", "masker", "variables")

    def __init__(self, run: int, secrets: list[AttemptSecret], files: SecretFiles, *, private: bool = False) -> None:
        """Write the files, and make a private folder if it needs one.

        Raise `SecretsUnusable` or OSError if the attempt cannot be given its secrets.
        """
        self.masker = Masker(one.body for one in secrets)
        self.has_dropped = False  # a checkpoint had a secret in it
        self.variables: Mapping[str, str] = {one.variable: _text(one) for one in secrets if not one.is_file}
        of_files = [one for one in secrets if one.is_file]
        if of_files or private:
            self.variables = {**self.variables, **files.write(run, of_files, private=private)}

    def clean(self, left: TaskFiles) -> TaskFiles:
        """Mask secrets in the result that an attempt left, and drop a checkpoint that has one."""
        faults, result = left.faults, left.result
        if (masked := self.masker.mask(bytes(result))) != bytes(result):
            result = msgspec.Raw(masked)
            if not _is_json(masked):
                result = NOTHING
                faults = (*faults, "the result has a secret in it that cannot be masked")
        return TaskFiles(result, self.clean_checkpoint(left.checkpoint), faults)

    def clean_checkpoint(self, checkpoint: bytes | None) -> bytes | None:
        """Drop a checkpoint that has a secret in it: a changed one would be of no use to the next attempt."""
        if checkpoint is None or not self.masker.is_in(checkpoint):
            return checkpoint
        self.has_dropped = True
        return None


async def fetch_secrets(
    servers: ServerList, task: str, token: str, tls: ssl.SSLContext | None = None
) -> list[AttemptSecret]:
    """Fetch the secrets that a task names, with the token of the attempt; the server records it.

    The caller cancels it when the lease ends.
    """
    connection = ServerConnection(servers, {"authorization": f"Bearer {token}"}, tls)
    tries = answers = 0
    try:
        while True:
            with suppress(ConnectionFailed):
                answer = await connection.ask("POST", f"/api/v1/tasks/{task}/secrets")
                if answer.status == 200:
                    return msgspec.json.decode(answer.body, type=AttemptSecrets).items
                answers += 1
                problem = read_problem(answer.body)
                is_refusal = answer.status < 500 and answer.status != 429 and problem.code != _NO_KEY
                if is_refusal or answers == TRIES_MAX:
                    raise SecretsUnavailable(problem.detail or f"the server answered {answer.status}")
            await asyncio.sleep(backoff_s(tries, PAUSE_SECONDS, PAUSE_SECONDS_MAX))
            tries += 1
    finally:
        connection.close()


def _text(one: AttemptSecret) -> str:
    """Return a secret as the value of a variable."""
    with suppress(UnicodeDecodeError):
        text = one.body.decode()
        if "\0" not in text:
            return text
    raise SecretsUnusable(f"the secret for {one.variable} is no text: ask for a file, with file: true")


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True

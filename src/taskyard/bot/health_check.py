"""The health check of a bot: a command that says whether the machine is fit to run tasks.

It runs before a request for work if the last run is too long ago, and after an infrastructure failure. While it fails,
the bot asks for no work, and is quarantined with what the command printed. It runs as the user of the bot.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

#: How often the check runs by default.
EVERY_SECONDS: Final = 60.0
#: A check that takes longer than this fails.
CHECK_SECONDS_MAX: Final = 60.0
#: How much of its output is read, and how much of that is reported.
READ_MAX: Final = 65_536
TOLD_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """The command, for a shell, and how often it runs."""

    command: str
    every_s: float = EVERY_SECONDS


class HealthCheck:
    """Whether a bot may ask for work."""

    def __init__(self, spec: CheckSpec, env: Mapping[str, str], on_result: Callable[[str | None], None]) -> None:
        self._spec, self._env = spec, dict(env)
        self._on_result = on_result  # called with why the check failed, or None
        self._failure: str | None = None
        self._checked_at: float | None = None  # None: it has to run before the next request for work
        self._running: asyncio.Task[None] | None = None

    def passes(self, now: float) -> bool:
        """Whether the last check is recent and passed; if it is not recent, begin another."""
        if self._running is not None:
            return False
        if self._checked_at is None or now - self._checked_at >= self._spec.every_s:
            self._running = asyncio.get_running_loop().create_task(self._check())
            return False
        return self._failure is None

    def expire(self) -> None:
        """Have the check run before the next request for work: something has failed."""
        self._checked_at = None

    def tick(self, now: float) -> None:
        """Check again while the bot is unfit: it asks for nothing, so nothing else does."""
        if self._failure is not None:
            self.passes(now)

    async def close(self) -> None:
        """End a check that runs."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _check(self) -> None:
        self._checked_at = time.monotonic()
        try:
            self._failure = await self._run()
        finally:
            self._running = None
        self._on_result(self._failure)

    async def _run(self) -> str | None:
        """Run the command; return why it failed, or None."""
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                self._spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        except OSError as error:
            return f"the check cannot be started: {error}"
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX):
                printed = await _read_all(process)
                code = await process.wait()
        except TimeoutError:
            return f"the check took longer than {CHECK_SECONDS_MAX:.0f} s"
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        if code == 0:
            return None
        said = " ".join(printed.decode(errors="replace").replace("\0", " ").split())
        return f"check: {said[:TOLD_MAX]}" if said else f"the check ended with exit code {code}"


async def _read_all(process: asyncio.subprocess.Process) -> bytes:
    """Read to the end of the output, and keep its beginning."""
    assert process.stdout is not None, "the output is a pipe"
    kept = b""
    while piece := await process.stdout.read(READ_MAX):
        kept += piece[: READ_MAX - len(kept)]
    return kept

"""The agent's side of the runner: starts it, exchanges frames with it, and notices its end.

The runner is a process of its own, so that it outlives a killed agent for the moment that it needs to end everything.
It gets nothing but a socket and the environment of what it starts.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from taskyard.bot.ipc import AsyncChannel, ToAgent, ToRunner, WorkerStarted, decode_for_agent, encode_frame
from taskyard.bot.task_user import TaskUser

#: How long a runner may take to end everything and itself once the agent closes the socket.
END_SECONDS_MAX: Final = 10.0
#: How often the runner is pinged, and how long it may take to answer before it counts as frozen. On a busy machine it
#: may have to wait for a CPU.
PING_SECONDS: Final = 1.0
FROZEN_SECONDS: Final = 5.0
#: If more time than this passed between two ticks, this process was not running and could not have seen an answer.
_TICK_SECONDS_MAX: Final = 2.0

OnFrame = Callable[[ToAgent, socket.socket | None], None]


class Heartbeat:
    """Whether the runner answers pings. Time in which this process was frozen itself does not count."""

    def __init__(self) -> None:
        self.is_frozen = False
        self._asked_at: float | None = None
        self._is_awaited = False
        self._waited_s = 0.0
        self._ticked_at = 0.0

    def tick(self, now: float) -> bool:
        """Note the time; say whether to ping the runner now."""
        if self._is_awaited:
            self._waited_s += min(now - self._ticked_at, _TICK_SECONDS_MAX)
            self.is_frozen = self._waited_s >= FROZEN_SECONDS
        self._ticked_at = now
        if self._is_awaited or (self._asked_at is not None and now - self._asked_at < PING_SECONDS):
            return False
        self._asked_at, self._is_awaited, self._waited_s = now, True, 0.0
        return True

    def answered(self) -> None:
        """The runner answered."""
        self._is_awaited, self.is_frozen = False, False


class RunnerClient:
    """A runner process and the channel to it."""

    def __init__(
        self, env: dict[str, str], on_frame: OnFrame, on_lost: Callable[[], None], user: TaskUser | None = None
    ) -> None:
        ours, theirs = socket.socketpair()
        become = [] if user is None else ["--user", user.written]
        # The runner is loaded as root, and becomes the user of the tasks before it does anything.
        with theirs, nullcontext() if user is None else user.as_bot_user():
            # A session of its own: signals from a terminal are not for the runner.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                # -P: do not import modules from the current folder.
                [sys.executable, "-P", "-m", "taskyard.bot.runner", "--fd", str(theirs.fileno()), *become],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._on_frame = on_frame
        self._channel = AsyncChannel(asyncio.get_running_loop(), ours, self._on_body, on_lost, takes_sockets=True)

    @property
    def pid(self) -> int:
        """The process id of the runner."""
        return self._process.pid

    def send(self, *frames: ToRunner) -> None:
        """Send frames. They are dropped when the runner is gone; `on_lost` is called in that case."""
        self._channel.send(b"".join(encode_frame(frame) for frame in frames))

    async def close(self) -> int:
        """Close the socket and wait until the runner has ended; then nothing that it started is left."""
        self._channel.close()
        try:
            return await asyncio.to_thread(self._process.wait, END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)

    def _on_body(self, body: bytes) -> None:
        frame = decode_for_agent(body)
        # The socket arrives with the first byte of its frame, so it is here.
        end = self._channel.sockets.popleft() if isinstance(frame, WorkerStarted) else None
        self._on_frame(frame, end)

"""The agent's side of its runner: starts it, speaks with it, and knows when it is gone.

The runner is a process of its own, so that it lives on for the moment that it needs to end everything when the agent
is killed. It is given nothing but a socket and the surroundings of what it starts.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from taskyard.bot.ipc import Hired, Pipe, ToAgent, ToRunner, packed, read_for_agent
from taskyard.bot.task_user import TaskUser

#: How long a runner may take to end everything and itself once the agent hangs up.
END_SECONDS_MAX: Final = 10.0

#: How often the runner is asked whether it is there, and how long it may take to say so before it counts as frozen. On
#: a busy machine it may have to wait for its turn.
PING_SECONDS: Final = 1.0
FROZEN_SECONDS: Final = 5.0
#: More time than this between two looks was not time in which this process could have heard an answer.
_LOOK_SECONDS_MAX: Final = 2.0

Hear = Callable[[ToAgent, socket.socket | None], None]


class Heartbeat:
    """Whether a runner answers. Moments are arguments; time in which this process was frozen itself does not count."""

    def __init__(self) -> None:
        self.is_frozen = False
        self._asked_at: float | None = None
        self._is_awaited = False
        self._waited_s = 0.0
        self._looked_at = 0.0

    def look(self, now: float) -> bool:
        """Take note of the time; say whether the runner is to be asked now."""
        if self._is_awaited:
            self._waited_s += min(now - self._looked_at, _LOOK_SECONDS_MAX)
            self.is_frozen = self._waited_s >= FROZEN_SECONDS
        self._looked_at = now
        if self._is_awaited or (self._asked_at is not None and now - self._asked_at < PING_SECONDS):
            return False
        self._asked_at, self._is_awaited, self._waited_s = now, True, 0.0
        return True

    def answered(self) -> None:
        """The runner is there."""
        self._is_awaited, self.is_frozen = False, False


class RunnerLink:
    """A runner, from its start to its end."""

    def __init__(self, env: dict[str, str], hear: Hear, lost: Callable[[], None], user: TaskUser | None = None) -> None:
        ours, theirs = socket.socketpair()
        become = [] if user is None else ["--user", user.written]
        # The runner is found and loaded as root, and becomes the user of the tasks before it does anything.
        with theirs, nullcontext() if user is None else user.own_files():
            # In a session of its own: what a terminal sends to the agent is not for the runner.
            self._program = subprocess.Popen(  # noqa: S603 - our own program
                # -P: a file in this folder with the name of a module is not that module.
                [sys.executable, "-P", "-m", "taskyard.bot.runner", "--fd", str(theirs.fileno()), *become],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._tell_agent = hear
        self._pipe = Pipe(asyncio.get_running_loop(), ours, self._hear, lost)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._program.pid

    def tell(self, *frames: ToRunner) -> None:
        """Say something; it is dropped when the runner is gone, and `lost` was or will be called."""
        self._pipe.send(b"".join(packed(frame) for frame in frames))

    async def close(self) -> int:
        """Hang up and wait until the runner has ended; then nothing of what it started is left."""
        self._pipe.close()
        try:
            return await asyncio.to_thread(self._program.wait, END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._program.kill()
            return await asyncio.to_thread(self._program.wait)

    def _hear(self, body: bytes) -> None:
        frame = read_for_agent(body)
        # Its socket comes with the first byte of the frame that speaks of it, so it is here by now.
        end = self._pipe.sockets.popleft() if isinstance(frame, Hired) else None
        self._tell_agent(frame, end)

"""A runner process for a test: the agent's end of the socket, and the frames that come over it. Every wait has a
deadline.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from taskyard.bot import ipc
from taskyard.bot.ipc import (
    FrameBuffer,
    RunEnded,
    RunOutput,
    RunStarted,
    StartRun,
    ToAgent,
    ToRunner,
    WorkerEnded,
    WorkerStarted,
)

#: A slow machine is no failure; a wait that takes this long is.
DEADLINE_S = 60.0
FAR = 1_000_000.0
WITHOUT = "import os; del os.{}; from taskyard.bot.runner import main; main()"

#: Leaves a daemon in a session of its own that has nothing to do with this process any more, and prints its pid.
DAEMON = """
import os, sys, time
gone, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    daemon = os.fork()
    if daemon == 0 and "quiet" in sys.argv:
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    if daemon == 0:
        os.close(writer)
        time.sleep(1000)
    print(daemon, flush=True)
    os._exit(0)
os.close(writer)
os.read(gone, 1)
os.wait()
"""


class RunnerUnderTest:
    """A runner process, and all frames that it sent so far."""

    __test__ = False

    def __init__(self, *options: str, without: str = "") -> None:
        """Start it; `without` names a function of `os` that this runner does not have."""
        self.marker = f"test-{uuid4().hex}"
        program = ["-c", WITHOUT.format(without)] if without else ["-m", "taskyard.bot.runner"]
        self.end, other = socket.socketpair()
        with other:
            self.process = subprocess.Popen(
                [sys.executable, *program, "--fd", str(other.fileno()), *options],
                pass_fds=[other.fileno()],
                env={**os.environ, "TASKYARD_BOT": self.marker},
            )
        self.frames: list[ToAgent] = []
        self.sockets: list[socket.socket] = []
        self._intake = FrameBuffer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end.close()
        for one in self.sockets:
            one.close()
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.wait(DEADLINE_S)

    def send(self, *frames: ToRunner) -> None:
        self.end.sendall(b"".join(ipc.encode_frame(one) for one in frames))

    def start(self, run: int, *argv: str, **more: object) -> None:
        """Start a run, by default without any limit."""
        wanted = {"env": dict(os.environ), "cwd": "/", "until": time.monotonic() + FAR, **more}
        self.send(StartRun(run=run, argv=list(argv), **wanted))  # type: ignore[arg-type]

    def read_until(self, enough: Callable[[], bool]) -> None:
        """Read frames until a condition holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not enough():
            left = deadline - time.monotonic()
            assert left > 0, f"timed out; last frames: {[type(one).__name__ for one in self.frames[-9:]]}"
            if select.select([self.end], [], [], left)[0]:
                body, descriptors, _, _ = socket.recv_fds(self.end, 131_072, 16)
                assert body, "the runner is gone"
                self.sockets += [socket.socket(fileno=one) for one in descriptors]
                self.frames += [ipc.decode_for_agent(one) for one in self._intake.feed(body)]

    def ended(self, run: int) -> RunEnded:
        """Wait for the end of a run."""
        self.read_until(lambda: any(isinstance(one, RunEnded) and one.run == run for one in self.frames))
        return next(one for one in self.frames if isinstance(one, RunEnded) and one.run == run)

    def started(self, run: int) -> int:
        """Wait for the start of a run; return its pid."""
        self.read_until(lambda: any(isinstance(one, RunStarted) and one.run == run for one in self.frames))
        return next(one.pid for one in self.frames if isinstance(one, RunStarted) and one.run == run)

    def printed(self, run: int) -> bytes:
        """Return the output of a run so far."""
        return b"".join(one.body for one in self.frames if isinstance(one, RunOutput) and one.run == run)

    def wait_for_output(self, run: int, wanted: bytes) -> bytes:
        """Wait until a run has printed something; return all of its output."""
        self.read_until(lambda: wanted in self.printed(run))
        return self.printed(run)

    def worker_started(self, worker: int) -> tuple[int, socket.socket]:
        """Wait for a worker; return its pid and the socket to it."""
        self.read_until(lambda: any(isinstance(one, WorkerStarted) and one.worker == worker for one in self.frames))
        hired = [one for one in self.frames if isinstance(one, WorkerStarted)]
        place = next(place for place, one in enumerate(hired) if one.worker == worker)
        return hired[place].pid, self.sockets[place]

    def worker_ended(self, worker: int) -> WorkerEnded:
        """Wait for the end of a worker."""
        self.read_until(lambda: any(isinstance(one, WorkerEnded) and one.worker == worker for one in self.frames))
        return next(one for one in self.frames if isinstance(one, WorkerEnded) and one.worker == worker)


def state(pid: int) -> str:
    """Return the state letter of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return state(pid) not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_stopped(pid: int) -> None:
    """Wait until a signal has stopped a process; the system reports that to its parent only."""
    deadline = time.monotonic() + DEADLINE_S
    while state(pid) != "T":
        assert time.monotonic() < deadline, f"{pid} runs on"
        os.sched_yield()


def sleep_until(moment: float) -> None:
    """Sleep where the passing of time is what the test is about: there is no event to wait for."""
    time.sleep(max(0.0, moment - time.monotonic()))


def wait_for_end(pid: int) -> None:
    """Wait until any process has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], DEADLINE_S)[0], f"{pid} still runs"
    finally:
        os.close(pidfd)


def python(source: str, *arguments: str) -> list[str]:
    """Return the command that runs a piece of Python without site packages."""
    return [sys.executable, "-I", "-S", "-c", source, *arguments]

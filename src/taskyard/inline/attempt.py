"""One attempt: a process in a session of its own, its output, its end.

Nothing outlives it: when the process ends, by itself or because it was told to, the rest of its group is killed and
its folder is removed before the end is reported. What it prints is read at once and only the last of it is kept, so
that it never blocks. A process that makes a session of its own leaves the group, and is not followed.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from taskyard.inline.invocation import Invocation

#: Some screens full: enough to see why a task failed, little enough to keep for every task.
TAIL_BYTES_MAX = 64 * 1024
LOG_LOST = b"\ntaskyard: the rest of this could not be written to its log\n"
#: How long the rest of the output is awaited after the end. Only a process that left the group can hold it back.
DRAIN_SECONDS_MAX = 1.0
#: What a shell answers for a command that is not there, or is there and cannot be run.
NOT_FOUND, NOT_RUNNABLE = 127, 126
#: What a shell answers for a process that a signal ended, less the signal's number.
SIGNALED_BASE = 128


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended; when a signal ended it, the exit code is what a shell would answer."""

    exit_code: int | None  # None: nothing had to be started
    signaled: bool
    elapsed_ms: int
    tail: str


class Attempt:
    """Runs one command; `on_end` is called once, from a thread of its own, when nothing of it is left."""

    def __init__(self, invocation: Invocation, on_end: Callable[[End], None], log: Path | None = None) -> None:
        self._invocation = invocation
        self._on_end = on_end
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin, and come back at once."""
        threading.Thread(target=self._run).start()

    def stop(self, by: signal.Signals) -> None:
        """Send a signal to everything that the attempt started; an attempt not begun yet never begins."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                _signal_group(self._process.pid, by)

    def _run(self) -> None:
        began, tail = time.monotonic(), _Tail(self._log)
        try:
            code = self._carry_out(tail)
        except (OSError, ValueError, RuntimeError) as error:
            tail.add(f"{error}\n".encode(errors="replace"))
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
        elapsed_ms = round((time.monotonic() - began) * 1000)
        self._on_end(End(code if code >= 0 else SIGNALED_BASE - code, code < 0, elapsed_ms, tail.text()))

    def _carry_out(self, tail: "_Tail") -> int:
        """Run the process to its end and give its exit code, or the number of the signal that ended it, negative."""
        with tempfile.TemporaryDirectory(prefix="taskyard-", ignore_cleanup_errors=True) as own:
            process = self._begin(Path(own), tail)
            code = self._await_end(process) if process else -signal.SIGTERM
            tail.finish()
            return code

    def _begin(self, own: Path, tail: "_Tail") -> subprocess.Popen[bytes] | None:
        argv, folder = self._argv(own), self._folder(own)
        with self._lock, tail.drained() as output:
            if self._stopped:
                return None
            self._process = subprocess.Popen(  # noqa: S603 - to run what the graph says is the purpose
                argv,
                env=self._invocation.env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            return self._process

    def _argv(self, own: Path) -> list[str]:
        if self._invocation.script is None:
            return list(self._invocation.argv)
        # A file, because one argument of a program can be shorter than a script.
        script = own / "script"
        script.write_text(self._invocation.script)
        return [*self._invocation.argv, str(script)]

    def _folder(self, own: Path) -> Path:
        if self._invocation.folder is not None:
            if not self._invocation.folder.is_dir():
                raise NotADirectoryError(f"cwd: there is no folder {self._invocation.folder}")
            return self._invocation.folder
        fresh = own / "folder"
        fresh.mkdir()
        return fresh

    def _await_end(self, process: subprocess.Popen[bytes]) -> int:
        # The ended leader stays unreaped until its group is killed: till then the group's number is not given away.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            _signal_group(process.pid, signal.SIGKILL)
            self._process = None
            return process.wait()


class _Tail:
    """The last of what was printed; a log, if one is wanted, has all of it."""

    def __init__(self, log: Path | None) -> None:
        self._kept = b""
        self._log = log
        self._drain: threading.Thread | None = None

    @contextmanager
    def drained(self) -> Iterator[int]:
        """Give the end of a pipe to print to; the thread that empties it is there before anything can print."""
        if self._log is not None:
            with suppress(OSError):  # whether a log can be kept is no matter of the task
                self._log.unlink()  # that of an earlier run
        source, sink = os.pipe()
        try:
            # A process that left the group can hold the pipe open for ever, so the thread must not hold back our end.
            self._drain = threading.Thread(target=self._empty, args=(source,), daemon=True)
            self._drain.start()
            yield sink
        finally:
            os.close(sink)

    def finish(self) -> None:
        """Wait for what was printed and not yet read."""
        if self._drain:
            self._drain.join(DRAIN_SECONDS_MAX)

    def add(self, chunk: bytes) -> None:
        self._kept = (self._kept + chunk)[-TAIL_BYTES_MAX:]

    def text(self) -> str:
        return self._kept.decode(errors="replace")

    def _empty(self, source: int) -> None:
        with open(source, "rb", buffering=0) as pipe:
            log = self._log
            while chunk := pipe.read(TAIL_BYTES_MAX):
                self.add(chunk)
                # A log that cannot be written is said once; what is printed has to be read all the same.
                if log is not None and not _kept(chunk, log):
                    log = None
                    self.add(LOG_LOST)


def _kept(chunk: bytes, log: Path) -> bool:
    try:
        with log.open("ab") as file:
            file.write(chunk)
    except OSError:
        return False
    return True


def _signal_group(group: int, by: signal.Signals) -> None:
    # All of it may be gone; a group of zombies only is a refusal on some systems.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, by)

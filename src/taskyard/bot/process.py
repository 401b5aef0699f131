"""Processes: start one in a session of its own, signal its group, reap it with what it used.

For a process with a single thread only: it changes the working folder while it starts something.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from taskyard.bot.memory_limit import MemoryLimit

#: The exit codes of a shell for a command that does not exist, and for one that cannot be run.
NOT_FOUND, NOT_RUNNABLE = 127, 126
#: Signals that the runner or its parent may ignore, and that a program expects to have their default effect.
_DEFAULT_SIGNALS: Final = [
    one
    for one in signal.Signals
    if one.name in {"SIGPIPE", "SIGXFSZ", "SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM", "SIGCHLD"}
]
#: The units of block counts, on any disk, and of memory sizes.
_BLOCK_BYTES: Final = 512
MEMORY_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024
_HAS_WAITID: Final = hasattr(os, "waitid")
_HAS_POSIX_SPAWN: Final = hasattr(os, "posix_spawn") and hasattr(os, "POSIX_SPAWN_DUP2")


class SpawnError(Exception):
    """A process could not be started: the exit code of a shell for that, and a sentence."""

    def __init__(self, exit_code: int, note: str) -> None:
        super().__init__(note)
        self.exit_code = exit_code
        self.note = note


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended, and what it used together with the children that it waited for."""

    code: int  # negative for a signal
    cpu_s: float
    # The peak of its memory, or of the runner's when it started the process, if that is more: the count includes the
    # time before exec, when the process shares the runner's memory.
    memory_bytes: int
    read_bytes: int
    written_bytes: int


class Spawner:
    """Starts processes, and remembers the working folder. From now on stdin is empty, here and for what is started."""

    def __init__(self) -> None:
        self._home = os.open(".", os.O_RDONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def spawn(
        self, argv: list[str], env: Mapping[str, str], cwd: str, output: int, limit: MemoryLimit | None = None
    ) -> int:
        """Start a program that prints to `output`; return its pid, which is also its session and its group."""
        if not argv:
            raise SpawnError(NOT_RUNNABLE, "there is no command")
        # posix_spawn does not copy this process, but cannot change the folder. So this process changes its own folder
        # for a moment: no other thread can notice, and a shell in between would be one more process.
        if cwd:
            _chdir(cwd)
        try:
            program = _find_program(argv[0], env)
            if limit is not None:
                return _popen(program, argv, env, output, limit)  # posix_spawn sets no limits
            return _posix_spawn(program, argv, env, output)
        except FileNotFoundError as error:
            missing = "its interpreter does not exist" if os.path.exists(argv[0]) else "there is no such program"
            raise SpawnError(NOT_FOUND, f"cannot start {argv[0]!r}: {missing}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SpawnError(NOT_RUNNABLE, f"cannot start {argv[0]!r}: {reason}") from error
        finally:
            if cwd:
                os.fchdir(self._home)


def signal_group(group: int, by: signal.Signals) -> None:
    """Signal all processes of a group. A stopped group is continued, so that it can act on the signal."""
    # The group may be gone; on some systems a group of zombies refuses signals.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, by)
        if by is not signal.SIGKILL:
            os.killpg(group, signal.SIGCONT)


def reap(leaders: Container[int]) -> Iterator[tuple[int, ExitStatus]]:
    """Reap children that have ended, after killing what is left of the groups that they lead."""
    while (pid := _next_ended()) is not None:
        # Until it is reaped, its pid cannot be reused.
        if pid in leaders:
            signal_group(pid, signal.SIGKILL)
        try:
            found, status, usage = os.wait4(pid, os.WNOHANG)
        except ChildProcessError:
            return
        if not found:
            return
        if pid < 0 and found in leaders:
            signal_group(found, signal.SIGKILL)
        yield (
            found,
            ExitStatus(
                os.waitstatus_to_exitcode(status),
                usage.ru_utime + usage.ru_stime,
                usage.ru_maxrss * MEMORY_UNIT_BYTES,
                usage.ru_inblock * _BLOCK_BYTES,
                usage.ru_oublock * _BLOCK_BYTES,
            ),
        )


def has_ended(pid: int) -> bool:
    """Whether a child has ended and is not reaped yet; False where the system does not tell."""
    if not _HAS_WAITID:
        return False
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return False


def _next_ended() -> int | None:
    """Return a child that has ended; -1 for any child, where the system cannot tell without reaping."""
    if not _HAS_WAITID:
        return -1
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def _chdir(cwd: str) -> None:
    try:
        os.chdir(cwd)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpawnError(NOT_RUNNABLE, f"cannot run in the folder {cwd!r}: {reason}") from error


def _posix_spawn(program: str, argv: list[str], env: Mapping[str, str], output: int) -> int:
    if not _HAS_POSIX_SPAWN:
        return _popen(program, argv, env, output)
    try:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)],
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )
    except NotImplementedError:  # the system has posix_spawn, but not with sessions
        return _popen(program, argv, env, output)


def _popen(program: str, argv: list[str], env: Mapping[str, str], output: int, limit: MemoryLimit | None = None) -> int:
    """Start a program with fork and exec, which is slower."""
    started = subprocess.Popen(  # noqa: S603 - running what the agent sends is the purpose
        argv,
        executable=program,
        env=env,
        stdout=output,
        stderr=output,
        start_new_session=True,
        close_fds=False,
        preexec_fn=partial(_prepare, limit),  # noqa: PLW1509 - there is no other thread
    )
    # `reap` reaps it, with its usage; a Popen that believes it still runs would reap it first.
    started.returncode = 0
    return started.pid


def _prepare(limit: MemoryLimit | None) -> None:
    """Prepare the new process, before it becomes the program."""
    for one in _DEFAULT_SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    if limit is not None:
        limit.enter()


def _find_program(name: str, env: Mapping[str, str]) -> str:
    """Find a program as a shell with that environment would."""
    if os.sep in name:
        return name
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(name)
    return found

"""Starts processes in sessions of their own, signals their groups, and reaps them with what they took.

It decides nothing about when a process has to end. It is for a process with a single thread: it changes the folder
while it starts something.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

#: What a shell answers for a command that is not there, or is there and cannot be run.
NOT_FOUND, NOT_RUNNABLE = 127, 126
#: What the runner or whoever started it may ignore, and what a process expects to work when it begins.
_EXPECTED: Final = [
    one
    for one in signal.Signals
    if one.name in {"SIGPIPE", "SIGXFSZ", "SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM", "SIGCHLD"}
]
#: Blocks are counted in this size, whatever the disk's are; and memory in this one.
_BLOCK_BYTES: Final = 512
MEMORY_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


class NotStarted(Exception):
    """A process could not be started; what a shell would answer, and a sentence."""

    def __init__(self, exit_code: int, note: str) -> None:
        super().__init__(note)
        self.exit_code = exit_code
        self.note = note


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended, and what it and the children that it waited for took."""

    code: int  # negative for a signal
    cpu_s: float
    # The most that it had in memory, or that the runner had when it started it, if that is more: what a process had
    # before it became another program counts, and a started process shares the runner's memory up to there.
    memory_bytes: int
    read_bytes: int
    written_bytes: int


class Spawner:
    """Starts processes; keeps the folder to come back to. From now on there is nothing to read, here and for them."""

    def __init__(self) -> None:
        self._home = os.open(".", os.O_RDONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def spawn(self, argv: list[str], env: Mapping[str, str], cwd: str, output: int) -> int:
        """Start a program that prints to `output`, and give its number, which is its session's and group's, too."""
        if not argv:
            raise NotStarted(NOT_RUNNABLE, "there is no command")
        # The system can start a process without copying this one, but then not in another folder. So this one goes
        # there and comes back: there is no thread that could notice, and a shell between would be one more program.
        if cwd:
            _enter(cwd)
        try:
            return _started(_program(argv[0], env), argv, env, output)
        except FileNotFoundError as error:
            missing = "what it is written for is not there" if os.path.exists(argv[0]) else "there is no such program"
            raise NotStarted(NOT_FOUND, f"cannot start {argv[0]!r}: {missing}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise NotStarted(NOT_RUNNABLE, f"cannot start {argv[0]!r}: {reason}") from error
        finally:
            if cwd:
                os.fchdir(self._home)


def signal_group(group: int, by: signal.Signals) -> None:
    """Signal all of a group; a group that is stopped goes on, so that it can do as it is told."""
    # All of it may be gone; a group of zombies only is a refusal on some systems.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, by)
        if by is not signal.SIGKILL:
            os.killpg(group, signal.SIGCONT)


def reaped(leaders: Container[int]) -> Iterator[tuple[int, Exit]]:
    """Reap the children that have ended, after what is left of the groups that they led was killed."""
    while (pid := _ended()) is not None:
        # Till it is reaped, its number is given to nobody else.
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
            Exit(
                os.waitstatus_to_exitcode(status),
                usage.ru_utime + usage.ru_stime,
                usage.ru_maxrss * MEMORY_UNIT_BYTES,
                usage.ru_inblock * _BLOCK_BYTES,
                usage.ru_oublock * _BLOCK_BYTES,
            ),
        )


def has_ended(pid: int) -> bool:
    """Say whether a child has ended and is not reaped yet, where that can be known."""
    if not _HAS_WAITID:
        return False
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return False


_HAS_WAITID: Final = hasattr(os, "waitid")
_HAS_POSIX_SPAWN: Final = hasattr(os, "posix_spawn") and hasattr(os, "POSIX_SPAWN_DUP2")


def _ended() -> int | None:
    """A child that has ended; -1 for any, where they cannot be looked at without being reaped."""
    if not _HAS_WAITID:
        return -1
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def _enter(cwd: str) -> None:
    try:
        os.chdir(cwd)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NotStarted(NOT_RUNNABLE, f"cannot run in the folder {cwd!r}: {reason}") from error


def _started(program: str, argv: list[str], env: Mapping[str, str], output: int) -> int:
    if not _HAS_POSIX_SPAWN:
        return _copied(program, argv, env, output)
    try:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)],
            setsid=True,
            setsigmask=(),
            setsigdef=_EXPECTED,
        )
    except NotImplementedError:  # the system has it, but not with sessions
        return _copied(program, argv, env, output)


def _copied(program: str, argv: list[str], env: Mapping[str, str], output: int) -> int:
    """Start a program in a copy of this process, which is slower."""
    started = subprocess.Popen(  # noqa: S603 - to run what the agent says is the purpose
        argv,
        executable=program,
        env=env,
        stdout=output,
        stderr=output,
        start_new_session=True,
        close_fds=False,
        preexec_fn=_expect_signals,  # noqa: PLW1509 - there is no other thread
    )
    # It is reaped with its figures by `reaped`; an object that thinks it still runs would reap it first.
    started.returncode = 0
    return started.pid


def _expect_signals() -> None:
    for one in _EXPECTED:
        signal.signal(one, signal.SIG_DFL)


def _program(name: str, env: Mapping[str, str]) -> str:
    """Find a program as a shell in that environment would."""
    if os.sep in name:
        return name
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(name)
    return found

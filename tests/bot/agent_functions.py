"""Functions of `python` tasks that the agent's tests call in warm workers."""

import os
import signal
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from taskyard.bot import current


def nothing() -> None:
    """Do nothing."""


def talk(text: str) -> None:
    """Print something."""
    print(text)  # noqa: T201


def inputs() -> dict[str, Any]:
    """Return the inputs."""
    return current.inputs()


def environment() -> list[str]:
    """Return the identity of the task, and a variable of its payload."""
    return [os.environ[name] for name in ("TASKYARD_TASK_ID", "TASKYARD_TOKEN", "OWN")]


def many_inputs() -> int:
    """Count the characters of the inputs."""
    return sum(map(len, current.inputs().values()))


def complex_number() -> set[int]:
    """Return something that is not JSON, although msgspec encodes sets."""
    return {1j}  # type: ignore[arg-type]


def large(size: int) -> str:
    """Return so many characters."""
    return "x" * size


def leave_folder(variable: str) -> str:
    """Make a folder in the place of a file."""
    os.mkdir(os.environ[variable])
    return "done"


def forge_inputs(text: str) -> None:
    """Overwrite the inputs file, as fast as possible."""
    file = os.environ["TASKYARD_INPUTS"]
    os.chmod(file, 0o600)
    target = os.open(file, os.O_WRONLY)
    os.write(target, text.encode())
    os.close(target)


def read_inputs() -> str:
    """Return the content of the inputs file."""
    return Path(os.environ["TASKYARD_INPUTS"]).read_text()


def write_to_sockets(text: str) -> None:
    """Write to every socket of this process."""
    for one in range(3, 64):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(one).st_mode):
                os.write(one, text.encode("latin-1"))


def fail() -> None:
    """Fail."""
    raise ValueError("as requested")


def die() -> None:
    """Kill the worker."""
    os.kill(os.getpid(), signal.SIGKILL)


def hang(file: str) -> None:
    """Write the pid to a file, and never return."""
    Path(file).write_text(f"{os.getpid()}\n")
    signal.pause()


def print_much(size: int) -> None:
    """Print so many characters."""
    sys.stdout.write(("1234567\n" * (size // 8 + 1))[:size])


def count(file: str, gate: str) -> None:
    """Append the task's id to a file, and wait for a gate if there is one."""
    target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(target, f"{os.environ['TASKYARD_TASK_ID']}\n".encode())
    os.close(target)
    while gate and not os.path.exists(gate):
        time.sleep(0.01)


_CALLERS: list[str] = []


def remember(caller: str) -> dict[str, Any]:
    """Return the pid, and the callers in this process before."""
    before = list(_CALLERS)
    _CALLERS.append(caller)
    return {"pid": os.getpid(), "before": before}


def say_pid_and_sleep() -> None:
    """Print the pid, and sleep for long."""
    print(os.getpid(), flush=True)  # noqa: T201
    time.sleep(1_000)

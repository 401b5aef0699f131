"""Functions that tests call in a warm worker. Each does one thing that functions of users do."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from taskyard.bot import current

KEPT: list[Any] = []
NUMBER = 7


def add(first: int, second: int = 1) -> int:
    return first + second


def nothing() -> None:
    pass


class Counter:
    """A class, to call it for a result that is not JSON, and to call its method."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    @staticmethod
    def three() -> int:
        return 3


async def later(value: int) -> int:
    await asyncio.sleep(0)
    return value * 2


async def later_not() -> None:
    await asyncio.sleep(0)
    fail("later")


def fail(text: str) -> None:
    raise ValueError(text)


def large(size: int) -> str:
    return "x" * size


def print_in_all_ways() -> str:
    print("one")  # noqa: T201
    print("two", file=sys.stderr)  # noqa: T201
    os.write(1, b"three\n")
    subprocess.run(["/bin/echo", "four"], check=True)
    print("five", end="")  # noqa: T201
    return "said"


def print_lines(lines: int) -> None:
    for line in range(lines):
        os.write(1, b"%09d\n" % line)


def print_and_wait(path: str) -> None:
    print("here")  # noqa: T201
    deadline = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.01)


def exit_with(code: Any) -> None:
    sys.exit(code)


def exit_at_once() -> None:
    print("last words")  # noqa: T201
    os._exit(9)


def change_folder_and_environment() -> None:
    os.chdir("/")
    os.environ["CHANGED"] = "yes"
    del os.environ["PATH"]


def replace_environ_and_output() -> None:
    os.environ = {}  # type: ignore[assignment]  # noqa: B003
    sys.stdout = None
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)


def folder_and_variables(*names: str) -> list[Any]:
    return [os.getcwd(), *(os.environ.get(name) for name in names)]


def variable_and_process(name: str) -> list[Any]:
    return [os.environ.get(name), os.getpid()]


def inputs_and_checkpoint() -> list[Any]:
    kept = current.checkpoint()
    return [current.inputs(), None if kept is None else kept.decode()]


def leak(size: int) -> None:
    KEPT.append(bytearray(os.urandom(1024) * (size // 1024)))


def leave_thread() -> int:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return 1


def leave_process() -> int:
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid


def leave_ended_process() -> None:
    KEPT.append(subprocess.Popen(["/bin/true"]))
    os.waitid(os.P_PID, KEPT[-1].pid, os.WEXITED | os.WNOWAIT)


def return_twice() -> int:
    copy = os.fork()
    if copy:
        os.waitpid(copy, 0)
    return os.getpid()


def close_output() -> None:
    sys.stdout.close()


def burn(seconds: float) -> None:
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


ATTRIBUTE: Callable[..., int] = add


def wait_for(path: str) -> None:
    """Wait until a file exists."""
    while not os.path.exists(path):
        time.sleep(0.01)


def touch(path: str) -> None:
    """Create a file."""
    with open(path, "ab"):
        pass

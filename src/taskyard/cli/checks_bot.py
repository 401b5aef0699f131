"""Checks of what a bot on this machine can rely on to leave nothing behind. Each is really tried, mostly by a child."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

from taskyard.cli.check import Check, fault, ok, warning


def features() -> Iterator[Check]:
    """Try what the runner of a bot uses to end what it started."""
    if not hasattr(os, "fork"):
        yield warning("bot", f"{sys.platform} has no process groups", "run bots on Linux or macOS")
        return
    if _groups():
        yield ok("bot", "process groups: whatever a task starts ends with it")
    else:
        yield fault("bot", "a group of processes cannot be killed", "allow signals to own processes")
    for name, works, without in _EXTRAS:
        if works():
            yield ok("bot", name)
        else:
            yield warning("bot", f"no {name}", without)


def _groups() -> bool:
    """Kill a group of processes, and see its leader end."""
    ready, leads = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.write(leads, b"!")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    try:
        os.killpg(child, signal.SIGKILL)
    except PermissionError:
        os.kill(child, signal.SIGKILL)
        return False
    finally:
        os.waitpid(child, 0)
        os.close(ready)
        os.close(leads)
    return True


def _in_child(works: Callable[[], bool]) -> bool:
    """Try something that would change this process; a child of it may be changed."""
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(Exception):
            code = 0 if works() else 1
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _adopts() -> bool:
    from taskyard.bot.process_cleanup import adopt_orphans  # noqa: PLC0415 - a part of the bot

    return _in_child(adopt_orphans)


def _dies_with_parent() -> bool:
    from taskyard.bot.process_cleanup import die_with_parent  # noqa: PLC0415

    return _in_child(die_with_parent)


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


#: What makes it surer, and what is so without it.
_EXTRAS: tuple[tuple[str, Callable[[], bool], str], ...] = (
    (
        "subreaper: what a task leaves behind is adopted and ended",
        _adopts,
        "what leaves its session may outlive its task; use Linux 3.4 or newer",
    ),
    (
        "pidfd: a process is never mistaken for another of the same number",
        _has_pidfd,
        "use Linux 5.3 or newer",
    ),
    (
        "death signal: workers end with their bot",
        _dies_with_parent,
        "a worker of a bot that was killed ends a little later; use Linux",
    ),
)

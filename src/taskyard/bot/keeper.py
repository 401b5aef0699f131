"""The keeper: a process beside the runner that does nothing until the runner is killed, and then clears what it left.

If agent and runner are killed at once, nobody else would until the bot starts again. It is a copy of the runner from
before that has done anything, in a session of its own, and waits at a pipe that only the runner holds open: it costs
nothing while tasks run. It never clears beside another runner, since whoever starts one has cleared first, and the
keeper with the rest.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

#: What the runner says when it has left nothing.
NOTHING_LEFT: Final = b"."
#: How the keeper is called in lists of processes, where its command line is that of the runner.
NAME: Final = "taskyard-keeper"

_PR_SET_NAME: Final = 15


@contextmanager
def left_behind(marker: str, agent: int) -> Iterator[None]:
    """Have a keeper as long as this lasts; it lets go of `agent`, so that the agent hears when the runner is gone.

    It has to be the first thing that a process with a single thread does: the keeper has all that is there before.
    """
    pipe = _started(marker, agent)
    yield
    # Whoever does not come here has left something, perhaps.
    if pipe is not None:
        with suppress(BrokenPipeError):
            os.write(pipe, NOTHING_LEFT)
        os.close(pipe)


def _started(marker: str, agent: int) -> int | None:
    source, sink = os.pipe()
    try:
        between = os.fork()
    except OSError:
        os.close(source)
        os.close(sink)
        return None  # a bot works without it
    if between == 0:
        _leave(marker, source, (sink, agent))
    os.close(source)
    os.waitpid(between, 0)
    return sink


def _leave(marker: str, source: int, others: tuple[int, ...]) -> NoReturn:
    """Become the keeper in a grandchild: a child of the runner would be taken for something that a run left."""
    try:
        if os.fork() == 0:
            _keep(marker, source, others)
    finally:
        os._exit(0)


def _keep(marker: str, source: int, others: tuple[int, ...]) -> None:
    os.setsid()
    for one in others:
        os.close(one)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    _call_yourself(NAME)
    if os.read(source, 1) == NOTHING_LEFT:
        return
    from taskyard.bot import remains  # noqa: PLC0415 - who has nothing to clear need not have it

    remains.clear(marker)


def _call_yourself(name: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)

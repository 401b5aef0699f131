"""Output as it comes: a stream that goes on where it was cut, so that no byte is missed or told twice."""

import time
from collections.abc import Iterator
from typing import Final

from taskyard.sdk.errors import Overloaded, Unreachable
from taskyard.sdk.routes import Asking
from taskyard.wire import api

#: How often in a row nobody may answer before that is told; a server that restarts is back within that.
SILENCES_MAX: Final = 10
#: How long to wait before the next try: at first, and at most.
PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0
#: How long a task that has not begun is waited for.
BEGIN_SECONDS_MAX: Final = 86_400.0


def follow(asking: Asking, task: str, attempt: int | None, start: int) -> Iterator[bytes]:
    """Give what an attempt prints, from `start` on, until it ends; `task` is the path of its task."""
    seen = None if attempt else _begun(asking, task)
    if seen is not None and seen.reused is not None:
        # It has the end of another task, and its output, to which nothing comes.
        yield from asking.stream(f"{task}/output", {"start": start or None})
    elif number := attempt or (seen.attempt if seen is not None else 0):
        yield from _followed(asking, task, number, start)


def _followed(asking: Asking, task: str, number: int, start: int) -> Iterator[bytes]:
    silences = 0
    while True:
        # First whether it has ended, then what it printed: what it printed last comes before its end.
        try:
            has_ended = _has_ended(asking, task, number)
            for piece in asking.stream(f"{task}/output", {"attempt": number, "start": start or None, "follow": True}):
                silences = 0
                start += len(piece)
                if piece:
                    yield piece
        except (Unreachable, Overloaded):
            silences += 1
            if silences > SILENCES_MAX:
                raise
        else:
            # A server that stops ends its streams as well as an attempt that ends does.
            if has_ended:
                return
        time.sleep(min(PAUSE_SECONDS * 2**silences, PAUSE_SECONDS_MAX))


def _begun(asking: Asking, task: str) -> api.TaskView:
    """Wait for the first attempt of a task, unless there will be none."""
    until = time.monotonic() + BEGIN_SECONDS_MAX
    pause = PAUSE_SECONDS
    while not (seen := asking.get(task, api.TaskView)).attempt and seen.resolution is None:
        if time.monotonic() > until:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, PAUSE_SECONDS_MAX)
    return seen


def _has_ended(asking: Asking, task: str, number: int) -> bool:
    attempts = asking.get(f"{task}/attempts", api.Attempts).items
    return any(one.number == number and one.ended_ms is not None for one in attempts)

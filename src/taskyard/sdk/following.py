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
    number = attempt or _begun(asking, task)
    silences = 0
    while number:
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


def _begun(asking: Asking, task: str) -> int:
    """Wait for the first attempt, and give the number of the last; 0 when there is none and will be none."""
    until = time.monotonic() + BEGIN_SECONDS_MAX
    pause = PAUSE_SECONDS
    while not (seen := asking.get(task, api.TaskView)).attempt and seen.resolution is None:
        if time.monotonic() > until:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, PAUSE_SECONDS_MAX)
    return seen.attempt


def _has_ended(asking: Asking, task: str, number: int) -> bool:
    attempts = asking.get(f"{task}/attempts", api.Attempts).items
    return any(one.number == number and one.ended_ms is not None for one in attempts)

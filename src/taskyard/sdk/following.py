"""Output as it comes: a stream that goes on where it was cut, so that no byte is missed or told twice."""

import time
from collections.abc import Iterator
from typing import Final

from taskyard.sdk.errors import Overloaded, Unreachable
from taskyard.sdk.routes import Asking

#: How often in a row nobody may answer before that is told; a server that restarts is back within that.
SILENCES_MAX: Final = 10
#: How long to wait before the next try, at most.
PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0


def follow(asking: Asking, path: str, attempt: int | None, start: int) -> Iterator[bytes]:
    """Give what an attempt prints, from `start` on, until it ends."""
    silences = 0
    while True:
        try:
            for piece in asking.stream(path, {"attempt": attempt, "start": start or None, "follow": True}):
                silences = 0
                start += len(piece)
                if piece:
                    yield piece
        except (Unreachable, Overloaded):
            silences += 1
            if silences > SILENCES_MAX:
                raise
        else:
            return
        time.sleep(min(PAUSE_SECONDS * 2**silences, PAUSE_SECONDS_MAX))

"""Looking at a graph again and again until it is settled, also while its server is away for some time."""

import time
from collections.abc import Iterator
from typing import Final

from taskyard.sdk.errors import Overloaded, Unreachable
from taskyard.sdk.routes import Asking, Query
from taskyard.wire.api import WAIT_MAX_MS, GraphView

#: The second look follows soon, the others at growing distances.
LOOK_SECONDS: Final = 0.05
LOOK_SECONDS_MAX: Final = 2.0
#: For how long nobody may answer: a server that is started again, or moves, is back within that.
AWAY_SECONDS_MAX: Final = 300.0


def looks(asking: Asking, path: str, timeout_s: float, patient: bool = False) -> Iterator[GraphView]:
    """Give a graph as it is seen, the last time when it is settled; raise `TimeoutError` if that takes too long.

    Whoever is `patient` sees it only then, and hears of it at once.
    """
    until = time.monotonic() + timeout_s
    heard = time.monotonic()
    pause = LOOK_SECONDS
    while True:
        try:
            left_ms = int(max(0.0, until - time.monotonic()) * 1000)
            query: Query = {"names": False, "wait_ms": min(WAIT_MAX_MS, left_ms) if patient else None}
            seen = asking.get(path, GraphView, query)
        except (Unreachable, Overloaded):
            if time.monotonic() > min(until, heard + AWAY_SECONDS_MAX):
                raise
        else:
            heard = time.monotonic()
            yield seen
            if seen.settled or (seen.deadlock is not None and seen.deadlock.stuck):
                return
            if heard >= until:
                raise TimeoutError(f"graph {seen.id} is {seen.state} and was not settled within {timeout_s:g} s")
            if patient:
                continue  # the server has waited already
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
        pause = min(pause * 1.5, LOOK_SECONDS_MAX)

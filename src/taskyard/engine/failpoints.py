"""Places where a test can make the engine fail: around every commit, and nowhere else.

`TASKYARD_FAIL=batch.before:exit@3` kills the process when it is about to commit its third batch of commands. Without
the variable a point costs one look at a global. Nothing here is for production.
"""

import os
import signal
from enum import StrEnum, unique
from itertools import product
from threading import Event, Lock
from typing import Final

#: The environment variable: NAME:ACTION@N, where ACTION is exit, raise or stop=MS and N counts passages from 1.
VARIABLE: Final = "TASKYARD_FAIL"


@unique
class Boundary(StrEnum):
    """Every kind of transaction there is."""

    BATCH = "batch"  # commands that arrived together
    LOAD_BEGIN = "load.begin"  # a large graph or extension is begun,
    LOAD_PAGE = "load.page"  # inserted in pages,
    LOAD_OPEN = "load.open"  # and shown;
    LOAD_DROP = "load.drop"  # or dropped
    NOTE_PAGE = "note.page"  # a promise is kept, page by page
    PASS_PAGE = "pass.page"  # admission  # noqa: S105 - no password
    OWN = "own"  # what the server runs itself
    LAPSE = "lapse"  # what the clock has to say about tasks
    BEAT = "beat"  # the service is alive
    SILENCE = "silence"  # bots that are not heard of any more
    FORGET = "forget"  # answers and half-loaded graphs that are too old
    LIMIT = "limit"  # a person says what limits admission, and tasks learn of it, page by page
    REPAIR = "repair"  # numbers are mended, page by page
    OTHER = "other"  # whatever somebody above wants done in one transaction


@unique
class Side(StrEnum):
    """On which side of a commit a point is."""

    BEFORE = "before"  # nothing is durable yet
    AFTER = "after"  # all is durable, and nobody was told


class Failure(Exception):
    """What a point raises that is told to."""


def names() -> list[str]:
    """Name every point."""
    return [f"{boundary}.{side}" for boundary, side in product(Boundary, Side)]


def point(boundary: Boundary, side: Side) -> None:
    """Fail here, if a test wants that."""
    if _ACTIVE is not None:
        _ACTIVE.count_pass(f"{boundary}.{side}")


class Wish:
    """What a test wants: which point fails, how, and at which passage."""

    def __init__(self, text: str) -> None:
        name, _, rest = text.partition(":")
        action, _, transaction = rest.partition("@")
        self._verb, _, amount = action.partition("=")
        if name not in names() or self._verb not in {"exit", "raise", "stop"}:
            raise ValueError(f"{VARIABLE}={text}: no point or action is called so")
        self._name = name
        self._stop_ms = int(amount or 0)
        self._left = int(transaction or 1)
        self._lock = Lock()

    def count_pass(self, name: str) -> None:
        """Count a passage, and fail at the chosen one."""
        if name != self._name:
            return
        with self._lock:
            self._left -= 1
            chosen = self._left == 0
        if chosen:
            self._fail()

    def _fail(self) -> None:
        if self._verb == "exit":
            os.kill(os.getpid(), signal.SIGKILL)  # no buffer is flushed, no lock is given back by us
        if self._verb == "raise":
            raise Failure(f"{self._name} was told to fail")
        Event().wait(self._stop_ms / 1000)


def arm(text: str | None) -> None:
    """Choose the point that fails; None for none."""
    global _ACTIVE  # noqa: PLW0603 - one look at a global is all that a point may cost
    _ACTIVE = Wish(text) if text else None


_ACTIVE: Wish | None = None
arm(os.environ.get(VARIABLE))

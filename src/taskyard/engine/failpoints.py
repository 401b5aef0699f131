"""Failpoints: places where a test can make the engine fail, before and after every commit.

`TASKYARD_FAIL=batch.before:exit@3` kills the process when it is about to commit its third batch of commands. Without
the variable, a point costs one read of a global. Not for production.
"""

import os
import signal
from enum import StrEnum, unique
from itertools import product
from threading import Event, Lock
from typing import Final

#: The environment variable: NAME:ACTION@N, where ACTION is exit, raise or stop=MS and N counts from 1.
VARIABLE: Final = "TASKYARD_FAIL"


@unique
class Boundary(StrEnum):
    """Every kind of transaction."""

    BATCH = "batch"  # commands that arrived together
    LOAD_BEGIN = "load.begin"  # a large graph or extension is begun,
    LOAD_PAGE = "load.page"  # inserted in pages,
    LOAD_OPEN = "load.open"  # and shown;
    LOAD_DROP = "load.drop"  # or dropped
    NOTE_PAGE = "note.page"  # a continuation runs, page by page
    PASS_PAGE = "pass.page"  # admission  # noqa: S105 - no password
    OWN = "own"  # tasks that the server runs itself
    LAPSE = "lapse"  # timeouts of tasks
    BEAT = "beat"  # the heartbeat of the server
    SILENCE = "silence"  # bots that have gone missing
    FORGET = "forget"  # old answers to idempotency keys, and loads that were abandoned
    PURGE = "purge"  # what was kept for its time is deleted, page by page
    RELAY = "relay"  # events are numbered for those who follow them
    DELIVERED = "delivered"  # a target has got events
    LIMIT = "limit"  # a person sets a limit of admission
    REPAIR = "repair"  # the doctor repairs, page by page
    OTHER = "other"  # any other function that needs a transaction


@unique
class Side(StrEnum):
    """The side of a commit."""

    BEFORE = "before"  # nothing is durable yet
    AFTER = "after"  # everything is durable, and nothing was answered


class Failure(Exception):
    """Raised by a failpoint with the action `raise`."""


def names() -> list[str]:
    """Return the name of every failpoint."""
    return [f"{boundary}.{side}" for boundary, side in product(Boundary, Side)]


def point(boundary: Boundary, side: Side) -> None:
    """Fail here, if this failpoint is armed."""
    if _ACTIVE is not None:
        _ACTIVE.count_pass(f"{boundary}.{side}")


class ArmedFailpoint:
    """The armed failpoint: which one fails, how, and at which pass."""

    def __init__(self, text: str) -> None:
        name, _, rest = text.partition(":")
        action, _, transaction = rest.partition("@")
        self._action, _, amount = action.partition("=")
        if name not in names() or self._action not in {"exit", "raise", "stop"}:
            raise ValueError(f"{VARIABLE}={text}: there is no such point or action")
        self._name = name
        self._stop_ms = int(amount or 0)
        self._left = int(transaction or 1)
        self._lock = Lock()

    def count_pass(self, name: str) -> None:
        """Count a pass, and fail at the chosen one."""
        if name != self._name:
            return
        with self._lock:
            self._left -= 1
            chosen = self._left == 0
        if chosen:
            self._fail()

    def _fail(self) -> None:
        if self._action == "exit":
            os.kill(os.getpid(), signal.SIGKILL)  # no buffer is flushed, no lock is given back by us
        if self._action == "raise":
            raise Failure(f"{self._name} was configured to fail")
        Event().wait(self._stop_ms / 1000)


def arm(text: str | None) -> None:
    """Arm a failpoint; None disarms."""
    global _ACTIVE  # noqa: PLW0603 - one look at a global is all that a point may cost
    _ACTIVE = ArmedFailpoint(text) if text else None


_ACTIVE: ArmedFailpoint | None = None
arm(os.environ.get(VARIABLE))

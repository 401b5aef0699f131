"""Pause the garbage collector while a transaction is open, and while many objects are made that all stay.

With a graph of 100 000 tasks in memory a collection takes 50 ms or more, half of what a transaction may take; and it
frees none of the objects that were just made.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_pauses = 0
_was_on = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector; any number of threads may do so at once."""
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _pauses, _was_on  # noqa: PLW0603 - there is one collector
    with _lock:
        if _pauses == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _pauses += 1


def _end() -> None:
    global _pauses  # noqa: PLW0603 - there is one collector
    with _lock:
        _pauses -= 1
        if _pauses == 0 and _was_on:
            gc.enable()

"""Wakes a `select` when a child has ended. It says neither which nor how many: several ends can be one signal.

One signal for all is cheaper than a descriptor for each, and is there on every system with processes like these.
"""

import os
import signal
from contextlib import suppress


class Wakes:
    """Something to read whenever a child has ended."""

    def __init__(self) -> None:
        self._source, sink = os.pipe()
        os.set_blocking(self._source, False)
        os.set_blocking(sink, False)
        # A full pipe is no fault: whoever has not read it yet will look at all children anyway.
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def fileno(self) -> int:
        return self._source

    def drain(self) -> None:
        """Forget the wakes that came so far."""
        with suppress(BlockingIOError):
            os.read(self._source, 4096)

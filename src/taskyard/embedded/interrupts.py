"""Counts the signals that end a run, such as Ctrl-C, and wakes its loop.

A Python signal handler can run too late: a signal that arrives just before the main thread starts to wait does not wake
it. So the interpreter writes each signal to a pipe at once, and a thread reads that pipe.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: Two signals closer than this count once: `timeout` sends its signal twice, and people do not press Ctrl-C that fast.
SAME_INTERRUPT_SECONDS: Final = 0.3
#: Ctrl-C, a service manager, a closed terminal.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts requests to stop, from any thread, and wakes the loop of the run."""

    def __init__(self) -> None:
        self.count = 0
        self.changed = threading.Event()
        self._last = -math.inf

    def add(self) -> None:
        """Count a request, unless it came together with the one before."""
        now = time.monotonic()
        if now - self._last >= SAME_INTERRUPT_SECONDS:
            self._last = now
            self.count += 1
            self.changed.set()

    def any(self) -> bool:
        """Tell whether there was a request."""
        return self.count > 0


@contextmanager
def signals_to(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` from another thread for each signal that ends a program, except for signals that are ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    with _pipe_to(stop) as sink:
        not_ignored = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, _leave_to_the_pipe) for number in not_ignored}
        sink_before = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(sink_before)
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _pipe_to(stop: Callable[[], None]) -> Iterator[int]:
    source, sink = os.pipe()
    os.set_blocking(sink, False)  # the interpreter requires it: a full pipe must not block it
    reader = threading.Thread(target=_pass_on, args=(source, stop))
    reader.start()
    try:
        yield sink
    finally:
        os.close(sink)
        reader.join()
        os.close(source)


def _pass_on(source: int, stop: Callable[[], None]) -> None:
    """Read the numbers of signals until the pipe is closed."""
    while number := os.read(source, 1):
        if number[0] in ENDING:
            stop()


def _leave_to_the_pipe(*_: object) -> None:
    """Replace the default action of the signal."""

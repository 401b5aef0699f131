"""The signals that end a program, passed on without fail.

A Python handler alone can come too late: it runs between two steps of the main thread, and a signal that arrives just
before that thread starts to wait does not wake it. So the interpreter writes each signal to a pipe at once, and a
thread that does nothing else reads it.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Ctrl-C, a service manager, a closed terminal.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_to(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop`, from another thread, for each signal to end; whoever has us ignore one stays obeyed."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    with _pipe_to(stop) as sink:
        heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, _leave_to_the_pipe) for number in heeded}
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
    os.set_blocking(sink, False)  # the interpreter asks for it: a full pipe must not stop it
    reader = threading.Thread(target=_pass_on, args=(source, stop))
    reader.start()
    try:
        yield sink
    finally:
        os.close(sink)
        reader.join()
        os.close(source)


def _pass_on(source: int, stop: Callable[[], None]) -> None:
    """Read the numbers of signals until nobody can send one any more."""
    while number := os.read(source, 1):
        if number[0] in ENDING:
            stop()


def _leave_to_the_pipe(*_: object) -> None:
    """Keep the signal from doing what it does by default."""

"""A process that stops itself during an admission pass: before it writes what it decided, or before the commit.

python -m tests.crash.frozen_process URL PLACE
"""

import signal
import sys
import threading
from collections.abc import Callable

from taskyard.engine.engine import Engine
from taskyard.store.connection import Store, open_store
from tests.races.servers import COMMIT, PLACES, HaltingStore

#: Taking the lock is the first commit of a pass; its first page is the second.
PLACE_COUNTS = {"extend_admission_lock": 1, COMMIT: 2}


class FreezingStore(HaltingStore):
    """A store that stops the process before it writes the first page of a pass."""

    def __init__(self, store: Store, place: str) -> None:
        super().__init__(store)
        assert place in PLACES, f"no statement is called {place}"
        self._place = place

    def count_pass(self, name: str, arrive: Callable[[], object] = bool) -> None:
        super().count_pass(name, arrive)
        if name == self._place and self.passed[name] == PLACE_COUNTS[name]:
            arrive()
            # All threads are stopped, and this one before it does anything else.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def main(url: str, place: str) -> None:
    """Run a pass and print its outcome."""
    engine = Engine(FreezingStore(open_store(url), place))
    engine.writer_thread.start()
    passed = engine.schedule()
    sys.stdout.write(f"{passed.ran} {passed.admitted} {passed.epoch}\n")
    engine.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

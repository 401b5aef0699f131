"""One that falls asleep in the midst of a pass: before it writes what it has decided, or before it commits that.

python -m tests.crash.sleeper URL PLACE
"""

import signal
import sys
import threading
from collections.abc import Callable

from taskyard.engine.engine import Engine
from taskyard.store.connection import Store, open_store
from tests.races.servers import COMMIT, PLACES, Crossing

#: Taking the lock is the first commit of a pass; its first page is the second.
PASSAGES = {"extend_admission_lock": 1, COMMIT: 2}


class Bed(Crossing):
    """A store whose first page of a pass is written only after a sleep."""

    def __init__(self, store: Store, place: str) -> None:
        super().__init__(store)
        assert place in PLACES, f"no statement is called {place}"
        self._place = place

    def count_pass(self, name: str, arrive: Callable[[], object] = bool) -> None:
        super().count_pass(name, arrive)
        if name == self._place and self.passed[name] == PASSAGES[name]:
            arrive()
            # All threads are stopped, and this one before it does anything else.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def main(url: str, place: str) -> None:
    """Pass, and say what came of it."""
    engine = Engine(Bed(open_store(url), place))
    engine.writer_thread.start()
    passed = engine.schedule()
    sys.stdout.write(f"{passed.ran} {passed.admitted} {passed.epoch}\n")
    engine.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The ones that are killed: each is a process of its own that plays the day on a database and keeps a journal of it.

    python -m tests.crash.victim

For every line "URL, JOURNAL, POINT" that is read, with tabs between, a process is made that dies at that point; a line
says how it ended. They are made by one that has imported everything, because that takes longer than a whole life.
"""

import os
import sys
from pathlib import Path

import alembic.command  # noqa: F401 - opening a database needs it

import taskyard.store.migrate
import taskyard.store.postgres
import taskyard.store.sqlite  # noqa: F401 - so that no victim has to
from taskyard.engine.engine import Engine
from taskyard.engine.failpoints import arm
from tests.crash.scenario import PAGE, DayClock, Player, play
from tests.crash.smaller import shrink


def live(url: str, journal: str, wish: str) -> None:
    """Play until the end, or until somebody pulls the plug."""
    arm(wish)
    clock = DayClock()
    engine = Engine.open(url, clock)
    engine.writer_thread.start()  # the ticker is given its turns, so that each kill is where it was before
    play(Player(engine, clock, Path(journal)))
    engine.stop()


def main() -> None:
    """Make one victim after the other, as long as somebody wants more."""
    shrink(PAGE)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            live(*line.rstrip("\n").split("\t"))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

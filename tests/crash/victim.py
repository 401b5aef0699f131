"""The one that is killed: a program that plays the day on a database, and keeps a journal of it.

    python -m tests.crash.victim URL JOURNAL
"""

import sys
from pathlib import Path

from taskyard.engine.engine import Engine
from tests.crash.scenario import PAGE, DayClock, Player, play
from tests.crash.smaller import shrink


def main(url: str, journal: str) -> None:
    """Play until the end, or until somebody pulls the plug."""
    shrink(PAGE)
    clock = DayClock()
    engine = Engine.open(url, clock)
    engine.loop.start()  # the ticker is given its turns, so that each kill is where it was before
    play(Player(engine, clock, Path(journal)))
    engine.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Submitting large graphs as JSON: how long, how much memory, and how long everybody else waits meanwhile.

Each graph is submitted in a process of its own, so that its peak of memory is its own. It is read from its text,
checked, and stored; two edges a task. While it is, a bot polls and renews every few milliseconds: the slowest of that
is what a user of a busy server would feel.
"""

import json
import resource
import subprocess
import sys
import time
from typing import Final

from benchmarks.form import Case, main
from benchmarks.stores import Beside, layered, sqlite
from taskyard.engine.engine import Engine
from taskyard.engine.stillness import stillness
from taskyard.lifecycle.submit import Submitted
from taskyard.wire import json_text

WIDTH: Final = 1_000
BESIDE: Final = 200_000


def measure(quick: bool) -> list[Case]:
    """Measure graphs of several sizes, each in a process of its own."""
    sizes = (500, 1_000, 2_000) if quick else (10_000, 100_000, 1_000_000)
    musts = {100_000: (4.0, 1.5)}
    taken = {size: _elsewhere("alone", size) for size in sizes}
    cases = []
    for size, (seconds, megabytes, _) in taken.items():
        must, goal = musts.get(size, (None, None))
        cases.append(Case(f"{size:,} tasks", seconds, "s", "lower", must, goal))
        cases.append(Case(f"{size:,} tasks, peak of memory", megabytes, "MB", "lower"))
    growth = taken[sizes[2]][0] / taken[sizes[1]][0] / (sizes[2] / sizes[1])
    _, _, p99 = _elsewhere("beside", 2_000 if quick else BESIDE)
    return [
        *cases,
        Case("seconds a task, largest against middle", growth, "times", "lower", 1.3),
        Case("renew and claim beside a submit of 200,000, p99", p99, "ms", "lower", 150),
    ]


def _elsewhere(how: str, size: int) -> tuple[float, float, float]:
    """Measure in another process: seconds, megabytes, and the p99 of what went on beside it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.submit", how, str(size)], capture_output=True, text=True, check=True
    )
    seconds, megabytes, p99 = map(float, done.stdout.split())
    return seconds, megabytes, p99


def submit(how: str, size: int) -> None:
    """Submit one graph, and print what it took."""
    text = json.dumps(layered(size, WIDTH))
    with sqlite() as store:
        beside = Beside()
        engine = Engine(store, ticks=False)
        engine.start()
        if how == "beside":
            beside.start(engine)
        began = time.perf_counter()
        with stillness():  # as whoever reads large documents for a living would
            document = json_text.read(text)
        answer = engine.submit(document)
        seconds = time.perf_counter() - began
        assert isinstance(answer, Submitted), answer
        p99 = beside.stop() if how == "beside" else 0.0
        engine.ticker.stop()
        engine.loop.stop()
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    print(seconds, megabytes, p99)


if __name__ == "__main__":
    if sys.argv[1:2] in (["alone"], ["beside"]):
        submit(sys.argv[1], int(sys.argv[2]))
    else:
        sys.exit(main("submit", measure))

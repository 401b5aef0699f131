"""Submitting large graphs as JSON: how long, how much memory, and how long everybody else waits meanwhile.

Each graph is submitted in a process of its own, so that its peak of memory is its own. It is read from its text,
checked, and stored; two edges a task. While it is, a bot polls and renews every few milliseconds: the slowest of that
is what a user of a busy server would feel. The memory of a PostgreSQL server is not counted.

What takes seconds is done several times, and the best of them counts: whatever else the machine does can only make one
slower.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks.report import Case, main
from benchmarks.stores import DATABASES, ConcurrentBot, layered, running
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.lifecycle.submit import Submitted
from taskyard.wire import documents

WIDTH: Final = 1_000
BESIDE: Final = 200_000
RUNS: Final = 3
#: Larger graphs take minutes: they are submitted once.
AT_ONCE: Final = 200_000
#: The must and the goal in seconds, where there are any.
BARS: Final = {("sqlite", 100_000): (4.0, 1.5)}


def measure(quick: bool) -> list[Case]:
    """Measure both databases."""
    sizes = (500, 1_000, 2_000) if quick else (10_000, 100_000, 1_000_000)
    beside = 2_000 if quick else BESIDE
    runs = 1 if quick else RUNS
    return [case for name in DATABASES for case in (*_alone(name, sizes, runs), _beside(name, beside))]


def _alone(name: str, sizes: tuple[int, int, int], most: int) -> Iterator[Case]:
    """Measure graphs of several sizes, each in a process of its own."""
    taken = []
    for size in sizes:
        runs = [_elsewhere(name, "alone", size) for _ in range(most if size < AT_ONCE else 1)]
        seconds, megabytes, _ = min(runs)
        must, goal = BARS.get((name, size), (None, None))
        yield Case(f"{name}, {size:,} tasks", seconds, "s", "lower", must, goal)
        yield Case(f"{name}, {size:,} tasks, peak of memory", megabytes, "MB", "lower")
        taken.append(median(run[0] for run in runs) / size)
    yield Case(f"{name}, seconds a task, largest against middle", taken[2] / taken[1], "times", "lower", 1.3)


def _beside(name: str, size: int) -> Case:
    _, _, p99 = _elsewhere(name, "beside", size)
    return Case(f"{name}, renew and claim beside a submit of {size:,}, p99", p99, "ms", "lower", 150)


def _elsewhere(name: str, how: str, size: int) -> tuple[float, float, float]:
    """Measure in another process: seconds, megabytes, and the p99 of what went on beside it."""
    command = [sys.executable, "-m", "benchmarks.submit", name, how, str(size)]
    # What it complains of is seen: only what it prints is taken.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, megabytes, p99 = map(float, done.stdout.split())
    return seconds, megabytes, p99


def submit(name: str, how: str, size: int) -> None:
    """Submit one graph to one database, and print what it took."""
    text = json.dumps(layered(size, WIDTH))
    with DATABASES[name]() as store, running(store) as engine:
        beside = ConcurrentBot()
        if how == "beside":
            beside.start(engine)
        began = time.perf_counter()
        with gc_paused():  # as a server does for large documents
            document = documents.read(text)
        answer = engine.submit(document)
        seconds = time.perf_counter() - began
        assert isinstance(answer, Submitted), answer
        p99 = beside.stop() if how == "beside" else 0.0
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    print(seconds, megabytes, p99)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in DATABASES:
        submit(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main("submit", measure))

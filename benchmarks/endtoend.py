"""From submit to finished: a server process, bot processes, everything switched on, all of it on this machine.

- no-ops: 10 000 independent functions that do nothing, in warm workers: tasks a second, submit included.
- processes: 5 000 times /bin/true with captured output, against a bare loop of posix_spawn with two in flight, three
  times in turn; the median of the three ratios.
- chain: 1 000 functions, each after the last: milliseconds a hop.
- layers: 10 000 functions in layers of 100, two edges each: seconds.
- idle: submit a graph of one to a system that does nothing; milliseconds until its function runs, by the clock of the
  machine. The client then waits in one parked request, because the server would share its time with a busy client.
- sharing: 200 tasks of 20 ms right after a burst of no-ops, on four bots of two slots: time against the ideal.
"""

import os
import sys
import time
from collections.abc import Sequence
from statistics import median, quantiles

from benchmarks.cluster import SOON_S, Cluster, cluster
from benchmarks.report import Case, main

#: A function that does nothing and gives nothing back.
NOOP = "gc:enable"
_TRUE = "/bin/true"


def measure(quick: bool) -> Sequence[Case]:
    """Measure everything; `quick` only shows that it works."""
    part = 100 if quick else 1
    return [*_on_sqlite(part), *_sharing(part), *_on_postgres(part)]


def _on_sqlite(part: int) -> list[Case]:
    with cluster("sqlite") as one:
        one.bot("b1", 2)
        one.run(independent(100, NOOP))  # workers are warm from here on
        count = 10_000 // part
        noops = count / min(one.run(independent(count, NOOP)) for _ in range(3))
        hops = max(10, 1_000 // part)
        hop = min(one.run(chain(hops)) for _ in range(3)) / hops * 1000
        layers = min(one.run(layered(count, min(100, count // 2))) for _ in range(3))
        p50, p99 = _starts(one, max(10, 200 // part))
        ratio, bare = _processes(one, max(20, 5_000 // part))
    return [
        Case("sqlite, no-ops", noops, "tasks/s", "higher", must=10_000, goal=30_000),
        Case("sqlite, processes against a bare loop", ratio, "times", "higher", must=0.5, goal=0.85, floor=bare),
        Case("sqlite, chain", hop, "ms/hop", "lower", must=1.2, goal=0.6),
        Case("sqlite, layers", layers, "s", "lower", must=1.5, goal=0.5),
        Case("sqlite, submit to start when idle, p50", p50, "ms", "lower", must=3, goal=1),
        Case("sqlite, submit to start when idle, p99", p99, "ms", "lower"),
    ]


def _on_postgres(part: int) -> list[Case]:
    with cluster("postgres") as one:
        one.bot("b1", 2)
        one.run(independent(100, NOOP))
        count = 10_000 // part
        noops = count / min(one.run(independent(count, NOOP)) for _ in range(3))
        hops = max(10, 1_000 // part)
        hop = min(one.run(chain(hops)) for _ in range(3)) / hops * 1000
    return [
        Case("postgres, no-ops", noops, "tasks/s", "higher", must=4_000, goal=13_000),
        Case("postgres, chain", hop, "ms/hop", "lower", must=3, goal=1.1),
    ]


def _sharing(part: int) -> list[Case]:
    with cluster("sqlite") as one:
        bots, slots, tasks, span_s = 4, 2, 200 // part * 1 or 8, 0.02
        for number in range(bots):
            one.bot(f"b{number}", slots)
        one.run(independent(100, NOOP))
        one.run(independent(2_000 // part, NOOP))
        took = one.run(independent(tasks, "time:sleep", [span_s]))
    ideal = tasks * span_s / (bots * slots)
    return [Case("sqlite, 20 ms tasks after a burst, against ideal", took / ideal, "times", "lower", must=1.25)]


# What is measured.


def _starts(one: Cluster, count: int) -> tuple[float, float]:
    spans = []
    for _ in range(count):
        time.sleep(0.01)
        began = time.monotonic()
        graph = one.client.submit(independent(1, "time:monotonic"))
        (task,) = graph.nameMapping.values()
        one.client.wait(graph.graph_id, SOON_S)
        spans.append((float(one.client.result(task)) - began) * 1000)
    return median(spans), quantiles(spans, n=100)[98]


def _processes(one: Cluster, count: int) -> tuple[float, float]:
    """Give the share of a bare loop's speed that is left, and that speed."""
    document = {"tasks": {f"t{number}": {"task": {"payload": {"command": [_TRUE]}}} for number in range(count)}}
    ratios, speeds = [], []
    for _ in range(3):
        bare = _bare(count)
        ratios.append(bare / one.run(document))
        speeds.append(count / bare)
    return median(ratios), median(speeds)


def _bare(count: int) -> float:
    """Start that many processes, two in flight, and wait for them."""
    began, in_flight = time.perf_counter(), 0
    for _ in range(count):
        if in_flight == 2:
            os.wait()
            in_flight -= 1
        os.posix_spawn(_TRUE, [_TRUE], {})
        in_flight += 1
    for _ in range(in_flight):
        os.wait()
    return time.perf_counter() - began


# Graphs.


def independent(count: int, function: str, args: Sequence[object] = ()) -> dict[str, object]:
    """Independent tasks."""
    payload = {"python": function, **({"args": list(args)} if args else {})}
    return {"tasks": {f"t{number}": {"task": {"payload": payload}} for number in range(count)}}


def chain(count: int) -> dict[str, object]:
    """Tasks each after the last."""
    return {
        "tasks": {
            f"t{number}": {
                "requires": [f"t{number - 1}"] if number else [],
                "task": {"payload": {"python": NOOP}},
            }
            for number in range(count)
        }
    }


def layered(count: int, width: int) -> dict[str, object]:
    """Layers; each task requires two of the layer before."""
    return {
        "tasks": {
            f"t{number}": {
                "requires": [f"t{number - width}", f"t{number - width - number % width + (number + 1) % width}"]
                if number >= width
                else [],
                "task": {"payload": {"python": NOOP}},
            }
            for number in range(count)
        }
    }


if __name__ == "__main__":
    sys.exit(main("endtoend", measure))

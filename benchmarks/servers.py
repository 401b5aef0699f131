"""Several servers on one PostgreSQL, everything on this machine.

- no-ops: 10 000 independent functions that do nothing, in two graphs at once, on two bots of one slot. With one server,
  both bots and both clients use it; with two, each has one of each. Two servers have no more processors than one, so
  they should lose little.
- submit to start: submit a graph of one at a server whose bots are busy elsewhere: the only bot waits at the other one.
  Milliseconds until its function runs, by the clock of the machine.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles

from benchmarks.cluster import SOON_S, Cluster, cluster
from benchmarks.endtoend import NOOP, independent
from benchmarks.report import Case, main
from taskyard.sdk import Client


def measure(quick: bool) -> Sequence[Case]:
    """Measure everything; `quick` only shows that it works."""
    part = 100 if quick else 1
    with cluster("postgres") as one:
        alone = _speed(one, [one.client, one.client], [one.url, one.url], part)
    with cluster("postgres") as one:
        other = one.another_server()
        both = _speed(one, [one.client, other], [one.url, other.url], part)
    with cluster("postgres") as one:
        other = one.another_server()
        p50, p99 = _starts(one, other, max(10, 200 // part))
    return [
        Case("postgres, no-ops, one server", alone, "tasks/s", "higher"),
        Case("postgres, no-ops, two servers", both, "tasks/s", "higher"),
        Case("postgres, two servers against one", both / alone, "times", "higher", must=0.9),
        Case("postgres, submit at one server to start at another, p50", p50, "ms", "lower", must=50, goal=10),
        Case("postgres, submit at one server to start at another, p99", p99, "ms", "lower"),
    ]


def _speed(one: Cluster, clients: Sequence[Client], urls: Sequence[str], part: int) -> float:
    """Run a graph for each client at the same time, three times; return the best speed."""
    for number, url in enumerate(urls):
        one.bot(f"b{number}", 1, url)
    one.run(independent(100, NOOP))  # workers are warm from here on
    count = 10_000 // part // len(clients)
    with ThreadPoolExecutor(len(clients)) as threads:
        took = [_run_all(threads, clients, independent(count, NOOP)) for _ in range(3)]
    return len(clients) * count / min(took)


def _run_all(threads: ThreadPoolExecutor, clients: Sequence[Client], document: dict[str, object]) -> float:
    def run(client: Client) -> str:
        return client.wait(client.submit(document).graph_id, SOON_S).state

    began = time.perf_counter()
    assert set(threads.map(run, clients)) == {"finished"}
    return time.perf_counter() - began


def _starts(one: Cluster, other: Client, count: int) -> tuple[float, float]:
    one.bot("b0", 1)
    one.run(independent(10, NOOP))
    spans = []
    for _ in range(count):
        time.sleep(0.01)
        began = time.monotonic()
        graph = other.submit(independent(1, "time:monotonic"))
        (task,) = graph.nameMapping.values()
        other.wait(graph.graph_id, SOON_S)
        spans.append((float(other.result(task)) - began) * 1000)
    return median(spans), quantiles(spans, n=100)[98]


if __name__ == "__main__":
    sys.exit(main("servers", measure))

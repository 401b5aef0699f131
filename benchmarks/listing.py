"""Lists of tasks among a million: pages by tag, by tag and state, and counts; as a client of a server gets them.

Half of the tasks have the tag `half:yes`, every tenth graph is of the team `db`, and a thousand tasks have failed. They
are in graphs of 1 000 tasks, where no neighbours have the same tags. The server and the client are real.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.report import Case, main
from taskyard.core.states import Signal
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Hello, Poll, Report
from taskyard.lifecycle.poll import PollOutcome
from taskyard.sdk import Client
from taskyard.server.serve import Server
from taskyard.server.settings import Settings, prepare
from tests.postgres import Postgres

#: How many tasks a graph has.
GRAPH = 1_000
#: How many tasks fail.
FAILED = 1_000
PAGE = 50
LOOKS = 30


def measure(quick: bool) -> Sequence[Case]:
    """Measure on both databases."""
    tasks = 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cases = _on(f"sqlite:///{Path(folder) / 'listing.db'}", "sqlite", tasks)
    with Postgres(durable=True) as postgres:
        return [*cases, *_on(postgres.fresh(), "postgres", tasks)]


def _on(url: str, name: str, tasks: int) -> list[Case]:
    with Engine.open(url) as engine:
        token = prepare(engine)
        _fill(engine, tasks)
        server = Server(engine, Settings(public_url="http://bench"))
        server.start()
        try:
            with Client(server.url, token) as client:
                return _cases(client, name)
        finally:
            server.stop()


def _cases(client: Client, name: str) -> list[Case]:
    lists: dict[str, Callable[[], object]] = {
        "by a tag of every other task": lambda: list(client.tasks(tags=["half:yes"], limit=PAGE)),
        "by a tag of every tenth graph": lambda: list(client.tasks(tags=["team:db"], limit=PAGE)),
        "by two tags": lambda: list(client.tasks(tags=["half:yes", "team:db"], limit=PAGE)),
        "by tag and failed": lambda: list(client.tasks(tags=["half:yes"], state="failed", limit=PAGE)),
        "failed": lambda: list(client.tasks(state="failed", limit=PAGE)),
        "of a user who has none": lambda: list(client.tasks(user="nobody", limit=PAGE)),
        "of a bot": lambda: list(client.tasks(bot="b1", limit=PAGE)),
    }
    cases = [Case(f"{name}, page {what}", _took(look), "ms", "lower", must=20, goal=10) for what, look in lists.items()]
    return [
        *cases,
        Case(f"{name}, count of a tag", _took(lambda: client.count_tasks(tags=["half:yes"]), 1), "ms", "lower"),
    ]


def _took(look: Callable[[], object], looks: int = LOOKS) -> float:
    spans = []
    for _ in range(looks):
        began = time.perf_counter()
        look()
        spans.append((time.perf_counter() - began) * 1000)
    return median(spans)


def _fill(engine: Engine, tasks: int) -> None:
    for number in range(tasks // GRAPH):
        tags = ["team:db"] if number % 10 == 0 else []
        nodes = {
            f"t{place}": {
                "task": {
                    "payload": {"command": ["true"]},
                    "dimensions": {"os": f"os{place * 20 // GRAPH}"},
                    "tags": [*tags, "half:yes" if place % 2 else "half:no"],
                }
            }
            for place in range(GRAPH)
        }
        engine.submit({"tasks": nodes}, actor="bench")
    for one in range(20):
        _fail(engine, f"os{one}", FAILED // 20)


def _fail(engine: Engine, system: str, count: int) -> None:
    dimensions = (("id", ("b1",)), ("os", (system,)), ("pool", ("default",)))
    assert engine.hello(Hello("b1", system, dimensions, count)) is None
    taken = engine.poll(Poll("b1", system, f"{system} takes", want=count))
    assert isinstance(taken, PollOutcome), taken
    reports = tuple(Report(one.task, one.attempt, one.fence, Signal.FAIL, exit_code=1) for one in taken.leases)
    engine.poll(Poll("b1", system, f"{system} reports", reports=reports))


if __name__ == "__main__":
    sys.exit(main("listing", measure))

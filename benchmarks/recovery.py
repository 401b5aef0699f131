"""How long work stands still after something is killed or frozen: seconds, on real processes, each with its must.

One function is one case: it makes what it needs, does the harm, and gives the seconds until work goes on. To add a
case, write such a function and name it in `CASES`. `Servers` starts server processes, `seconds_until` measures.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.cluster import cluster
from benchmarks.report import Case, main
from taskyard.engine.failpoints import VARIABLE
from taskyard.sdk import Client
from tests.postgres import Postgres
from tests.servers.wire import wire_to_database

#: How long anything may take that should take a moment.
SOON_S: Final = 120
#: Between two looks; a figure is too high by this at most.
LOOK_S: Final = 0.02
#: A server that halts right after it has taken the lock of the pass, before anything else of it is written.
HALTS_IN_A_PASS: Final = {VARIABLE: f"pass.page.after:stop={SOON_S * 1_000}@1"}
#: A server that kills itself there.
DIES_IN_A_PASS: Final = {VARIABLE: "pass.page.after:exit@1"}
#: A holder of the lock that is seen so often is at no ordinary pass.
SEEN: Final = 25


def measure(quick: bool) -> Sequence[Case]:  # noqa: ARG001 - there is no smaller version of a bound in seconds
    """Measure every case."""
    return [case() for case in CASES]


# The cases.


def killed_in_a_pass() -> Case:
    """One of two servers is killed while it has the lock of the pass: the other lets work in."""
    with two_servers() as (servers, halted):
        graph = submit(servers.client)
        halted.kill()
        took = seconds_until(lambda: is_admitted(servers.client, graph))
    return Case("postgres, a server is killed in a pass", took, "s", "lower", must=2.0)


def frozen_in_a_pass() -> Case:
    """One of two servers is frozen while it has the lock of the pass: the other lets work in."""
    with two_servers() as (servers, halted):
        graph = submit(servers.client)
        halted.send_signal(signal.SIGSTOP)
        took = seconds_until(lambda: is_admitted(servers.client, graph))
    return Case("postgres, a server is frozen in a pass", took, "s", "lower", must=15.0)


def cut_off_in_a_pass() -> Case:
    """One of two servers is cut off from the database while it has the lock of the pass: the other lets work in."""
    with (
        Postgres(durable=True) as postgres,
        servers_of(postgres.fresh()) as servers,
        wire_to_database(servers.database) as (wire, through_it),
    ):
        direct, servers.database = servers.database, through_it
        servers.start(**HALTS_IN_A_PASS)
        _wait_for_a_holder(direct)
        graph = submit(servers.client)
        wire.hold()
        took = seconds_until(lambda: is_admitted(servers.client, graph))
        wire.release()
    return Case("postgres, a server is cut off in a pass", took, "s", "lower", must=15.0)


def killed_in_a_pass_and_started_again() -> Case:
    """The only server of a file is killed while it has the lock of the pass: it lets work in once it is up again."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        servers_of(f"sqlite:///{Path(folder) / 'taskyard.db'}") as servers,
    ):
        servers.stop(servers.first)
        servers.start(**DIES_IN_A_PASS).wait(SOON_S)
        servers.start_and_ask()
        graph = submit(servers.client)
        took = seconds_until(lambda: is_admitted(servers.client, graph))
    return Case("sqlite, killed in a pass and started again", took, "s", "lower", must=2.0)


def bot_killed() -> Case:
    """A bot is killed and does not come back: it is marked missing, and another bot begins what it ran."""
    with cluster("sqlite") as one:
        lost = one.bot("lost", slots=1)
        payload = {"script": '[ "$TASKYARD_ATTEMPT" = 2 ] || sleep 600'}
        graph = one.client.submit({"tasks": {"t": {"task": {"payload": payload}}}}).graph_id
        seconds_until(lambda: all(task.state == "running" for task in one.client.tasks(graph)))
        one.bot("other", slots=1)
        lost.kill()
        took = seconds_until(lambda: not one.client.bot("lost").alive and one.client.graph(graph).state == "finished")
    return Case("a bot is killed: it is marked missing, and another runs its task", took, "s", "lower", must=70.0)


CASES: Final[tuple[Callable[[], Case], ...]] = (
    killed_in_a_pass,
    frozen_in_a_pass,
    cut_off_in_a_pass,
    killed_in_a_pass_and_started_again,
    bot_killed,
)


# What they are made of.


class Servers:
    """Server processes on one database, and a client of the last one that was asked."""

    def __init__(self, database: str, folder: Path, stack: ExitStack) -> None:
        self.database = database
        self._folder = folder
        self._stack = stack
        self._count = 0
        self._token = ""
        self.first = self.start_and_ask()
        self.client.set_pool("default", capacity=1_000)  # so that every task is a matter for a pass

    def start_and_ask(self) -> "subprocess.Popen[bytes]":
        """Start a server and have the client ask it."""
        process = self.start()
        said = _awaited(self._log, re.compile(r"TASKYARD_URL=(\S+)"))
        if not self._token:
            self._token = _awaited(self._log, re.compile(r"TASKYARD_TOKEN=(\S+)"))[1]
        self.client = self._stack.enter_context(Client(said[1], self._token))
        return process

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        """Start a server, and wait for nothing."""
        self._count += 1
        self._log = self._folder / f"server-{self._count}.log"
        log = self._stack.enter_context(self._log.open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", "taskyard", "serve", "--port", "0", "--database", self.database],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env=os.environ | environment,
        )
        self._stack.callback(_kill, process)
        return process

    def stop(self, process: "subprocess.Popen[bytes]") -> None:
        """Let a server end as it likes to."""
        process.send_signal(signal.SIGTERM)
        process.wait(SOON_S)


@contextmanager
def servers_of(database: str) -> Iterator[Servers]:
    """Servers on a database, the first of them up; all are killed in the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        yield Servers(database, Path(folder), stack)


@contextmanager
def two_servers() -> Iterator[tuple[Servers, "subprocess.Popen[bytes]"]]:
    """Two servers on one PostgreSQL; the second has halted with the lock of the pass."""
    with Postgres(durable=True) as postgres, servers_of(postgres.fresh()) as servers:
        halted = servers.start(**HALTS_IN_A_PASS)
        _wait_for_a_holder(servers.database)
        yield servers, halted


def submit(client: Client) -> str:
    """Submit a graph of one task, which a pass has to admit."""
    task = {"payload": {"command": ["true"]}, "dimensions": {"pool": "default"}}
    return client.submit({"tasks": {"t": {"task": task}}}).graph_id


def is_admitted(client: Client, graph: str) -> bool:
    """Whether that task has been admitted."""
    return all(task.state == "waiting" for task in client.tasks(graph))


def seconds_until(holds: Callable[[], bool]) -> float:
    """Wait until something holds; give the seconds."""
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() - began > SOON_S:
            raise TimeoutError("work never went on")
        time.sleep(LOOK_S)
    return time.perf_counter() - began


def _wait_for_a_holder(database: str) -> None:
    """Wait until one holder of the lock is seen again and again."""
    seen: list[object] = []
    with psycopg.connect(database, autocommit=True) as connection:

        def stays() -> bool:
            row = connection.execute("SELECT holder FROM admission_lock").fetchone()
            seen.append(row[0] if row else None)
            return len(seen) > SEEN and seen[-1] is not None and len(set(seen[-SEEN:])) == 1

        seconds_until(stays)


def _awaited(path: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    found: list[re.Match[str]] = []

    def there() -> bool:
        found.extend(pattern.finditer(path.read_text(encoding="utf-8", errors="replace")))
        return bool(found)

    seconds_until(there)
    return found[0]


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main("recovery", measure))

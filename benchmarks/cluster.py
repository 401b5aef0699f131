"""Clusters for benchmarks: real servers and bots and a client, on loopback and with durable settings."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from taskyard.sdk import Client
from tests.postgres import Postgres

#: The limit for waits that should take a moment.
SOON_S: Final = 60


class Cluster:
    """A server, its bots, and a client with every right."""

    def __init__(self, database: str, folder: Path, options: Sequence[str], environment: Mapping[str, str]) -> None:
        self._database = database
        self.folder = folder
        self._started = ExitStack()
        said = ("serve", "--port", "0", "--database", database, *options)
        self.server = self._start(*said, log_name="server.log", **environment)
        printed = _awaited(folder / "server.log", re.compile(r"TASKYARD_URL=(\S+)\s+TASKYARD_TOKEN=(\S+)"))
        self.url, self._token = printed[1], printed[2]
        self.client = Client(self.url, self._token)
        self.bot_token = self.client.new_token(kind="bot", name="bench", pool="default").token

    def another_server(self) -> Client:
        """Start another server on the same database; return a client of it."""
        self._start("serve", "--port", "0", "--database", self._database, log_name="another.log")
        url = _awaited(self.folder / "another.log", re.compile(r"TASKYARD_URL=(\S+)"))[1]
        return self._started.enter_context(Client(url, self._token))

    def bot(self, name: str, slots: int, url: str = "", *options: str, **environment: str) -> "subprocess.Popen[bytes]":
        """Start a bot, and wait until it is connected."""
        state = self.folder / name
        process = self._start(
            *("bot", "--url", url or self.url, "--name", name, "--slots", str(slots), "--state", str(state)),
            *options,
            log_name=f"{name}.log",
            **{"TASKYARD_TOKEN": self.bot_token, **environment},
        )
        _until(lambda: any(bot.id == name for bot in self.client.bots()), f"bot {name} never connected")
        return process

    def run(self, document: Mapping[str, object]) -> float:
        """Submit a graph and wait for its end; return the seconds it took."""
        began = time.perf_counter()
        graph = self.client.submit(document).graph_id
        seen = self.client.wait(graph, SOON_S)
        took = time.perf_counter() - began
        assert seen.state == "finished", seen
        return took

    def close(self) -> None:
        """Stop everything."""
        self.client.close()
        self._started.close()

    def _start(self, *arguments: str, log_name: str, **environment: str) -> "subprocess.Popen[bytes]":
        log = self._started.enter_context((self.folder / log_name).open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", "taskyard", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env=os.environ | environment,
        )
        self._started.callback(_stop, process)
        return process


@contextmanager
def cluster(database: str, *options: str, **environment: str) -> Iterator[Cluster]:
    """A cluster on a database of its own: `sqlite` or `postgres`; its server gets more options and variables."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        path = Path(folder)
        url = (
            f"sqlite:///{path / 'taskyard.db'}"
            if database == "sqlite"
            else stack.enter_context(Postgres(durable=True)).fresh()
        )
        made = Cluster(url, path, options, environment)
        stack.callback(made.close)
        yield made


def _awaited(path: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    found: list[re.Match[str]] = []

    def there() -> bool:
        found.extend(pattern.finditer(path.read_text(encoding="utf-8", errors="replace")))
        return bool(found)

    _until(there, f"{path} never printed {pattern.pattern}")
    return found[0]


def _until(holds: object, why: str) -> None:
    assert callable(holds)
    for _ in range(SOON_S * 50):
        if holds():
            return
        time.sleep(0.02)
    raise TimeoutError(why)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(SOON_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

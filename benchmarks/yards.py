"""Whole yards for benchmarks: a server process, bot processes, a client; all of it real, on loopback, durable."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from taskyard.sdk import Client
from tests.postgres import Postgres

#: How long anything may take that should take a moment.
SOON_S: Final = 60


class Yard:
    """A server, its bots, and a client that may do everything."""

    def __init__(self, database: str, folder: Path) -> None:
        self._folder = folder
        self._started = ExitStack()
        self.server = self._start("serve", "--port", "0", "--database", database, said="server.log")
        said = _awaited(folder / "server.log", re.compile(r"TASKYARD_URL=(\S+)\s+TASKYARD_TOKEN=(\S+)"))
        self.url, self._token = said[1], said[2]
        self.client = Client(self.url, self._token)
        self.bot_token = self.client.new_token(kind="bot", name="bench", pool="default").token

    def bot(self, name: str, slots: int) -> "subprocess.Popen[bytes]":
        """Start a bot, and see it come in."""
        state = self._folder / name
        process = self._start(
            *("bot", "--url", self.url, "--name", name, "--slots", str(slots), "--state", str(state)),
            said=f"{name}.log",
            TASKYARD_TOKEN=self.bot_token,
        )
        _until(lambda: any(bot.id == name for bot in self.client.bots()), f"bot {name} never came")
        return process

    def run(self, document: Mapping[str, object]) -> float:
        """Submit a graph and await its end; give the seconds from the one to the other."""
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

    def _start(self, *words: str, said: str, **environment: str) -> "subprocess.Popen[bytes]":
        log = self._started.enter_context((self._folder / said).open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", "taskyard", *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env=os.environ | environment,
        )
        self._started.callback(_stop, process)
        return process


@contextmanager
def yard(database: str) -> Iterator[Yard]:
    """A yard on a database of its own: `sqlite` or `postgres`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        path = Path(folder)
        url = (
            f"sqlite:///{path / 'yard.db'}"
            if database == "sqlite"
            else stack.enter_context(Postgres(durable=True)).fresh()
        )
        made = Yard(url, path)
        stack.callback(made.close)
        yield made


def _awaited(path: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    found: list[re.Match[str]] = []

    def there() -> bool:
        found.extend(pattern.finditer(path.read_text(encoding="utf-8", errors="replace")))
        return bool(found)

    _until(there, f"{path} never said {pattern.pattern}")
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

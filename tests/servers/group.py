"""Several server processes on one PostgreSQL, their bots, and a client of all of them.

Bots and clients reach each server through a proxy of its own, and each server its database: so a server keeps its
address when it is started again, and every connection can be cut.
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskyard.engine import offline_doctor
from taskyard.sdk import Client
from tests.cli.waiting import read_until, until
from tests.e2e.cluster import USUAL, Bot, end, started
from tests.servers.wire import Wire, through, wire_to_database

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[2]


class ServerProcess:
    """One server, which can be killed, frozen and started again."""

    def __init__(self, group: "Group", number: int, database: Wire) -> None:
        self.name = f"server{number}"
        self.database = database  # through which it reaches PostgreSQL
        self._group = group
        self._port = 0
        self.program: subprocess.Popen[bytes] | None = None
        self.front = Wire(("127.0.0.1", 9))  # the port is known once it is started

    @property
    def url(self) -> str:
        return self.front.url

    @property
    def log(self) -> str:
        return (self._group.folder / f"{self.name}.log").read_text(errors="replace")

    def start(self, *, wait: bool = True) -> None:
        """Start it; return when it answers."""
        options = ["--admin-token", str(self._group.folder / "admin.token"), "-o", "json", *self._group.options]
        place = ["--port", str(self._port), "--database", through(self.database, self._group.database_url)]
        self.program = started(
            [USUAL, "serve", *place, *options], self._group.folder / f"{self.name}.log", self._group.env()
        )
        if wait:
            self.ready()

    def ready(self) -> None:
        """Wait until it answers."""
        assert self.program is not None
        assert self.program.stdout is not None
        url = json.loads(read_until(self.program.stdout.fileno(), "\n", self.program))["url"]
        self._port = int(url.rpartition(":")[2])
        self.front.place = ("127.0.0.1", self._port)

    def kill(self) -> None:
        assert self.program is not None
        self.program.kill()
        end(self.program)

    def freeze(self) -> None:
        assert self.program is not None
        self.program.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.program is not None
        self.program.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Stop it as an operator does; return its exit code."""
        assert self.program is not None
        return end(self.program)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        if self.program is not None:
            self.thaw()
            end(self.program)
        self.front.close()


class Group:
    """The servers of one database."""

    def __init__(self, folder: Path, database_url: str, number: int, options: Sequence[str]) -> None:
        self.folder, self.database_url, self.options = folder, database_url, options
        self.servers: list[ServerProcess] = []
        self.bots: list[Bot] = []
        self._stack = ExitStack()
        try:
            for one in range(number):
                database, _ = self._stack.enter_context(wire_to_database(database_url))
                server = ServerProcess(self, one, database)
                self.servers.append(server)
                server.start(wait=one == 0)  # the first one makes what all need
            for server in self.servers[1:]:
                server.ready()
            self.token = (folder / "admin.token").read_text().strip()
            self.client = self._stack.enter_context(Client(self.urls, self.token, timeout_s=10.0))
            self.bot_token = self.client.new_token("bot", "bots of the group", pool="default").token
        except BaseException:
            self.close()
            raise

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def client_of(self, server: ServerProcess) -> Client:
        """A client of one server alone."""
        return self._stack.enter_context(Client(server.url, self.token))

    def start_bots(self, number: int, slots: int = 2, urls: Sequence[str] = ()) -> None:
        """Start bots, and wait until all are connected."""
        for one in range(number):
            name = f"bot{one}"
            state = self.folder / "bots" / name
            state.mkdir(parents=True)
            place = ["--name", name, "--slots", str(slots), "--state", str(state), "--url", ",".join(urls or self.urls)]
            program = started(
                [USUAL, "bot", *place],
                self.folder / f"{name}.log",
                {**self.env(), "TASKYARD_TOKEN": self.bot_token},
            )
            self.bots.append(Bot(name, state, program))
        until(lambda: sum(bot.alive for bot in self.client.bots()) == number, "all bots are connected")

    def env(self) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith(("TASKYARD_", "XDG_"))}
        return own | {"HOME": str(self.folder), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}

    def submit(self, tasks: Mapping[str, Any], **more: Any) -> str:
        """Store a graph; return its id."""
        return self.client.submit({"name": "trial", "tasks": tasks}, **more).graph_id

    def close(self) -> None:
        """Stop everything; then the doctor must find nothing."""
        for bot in self.bots:
            bot.program.send_signal(signal.SIGTERM)
        for bot in self.bots:
            bot.end()
        for server in self.servers:
            server.close()
        self._stack.close()
        assert offline_doctor.check(self.database_url).found == ()


@contextmanager
def group(folder: Path, database_url: str, number: int = 2, options: Sequence[str] = ()) -> Iterator[Group]:
    """Servers for the time of the context."""
    one = Group(folder, database_url, number, options)
    try:
        yield one
    finally:
        one.close()

"""A cluster of real processes: a server on a database, bots with folders of their own, and a client.

Each process is started as by a shell, in a session of its own, and may be killed, stopped and started again. At the end
every process is gone, whatever the test did, and the doctor finds nothing wrong in the database.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from taskyard.engine import failpoints, offline_doctor
from taskyard.engine.keyring import add_key
from taskyard.sdk import Client
from taskyard.wire import api
from tests.cli.waiting import DEADLINE_SECONDS, is_gone, read_until, until

ROOT = Path(__file__).parents[2]
#: The module that is run as the server: the program itself, or one with short leases (`short_lease_server.py`).
USUAL = "taskyard"
SHORT_LEASES = "tests.e2e.short_lease_server"
RUNNER = "taskyard.bot.runner"
#: States in which nothing of a task runs, and nothing will without a person.
ENDED = {"successful", "failed", "error", "canceled", "skipped", "blocked"}

_T = TypeVar("_T")


class Cluster:
    """A server, its bots, and the first token."""

    def __init__(
        self, folder: Path, database: str, program: str = USUAL, lease: str = "", options: Sequence[str] = ()
    ) -> None:
        self.folder, self.database = folder, database
        self.bots: list[Bot] = []
        self.url = ""
        self._program = program
        self._keys = folder / "secrets.key"
        add_key(self._keys)
        self._options = [*(["--lease", lease] if lease else []), *options]
        self._port = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._clients = ExitStack()
        self.serve()
        self.token = (folder / "admin.token").read_text().strip()
        self.client = self._clients.enter_context(Client(self.url, self.token))
        self.bot_token = self.client.new_token("bot", "bots of the cluster", pool="default").token

    # The server.

    def serve(self, failpoint: str = "") -> None:
        """Start the server, on its old port if it had one, with a failpoint if wanted; return when it answers."""
        place = ["--port", str(self._port), "--database", self.database]
        command = [
            self._program,
            "serve",
            *place,
            *self._options,
            "--admin-token",
            str(self.folder / "admin.token"),
            "--secrets-key-file",
            str(self._keys),
            "-o",
            "json",
        ]
        armed = {failpoints.VARIABLE: failpoint} if failpoint else {}
        self._server = started(command, self.folder / "server.log", self.env() | armed)
        assert self._server.stdout is not None
        self.url = json.loads(read_until(self._server.stdout.fileno(), "\n", self._server))["url"]
        self._port = int(self.url.rpartition(":")[2])

    def kill_server(self) -> None:
        """Kill the server."""
        assert self._server is not None
        _kill(self._server)
        self._server = None

    def server_ended(self) -> int:
        """Wait until the server ends by itself; return its exit code."""
        assert self._server is not None
        code = self._server.wait(DEADLINE_SECONDS)
        self.kill_server()
        return code

    # Bots.

    def bot(
        self, name: str, *options: str, slots: int = 2, state: str = "", url: str = "", env: Mapping[str, str] = {}
    ) -> "Bot":
        """Start a bot, and wait until it is connected."""
        folder = self.folder / "bots" / (state or name)
        folder.mkdir(parents=True, exist_ok=True)
        place = ["--name", name, "--slots", str(slots), "--state", str(folder), "--url", url or self.url]
        around = {**self.env(), "TASKYARD_TOKEN": self.bot_token, **env}
        before = self.sessions(name)
        program = started([USUAL, "bot", *place, *options], self.folder / f"{state or name}.log", around)
        one = Bot(name, folder, program)
        self.bots.append(one)
        until(lambda: program.poll() is not None or self.sessions(name) > before, f"{name} is connected")
        assert program.poll() is None, one.log()
        return one

    def sessions(self, name: str) -> int:
        """How many sessions of a bot the server has seen begin."""
        known = {one.id for one in self.client.bots()}
        return sum(one.kind == "connected" for one in self.client.bot_events(name)) if name in known else 0

    # Graphs.

    def submit(self, tasks: Mapping[str, Any], **more: Any) -> "Graph":
        """Store a graph."""
        made = self.client.submit({"name": "trial", "tasks": tasks, **more})
        return Graph(self, made.graph_id, dict(made.nameMapping))

    # The environment of programs.

    def env(self) -> dict[str, str]:
        """An environment whose home is the folder of the cluster, without settings."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(("TASKYARD_", "XDG_"))}
        return own | {"HOME": str(self.folder), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}

    # The end.

    def close(self) -> None:
        """Stop everything, bots first; then no process may be left, and the doctor must find nothing."""
        for one in self.bots:
            one.end()
        self._clients.close()
        if self._server is not None:
            end(self._server)
        left = {one.name: one.marked() for one in self.bots if one.marked()}
        assert left == {}, "processes of bots are left"
        assert offline_doctor.check(self.database).found == ()


@dataclass
class Bot:
    """A bot process."""

    name: str
    state: Path
    program: subprocess.Popen[bytes]

    def marked(self) -> dict[int, str]:
        """All processes that this bot started: its runner and the processes of tasks."""
        return dict(_with_mark(f"{self.state.resolve()}#{self.name}"))

    @property
    def runner(self) -> int:
        """The process id of the runner."""
        (found,) = [pid for pid, command in self.marked().items() if command.startswith("python") and RUNNER in command]
        return found

    def kill(self, also_runner: bool = False) -> None:
        """Kill the agent, and at the same moment the runner if wanted."""
        if also_runner:
            # Only the watchdog is left.
            runner = self.runner
            os.kill(runner, signal.SIGSTOP)
            _kill(self.program)
            os.kill(runner, signal.SIGKILL)
        else:
            _kill(self.program)

    def end(self) -> int:
        """Ask the bot to end at once, and wait for it."""
        if self.program.poll() is None:
            self.program.send_signal(signal.SIGTERM)
            # The second signal means: do not wait for running tasks.
            with suppress(subprocess.TimeoutExpired):
                self.program.wait(0.5)
        return end(self.program)

    def ended(self) -> int:
        """Wait until it ends by itself."""
        return self.program.wait(DEADLINE_SECONDS)

    def log(self) -> str:
        """The log of the bot."""
        return self.state.parent.parent.joinpath(f"{self.state.name}.log").read_text(errors="replace")


@dataclass(frozen=True)
class Graph:
    """A graph that was stored."""

    cluster: Cluster
    id: str
    names: dict[str, str] = field(default_factory=dict)

    def view(self) -> api.GraphView:
        return self.cluster.client.graph(self.id)

    def task(self, label: str) -> api.TaskView:
        return self.cluster.client.task(self._id(label))

    def attempts(self, label: str) -> list[api.AttemptView]:
        return self.cluster.client.attempts(self._id(label))

    def output(self, label: str, **part: int) -> bytes:
        return self.cluster.client.output(self._id(label), **part)

    def states(self) -> dict[str, str]:
        """The state of each task, by label."""
        return {one.label: one.state for one in self.cluster.client.tasks(self.id)}

    def settled(self) -> api.GraphView:
        """Wait until the graph is settled."""
        return wait_for(self.view, lambda one: one.settled, f"graph {self.id} settles")

    def finished(self) -> None:
        """Wait until the graph is finished; else fail with the output of the failed tasks."""
        if self.settled().state != "finished":
            bad = {one.label: one for one in self.cluster.client.tasks(self.id) if one.state in ("failed", "error")}
            said = {label: self.output(label)[-2000:].decode(errors="replace") for label in bad if bad[label].attempt}
            raise AssertionError(f"{self.view()}; {self.states()}; {said}")

    def until(self, label: str, *states: str) -> api.TaskView:
        """Wait until a task is in one of these states."""
        return wait_for(lambda: self.task(label), lambda one: one.state in states, f"{label} is {' or '.join(states)}")

    def _id(self, label: str) -> str:
        if label not in self.names:
            self.names.update(self.cluster.client.names(self.id))
        return self.names[label]


@contextmanager
def cluster(
    folder: Path, database: str, program: str = USUAL, lease: str = "", options: Sequence[str] = ()
) -> Iterator[Cluster]:
    """A cluster for the time of the context; `options` are those of its server."""
    one = Cluster(folder, database, program, lease, options)
    try:
        yield one
    finally:
        one.close()


def wait_for(look: Callable[[], _T], fits: Callable[[_T], bool], what: str) -> _T:
    """Read again and again until the value fits; return it."""
    last = look()

    def fact() -> bool:
        nonlocal last
        last = look()
        return fits(last)

    try:
        until(fact, what)
    except AssertionError as late:
        raise AssertionError(f"{late}; last seen: {last}") from None
    return last


def started(arguments: list[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a Python module in a session of its own; its stderr goes to a file."""
    with log.open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=env,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )


def end(program: subprocess.Popen[bytes]) -> int:
    """Ask a process to end, and wait for it; kill it if it does not."""
    if program.poll() is None:
        program.send_signal(signal.SIGTERM)
    try:
        return program.wait(DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(program)
        raise
    finally:
        _hang_up(program)


def _kill(program: subprocess.Popen[bytes]) -> None:
    program.kill()
    program.wait()
    _hang_up(program)


def _hang_up(program: subprocess.Popen[bytes]) -> None:
    if program.stdout is not None:
        program.stdout.close()


def _with_mark(marker: str) -> Iterator[tuple[int, str]]:
    mark = f"TASKYARD_BOT={marker}".encode()
    for entry in Path("/proc").iterdir():
        # A process that has just ended or belongs to another user cannot be read.
        with suppress(OSError):
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                # A watchdog has the command line of its runner, but a name of its own.
                command = (entry / "comm").read_text().strip() + " "
                command += (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if not is_gone(int(entry.name)):
                    yield int(entry.name), command

"""A server for bots that is controlled by a test, over real HTTP; and a bot as a process of its own.

It keeps leases in a queue and hands them out, records all requests, and answers each poll as the real server would.
Everything in it may be used from the test's thread.
"""

import asyncio
import base64
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from taskyard.wire.bot_protocol import (
    Goodbye,
    Hello,
    Kept,
    Lease,
    Poll,
    Polled,
    Refused,
    Renewed,
    Report,
    Trouble,
    Welcome,
)

#: Far more than any wait here takes on the slowest machine.
DEADLINE_SECONDS = 120.0
ROOT = Path(__file__).parents[2]
TOKEN = "bot-token"  # noqa: S105

#: The status of an answer that never arrives whole.
LOST = 299

Answer = tuple[int, Any]


@dataclass
class FakeServer:
    """Records what bots send. `on_poll` may answer a poll itself, or have the answer lost ("lose")."""

    lease_ms: int = 60_000
    on_poll: Callable[[Poll], Answer | str | None] = lambda _: None
    hellos: list[Hello] = field(default_factory=list)
    goodbyes: list[Goodbye] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    reports: dict[str, Report] = field(default_factory=dict)
    printed: dict[str, bytes] = field(default_factory=dict)
    checkpoints: dict[str, bytes] = field(default_factory=dict)
    progress: dict[str, str] = field(default_factory=dict)
    stops: set[str] = field(default_factory=set)
    taken_away: set[str] = field(default_factory=set)
    terminate: bool = False
    inputs: dict[str, bytes] = field(default_factory=dict)
    secrets: dict[str, Answer] = field(default_factory=dict)
    files: Callable[[str, bytes], Answer] | None = None  # answers what is asked of files, by path and body
    queue: list[Lease] = field(default_factory=list)
    given: dict[str, list[Lease]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    url: str = ""

    def add(self, payload: dict[str, Any], **more: Any) -> str:
        """Queue a task, and return its id."""
        task = f"{next(self.numbers):032x}"
        if "inputs" in more:
            more["inputs"] = msgspec.Raw(msgspec.json.encode(more["inputs"]))
        fields = {"attempt": 1, "fence": 7, "lease_ms": self.lease_ms, "graph": "g" * 32, "label": "it", **more}
        lease = Lease(task=task, payload=msgspec.Raw(msgspec.json.encode(payload)), token=f"token-{task}", **fields)
        with self.changed:
            self.queue.append(lease)
            self.changed.notify_all()
        return task

    def wait_until(self, fact: Callable[[], Any], what: str) -> None:
        """Wait until a condition holds."""
        with self.changed:
            assert self.changed.wait_for(fact, DEADLINE_SECONDS), f"waited too long for {what}"

    def report(self, task: str) -> Report:
        """Wait for the report of a task."""
        self.wait_until(lambda: task in self.reports, f"the report of {task}")
        return self.reports[task]

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, answer = await self._answer(scope["path"], headers, body)
        text = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        extra = [(b"retry-after", b"0")] if status in (429, 503) else []
        length = [(b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": [*length, *extra]})
        if status == LOST:
            return  # uvicorn closes the connection in the middle: the answer is lost
        await send({"type": "http.response.body", "body": text})

    async def _answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        with self.changed:
            self.requests.append((path, headers))
        if self.files is not None and "/bot/" not in path:
            return self.files(path, body)
        match path.rpartition("/")[2]:
            case "hello":
                hello = msgspec.json.decode(body, type=Hello)
                return self._note(self.hellos, hello, Welcome(hello.bot, "default", self.lease_ms, 5000, 20_000))
            case "goodbye":
                return self._note(self.goodbyes, msgspec.json.decode(body, type=Goodbye), {})
            case "trouble":
                return self._note(self.troubles, msgspec.json.decode(body, type=Trouble), {})
            case "secrets":
                return self.secrets[path.split("/")[-2]]
            case "inputs":
                return 200, self.inputs[path.split("/")[-2]]
            case _:
                return await self._poll(msgspec.json.decode(body, type=Poll))

    def _note(self, where: list[Any], what: Any, answer: Any) -> Answer:
        with self.changed:
            where.append(what)
            self.changed.notify_all()
        return 200, answer

    async def _poll(self, poll: Poll) -> Answer:
        with self.changed:
            self.polls.append(poll)
            self.changed.notify_all()
        special = self.on_poll(poll)
        if isinstance(special, tuple):
            return special
        polled = self._polled(poll)
        leases = await self._leases(poll)
        return (LOST, b"lost") if special == "lose" else (200, msgspec.structs.replace(polled, leases=leases))

    def _polled(self, poll: Poll) -> Polled:
        with self.changed:
            for output in poll.outputs:
                before = self.printed.get(output.task, b"")
                assert output.start <= len(before), "output has no holes"
                self.printed[output.task] = before[: output.start] + output.body
            for renewal in poll.renewals:
                if renewal.checkpoint is not None:
                    self.checkpoints[renewal.task] = renewal.checkpoint
                if renewal.progress is not None:
                    self.progress[renewal.task] = renewal.progress
            for report in poll.reports:
                self.reports[report.task] = report
            self.changed.notify_all()
            return Polled(
                renewed=[
                    Renewed(one.task, one.attempt, self.lease_ms, one.task in self.stops)
                    for one in poll.renewals
                    if one.task not in self.taken_away
                ],
                kept=[Kept(one.task, one.attempt, len(self.printed[one.task])) for one in poll.outputs],
                refused=[
                    Refused(one.task, one.attempt, "not_yours", "it is not yours any more")
                    for one in poll.renewals
                    if one.task in self.taken_away
                ],
                terminate=self.terminate,
            )

    async def _leases(self, poll: Poll) -> list[Lease]:
        if poll.poll in self.given:
            return self.given[poll.poll]
        deadline = time.monotonic() + poll.wait_ms / 1000
        while not self.queue and time.monotonic() < deadline and poll.want and not self._is_draining(poll.bot):
            await asyncio.sleep(0.001)
        with self.changed:
            want = 0 if self._is_draining(poll.bot) else poll.want
            leases, self.queue[:] = self.queue[:want], self.queue[want:]
            if poll.want:
                self.given[poll.poll] = leases
            self.changed.notify_all()
        return leases

    def _is_draining(self, bot: str) -> bool:
        return any(one.draining for one in self.hellos if one.bot == bot)


@contextmanager
def serving(server: FakeServer, port: int = 0) -> Iterator[FakeServer]:
    """Serve on the loopback interface inside this context."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(server.app, log_level="critical", lifespan="off", interface="asgi3", timeout_keep_alive=60)
    http = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(http.serve(sockets=[listener])), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.should_exit = http.force_exit = True
        thread.join(DEADLINE_SECONDS)
        listener.close()


class Bot:
    """A bot as a process."""

    def __init__(self, server: FakeServer, state: Path, **more: Any) -> None:
        self.state = state
        fields = {"url": server.url, "token": TOKEN, "name": "b1", "slots": 2, "state": str(state), **more}
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HIDDEN": "not for tasks"}
        argument = base64.b64encode(msgspec.json.encode(fields)).decode()
        # A file, because a pipe would be held open by whatever outlives the bot.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self.program = subprocess.Popen(
            [sys.executable, "-m", "tests.bot.bot_program", argument], env=env, cwd=ROOT, stderr=self._log
        )

    def end(self, by: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Signal it; return its exit code and its log."""
        self.program.send_signal(by)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for its end."""
        return self.program.wait(DEADLINE_SECONDS), self.log()

    def log(self) -> str:
        """Return its log."""
        self._log.seek(0)
        return self._log.read().decode()

    def close(self) -> None:
        """Kill it if it still runs."""
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()
        sys.stderr.write(self.log())
        self._log.close()


@contextmanager
def bot(server: FakeServer, state: Path, **more: Any) -> Iterator[Bot]:
    """Run a bot inside this context."""
    one = Bot(server, state, **more)
    try:
        yield one
    finally:
        one.close()

"""A server for tests: a real engine on a real database, a real port, and bots played by the test."""

import http.client
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from taskyard.core.ids import key_of
from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Hello, Lease, Output, Poll, Report
from taskyard.lifecycle.poll import PollOutcome
from taskyard.server.serve import Server
from taskyard.server.settings import Settings, load_signer, prepare
from taskyard.wire.bot_protocol import NOTHING

WAIT_S = 60
#: Of which type a body is where it is not JSON, by the last step of the route.
KINDS = {"blobs": "application/octet-stream", "progress": "text/plain", "checkpoint": "application/octet-stream"}


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def paths(self) -> list[str]:
        """Where a problem finds faults."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        return [fault["path"] for fault in self.json["faults"]]


class RunningServer:
    """A server, its admin token, and helpers that send requests."""

    def __init__(self, url: str, settings: Settings | None = None, secrets_key_file: Path | None = None) -> None:
        self.engine = Engine.open(url, secrets_key_file=secrets_key_file)
        self.engine.start()
        made = prepare(self.engine)
        assert made is not None
        self.admin = made
        self.http = Server(self.engine, settings or Settings(public_url="http://yard"))
        self.http.start()
        self.signer = load_signer(self.engine)
        self._polls = count(1)

    def close(self) -> None:
        self.http.stop()
        self.engine.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; with the admin token by default, with None without a token."""
        shown = self.admin if token == "" else token
        sent = {} if shown is None else {"Authorization": f"Bearer {shown}"}
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if raw is not None:
            sent["Content-Type"] = KINDS.get(path.rpartition("/")[2], "application/json")
        connection = self.connection()
        try:
            connection.request(method, path, raw, {**sent, **(headers or {})})
            got = connection.getresponse()
            return Answer(got.status, {key.lower(): value for key, value in got.getheaders()}, got.read())
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPConnection:
        """Open a connection."""
        return http.client.HTTPConnection(urlsplit(self.http.url).netloc, timeout=WAIT_S)

    def get(self, path: str, **said: Any) -> Any:
        """Get a resource that exists."""
        answer = self.ask("GET", path, **said)
        assert answer.status == 200, answer.body
        return answer.json

    def submit(self, document: object, **said: Any) -> "Made":
        """Store a graph."""
        answer = self.ask("POST", "/api/v1/graphs", document, **said)
        assert answer.status == 201, answer.body
        return Made(answer.json["graph_id"], answer.json["nameMapping"])

    def token(self, *scopes: str, kind: str = "user", **said: object) -> str:
        """Make a token."""
        given = {"scopes": list(scopes)} if scopes else {}
        answer = self.ask("POST", "/api/v1/tokens", {"kind": kind, "name": f"{kind} of a test", **given, **said})
        assert answer.status == 201, answer.body
        return str(answer.json["token"])

    # Bots.

    def hello(self, bot: str = "b1", pool: str = "default", session: str = "s1", **dimensions: str) -> None:
        has = canonical({"id": bot, "pool": pool, **dimensions})
        assert self.engine.hello(Hello(bot, session, has, 8)) is None

    def claim(self, bot: str = "b1", want: int = 8, session: str = "s1") -> list[Lease]:
        answer = self.engine.poll(Poll(bot, session, f"p{next(self._polls)}", want=want))
        assert isinstance(answer, PollOutcome), answer
        return list(answer.leases)

    def is_told_to_end(self, bot: str = "b1", session: str = "s1") -> bool:
        """Whether the answer to the next poll has `terminate`."""
        answer = self.engine.poll(Poll(bot, session))
        assert isinstance(answer, PollOutcome), answer
        return answer.ending

    def end(self, lease: Lease, signal: Signal = Signal.SUCCEED, result: str | None = None, bot: str = "b1") -> None:
        published = NOTHING if result is None else msgspec.Raw(result.encode())
        report = Report(lease.task, lease.attempt, lease.fence, signal, result=published, exit_code=0)
        answer = self.engine.poll(Poll(bot, "s1", reports=(report,)))
        assert isinstance(answer, PollOutcome), answer

    def print(self, lease: Lease, start: int, body: bytes, bot: str = "b1") -> None:
        """Send output of an attempt."""
        piece = Output(lease.task, lease.attempt, lease.fence, start, body)
        answer = self.engine.poll(Poll(bot, "s1", outputs=(piece,)))
        assert isinstance(answer, PollOutcome), answer

    def run_token(self, lease: Lease) -> str:
        return self.signer.sign(lease.task, lease.attempt, lease.fence)


@dataclass(frozen=True)
class Made:
    """A graph that was stored."""

    id: str
    tasks: Mapping[str, str]

    def key(self, label: str) -> int:
        return key_of(self.tasks[label])


def task(*requires: str, **said: object) -> dict[str, object]:
    """One node of a document, for the default pool."""
    return {
        "requires": list(requires),
        "task": {"payload": {"command": ["true"]}, "dimensions": {"pool": "default"}} | said,
    }


def graph(name: str = "", /, **nodes: object) -> dict[str, object]:
    return {"tasks": nodes} | ({"name": name} if name else {})


def wide(tasks: int, **others: object) -> dict[str, object]:
    """A graph of independent tasks, and some others."""
    return {"tasks": {f"t{number}": task() for number in range(tasks)} | others}


def fresh(word: str = "g") -> str:
    """Return a unique name."""
    return f"{word} {uuid.uuid4().hex[:12]}"

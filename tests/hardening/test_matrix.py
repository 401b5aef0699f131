"""Who may do what: every route of the description for every kind of caller, against a table kept by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskyard.core.states import Signal
from tests.engine.harness import wait_until
from tests.hardening.store_digest import Digest
from tests.server.running_server import Answer, RunningServer, graph, task

LAB = {"pool": "lab"}
#: The description itself is no part of what it describes.
UNDESCRIBED = {("GET", "/api/v1/openapi.json")}
#: How a path names what it is about, in the description and here.
NAMES = {
    "{graph_id}": "{graph}",
    "{task_id}": "{task}",
    "{bot_id}": "{bot}",
    "{name}": "{pool}",
    "{token_id}": "{token}",
}
NO_ONE = "ty_user_" + "a" * 22 + "_" + "b" * 43
QUESTION = {"task": {"payload": {"approval": {"message": "go on?"}}, "dimensions": LAB}}
SUBJECTS = graph(a=task(dimensions=LAB), b=task(dimensions=LAB), q=QUESTION)
PROJECT = {"kind": "project", "name": "lab", "git": "/srv/lab.git", **LAB}
TEMPLATE = {"kind": "job_template", "name": "tidy", "payload": {"command": ["true"]}, **LAB}
SCHEDULE = {"kind": "schedule", "name": "lab", "template": "tidy", "cron": "0 0 1 1 *", **LAB}
WEBHOOK = {"url": "http://127.0.0.1:9/", "secret": f"whsec_{'A' * 32}", "pool": "lab", "paused": True}
DOCUMENT = graph(a=task(dimensions=LAB))
BODIES: dict[str, Any] = {
    "POST /api/v1/graphs": DOCUMENT,
    "POST /api/v1/graphs/check": DOCUMENT,
    "PUT /api/v1/graphs/{put}": DOCUMENT,
    "POST /api/v1/requests": {"task": {"payload": {"command": ["true"]}, "dimensions": LAB}},
    "POST /api/v1/graphs/{graph}/tasks": {"tasks": {"late": task(dimensions=LAB)}},
    "POST /api/v1/tasks/cancel": {"tags": ["nobody:has this"]},
    "PATCH /api/v1/bots/{bot}": {"maintenance": "the fan"},
    "PUT /api/v1/retention/{pool}": {"output": "30d"},
    "POST /api/v1/launches": {"name": "deploy"},
    "POST /api/v1/schedules/preview": {"cron": "0 3 * * *"},
    "PUT /api/v1/limits/{pool}": {"total": 5},
    "PUT /api/v1/mutexes/{key}": {"stake_after": "5m"},
    "PUT /api/v1/secrets/{pool}": {"value": "a value of lab"},
    "PUT /api/v1/webhooks/{pool}": WEBHOOK,
    "POST /api/v1/catalogue": {"documents": [PROJECT]},
    "POST /api/v1/tokens": {"name": "another"},
    "POST /api/v1/session": {"code": "of no link"},
    "POST /api/v1/graphs/files": DOCUMENT,
    "POST /api/v1/pools/{pool}/trees": {},
    "POST /api/v1/pools/{pool}/blobs": b"",
    "POST /api/v1/pools/{pool}/blobs/read": [],
    "PUT /api/v1/tasks/{task}/files": {"pool": "lab"},
    "PUT /api/v1/tasks/{task}/result": {"n": 1},
    "PUT /api/v1/tasks/{task}/progress": b"half",
    "PUT /api/v1/tasks/{task}/checkpoint": b"\x00\xff",
    "POST /api/v1/bot/hello": {"bot": "another", "session": "s"},
    "POST /api/v1/bot/poll": {"bot": "another", "session": "s"},
    "POST /api/v1/bot/trouble": {"bot": "another", "session": "s", "text": "its disk is full"},
    "POST /api/v1/bot/goodbye": {"bot": "another", "session": "s"},
}


@dataclass(frozen=True)
class Row:
    method: str
    path: str
    wanted: dict[str, int]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


@cache
def table() -> list[Row]:
    text = Path(__file__).with_name("matrix.txt").read_text(encoding="utf-8")
    head, *lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Row(method, path, dict(zip(head, map(int, cells), strict=True))) for method, path, *cells in lines]


@dataclass(frozen=True)
class Subjects:
    """A graph of the lab with a running and a failed task, a task of another graph, and their tokens."""

    names: dict[str, str]
    tokens: dict[str, str | None]
    close: Callable[[], None]


class Callers:
    """A server, and the tokens that are the same for all fixtures."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        server.hello("b1", "lab")
        server.hello("b2", "lab")
        server.ask(
            "POST", "/api/v1/bot/hello", {"bot": "another", "session": "s"}, token=server.token(kind="bot", **LAB)
        )
        self.lasting = {
            "nobody": None,
            "unknown": NO_ONE,
            "expired": self._over(),
            "revoked": self._revoked(),
            "elsewhere": server.token("pool:other:admin"),
            "reader": server.token("pool:lab:read"),
            "submitter": server.token("pool:lab:submit"),
            "canceler": server.token("pool:lab:cancel"),
            "approver": server.token("pool:lab:approve"),
            "pool-admin": server.token("pool:lab:admin"),
            "admin": server.admin,
            "bot": server.token(kind="bot", pool="lab"),
            "newcomer": server.token(kind="enrolment", pool="lab"),
        }

    def subjects(self) -> Subjects:
        server = self.server
        made, beside = server.submit(SUBJECTS), server.submit(DOCUMENT)
        leases = {lease.task: lease for lease in server.claim()}
        own, ended, other = leases[made.key("a")], leases[made.key("b")], leases[beside.key("a")]
        server.ask("PUT", f"/api/v1/tasks/{made.tasks['a']}/result", {"n": 0}, token=server.run_token(own))
        tree = {"files": [{"path": "empty", "size": 0}]}
        digest = server.ask("POST", "/api/v1/pools/lab/trees", msgspec.json.encode(tree)).json["digest"]
        named = {"name": "lab", "tree": digest, "path": "empty"}
        left = {"pool": "lab", "tree": digest, "artifacts": [named]}
        kept = server.ask("PUT", f"/api/v1/tasks/{made.tasks['a']}/files", left, token=server.run_token(own))
        assert kept.status == 204, kept.body
        server.end(ended, Signal.FAIL)
        wait_until(
            lambda: server.get(f"/api/v1/tasks/{made.tasks['q']}")["state"] == "running"
        )  # sent by the server itself
        names = {"graph": made.id, "task": made.tasks["a"], "failed": made.tasks["b"], "bot": "b2", "pool": "lab"}
        names |= {"key": "lab", "digest": digest, "path": "empty"}
        server.ask("PUT", "/api/v1/secrets/lab", {"value": "a value of lab"})
        server.ask("PUT", "/api/v1/webhooks/lab", WEBHOOK)
        server.ask("POST", "/api/v1/catalogue", {"documents": [PROJECT, TEMPLATE, SCHEDULE]})
        names |= {"kind": "project"}
        names |= {"question": made.tasks["q"], "ending": made.id[-6:]}
        names |= {"put": f"{int(made.id, 16) - 16 * 7:016x}", "token": server.token("pool:lab:read").split("_")[2]}
        running = {"own-run": own, "ended-run": ended, "other-run": other}

        def close() -> None:
            for one in (made, beside):
                server.ask("POST", f"/api/v1/graphs/{one.id}/cancel")
            for lease in (own, other):
                server.end(lease)

        return Subjects(names, self.lasting | {who: server.run_token(lease) for who, lease in running.items()}, close)

    def ask(self, row: Row, who: str, subjects: Subjects) -> Answer:
        return self.server.ask(
            row.method, row.path.format(**subjects.names), BODIES.get(row.name), token=subjects.tokens[who]
        )

    def _over(self) -> str:
        """An expired token: made for one millisecond, and used after that."""
        token = self.server.token("admin", expires_in_ms=1)
        for _ in range(10_000):
            if self.server.ask("GET", "/api/v1/tokens?limit=1", token=token).status == 401:
                return token
        raise AssertionError("a token of one millisecond lives on")

    def _revoked(self) -> str:
        token = self.server.token("admin")
        assert self.server.ask("DELETE", f"/api/v1/tokens/{token.split('_')[2]}").status == 200
        return token


@pytest.fixture(scope="module")
def callers(server: RunningServer) -> Callers:
    return Callers(server)


def test_every_route_has_a_line_and_every_line_a_route(server: RunningServer) -> None:
    described = server.get("/api/v1/openapi.json")["paths"]
    routes = {(method.upper(), _short(path)) for path, found in described.items() for method in found}
    assert {(row.method, _plain(row.path)) for row in table()} == routes | UNDESCRIBED


@pytest.mark.parametrize("row", table(), ids=lambda row: row.name)
def test_every_caller_gets_the_answer_of_the_table_and_refusals_change_nothing(
    callers: Callers, row: Row, kept: Digest
) -> None:
    subjects = callers.subjects()
    before = kept()
    refused = [who for who, status in row.wanted.items() if status >= 400]
    got = {who: callers.ask(row, who, subjects) for who in refused}
    assert kept() == before
    for who in row.wanted.keys() - set(refused):
        got[who] = callers.ask(row, who, subjects)
        if row.method != "GET":
            subjects.close()
            subjects = callers.subjects()
    subjects.close()
    assert {who: got[who].status for who in row.wanted} == row.wanted
    for who in refused:
        assert got[who].headers["content-type"] == "application/problem+json", who
        assert ("www-authenticate" in got[who].headers) == (got[who].status == 401), who


FOREIGN = [row for row in table() if row.path.count("{") and row.wanted["elsewhere"] == 403]


def test_whatever_is_in_a_pool_of_others_is_refused_alike_on_every_route(callers: Callers) -> None:
    subjects = callers.subjects()
    assert len(FOREIGN) > 15
    answers = {row.name: callers.ask(row, "elsewhere", subjects) for row in FOREIGN}
    shown = {name: (answer.status, answer.json["code"]) for name, answer in answers.items()}
    assert set(shown.values()) == {(403, "forbidden")}, shown
    for answer in answers.values():
        assert b"command" not in answer.body
    subjects.close()


def test_what_does_not_exist_gets_the_same_answer_for_every_caller_with_the_right(callers: Callers) -> None:
    nothing = dict.fromkeys(("graph", "task", "failed"), "7fffffffffffff08") | {"bot": "nobody", "token": "a" * 22}
    nothing |= {"pool": "lab", "path": "empty"}
    for who in ("reader", "elsewhere"):
        for row in table():
            if row.method == "GET" and any(f"{{{name}}}" in row.path for name in ("graph", "task", "bot")):
                path = row.path.format(**nothing)
                answer = callers.server.ask("GET", path, token=callers.lasting[who])
                assert (answer.status, answer.json["code"]) == (404, "not_found"), (who, path)


def _short(path: str) -> str:
    for long, short in NAMES.items():
        path = path.replace(long, short)
    return path


def _plain(path: str) -> str:
    return (
        path.partition("?")[0].replace("{put}", "{graph}").replace("{failed}", "{task}").replace("{question}", "{task}")
    )

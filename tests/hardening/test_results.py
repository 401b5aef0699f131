"""Results are passed on exactly as tasks wrote them, or refused before any reader gets them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.bot.pyworker.protocol import Call
from taskyard.bot.pyworker.worker import CallError, call_function
from taskyard.bot.workdir import WorkdirPool
from taskyard.wire.documents import DEPTH_MAX, is_deep
from tests.hardening.store_digest import Digest
from tests.server.running_server import Answer, RunningServer, graph, task

BOT = {"bot": "b1", "session": "s1"}
#: What a bot may bring as a result: kept to the letter.
EXACT = [
    b"1e999", b"9" * 400, b"18446744073709551616", b'{"a":1,"a":2}', b'"a\\u0000b"', b"-0.0", b'"\\u001b[31m"', b"[]",
    b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, b'"' + b"[" * 5_000 + b'"',
]  # fmt: skip
#: And what is refused.
REFUSED = [
    b'"\\ud800"', b"NaN", b'"a\x00b"', b'"\xff"', b"1 2", b'"' + b"x" * 300_000 + b'"',
    b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), b"[" * 1_000 + b"]" * 1_000, b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
]  # fmt: skip
VALUES = st.recursive(
    st.text(max_size=3) | st.none(), lambda one: st.lists(one) | st.dictionaries(st.text(max_size=2), one)
)


def reported(server: RunningServer, token: str, result: bytes) -> tuple[str, Answer]:
    """Report a success with a result; return the task and the answer."""
    made = server.submit(graph(a=task(), b=task("a")))
    leases = server.ask("POST", "/api/v1/bot/poll", BOT | {"poll": made.id, "want": 8}, token=token).json["leases"]
    lease = next(one for one in leases if one["task"] == made.tasks["a"])
    named = json.dumps({name: lease[name] for name in ("task", "attempt", "fence")})[1:-1].encode()
    body = b'{"bot":"b1","session":"s1","reports":[{%s,"signal":"succeed","result":%s}]}' % (named, result)
    return made.tasks["a"], server.ask("POST", "/api/v1/bot/poll", body, token=token)


@pytest.fixture(scope="module")
def bot(server: RunningServer) -> str:
    token = server.token(kind="bot", pool="default")
    assert server.ask("POST", "/api/v1/bot/hello", BOT | {"slots": 64}, token=token).status == 200
    return token


def test_a_readable_result_is_stored_exactly(server: RunningServer, bot: str) -> None:
    for result in EXACT:
        id, answer = reported(server, bot, result)
        assert answer.status == 200, (result[:40], answer.body)
        assert server.ask("GET", f"/api/v1/tasks/{id}/result").body == result
        assert b'"result":' + result + b"," in server.ask("GET", f"/api/v1/tasks/{id}").body


def test_a_result_that_could_hurt_is_refused_and_the_task_runs_on(
    server: RunningServer, bot: str, kept: Digest
) -> None:
    for result in REFUSED:
        id, answer = reported(server, bot, result)
        assert (answer.status, answer.json["code"]) == (400, "invalid"), (result[:40], answer.body[:200])
        assert server.get(f"/api/v1/tasks/{id}")["state"] == "running"
    before = kept()
    assert server.ask("POST", "/api/v1/bot/poll", b"[" * 100_000, token=bot).status == 400
    assert kept() == before


def test_a_function_that_returns_something_deep_fails_with_a_sentence() -> None:
    deep = "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)
    with pytest.raises(CallError, match=f"nested more than {DEPTH_MAX} deep"):
        call_function(Call(1, "json:loads", msgspec.Raw(json.dumps([deep]).encode())))


def test_a_program_that_publishes_something_deep_fails_with_a_sentence(tmp_path: Path) -> None:
    workdir = WorkdirPool(tmp_path).take()
    for body in (b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), b"[" * 100_000):
        Path(workdir.file("result")).write_bytes(body)
        assert workdir.read_files(succeeded=True).faults == (f"the result is nested more than {DEPTH_MAX} deep",)


@given(VALUES, st.integers(0, 2 * DEPTH_MAX), st.booleans())
def test_the_depth_is_found_without_parsing(value: Any, layers: int, objects: bool) -> None:
    for _ in range(layers):
        value = {"[": value} if objects else [value]
    assert is_deep(json.dumps(value).encode()) == (depth_of(value) > DEPTH_MAX)


def depth_of(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth_of, inside), default=0)

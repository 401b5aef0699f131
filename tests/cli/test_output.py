"""Output and names of tasks reach a pipe unchanged, and a terminal only in harmless form."""

import os
import pty
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from taskyard.cli import main
from taskyard.wire.api import (
    Attempts,
    Bots,
    CriticalPath,
    GraphView,
    Limits,
    LimitView,
    Mutexes,
    MutexView,
    StoryView,
    TaskView,
)
from taskyard.wire.explain import WhyGraphView, WhyView
from tests.cli.program import PROGRAM
from tests.cli.server_process import home_env
from tests.cli.terminal import run_on_terminal
from tests.cli.waiting import DEADLINE_SECONDS, read_until
from tests.sdk.faulty_server import FaultyServer, Reply, faulty_server, json_reply, problem
from tests.sdk.test_client import ATTEMPT, GRAPH, TASK, attempts

HOSTILE = b"\x1b]0;owned\x07one\r\ntwo \xff\x1b[5m[bold]\n\x9b31mthree"


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as one:
        yield one


def env(server: FaultyServer, home: Path) -> dict[str, str]:
    return home_env(home) | {"TASKYARD_URL": server.url, "TASKYARD_TOKEN": "x", "TERM": "xterm"}


def piped(server: FaultyServer, home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(PROGRAM), *arguments]
    return subprocess.run(
        command,
        env=env(server, home),
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_a_pipe_gets_every_byte_as_it_was(server: FaultyServer, tmp_path: Path) -> None:
    server.reply_with(Reply(body=HOSTILE))
    done = piped(server, tmp_path, "logs", "--attempt", "1", "00c0ffee12345678")
    assert (done.returncode, done.stdout) == (0, HOSTILE)
    assert server.asked[0].path.endswith("/output?attempt=1")


def test_following_goes_on_until_the_attempt_has_ended(server: FaultyServer, tmp_path: Path) -> None:
    server.reply_with(
        json_reply(TASK), attempts(ended=False), Reply(body=b"one\n"), attempts(ended=True), Reply(body=b"two\n")
    )
    done = piped(server, tmp_path, "logs", "-f", "00c0ffee12345678")
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")


def test_a_terminal_gets_text_that_it_does_not_obey(server: FaultyServer, tmp_path: Path) -> None:
    server.reply_with(Reply(body=HOSTILE))
    person, program_side = pty.openpty()
    command = [str(PROGRAM), "logs", "00c0ffee12345678"]
    with subprocess.Popen(command, env=env(server, tmp_path), stdout=program_side, stderr=program_side) as program:
        os.close(program_side)
        run_on_terminal = read_until(person, "three", program)
        assert program.wait(DEADLINE_SECONDS) == 0
    os.close(person)
    assert "one\r\ntwo \ufffd[bold]\r\n" in run_on_terminal
    assert "\x1b" not in run_on_terminal
    assert "owned" not in run_on_terminal


def test_names_from_a_server_are_harmless_in_a_table(server: FaultyServer, tmp_path: Path) -> None:
    server.reply_with(json_reply({"items": [{**GRAPH, "name": "\x1b[2Jgone\u202etxt\nnext"}]}))
    done = piped(server, tmp_path, "graphs")
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert "gone\\u202etxt\\nnext" in done.stdout.decode()


def test_what_a_server_says_of_a_fault_is_harmless_too(server: FaultyServer, tmp_path: Path) -> None:
    server.reply_with(problem(403, faults=[{"message": "\x1b[5mno\nreally", "path": "a\x07"}]))
    done = piped(server, tmp_path, "graphs")
    assert done.returncode == 4
    assert b"\x1b" not in done.stderr
    assert "  a\\x07: no\\nreally" in done.stderr.decode()


#: Text that acts on a terminal or hides: a title, a colour, a bell, a line break, reversed reading order.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\x08\u202e\u2028x\x7f"
TOKEN = {
    "id": "1", "kind": "user", "name": "n", "scopes": ["admin"], "pool": None, "created_ms": 1, "expires_ms": None,
    "revoked_ms": None,
}  # fmt: skip
BOT = {
    "id": "b", "pool": "p", "dimensions": {"os": ["Linux"]}, "slots": 1, "busy": 0, "assigned": 0, "alive": True,
    "first_seen_ms": 1, "last_seen_ms": 1, "quarantined": "q", "maintenance": None,
    "draining": False, "terminated": False,
}  # fmt: skip
POOL = {"name": "p", "capacity": None, "from_bots": False, "bots": 0, "slots": 0}
DONE = {"subject": "1", "moved": 1, "promised": False, "echo": False}
STORY = {
    "task": "1", "graph_id": "2", "label": "a", "created_ms": 1, "state": "failed", "whole": True,
    "items": [
        {"at_ms": 1, "signal": "fail", "source": "running", "target": "failed", "reason": "r", "bot": "b"},
        {"at_ms": 1, "actor": "me", "action": "cancel", "about": "task", "note": "why"},
    ],
}  # fmt: skip
EVENT = {"id": "1", "at_ms": 1, "kind": "k", "task": "t", "attempt": 1, "note": "n"}
APPROVAL = {
    "task": "1", "graph_id": "2", "label": "l", "message": "m", "since_ms": 1, "until_ms": 2, "on_timeout": "deny",
}  # fmt: skip
STEP = {"task": "1", "label": "l", "state": "failed"}
PATH = {"graph_id": "1", "settled": True, "at_ms": 1, "total_ms": 1, "path": [STEP, STEP], "whole": True}
FULL_TASK = {**TASK, "progress": "p", "requires": [{"task": "1", "label": "l", "on": "success"}]}
FULL_ATTEMPT = {**ATTEMPT, "ended_ms": 5, "signal": "fail", "reason": "exit_code"}
FAILED = {**GRAPH, "counts": {"failed": 1}}


def evil(shape: object) -> Any:
    """Put hostile text into every string of a JSON value, also into keys."""
    if isinstance(shape, dict):
        inner = ("tags", "counts", "dimensions")
        return {
            key: {f"{name}{EVIL}" if key == "dimensions" else name: evil(one) for name, one in value.items()}
            if key in inner
            else evil(value)
            for key, value in shape.items()
        }
    if isinstance(shape, list):
        return [evil(one) for one in shape]
    return f"{shape}{EVIL}" if isinstance(shape, str) else shape


def made(hint: Any) -> Any:
    """Make a JSON value for a type with hostile text in every string, as a hostile server could send it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return made(next(one for one in inner if one is not NoneType))
    if origin is list:
        return [made(inner[0])]
    if origin is dict:
        return {f"k{EVIL}": made(inner[1])}
    if is_dataclass(hint):
        return {name: made(one) for name, one in get_type_hints(hint).items()}
    return {str: f"text{EVIL}", int: 1, bool: True, float: 1.0}.get(hint, f"any{EVIL}")


def page(*items: object) -> Reply:
    return json_reply({"items": [evil(item) for item in items]})


#: Commands, and the answers of a hostile server.
HOSTILE_ANSWERS = [
    (["graphs"], [page(GRAPH)]),
    (["tasks", "1"], [page(TASK)]),
    (["show", "1"], [json_reply(evil(FAILED)), page(TASK), json_reply(evil(PATH))]),
    (["show", "2"], [problem(404), json_reply(evil(FULL_TASK)), page(FULL_ATTEMPT)]),
    (["story", "1"], [json_reply(evil(STORY))]),
    (["bots"], [page(BOT)]),
    (["bots", "events", "b"], [page(EVENT)]),
    (["why", "1"], [problem(404), json_reply(made(WhyView))]),
    (["why", "1"], [json_reply(made(WhyGraphView))]),
    (["story", "1"], [json_reply(made(StoryView))]),
    (["show", "1"], [json_reply(made(GraphView)), json_reply(made(CriticalPath))]),
    (["show", "1"], [problem(404), json_reply(made(TaskView)), json_reply(made(Attempts))]),
    (["bots"], [json_reply({**made(Bots), "next": None})]),
    (["approve"], [page(APPROVAL)]),
    (["approve", "1"], [json_reply(evil({"task": "1", "approved": True, "state": "successful"}))]),
    (["bots", "set", "b", "--drain"], [json_reply(evil(BOT))]),
    (["bots", "free", "b"], [json_reply(evil(BOT))]),
    (["pools"], [page(POOL)]),
    (["pools", "set", "p"], [json_reply(evil(POOL))]),
    (["limits"], [json_reply(made(Limits))]),
    (["limits", "set", "l", "5"], [json_reply(made(LimitView))]),
    (["mutexes"], [json_reply({**made(Mutexes), "next": None})]),
    (["mutexes", "set", "k", "--stake-after", "never"], [json_reply(made(MutexView))]),
    (["token", "list"], [page(TOKEN)]),
    (["token", "create", "--name", "x"], [json_reply(evil({"token": "t", "view": TOKEN}))]),
    (["token", "revoke", "1"], [json_reply(evil(TOKEN))]),
    (["cancel", "1"], [json_reply(evil(DONE))]),
    (["rerun", "1"], [json_reply(evil(DONE))]),
    (["rerun", "1", "--from", "a"], [json_reply(evil({**DONE, "rerun_of": "1"}))]),
    (["graphs"], [Reply(403, problem(403).body.replace(b"detail of 403", EVIL.encode("unicode_escape")[2:]))]),
    (["graphs"], [Reply(body=EVIL.encode())]),
]


@pytest.mark.parametrize("form", ["table", "name", "json", "jsonl"])
@pytest.mark.parametrize(("arguments", "replies"), HOSTILE_ANSWERS, ids=lambda value: " ".join(map(str, value))[:30])
def test_nothing_that_a_server_says_acts_on_a_terminal(
    arguments: list[str],
    replies: list[Reply],
    form: str,
    server: FaultyServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TASKYARD_URL", server.url)
    monkeypatch.setenv("TASKYARD_TOKEN", "x")
    server.reply_with(*replies)
    main.call(None, [*arguments, "-o", form])  # type: ignore[arg-type]
    text = "".join(capsys.readouterr())
    assert text
    assert not server.replies, "it did not ask for all of it"
    hidden = {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp") and one != "\n"}
    assert hidden == set()
    assert not re.search("^(x|owned)", text, re.MULTILINE), "no text makes lines of its own"


def test_raw_bytes_reach_a_terminal_when_they_are_asked_for(server: FaultyServer, tmp_path: Path) -> None:
    server.reply_with(Reply(body=HOSTILE))
    code, text = run_on_terminal(["logs", "--raw", "1"], {**env(server, tmp_path)}, tmp_path)
    assert code == 0
    assert "\x1b[5m" in text

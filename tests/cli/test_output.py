"""What tasks print and how they are called reaches a pipe as it is, and a terminal only when it is harmless."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM
from tests.cli.waiting import DEADLINE_SECONDS, read_until
from tests.cli.yard import at_home
from tests.sdk.test_client import GRAPH, TASK, attempts
from tests.sdk.wayward import Reply, Wayward, problem, told, wayward

HOSTILE = b"\x1b]0;owned\x07one\r\ntwo \xff\x1b[5m[bold]\n\x9b31mthree"


@pytest.fixture
def server() -> Iterator[Wayward]:
    with wayward() as one:
        yield one


def env(server: Wayward, home: Path) -> dict[str, str]:
    return at_home(home) | {"TASKYARD_URL": server.url, "TASKYARD_TOKEN": "x", "TERM": "xterm"}


def piped(server: Wayward, home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(PROGRAM), *arguments]
    return subprocess.run(
        command,
        env=env(server, home),
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_a_pipe_gets_every_byte_as_it_was(server: Wayward, tmp_path: Path) -> None:
    server.will(Reply(body=HOSTILE))
    done = piped(server, tmp_path, "logs", "--attempt", "1", "00c0ffee12345678")
    assert (done.returncode, done.stdout) == (0, HOSTILE)
    assert server.asked[0].path.endswith("/output?attempt=1")


def test_following_goes_on_until_the_attempt_has_ended(server: Wayward, tmp_path: Path) -> None:
    server.will(told(TASK), attempts(ended=False), Reply(body=b"one\n"), attempts(ended=True), Reply(body=b"two\n"))
    done = piped(server, tmp_path, "logs", "-f", "00c0ffee12345678")
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")


def test_a_terminal_gets_text_that_it_does_not_obey(server: Wayward, tmp_path: Path) -> None:
    server.will(Reply(body=HOSTILE))
    person, program_side = pty.openpty()
    command = [str(PROGRAM), "logs", "00c0ffee12345678"]
    with subprocess.Popen(command, env=env(server, tmp_path), stdout=program_side, stderr=program_side) as program:
        os.close(program_side)
        seen = read_until(person, "three", program)
        assert program.wait(DEADLINE_SECONDS) == 0
    os.close(person)
    assert "one\r\ntwo \ufffd[bold]\r\n" in seen
    assert "\x1b" not in seen
    assert "owned" not in seen


def test_names_from_a_server_are_harmless_in_a_table(server: Wayward, tmp_path: Path) -> None:
    server.will(told({"items": [{**GRAPH, "name": "\x1b[2Jgone\u202etxt\nnext"}]}))
    done = piped(server, tmp_path, "graphs")
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert "gone\\u202etxt\\nnext" in done.stdout.decode()


def test_what_a_server_says_of_a_fault_is_harmless_too(server: Wayward, tmp_path: Path) -> None:
    server.will(problem(403, faults=[{"message": "\x1b[5mno\nreally", "path": "a\x07"}]))
    done = piped(server, tmp_path, "graphs")
    assert done.returncode == 4
    assert b"\x1b" not in done.stderr
    assert "  a\\x07: no\\nreally" in done.stderr.decode()


@pytest.mark.parametrize("arguments", [["show", "00c0ffee12345678"], ["graphs"], ["token", "list"]])
def test_asking_a_server_loads_nothing_of_one(arguments: list[str], server: Wayward, tmp_path: Path) -> None:
    server.will(problem(404), problem(404))
    program = f"import sys; from taskyard import main; main._call({arguments!r}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env(server, tmp_path), capture_output=True, text=True, check=True
    )
    heavy = {"fastapi", "uvicorn", "sqlalchemy", "rich", "yaml", "taskyard.engine", "taskyard.store", "taskyard.bot"}
    assert "taskyard.sdk.client" in done.stdout.split()
    assert heavy.isdisjoint(done.stdout.split())

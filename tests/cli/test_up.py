"""`taskyard up`: a server and a bot, and the other commands with them."""

import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import graph, script, taskyard
from tests.cli.server_process import home_env, start_program
from tests.cli.waiting import DEADLINE_SECONDS, is_gone, read_until, until


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home folder of a user of `up` with one bot, without other settings."""
    folder = tmp_path_factory.mktemp("home")
    with start_program(["up", "--port", "0", "--slots", "2"], folder) as program:
        wait_for_lines(program)
        yield folder


def wait_for_lines(program: subprocess.Popen[bytes]) -> None:
    """Wait until it has printed its address and token."""
    assert program.stdout is not None
    said = read_until(program.stdout.fileno(), "TASKYARD_TOKEN=", program)
    if not said.endswith("\n"):
        read_until(program.stdout.fileno(), "\n", program)


def ask(home: Path, *arguments: str, document: str = "") -> subprocess.CompletedProcess[str]:
    return taskyard(*arguments, document=document, env=home_env(home))


def output(home: Path, *arguments: str, document: str = "") -> str:
    done = ask(home, *arguments, document=document)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def task_of(home: Path, id: str) -> str:
    """The only task of a graph."""
    return output(home, "tasks", id, "-o", "name")


def fifo(folder: Path, name: str) -> Path:
    path = folder / name
    os.mkfifo(path)
    return path


def test_a_graph_runs_to_its_end(home: Path) -> None:
    tasks = {"build": script("echo built"), "test": script("echo tested", "build")}
    done = ask(home, "submit", "--wait", "-o", "table", "-", document=graph(tasks))
    assert (done.returncode, done.stdout) == (0, "trial: finished: 2 successful\n"), done.stderr


def test_a_failure_is_shown_with_its_output_and_can_be_rerun(home: Path, tmp_path: Path) -> None:
    tasks = {
        "flaky": script(f"echo last words; test -e {tmp_path}/mended"),
        "after": script("true", "flaky"),
    }
    done = ask(home, "submit", "--wait", "-", document=graph(tasks))
    assert done.returncode == 3
    assert "failed      flaky (exit code 1" in done.stderr
    assert "  | last words" in done.stderr
    id = done.stdout.strip()
    assert "failed      flaky" in output(home, "show", id)
    (tmp_path / "mended").touch()
    output(home, "rerun", id)
    until(lambda: json.loads(output(home, "show", id, "-o", "json"))["state"] == "finished", "the graph to finish")


def test_output_is_followed_while_it_comes(home: Path, tmp_path: Path) -> None:
    go = fifo(tmp_path, "go")
    id = output(home, "submit", "-", document=graph({"talks": script(f"echo one; read line < {go}; echo two")}))
    task = task_of(home, id)
    with start_program(["logs", "-f", task], home) as program:
        assert program.stdout is not None
        assert read_until(program.stdout.fileno(), "one\n", program) == "one\n"
        go.write_text("go\n")
        assert read_until(program.stdout.fileno(), "two\n", program) == "two\n"
        assert program.wait(DEADLINE_SECONDS) == 0
    assert output(home, "logs", task) == "one\ntwo"


def test_what_runs_can_be_canceled(home: Path, tmp_path: Path) -> None:
    here = fifo(tmp_path, "here")
    id = output(home, "submit", "-", document=graph({"stays": script(f"echo $$ > {here}; sleep 1000", grace="1s")}))
    pid = int(here.read_text())
    output(home, "cancel", id)
    until(lambda: is_gone(pid), "the task to end")
    until(lambda: json.loads(output(home, "show", id, "-o", "json"))["settled"], "the graph to settle")
    assert json.loads(output(home, "show", id, "-o", "json"))["counts"] == {"canceled": 1}


def test_a_bot_in_quarantine_gets_nothing_to_do(home: Path) -> None:
    (bot,) = output(home, "bots", "-o", "name").split()
    assert "quarantined: its disk is full" in output(home, "bots", "set", bot, "--quarantine", "its disk is full")
    id = output(home, "submit", "-", document=graph({"waits": script("true")}))
    assert output(home, "tasks", id, "--state", "successful", "-o", "name") == ""
    output(home, "bots", "set", bot, "--no-quarantine")
    until(lambda: json.loads(output(home, "show", id, "-o", "json"))["state"] == "finished", "the graph to finish")


def test_a_stopped_up_lets_running_tasks_end_and_keeps_the_graph(tmp_path: Path) -> None:
    go, here = fifo(tmp_path, "go"), fifo(tmp_path, "here")
    options = ["up", "--port", "0", "--slots", "2"]
    with start_program(options, tmp_path) as program:
        wait_for_lines(program)
        work = {"runs": script(f"echo here > {here}; read line < {go}"), "after": script("true", "runs")}
        id = output(tmp_path, "submit", "-", document=graph(work))
        assert here.read_text() == "here\n"
        program.send_signal(signal.SIGTERM)
        until(lambda: b"waiting for running tasks" in (tmp_path / "stderr").read_bytes(), "the bots to be told")
        go.write_text("go\n")
        assert program.wait(DEADLINE_SECONDS) == 0
    with start_program(options, tmp_path) as program:
        wait_for_lines(program)
        until(lambda: json.loads(output(tmp_path, "show", id, "-o", "json"))["state"] == "finished", "the rest to run")
        attempts = json.loads(output(tmp_path, "show", task_of(tmp_path, id).split()[0], "-o", "json"))["attempts"]
    assert [attempt["signal"] for attempt in attempts] == ["succeed"]


def test_the_link_that_is_printed_signs_in_to_the_page_once(tmp_path: Path) -> None:
    said = tmp_path / "stderr"
    with start_program(["up", "--port", "0", "--bots", "0", "--no-browser"], tmp_path) as program:
        until(lambda: program.poll() is not None or "Ctrl-C to stop" in said.read_text(), "the link")
        found = re.search(r"http://(127\.0\.0\.1:\d+)/#sign-in=([\w-]+)", said.read_text())
        assert found is not None, said.read_text()
        first, again = (sign_in(found[1], found[2]) for _ in range(2))
        assert (first.status, again.status) == (201, 401)
        assert "HttpOnly" in first.headers["Set-Cookie"]


def sign_in(address: str, code: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(address, timeout=DEADLINE_SECONDS)
    connection.request("POST", "/api/v1/session", json.dumps({"code": code}), {"Content-Type": "application/json"})
    try:
        return connection.getresponse()
    finally:
        connection.close()

"""Approvals and graphs inside tasks in `approve`, `show`, `submit --wait` and `run`."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import PLAIN_ENV, PROGRAM, run, script
from tests.cli.server_process import ServerProcess, server_process
from tests.cli.waiting import DEADLINE_SECONDS, read_until, until

ASK = {"task": {"payload": {"approval": "Ship \x1b[2Jit?"}}}
NOOP = {"task": {"payload": {"noop": True}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("yard")) as one:
        yield one


def document(**tasks: object) -> str:
    return json.dumps({"name": "asks", "tasks": tasks})


def asked(server: ServerProcess, **tasks: object) -> str:
    """Submit a graph with an approval; return the id of its task."""
    with server.client as client:
        made = client.submit({"tasks": {"ask": ASK, **tasks}})
        task = made.nameMapping["ask"]
        until(lambda: client.task(task).state == "running", "the question")
    return task


def test_what_waits_is_listed_decided_and_then_over(server: ServerProcess) -> None:
    task = asked(server, after={**NOOP, "requires": ["ask"]})
    listed = next(line for line in server.output("approve").splitlines() if task.endswith(line.split()[0]))
    assert listed.endswith("Ship it?")
    done = server.run("approve", "--comment", "go", task)
    assert (done.returncode, done.stdout.strip()) == (0, task)
    assert "approved; the task is successful" in done.stderr
    late = server.run("approve", "--deny", task)
    assert (late.returncode, "it was approved by admin" in late.stderr) == (1, True)
    with server.client as client:
        assert client.task(task).result["comment"] == "go"
    assert '"comment": "go"' in next(
        line for line in server.output("show", task).splitlines() if line.startswith("result")
    )
    assert json.loads(server.output("show", "-o", "json", task))["result"]["comment"] == "go"
    with server.client as client:
        assert task not in {one.task for one in client.approvals()}


def test_a_no_fails_the_task(server: ServerProcess) -> None:
    task = asked(server)
    shown = json.loads(server.output("approve", "--reject", "-o", "json", task))
    assert shown == {"task": task, "approved": False, "state": "failed"}


def test_a_wait_names_approvals_also_of_inner_graphs_with_the_command(server: ServerProcess) -> None:
    (server.folder / "asks.json").write_text(document(outer={"task": {"payload": {"graph": {"tasks": {"ask": ASK}}}}}))
    command = [str(PROGRAM), "submit", "--wait", "asks.json"]
    with subprocess.Popen(
        command, cwd=server.folder, env=server.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stderr is not None
        said = read_until(program.stderr.fileno(), "taskyard approve ", program)
        assert "waiting for approval: ask: Ship it?; taskyard approve " in said
        (task,) = [one.task for one in server.client.approvals() if one.label == "ask"]
        shown = server.output("show", server.client.task(task).graph_id)
        assert "attempt 1 of task" in shown
        assert shown.endswith(f"waiting for approval: ask: Ship it?; taskyard approve {task}")
        server.client.approve(task)
        assert program.wait(DEADLINE_SECONDS) == 0


def test_without_a_terminal_a_run_that_would_wait_for_ever_is_refused(tmp_path: Path) -> None:
    inner = {"task": {"payload": {"graph": {"tasks": {"ask": ASK}}}}}
    answer = run({"start": script("touch started", cwd="."), "outer": inner}, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "outer/ask needs an approval, and there is no terminal" in answer.stderr
    assert "--approve yes" in answer.stderr
    assert not (tmp_path / "started").exists()


def test_a_run_takes_the_answer_as_an_option_and_shows_failures_of_inner_graphs(tmp_path: Path) -> None:
    inside = {"task": {"payload": {"graph": {"tasks": {"a": script("pwd > where", cwd=".")}}}}, "requires": ["ask"]}
    answer = run({"ask": ASK, "inside": inside}, "--approve", "yes", cwd=tmp_path)
    assert (answer.returncode, (tmp_path / "where").read_text().strip()) == (0, str(tmp_path))
    denied = run({"outer": {"task": {"payload": {"graph": {"tasks": {"ask": ASK}}}}}}, "--approve", "no")
    assert denied.returncode == 3
    assert "(the graph inside it did not finish" in denied.stdout
    assert "  | ask: failed (denied)" in denied.stderr


def test_a_run_asks_at_its_terminal(tmp_path: Path) -> None:
    (tmp_path / "asks.json").write_text(document(ask=ASK, other={**ASK, "requires": ["ask"]}))
    person, program_side = pty.openpty()
    os.write(person, b"n\n")  # typed before anything was asked: no answer to it
    command = [str(PROGRAM), "run", "asks.json"]
    env = PLAIN_ENV | {"TERM": "dumb"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdin=program_side, stdout=program_side, stderr=program_side
    ) as program:
        os.close(program_side)
        assert "\x1b" not in read_until(person, "ask asks: Ship it?  (y or n, then Enter)", program)
        os.write(person, b"maybe\n")
        read_until(person, "answer y or n", program)
        os.write(person, b"Y\n")
        read_until(person, "other asks: Ship it?", program)
        os.write(person, b"no\n")
        read_until(person, "blocked in", program)
        assert program.wait(DEADLINE_SECONDS) == 3
    os.close(person)

"""Approvals and graphs inside tasks, as people meet them: `approve`, `show`, `submit --wait`, and a run that asks."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, QUIET, run, script
from tests.cli.waiting import DEADLINE_SECONDS, read_until, until
from tests.cli.yard import Yard, yard

ASK = {"task": {"payload": {"approval": "Ship \x1b[2Jit?"}}}
NOOP = {"task": {"payload": {"noop": True}}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard")) as one:
        yield one


def document(**tasks: object) -> str:
    return json.dumps({"name": "asks", "tasks": tasks})


def asked(place: Yard, **tasks: object) -> str:
    """Submit a graph that asks something; give the id of the task that does."""
    with place.client as client:
        made = client.submit({"tasks": {"ask": ASK, **tasks}})
        task = made.nameMapping["ask"]
        until(lambda: client.task(task).state == "running", "the question")
    return task


def test_what_waits_is_listed_decided_and_then_over(place: Yard) -> None:
    task = asked(place, after={**NOOP, "requires": ["ask"]})
    listed = next(line for line in place.told("approve").splitlines() if task.endswith(line.split()[0]))
    assert listed.endswith("Ship it?")
    done = place.run("approve", "--comment", "go", task)
    assert (done.returncode, done.stdout.strip()) == (0, task)
    assert "approved; the task is successful" in done.stderr
    late = place.run("approve", "--deny", task)
    assert (late.returncode, "it was approved by admin" in late.stderr) == (1, True)
    with place.client as client:
        assert client.task(task).result["comment"] == "go"
    assert '"comment": "go"' in next(
        line for line in place.told("show", task).splitlines() if line.startswith("result")
    )
    assert json.loads(place.told("show", "-o", "json", task))["result"]["comment"] == "go"
    with place.client as client:
        assert task not in {one.task for one in client.approvals()}


def test_a_no_fails_the_task(place: Yard) -> None:
    task = asked(place)
    shown = json.loads(place.told("approve", "--reject", "-o", "json", task))
    assert shown == {"task": task, "approved": False, "state": "failed"}


def test_a_wait_says_what_is_asked_also_in_a_graph_inside_and_how_to_answer(place: Yard) -> None:
    (place.folder / "asks.json").write_text(document(outer={"task": {"payload": {"graph": {"tasks": {"ask": ASK}}}}}))
    command = [str(PROGRAM), "submit", "--wait", "asks.json"]
    with subprocess.Popen(
        command, cwd=place.folder, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stderr is not None
        said = read_until(program.stderr.fileno(), "taskyard approve ", program)
        assert "waiting for approval: ask: Ship it?; taskyard approve " in said
        (task,) = [one.task for one in place.client.approvals() if one.label == "ask"]
        shown = place.told("show", place.client.task(task).graph_id)
        assert "attempt 1 of task" in shown
        assert shown.endswith(f"waiting for approval: ask: Ship it?; taskyard approve {task}")
        place.client.approve(task)
        assert program.wait(DEADLINE_SECONDS) == 0


def test_without_a_terminal_a_run_that_would_wait_for_ever_is_refused(tmp_path: Path) -> None:
    inner = {"task": {"payload": {"graph": {"tasks": {"ask": ASK}}}}}
    answer = run({"start": script("touch started", cwd="."), "outer": inner}, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "outer/ask asks for approval, and there is no terminal" in answer.stderr
    assert "--approve yes" in answer.stderr
    assert not (tmp_path / "started").exists()


def test_a_run_can_be_told_the_answer_and_shows_what_failed_inside(tmp_path: Path) -> None:
    inside = {"task": {"payload": {"graph": {"tasks": {"a": script("pwd > where", cwd=".")}}}}, "requires": ["ask"]}
    answer = run({"ask": ASK, "inside": inside}, "--approve", "yes", cwd=tmp_path)
    assert (answer.returncode, (tmp_path / "where").read_text().strip()) == (0, str(tmp_path))
    denied = run({"outer": {"task": {"payload": {"graph": {"tasks": {"ask": ASK}}}}}}, "--approve", "no")
    assert denied.returncode == 3
    assert "(the graph inside it did not finish" in denied.stdout
    assert "  | ask: failed (denied)" in denied.stderr


def test_a_run_asks_whoever_is_at_its_terminal(tmp_path: Path) -> None:
    (tmp_path / "asks.json").write_text(document(ask=ASK, other={**ASK, "requires": ["ask"]}))
    person, program_side = pty.openpty()
    os.write(person, b"n\n")  # typed before anything was asked: no answer to it
    command = [str(PROGRAM), "run", "asks.json"]
    env = QUIET | {"TERM": "dumb"}
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

"""`--watch`: a terminal is redrawn, a pipe gets a line for each change."""

import json
import signal
import subprocess

import pytest

from taskyard.cli import main
from taskyard.cli.exit_codes import Exit
from tests.cli.program import PROGRAM
from tests.cli.server_process import ServerProcess
from tests.cli.terminal import on_terminal
from tests.cli.waiting import DEADLINE_SECONDS, read_until

WORK = {"task": {"payload": {"command": ["true"]}}}


def submitted(shared_server: ServerProcess, name: str) -> str:
    return shared_server.output("submit", "-", document=json.dumps({"name": name, "tasks": {"a": WORK}}))


def test_a_pipe_gets_a_line_for_each_change_and_then_the_end(shared_server: ServerProcess) -> None:
    id = submitted(shared_server, "watched")
    command = [str(PROGRAM), "show", id, "--watch", "--every", "0s", "-o", "jsonl"]
    with subprocess.Popen(command, env=shared_server.env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        first = json.loads(program.stdout.readline())
        shared_server.output("cancel", id)
        last = json.loads(program.stdout.readlines()[-1])
        assert program.wait(DEADLINE_SECONDS) == 3
    assert (first["state"], last["state"], last["counts"]) == ("running", "canceled", {"canceled": 1})


def test_an_object_that_is_not_listed_any_more_is_gone(shared_server: ServerProcess) -> None:
    id = submitted(shared_server, "goes")
    command = ["graphs", "--name", "goes", "--state", "running", "--watch", "--every", "0s", "-o", "jsonl"]
    with subprocess.Popen(
        [str(PROGRAM), *command], env=shared_server.env, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["id"] == id
        shared_server.output("cancel", id)
        assert json.loads(program.stdout.readline()) == {"id": id, "gone": True}
        # A reader that closes the pipe ends it.
        program.stdout.close()
        submitted(shared_server, "goes")
        assert program.wait(DEADLINE_SECONDS) == 0


@pytest.mark.parametrize(
    ("arguments", "told"), [([], "needs -o jsonl"), (["-o", "json"], "-o table or -o jsonl"), (["-o", "name"], "jsonl")]
)
@pytest.mark.parametrize("command", [["graphs"], ["bots"], ["tasks", "0000000000000001"]])
def test_what_cannot_be_watched_is_refused(
    command: list[str], arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*command, "--url", "http://127.0.0.1:1", "--token", "x", "--watch", *arguments]
    assert main.call(None, asked) == Exit.USAGE  # type: ignore[arg-type]
    said, complained = capsys.readouterr()
    assert said == ""
    assert told in complained


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}])
def test_a_terminal_sees_what_changes(env: dict[str, str], shared_server: ServerProcess) -> None:
    id = submitted(shared_server, "drawn")
    with on_terminal(["tasks", id, "--watch", "--every", "0s"], shared_server.env | env, shared_server.folder) as (
        program,
        person,
    ):
        text = read_until(person, "waiting", program)
        shared_server.output("cancel", id)
        text += read_until(person, "canceled", program)
        program.send_signal(signal.SIGINT)
        assert program.wait(DEADLINE_SECONDS) == 130
    assert ("\x1b[H" in text) == (not env)

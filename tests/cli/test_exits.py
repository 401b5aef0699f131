"""Every exit code of the real program."""

import json
import signal
import subprocess

import pytest

from taskyard.cli.exit_codes import Exit
from tests.cli.program import PROGRAM
from tests.cli.server_process import ServerProcess
from tests.cli.waiting import DEADLINE_SECONDS

WORK = {"task": {"payload": {"command": ["true"]}}}
NOOP = {"task": {"payload": {"noop": True}}}
FAILS = {"task": {"payload": {"script": "exit 1"}}}
NOWHERE = {"dimensions": {"gpu": "none-has-it"}, "wait_for_capacity": False, "payload": {"command": ["true"]}}
NOBODY = {"task": {"slices": [NOWHERE]}}


def graph(task: object) -> str:
    return json.dumps({"name": "exits", "tasks": {"a": task}})


def workflow(holds: str, wants: str) -> object:
    inner = {"tasks": {"t": {"task": {"mutexes": [{"key": wants}], "payload": {"noop": True}}}}}
    return {"task": {"mutexes": [{"key": holds}], "payload": {"graph": inner}}}


#: Two tasks; each holds the mutex that the graph inside the other one needs.
CROSSED = json.dumps({"tasks": {"a": workflow("exits-1", "exits-2"), "b": workflow("exits-2", "exits-1")}})
#: Exit code, arguments, standard input and environment.
TABLE = [
    (Exit.OK, ["submit", "--wait", "-"], graph(NOOP), {}),
    (Exit.ERROR, ["doctor", "/nowhere/at/all.db"], "", {}),
    (Exit.ERROR, ["graphs"], "", {"TASKYARD_URL": "no-address"}),
    (Exit.USAGE, ["submit"], "", {}),
    (Exit.USAGE, ["submit", "-"], "tasks: [", {}),
    (Exit.USAGE, ["submit", "-"], graph({"task": 7}), {}),
    (Exit.FAILED, ["run", "-"], graph(FAILS), {}),
    (Exit.DENIED, ["graphs"], "", {"TASKYARD_TOKEN": "ty_user_wrong"}),
    (Exit.MISSING, ["show", "0000000000000001"], "", {}),
    (Exit.MISSING, ["show", "0000000000000001/a"], "", {}),
    (Exit.NO_BOT, ["submit", "--wait", "-"], graph(NOBODY), {}),
    (Exit.NO_BOT, ["run", "-"], graph({"task": {"dimensions": {"gpu": "none"}, "payload": {"script": "true"}}}), {}),
    (Exit.NO_BOT, ["submit", "--wait", "-"], CROSSED, {}),
    (Exit.TIMED_OUT, ["submit", "--wait", "--timeout", "0", "-"], graph(WORK), {}),
]


@pytest.mark.parametrize(("code", "arguments", "document", "env"), TABLE, ids=lambda value: str(value)[:40])
def test_a_command_ends_with_its_code(
    code: Exit, arguments: list[str], document: str, env: dict[str, str], shared_server: ServerProcess
) -> None:
    done = shared_server.run(*arguments, document=document, **env)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_watching_a_graph_ends_with_its_outcome(shared_server: ServerProcess) -> None:
    id = shared_server.output("submit", "-", document=graph(WORK))
    over = shared_server.run("show", id, "--watch", "--timeout", "0", "-o", "jsonl")
    assert over.returncode == Exit.TIMED_OUT
    shared_server.output("cancel", id)
    for named in (id, f"{id}/a"):
        ended = shared_server.run("show", named, "--watch", "-o", "jsonl")
        assert ended.returncode == Exit.FAILED, ended.stderr
        assert json.loads(ended.stdout)["state"] == "canceled"


def test_an_interrupted_command_ends_with_130(shared_server: ServerProcess) -> None:
    command = [str(PROGRAM), "graphs", "--watch", "-o", "jsonl", "--name", "exits"]
    shared_server.output("submit", "-", document=graph(NOOP))
    with subprocess.Popen(command, env=shared_server.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["name"] == "exits"
        program.send_signal(signal.SIGINT)
        assert program.wait(DEADLINE_SECONDS) == Exit.INTERRUPTED


def test_the_table_has_every_code() -> None:
    assert {code for code, *_ in TABLE} == set(Exit) - {Exit.INTERRUPTED}

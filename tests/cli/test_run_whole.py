"""`taskyard run` has a server and a bot of its own: all features of documents work, and it leaves nothing behind."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import PLAIN_ENV, graph, run, script, taskyard

OUTER = "of-another-server"


def states(tasks: dict[str, object], *options: str, cwd: Path) -> dict[str, Any]:
    """Run a graph and return the state of each task."""
    outcome = json.loads(run(tasks, "-o", "json", *options, cwd=cwd).stdout)
    return {label: task["state"] for label, task in outcome["tasks"].items()}


def test_conditions_joins_and_slices_work(tmp_path: Path) -> None:
    slices = [
        {"dimensions": {"colour": "none"}, "wait_for_capacity": False, "payload": {"script": "exit 9"}},
        {"payload": {"script": "true"}},
    ]
    good, bad = {"payload": {"script": "true"}}, {"payload": {"script": "exit 1"}}
    tasks: dict[str, object] = {
        "bad": {"task": bad},
        "good": {"task": good},
        "handler": {"requires": [{"task": "bad", "on": "failure"}], "task": good},
        "either": {"requires": ["bad", "good"], "join": "any", "task": good},
        "aside": {"requires": [{"task": "good", "on": "failure"}], "on_impossible": "skip", "task": good},
        "sliced": {"task": {"slices": slices}},
    }
    assert states(tasks, cwd=tmp_path) == {
        "bad": "failed",
        "good": "successful",
        "handler": "successful",
        "either": "successful",
        "aside": "skipped",
        "sliced": "successful",
    }


def test_what_shares_a_mutex_or_a_limit_never_runs_together(tmp_path: Path) -> None:
    alone = {"payload": {"script": "mkdir {0}; sleep 0.1; rmdir {0}", "cwd": "."}}

    def task(folder: str, **shares: object) -> dict[str, object]:
        return {
            "task": {**shares, "payload": {**alone["payload"], "script": alone["payload"]["script"].format(folder)}}
        }

    tasks: dict[str, object] = {}
    for number in range(3):
        tasks[f"mutex{number}"] = task("one", mutexes=[{"key": "repo"}])
        tasks[f"limit{number}"] = task("two", limits={"licence": 1})
    found = states(tasks, "--jobs", "4", "--limit", "licence=1", cwd=tmp_path)
    assert found == dict.fromkeys(tasks, "successful")


def test_a_limit_that_is_too_small_is_a_usage_error(tmp_path: Path) -> None:
    answer = run({"a": {"task": {"limits": {"licence": 2}, "payload": {"noop": True}}}}, "--limit", "licence=1")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "tasks.a.task.limits.licence: asks for 2; there are 1 in all: give --limit licence=TOTAL" in answer.stderr
    wrong = run({"a": script("true")}, "--limit", "licence", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "licence=3" in wrong.stderr + wrong.stdout


def test_functions_are_found_where_one_is_and_results_reach_dependents(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def double(number):\n    return {'twice': 2 * number}\n")
    tasks: dict[str, object] = {
        "function": {"task": {"payload": {"python": "mine:double", "args": [21]}}},
        "after": script('cat "$TASKYARD_INPUTS" > inputs', "function", cwd="."),
    }
    assert states(tasks, cwd=tmp_path) == {"function": "successful", "after": "successful"}
    assert json.loads((tmp_path / "inputs").read_text()) == {"function": {"twice": 42}}


def test_a_file_named_like_a_module_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "asyncio.py").write_text("raise SystemExit('this is no asyncio')\n")
    assert run({"a": script("true")}, cwd=tmp_path).returncode == 0


def test_tasks_have_the_environment_of_the_run_but_not_its_token(tmp_path: Path) -> None:
    env = PLAIN_ENV | {"MINE": "yes", "TASKYARD_TOKEN": OUTER, "TASKYARD_OTHER": OUTER}
    seen = script('echo "$MINE $TASKYARD_LABEL ${TASKYARD_OTHER-none} $TASKYARD_TOKEN" > seen', cwd=".")
    (tmp_path / "graph.json").write_text(graph({"task": seen}))
    assert taskyard("run", "graph.json", cwd=tmp_path, env=env).returncode == 0
    mine, label, other, token = (tmp_path / "seen").read_text().split()
    assert (mine, label, other, token != OUTER) == ("yes", "task", "none", True)


def test_a_task_extends_its_own_graph(tmp_path: Path) -> None:
    more = {"grown": {"task": {"payload": {"script": "true"}}}}
    code = f"from taskyard import Client; Client.from_environment().extend(None, {more!r})"
    tasks: dict[str, object] = {"grows": {"task": {"payload": {"command": [sys.executable, "-c", code]}}}}
    assert states(tasks, cwd=tmp_path) == {"grows": "successful", "grown": "successful"}


def test_what_needs_another_machine_ends_the_run_when_nothing_else_is_left(tmp_path: Path) -> None:
    far = {"dimensions": {"colour": "none"}, "payload": {"script": "true"}}
    tasks: dict[str, object] = {"far": {"task": far}, "after": script("true", "far"), "near": script("true")}
    answer = run(tasks, cwd=tmp_path)
    assert answer.returncode == 6
    assert "trial: blocked in " in answer.stdout
    assert "  waiting     far (no bot here can run it)\n" in answer.stdout
    assert "  unscheduled after (not run: waits for far)\n" in answer.stdout


def test_graphs_inside_that_wait_for_each_other_end_the_run_with_6_and_a_sentence(tmp_path: Path) -> None:
    def workflow(holds: str, wants: str) -> dict[str, object]:
        inner = {"tasks": {f"uses-{wants}": {"task": {"mutexes": [{"key": wants}], "payload": {"script": "true"}}}}}
        return {"task": {"mutexes": [{"key": holds}], "payload": {"graph": inner}}}

    answer = run({"one": workflow("a", "b"), "two": workflow("b", "a")}, cwd=tmp_path)
    assert answer.returncode == 6
    assert "taskyard: deadlock: " in answer.stderr
    assert "uses-b waits for mutex b, which two holds until uses-a in it has ended" in answer.stderr
    assert "trial: running in " in answer.stdout


@pytest.mark.parametrize(("exit_code", "state"), [(0, "successful"), (1, "failed")])
def test_nothing_is_left_in_the_temporary_folder(exit_code: int, state: str, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    env = PLAIN_ENV | {"TMPDIR": str(tmp_path / "temporary")}
    document = graph({"a": script(f"touch litter; exit {exit_code}")})
    answer = taskyard("run", "-", document=document, cwd=tmp_path, env=env)
    assert f"{state:<11} a (" in answer.stderr
    assert os.listdir(tmp_path / "temporary") == []


def test_a_deadline_ends_what_runs_too_long(tmp_path: Path) -> None:
    late: dict[str, object] = {"task": {"deadline": "1s", "payload": {"script": "sleep 1000"}}}
    answer = run({"late": late}, cwd=tmp_path)
    assert answer.returncode == 3
    assert "late (" in answer.stdout

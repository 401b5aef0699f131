"""`taskyard run`: it runs a graph to its end, and the exit code is the outcome."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import PLAIN_ENV, ROOT, graph, run, script, taskyard
from tests.cli.waiting import is_gone, until


def test_the_release_example_makes_a_release(tmp_path: Path) -> None:
    before = _files(ROOT / "examples")
    answer = taskyard("run", "examples/release.yaml", env=PLAIN_ENV | {"TMPDIR": str(tmp_path)})
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("release: finished in ")
    assert answer.stdout.endswith(": 14 successful\n")
    published = {path.name for path in (tmp_path / "taskyard-shelf" / "1.2.0").iterdir()}
    assert published == {"SHA256SUMS", "SHA256SUMS.sig", "tally.html", "tally.pyz", "tally.tar.gz"}
    assert [path.name for path in tmp_path.iterdir()] == ["taskyard-shelf"]
    assert _files(ROOT / "examples") == before


def test_a_task_starts_after_its_prerequisites(tmp_path: Path) -> None:
    note = "echo {0} >> order"
    tasks = {
        "last": script(note.format("last"), "left", "right", cwd="."),
        "left": script(note.format("left"), "first", cwd="."),
        "right": script(note.format("right"), "first", cwd="."),
        "first": script(note.format("first"), cwd="."),
    }
    assert run(tasks, cwd=tmp_path).returncode == 0
    first, *middle, last = (tmp_path / "order").read_text().split()
    assert (first, sorted(middle), last) == ("first", ["left", "right"], "last")


def test_tasks_run_side_by_side_as_far_as_jobs_allow(tmp_path: Path) -> None:
    # Each opens one end of a named pipe, which takes two to go on.
    os.mkfifo(tmp_path / "pipe")
    tasks = {"write": script("echo met > pipe", cwd="."), "read": script("read line < pipe; echo $line", cwd=".")}
    assert run(tasks, "--jobs", "2", cwd=tmp_path).returncode == 0


def test_with_one_job_nothing_runs_side_by_side(tmp_path: Path) -> None:
    tasks = {f"t{number}": script("mkdir alone; sleep 0.1; rmdir alone", cwd=".") for number in range(4)}
    assert run(tasks, "--jobs", "1", cwd=tmp_path).returncode == 0


def test_with_one_job_priority_comes_first_and_then_the_document_s_order(tmp_path: Path) -> None:
    tasks = {label: script(f"echo {label} >> order", cwd=".") for label in ("b", "a", "urgent")}
    tasks["urgent"]["task"]["priority"] = 1  # type: ignore[index]
    assert run(tasks, "-j", "1", cwd=tmp_path).returncode == 0
    assert (tmp_path / "order").read_text().split() == ["urgent", "b", "a"]


def test_a_failed_task_is_shown_with_its_last_lines_and_what_it_blocks() -> None:
    tasks = {
        "build": script("echo building; seq 1 30; echo 'no rule to make target' >&2; exit 7"),
        "test": script("true", "build"),
        "publish": script("true", "test"),
        "other": script("echo not shown"),
    }
    answer = run(tasks)
    assert answer.returncode == 3
    assert "failed      build (exit code 7, " in answer.stderr
    assert "  | no rule to make target\n" in answer.stderr
    assert "  | building\n" not in answer.stderr
    assert "not shown" not in answer.stderr
    assert "blocked     test (not run: build failed)" in answer.stderr
    assert answer.stdout.startswith("trial: blocked in ")
    assert "1 failed, 1 blocked, 1 unscheduled, 1 successful\n" in answer.stdout
    assert "  failed      build (exit code 7, " in answer.stdout
    assert "  blocked     test (not run: build failed)\n" in answer.stdout
    assert "  unscheduled publish (not run: waits for test)\n" in answer.stdout


def test_json_has_the_outcome_of_each_task() -> None:
    tasks = {
        "good": script("""echo '{"words": [7]}' > $TASKYARD_RESULT"""),
        "bad": script("echo why; exit 5"),
        "after": script("true", "bad"),
        "gate": {"task": {"payload": {"noop": True}}},
    }
    answer = run(tasks, "-o", "json")
    outcome = json.loads(answer.stdout)
    assert answer.returncode == 3
    assert (outcome["name"], outcome["state"]) == ("trial", "blocked")
    assert isinstance(outcome["elapsed_ms"], int)
    elapsed = {label: task.pop("elapsed_ms") for label, task in outcome["tasks"].items()}
    assert outcome["tasks"] == {
        "good": {
            "state": "successful",
            "reason": "done",
            "exit_code": 0,
            "attempts": 1,
            "blocked_by": [],
            "tail": "",
            "result": {"words": [7]},
        },
        "bad": {
            "state": "failed",
            "reason": "exit_code",
            "exit_code": 5,
            "attempts": 1,
            "blocked_by": [],
            "tail": "why\n",
            "result": None,
        },
        "after": {
            "state": "blocked",
            "reason": "prerequisite_failed",
            "exit_code": None,
            "attempts": 0,
            "blocked_by": ["bad"],
            "tail": "",
            "result": None,
        },
        "gate": {
            "state": "successful",
            "reason": "done",
            "exit_code": None,
            "attempts": 1,
            "blocked_by": [],
            "tail": "",
            "result": None,
        },
    }
    assert elapsed["after"] is None
    assert all(isinstance(elapsed[label], int) for label in ("good", "bad", "gate"))


def test_a_failure_is_rerun_until_it_succeeds(tmp_path: Path) -> None:
    flaky = script("echo try >> tries; test $(wc -l < tries) -ge 3", reruns=2, cwd=".")
    answer = run({"flaky": flaky, "after": script("true", "flaky")}, "-o", "json", cwd=tmp_path)
    tasks = json.loads(answer.stdout)["tasks"]
    assert answer.returncode == 0
    assert (tasks["flaky"]["state"], tasks["flaky"]["attempts"], tasks["after"]["state"]) == (
        "successful",
        3,
        "successful",
    )
    assert answer.stderr.count("pending     flaky (exit code 1") == 2
    assert "blocked" not in answer.stderr


def test_reruns_run_out() -> None:
    answer = run({"flaky": script("exit 4", reruns={"count": 2, "delay": "1ms"})}, "-o", "json")
    task = json.loads(answer.stdout)["tasks"]["flaky"]
    assert (answer.returncode, task["state"], task["attempts"]) == (3, "failed", 3)


@pytest.mark.parametrize(("exit_code", "attempts"), [(75, 2), (1, 1)])
def test_only_the_named_exit_codes_are_rerun(exit_code: int, attempts: int) -> None:
    reruns = {"count": 1, "exit_codes": [75]}
    answer = run({"task": script(f"exit {exit_code}", reruns=reruns)}, "-o", "json")
    assert json.loads(answer.stdout)["tasks"]["task"]["attempts"] == attempts


def test_a_timeout_ends_the_whole_process_group(tmp_path: Path) -> None:
    stuck = script("sleep 1000 & echo $! > child; echo $$ > parent; wait", timeout="1s", cwd=".")
    answer = run({"stuck": stuck}, cwd=tmp_path)
    assert answer.returncode == 3
    assert "failed      stuck (timed out, " in answer.stdout
    for name in ("child", "parent"):
        pid = int((tmp_path / name).read_text())
        until(lambda pid=pid: is_gone(pid), f"the end of {name}")  # type: ignore[misc]


def test_what_ignores_a_timeout_is_killed_after_its_grace(tmp_path: Path) -> None:
    deaf = script("trap '' TERM; echo $$ > parent; while :; do sleep 1000; done", timeout="1s", grace="1ms", cwd=".")
    answer = run({"deaf": deaf}, "-o", "json", cwd=tmp_path)
    task = json.loads(answer.stdout)["tasks"]["deaf"]
    assert (task["state"], task["reason"], task["exit_code"]) == ("failed", "timed_out", 128 + 9)
    until(lambda: is_gone(int((tmp_path / "parent").read_text())), "the end of the deaf one")


def test_a_task_that_ends_with_exit_code_0_at_its_timeout_has_failed() -> None:
    polite = script("echo last words; trap 'exit 0' TERM; sleep 1000 & wait", timeout="1s")
    answer = run({"polite": polite})
    assert "failed      polite (timed out, " in answer.stdout
    assert "  | last words\n" in answer.stderr


def test_what_a_task_printed_before_its_deadline_is_shown() -> None:
    late = script("echo last words; sleep 1000")
    late["task"]["deadline"] = "2s"  # type: ignore[index]
    answer = run({"late": late})
    assert answer.returncode == 3
    assert "error       late (" in answer.stderr
    assert answer.stderr.count("  | last words\n") == 1
    shown = run({"late": late}, "--show-output")
    assert shown.stderr.count("last words") == 1


def test_what_a_task_leaves_running_ends_with_it(tmp_path: Path) -> None:
    answer = run({"leaver": script("sleep 1000 & echo $! > child", cwd=".")}, cwd=tmp_path)
    assert answer.returncode == 0
    until(lambda: is_gone(int((tmp_path / "child").read_text())), "the end of the child")


def test_a_program_that_is_not_there_fails_like_in_a_shell() -> None:
    tasks = {
        "absent": {"task": {"payload": {"command": ["/nowhere/program"]}}},
        "folder": {"task": {"payload": {"command": ["/"]}}},
    }
    answer = run(tasks, "-o", "json")
    outcome = json.loads(answer.stdout)["tasks"]
    assert [outcome[label]["exit_code"] for label in tasks] == [127, 126]
    assert "/nowhere/program" in outcome["absent"]["tail"]


def test_an_end_by_a_signal_is_named() -> None:
    answer = run({"victim": script("kill -9 $$")})
    assert "failed      victim (ended by signal 9, " in answer.stdout


def test_a_script_stops_at_its_first_failing_line() -> None:
    answer = run({"script": script("false\necho went on")})
    assert answer.returncode == 3
    assert "went on" not in answer.stderr


def test_a_script_may_be_longer_than_one_argument_can_be() -> None:
    assert run({"long": script(f"# {'x' * 200_000}\ntrue")}).returncode == 0


def test_a_task_starts_in_a_fresh_folder_that_goes_with_it(tmp_path: Path) -> None:
    tasks = {label: script(f'test -z "$(ls)"; touch litter; pwd > {tmp_path}/{label}') for label in ("one", "two")}
    assert run(tasks, cwd=tmp_path).returncode == 0
    one, two = (Path((tmp_path / label).read_text().strip()) for label in ("one", "two"))
    assert one != two
    assert not one.exists()
    assert not two.exists()


def test_output_without_end_does_not_block_a_task_and_only_its_tail_is_kept() -> None:
    answer = run({"talker": script("seq 1 200000; exit 1")}, "-o", "json")
    tail = json.loads(answer.stdout)["tasks"]["talker"]["tail"]
    assert tail.endswith("199999\n200000\n")
    assert len(tail) <= 64 * 1024


def test_a_task_has_its_environment_and_the_ids_of_others() -> None:
    ids = 'test ${#OWN} -eq 16; test "$OWN" != "$OTHER"; test "$PLAIN" = "a b"; test "$0" != "$PATH"'
    env = {"OWN": {"$subs": "taskId:one"}, "OTHER": {"$subs": "taskId:two"}, "PLAIN": "a b"}
    answer = run({"one": script(ids, env=env), "two": script("true", "one")})
    assert answer.returncode == 0, answer.stderr


def test_a_task_does_not_read_the_program_s_standard_input(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(graph({"reader": script('test -z "$(cat)"')}))
    assert taskyard("run", "graph.json", document="meant for somebody else", cwd=tmp_path).returncode == 0


def test_a_long_chain_of_noops_ends() -> None:
    noop = {"payload": {"noop": True}}
    tasks: dict[str, object] = {"t0": {"task": noop}}
    tasks |= {f"t{number}": {"requires": [f"t{number - 1}"], "task": noop} for number in range(1, 2_000)}
    answer = run(tasks)
    assert answer.returncode == 0
    assert answer.stdout.endswith(": 2000 successful\n")


def test_plain_output_has_no_escape_codes_even_of_hostile_tasks() -> None:
    hostile = r"printf '\033]0;owned\007\033[31mred [bold]\033[0m \a\342\200\256txt\n'; exit 1"
    answer = run({"hostile": script(hostile)})
    assert "  | red [bold] \\x07\\u202etxt\n" in answer.stderr
    shown = answer.stdout + answer.stderr
    assert all(line.isprintable() for line in shown.splitlines())


def test_hostile_output_is_ascii_in_json() -> None:
    answer = run({"hostile": script(r"printf '\033[31m\377'; exit 1")}, "-o", "json")
    assert answer.stdout.replace("\n", "").isprintable()
    assert json.loads(answer.stdout)["tasks"]["hostile"]["tail"] == "\x1b[31m\ufffd"


def test_a_narrow_locale_is_no_reason_to_fail() -> None:
    env = PLAIN_ENV | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    answer = taskyard("run", "-", document=graph({"größe": script("echo ✓; exit 1")}), env=env)
    assert answer.returncode == 3
    assert "gr\\xf6\\xdfe" in answer.stdout


def test_the_name_of_a_file_says_its_form(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text("tasks: {a: {task: {payload: {noop: true}}}}")
    (tmp_path / "graph.json").write_text(graph({"a": {"task": {"payload": {"noop": True}}}}))
    assert taskyard("run", "graph.yaml", cwd=tmp_path).stdout.startswith("graph.yaml: finished in ")
    assert taskyard("run", "graph.json", cwd=tmp_path).stdout.startswith("trial: finished in ")


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_logs_have_everything_that_every_attempt_printed(tmp_path: Path) -> None:
    talks = script("seq 1 3000; exit 1", reruns=1)
    answer = run({"a/b": talks, "quiet": script("echo fine")}, "--logs", "out/logs", cwd=tmp_path)
    again = run({"a/b": talks, "quiet": script("echo fine")}, "--logs", "out/logs", cwd=tmp_path)
    assert (answer.returncode, again.returncode) == (3, 3)
    numbers = "".join(f"{number}\n" for number in range(1, 3001))
    kept = {path.name: path.read_text() for path in (tmp_path / "out" / "logs").iterdir()}
    assert kept == {"001-a%2Fb-1.log": numbers, "001-a%2Fb-2.log": numbers, "002-quiet-1.log": "fine\n"}
    assert "(the lines before are left out; --logs DIR keeps all)" in answer.stderr
    assert "  | 3000\n" in answer.stderr


def test_logs_have_everything_though_the_output_is_longer_than_any_that_is_kept(tmp_path: Path) -> None:
    size = 70_000_000
    answer = run({"loud": script(f"yes 1234567 | head -c {size}")}, "--logs", "logs", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    (log,) = (tmp_path / "logs").iterdir()
    printed = log.read_bytes()
    assert (len(printed), printed == (b"1234567\n" * (size // 8 + 1))[:size]) == (size, True)


def test_a_faulty_result_is_reported_with_the_output() -> None:
    answer = run({"a": script('echo hello; mkdir "$TASKYARD_RESULT"')})
    assert answer.returncode == 3
    assert "failed      a (its result, progress, checkpoint or files cannot be taken" in answer.stderr
    assert "  | taskyard: the result cannot be read: it is a folder, not a file\n" in answer.stderr


def test_a_folder_for_logs_that_cannot_be_made_is_named_and_nothing_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = run({"a": script("touch started", cwd=".")}, "--logs", "file/logs", cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (2, "taskyard: cannot write logs to file/logs: Not a directory\n")
    assert not (tmp_path / "started").exists()


def test_python_can_run_the_program_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "taskyard", "--version"]
    assert subprocess.run(command, capture_output=True, check=True, cwd=tmp_path).stdout.strip()


def test_a_log_that_cannot_be_written_is_reported_and_fails_no_task(tmp_path: Path) -> None:
    for taken in ("001-good-1.log", "002-bad-1.log"):
        (tmp_path / "logs" / taken / "something").mkdir(parents=True)
    answer = run({"good": script("seq 1 99999"), "bad": script("echo why; exit 4")}, "--logs", "logs", cwd=tmp_path)
    assert answer.returncode == 3
    assert "1 successful, 1 failed" in answer.stdout
    assert "  | why\n  | taskyard: the rest of this could not be written to its log\n" in answer.stderr


def test_everything_that_tasks_print_is_shown_with_their_labels_if_that_is_wanted(tmp_path: Path) -> None:
    tasks = {"a": script("seq 1 2000; printf 'no end\\033[5m'"), "b": script("echo why; exit 3", reruns=1)}
    answer = run(tasks, "--show-output", "--logs", "logs", "--jobs", "1", cwd=tmp_path)
    assert answer.returncode == 3
    said = answer.stderr.splitlines()
    assert [line for line in said if line.startswith("a | ")] == [f"a | {number}" for number in range(1, 2001)] + [
        "a | no end"
    ]
    assert said.index("a | no end") < next(at for at, line in enumerate(said) if line.startswith("successful  a"))
    assert (said.count("b | why"), "  | why" in said, "b | " in answer.stdout) == (2, False, False)
    assert len((tmp_path / "logs" / "001-a-1.log").read_bytes().splitlines()) == 2001


def test_a_script_names_the_shell_that_runs_it() -> None:
    bash = script('[[ -n "$BASH_VERSION" ]]; echo bash; false; echo went on', **_shell("bash"))
    answer = run({"bash": bash, "sh": script('test -z "$BASH_VERSION" || test -o posix; echo sh')}, "--show-output")
    assert answer.returncode == 3
    assert "bash | bash\n" in answer.stderr
    assert "went on" not in answer.stderr
    assert "sh | sh\n" in answer.stderr
    refused = run(
        {"a": script("true", **_shell("fish")), "b": {"task": {"payload": {"command": ["true"], "shell": "sh"}}}}
    )
    assert refused.returncode == 2
    assert "tasks.a.task.payload.shell: " in refused.stderr
    assert 'tasks.b.task.payload.shell: belongs to "script"' in refused.stderr


def test_a_shell_that_is_not_there_fails_the_task() -> None:
    answer = run({"a": script("true", env={"PATH": "/nowhere"}, **_shell("ksh"))}, "-o", "json")
    assert (answer.returncode, json.loads(answer.stdout)["tasks"]["a"]["exit_code"]) == (3, 127)


def _shell(name: str) -> dict[str, object]:
    return {"shell": name}

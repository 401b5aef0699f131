"""The four output formats, on a pipe and on a terminal, also if the reader closes the pipe."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from taskyard.cli import output as output_module
from taskyard.cli.main import COMMANDS
from taskyard.cli.options import Words
from taskyard.wire.progress import GraphState, State
from tests.cli.conftest import CommandResult
from tests.cli.program import PROGRAM
from tests.cli.server_process import ServerProcess
from tests.cli.terminal import run_on_terminal
from tests.cli.waiting import DEADLINE_SECONDS
from tests.each_row import each_row

Invoke = Callable[..., CommandResult]
NOOP = {"task": {"payload": {"noop": True}}}
WORK = {"task": {"payload": {"command": ["true"]}}}
#: Commands without these formats: they print raw output, documents, a script, a log or nothing.
SILENT = {
    "export",
    "delete",
    "logs",
    "completion",
    "bot",
    "celery-worker",
    "bots delete",
    "secret key",
    "secret delete",
    "graphs delete",
    "targets remove",
    "profile use",
    "profile remove",
    "token rekey",
    "webhooks set",
    "webhooks delete",
    "webhooks test",
    "webhooks resend",
}


@pytest.fixture(scope="module")
def id(shared_server: ServerProcess) -> str:
    """A graph of two tasks that no bot takes."""
    document = {"name": "shown", "tags": {"team": "db"}, "tasks": {"a": WORK, "b/c": {**WORK, "requires": ["a"]}}}
    return shared_server.output("submit", "-", document=json.dumps(document))


@each_row("name", [name for name in COMMANDS if name not in SILENT])
def test_every_command_that_shows_anything_takes_all_forms(name: str) -> None:
    output = next(param for param in COMMANDS[name].load().params if "-o" in param.opts)
    assert isinstance(output.type, Words)
    assert output.type.choices == ("table", "json", "jsonl", "name")


@pytest.mark.parametrize(
    "arguments",
    [
        ["graphs"],
        ["tasks", "ID"],
        ["bots"],
        ["pools"],
        ["limits"],
        ["mutexes"],
        ["token", "list"],
        ["config"],
        ["profile", "list"],
    ],
)
def test_a_list_is_one_document_or_a_line_for_each_or_names(arguments: list[str], invoke: Invoke, id: str) -> None:
    line = [id if one == "ID" else one for one in arguments]
    whole = json.loads(invoke(*line, "-o", "json").out)
    lines = [json.loads(one) for one in invoke(*line, "-o", "jsonl").out.splitlines()]
    names = invoke(*line, "-o", "name").out.splitlines()
    assert isinstance(whole, list)
    assert len(whole) == len(lines) == len(names)
    shown = invoke(*line)
    assert len(shown.out.splitlines()) == (len(whole) + 1 if whole else 0)
    assert shown.err == ("" if whole else "nothing to show\n")


@pytest.mark.parametrize("arguments", [["show", "ID"], ["show", "ID/a"], ["story", "ID/a"]])
def test_one_thing_is_one_object_and_its_name(arguments: list[str], invoke: Invoke, id: str) -> None:
    line = [one.replace("ID", id) for one in arguments]
    whole = json.loads(invoke(*line, "-o", "json").out)
    assert invoke(*line, "-o", "name").out.strip() == whole.get("id", whole.get("task"))
    assert invoke(*line).out


def test_names_are_taken_by_the_next_command(shared_server: ServerProcess) -> None:
    document = json.dumps({"name": "many", "tasks": {"a": WORK}})
    made = {shared_server.output("submit", "-", document=document) for _ in range(2)}
    line = "taskyard cancel -o json $(taskyard graphs --name many --state running -o name)"
    env = shared_server.env | {"PATH": f"{PROGRAM.parent}:{shared_server.env['PATH']}"}
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=True)
    assert {one["subject"] for one in json.loads(done.stdout)} == made
    assert shared_server.output("graphs", "--name", "many", "--state", "running", "-o", "name") == ""


def test_one_that_is_not_there_does_not_keep_the_others(shared_server: ServerProcess, invoke: Invoke) -> None:
    id = shared_server.output("submit", "-", document=json.dumps({"name": "other", "tasks": {"a": WORK}}))
    done = invoke("cancel", "0000000000000001", id)
    assert (done.code, done.out) == (5, f"{id}\n")
    assert "0000000000000001" in done.err


def test_a_task_is_named_by_graph_and_label_everywhere(invoke: Invoke, id: str) -> None:
    task = invoke("tasks", id, "--label", "b/c", "-o", "name").out
    for command in ("show", "story", "cancel", "rerun"):
        assert invoke(command, f"{id}/b/c", "-o", "name").out == task
    assert invoke("logs", f"{id}/b/c") == invoke("logs", task.strip())
    assert invoke("approve", f"{id}/b/c") == invoke("approve", task.strip())
    missing = invoke("show", f"{id}/nobody")
    assert (missing.code, missing.out) == (5, "")
    assert f"`taskyard tasks {id}`" in missing.err
    wrong = invoke("tasks", f"{id}/a")
    assert (wrong.code, "a graph is expected" in wrong.err) == (2, True)


def test_the_end_of_an_id_names_a_graph_or_a_task_everywhere(invoke: Invoke, id: str) -> None:
    task = invoke("tasks", id, "--label", "a", "-o", "name").out.strip()
    for command in ("show", "why"):
        assert invoke(command, id[-12:], "-o", "name").out == invoke(command, id, "-o", "name").out
    for named in (task[-12:], f"{id[-12:]}/a"):
        assert invoke("show", named, "-o", "name").out.strip() == task
        assert invoke("story", named, "-o", "name").out.strip() == task
        assert invoke("logs", named) == invoke("logs", task)
    assert invoke("tasks", id[-12:], "-o", "name").out == invoke("tasks", id, "-o", "name").out
    assert invoke("rerun", "--failed", id[-12:]).out.strip() == id
    shown = invoke("tasks", id).out.splitlines()
    ends = [line.split()[0] for line in shown[1:]]
    assert all(6 <= len(end) < 16 and one.endswith(end) for end, one in zip(ends, _names(invoke, id), strict=True))
    missing = invoke("show", "0123456789")
    assert (missing.code, "has an id that ends in 0123456789" in missing.err) == (5, True)
    assert invoke("tasks", task[-12:]).code == 5
    assert invoke("show", id[-4:]).code == 5


def test_an_end_of_several_ids_lists_them(shared_server: ServerProcess, invoke: Invoke, id: str) -> None:
    twin = f"{int(id, 16) ^ (1 << 32):016x}"
    shared_server.client.submit({"name": "twin", "tasks": {"a": WORK}}, graph_id=twin)
    told = invoke("show", id[-6:])
    assert (told.code, told.out) == (2, "")
    assert f"{id[-6:]} is the end of 2 ids; add more digits" in told.err
    assert {f"  {id}  graph shown", f"  {twin}  graph twin"} <= set(told.err.splitlines())
    assert invoke("show", twin[-10:], "-o", "name").out.strip() == twin
    assert {twin[-9:], id[-9:]} <= {line.split()[0] for line in invoke("graphs", "--all").out.splitlines()}


def test_a_narrow_terminal_cuts_no_id(shared_server: ServerProcess, invoke: Invoke, id: str) -> None:
    _, text = run_on_terminal(["tasks", id], shared_server.env, shared_server.folder, columns=30)
    rows = _plain(text).splitlines()[1:]
    assert [id.endswith(row.split()[0]) for id, row in zip(_names(invoke, id), rows, strict=True)] == [True, True]
    assert "..." in text


def test_a_narrow_terminal_cuts_no_id_in_tables_of_other_things(
    shared_server: ServerProcess, invoke: Invoke, id: str
) -> None:
    _, text = run_on_terminal(["audit", "--about", id[-12:]], shared_server.env, shared_server.folder, columns=30)
    rows = [row.split() for row in _plain(text).splitlines()[1:]]
    assert rows
    assert all(any(len(word) >= 6 and id.endswith(word) for word in row) for row in rows)
    about = invoke("audit", "--about", f"{id[-12:]}/a", "-o", "json")
    assert (about.code, about.out.strip()) == (0, "[]"), "a task of its own was not asked about"
    held = {"task": {"payload": {"approval": "Go?"}, "mutexes": [{"key": "door:1"}]}}
    made = shared_server.output("submit", "-", document=json.dumps({"tasks": {"holder": held}}))
    _, text = run_on_terminal(["mutexes"], shared_server.env, shared_server.folder, columns=30)
    assert _names(invoke, made)[0] in _plain(text).replace("\n", "")
    shared_server.client.cancel_graph(made)


def _names(invoke: Invoke, id: str) -> list[str]:
    return invoke("tasks", id, "-o", "name").out.split()


def test_lists_are_filtered(invoke: Invoke, id: str) -> None:
    assert id in invoke("graphs", "--tag", "team=db", "--since", "1d", "--all", "-o", "name").out.split()
    assert invoke("graphs", "--tag", "team=ops", "-o", "name").out == ""
    assert invoke("graphs", "--since", "0s", "-o", "name").out == ""
    assert len(invoke("graphs", "--limit", "1", "-o", "name").out.split()) == 1
    assert len(invoke("tasks", id, "--label", "a", "-o", "name").out.split()) == 1
    assert invoke("bots", "--state", "dead", "-o", "json").out == "[]\n"


def test_columns_are_chosen_and_a_wrong_one_is_reported(invoke: Invoke, id: str) -> None:
    shown = invoke("tasks", id, "--columns", "label,STATE").out.splitlines()
    assert [line.split()[0] for line in shown] == ["LABEL", "a", "b/c"]
    wrong = invoke("tasks", id, "--columns", "label,stat")
    assert (wrong.code, wrong.out) == (2, "")
    assert 'unknown column "stat". Did you mean "state"?' in wrong.err


def test_a_reader_that_leaves_early_is_no_failure(shared_server: ServerProcess) -> None:
    names = {f"t{number}": NOOP for number in range(3_000)}
    id = shared_server.output("submit", "--wait", "-", document=json.dumps({"name": "long", "tasks": names}))
    for form in ("jsonl", "table", "json", "name"):
        line = f"set -o pipefail; {PROGRAM} tasks {id} --all -o {form} | head -n 1"
        done = subprocess.run(
            ["bash", "-c", line],
            env=shared_server.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("\n") == 1


def test_a_full_disk_is_an_error(shared_server: ServerProcess) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(PROGRAM), "config"], env=shared_server.env, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "cannot write to stdout: No space left on device" in done.stderr


def test_a_pipe_is_neither_painted_nor_cut_and_a_terminal_is_both(shared_server: ServerProcess) -> None:
    name = "x" * 200
    shared_server.output("submit", "-", document=json.dumps({"name": name, "tasks": {"a": WORK}}))
    line = ["graphs", "--name", name]
    assert name in shared_server.output(*line, "--columns", "name,state")
    assert "\x1b" not in shared_server.output(*line)
    code, text = run_on_terminal(line, shared_server.env, shared_server.folder, columns=70)
    assert (code, "\x1b[36mrunning\x1b[0m" in text, "xxx..." in text) == (0, True, True)
    assert max(map(output_module.width, _plain(text).splitlines())) <= 70


def test_texts_to_read_or_copy_are_never_cut(shared_server: ServerProcess) -> None:
    code, text = run_on_terminal(["config"], shared_server.env, shared_server.folder, columns=30)
    assert (code, f"{shared_server.folder}/.config/taskyard/config.toml" in text) == (0, True)


@pytest.mark.parametrize(
    ("env", "painted"), [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"FORCE_COLOR": "1"}, True)]
)
def test_colours_are_as_people_want_them(env: dict[str, str], painted: bool, shared_server: ServerProcess) -> None:
    code, text = run_on_terminal(["config"], shared_server.env | env, shared_server.folder)
    assert (code, "\x1b" in text) == (0, painted)


@pytest.mark.parametrize(
    ("env", "painted"), [({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)]
)
def test_a_pipe_has_colours_only_when_forced(env: dict[str, str], painted: bool, shared_server: ServerProcess) -> None:
    assert ("\x1b[1m" in shared_server.run("config", **env).stdout) is painted


def test_words_of_states_are_those_of_the_server() -> None:
    def choices(name: str) -> set[str]:
        words = next(param.type for param in COMMANDS[name].load().params if "--state" in param.opts)
        assert isinstance(words, Words)
        return set(words.choices)

    assert choices("graphs") == {"failed", *(state.value for state in GraphState)}  # a word for blocked
    assert choices("tasks") == {state.value for state in State}


def test_a_table_is_laid_out_by_what_characters_take() -> None:
    class Screen:
        def isatty(self) -> bool:
            return False

    lines = output_module.format_table([["日本", "x"], ["a", "y"], ["e\u0301", "z"]], Screen())  # type: ignore[arg-type]
    assert lines == ["日本  x", "a     y", "e\u0301     z"]
    assert output_module.cut("日本語です", 7) == "日本..."
    assert output_module.fitted([4, 50, 50], 40) == [4, 16, 16]
    assert output_module.fitted([50, 50], 5) == [8, 8]
    assert output_module.fitted([16, 50, 9], 20, whole={0}) == [16, 8, 8]


def _plain(text: str) -> str:
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[36m"):
        text = text.replace(code, "")
    return text.replace("\r", "")

"""How things are printed: four forms, on a pipe and on a terminal, whatever is in them and whoever stops reading."""

import json
import subprocess
from pathlib import Path

import pytest

from taskyard.cli import layout, table
from taskyard.wire.progress import GraphState, State
from tests.cli.program import PROGRAM
from tests.cli.terminal import seen
from tests.cli.waiting import DEADLINE_SECONDS
from tests.cli.yard import Yard

NOOP = {"task": {"payload": {"noop": True}}}
WORK = {"task": {"payload": {"command": ["true"]}}}
#: They show nothing of their own: bytes of a task, a script, what the bot's own log has, or nothing at all.
SILENT = {"logs", "completion", "bot", "profile use", "profile remove"}


@pytest.fixture(scope="module")
def id(shared: Yard) -> str:
    """A graph of two tasks that no bot takes."""
    document = {"name": "shown", "tags": {"team": "db"}, "tasks": {"a": WORK, "b/c": {**WORK, "requires": ["a"]}}}
    return shared.told("submit", "-", document=json.dumps(document))


@pytest.mark.parametrize("name", [name for name in table.COMMANDS if name not in SILENT])
def test_every_command_that_shows_anything_takes_all_forms(name: str) -> None:
    forms = next(slot.choices for slot in table.COMMANDS[name].syntax().options if "-o" in slot.names)
    assert forms == ("table", "json", "jsonl", "name")


@pytest.mark.parametrize(
    "arguments", [["graphs"], ["tasks", "ID"], ["bots"], ["pools"], ["token", "list"], ["config"], ["profile", "list"]]
)
def test_a_list_is_one_document_or_a_line_for_each_or_names(arguments: list[str], shared: Yard, id: str) -> None:
    line = [id if one == "ID" else one for one in arguments]
    whole = json.loads(shared.told(*line, "-o", "json"))
    lines = [json.loads(one) for one in shared.told(*line, "-o", "jsonl").splitlines()]
    names = shared.told(*line, "-o", "name").splitlines()
    assert isinstance(whole, list)
    assert len(whole) == len(lines) == len(names)
    shown = shared.run(*line)
    assert len(shown.stdout.splitlines()) == (len(whole) + 1 if whole else 0)
    assert shown.stderr == ("" if whole else "nothing to show\n")


@pytest.mark.parametrize("arguments", [["show", "ID"], ["show", "ID/a"], ["story", "ID/a"]])
def test_one_thing_is_one_object_and_its_name(arguments: list[str], shared: Yard, id: str) -> None:
    line = [one.replace("ID", id) for one in arguments]
    whole = json.loads(shared.told(*line, "-o", "json"))
    assert shared.told(*line, "-o", "name") == whole.get("id", whole.get("task"))
    assert shared.told(*line)


def test_names_are_taken_by_the_next_command(shared: Yard) -> None:
    document = json.dumps({"name": "many", "tasks": {"a": WORK}})
    made = {shared.told("submit", "-", document=document) for _ in range(3)}
    names = shared.told("graphs", "--name", "many", "--state", "running", "-o", "name").split()
    assert set(names) == made
    done = shared.run("cancel", *names, "-o", "json")
    assert done.returncode == 0
    assert {one["subject"] for one in json.loads(done.stdout)} == made
    assert shared.told("graphs", "--name", "many", "--state", "running", "-o", "name") == ""


def test_one_that_is_not_there_does_not_keep_the_others(shared: Yard) -> None:
    id = shared.told("submit", "-", document=json.dumps({"name": "other", "tasks": {"a": WORK}}))
    done = shared.run("cancel", "0000000000000001", id)
    assert (done.returncode, done.stdout) == (5, f"{id}\n")
    assert "0000000000000001" in done.stderr


def test_a_task_is_named_by_graph_and_label_everywhere(shared: Yard, id: str) -> None:
    task = shared.told("tasks", id, "--label", "b/c", "-o", "name")
    assert shared.told("show", f"{id}/b/c", "-o", "name") == task
    assert shared.told("story", f"{id}/b/c", "-o", "name") == task
    assert shared.run("logs", f"{id}/b/c").returncode == shared.run("logs", task).returncode
    assert shared.told("cancel", f"{id}/b/c") == task
    assert shared.told("rerun", f"{id}/b/c") == task
    missing = shared.run("show", f"{id}/nobody")
    assert (missing.returncode, missing.stdout) == (5, "")
    assert f"`taskyard tasks {id}`" in missing.stderr


def test_lists_are_filtered(shared: Yard, id: str) -> None:
    assert id in shared.told("graphs", "--tag", "team=db", "--since", "1d", "--all", "-o", "name").split()
    assert shared.told("graphs", "--tag", "team=ops", "-o", "name") == ""
    assert shared.told("graphs", "--since", "0s", "-o", "name") == ""
    assert shared.told("graphs", "--limit", "1", "-o", "name").count("\n") == 0
    assert shared.told("tasks", id, "--label", "a", "-o", "name").count("\n") == 0
    assert shared.told("bots", "--state", "dead", "-o", "json") == "[]"


def test_columns_are_chosen_and_a_wrong_one_is_told(shared: Yard, id: str) -> None:
    shown = shared.told("tasks", id, "--columns", "label,STATE").splitlines()
    assert [line.split()[0] for line in shown] == ["LABEL", "a", "b/c"]
    wrong = shared.run("tasks", id, "--columns", "label,stat")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert 'unknown column "stat". Did you mean "state"?' in wrong.stderr


def test_a_reader_that_leaves_early_is_no_failure(shared: Yard) -> None:
    names = {f"t{number}": NOOP for number in range(3_000)}
    id = shared.told("submit", "--wait", "-", document=json.dumps({"name": "long", "tasks": names}))
    for form in ("jsonl", "table", "json", "name"):
        line = f"set -o pipefail; {PROGRAM} tasks {id} --all -o {form} | head -n 1"
        done = subprocess.run(
            ["bash", "-c", line], env=shared.env, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("\n") == 1


def test_a_full_disk_is_an_error(shared: Yard) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(PROGRAM), "config"], env=shared.env, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "cannot write to stdout: No space left on device" in done.stderr


def test_a_pipe_is_neither_painted_nor_cut_and_a_terminal_is_both(shared: Yard) -> None:
    name = "x" * 200
    shared.told("submit", "-", document=json.dumps({"name": name, "tasks": {"a": WORK}}))
    line = ["graphs", "--name", name]
    assert name in shared.told(*line, "--columns", "name,state")
    assert "\x1b" not in shared.told(*line)
    code, text = seen(line, shared.env, shared.folder, columns=60)
    assert (code, "\x1b[36mrunning\x1b[0m" in text, "xxx..." in text) == (0, True, True)
    assert max(map(layout.width, _plain(text).splitlines())) <= 60


@pytest.mark.parametrize(
    ("env", "painted"), [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"FORCE_COLOR": "1"}, True)]
)
def test_colours_are_as_people_want_them(env: dict[str, str], painted: bool, shared: Yard) -> None:
    code, text = seen(["config"], shared.env | env, shared.folder)
    assert (code, "\x1b" in text) == (0, painted)


@pytest.mark.parametrize(
    ("env", "painted"), [({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)]
)
def test_a_pipe_has_colours_only_when_forced(env: dict[str, str], painted: bool, shared: Yard) -> None:
    assert ("\x1b[1m" in shared.run("config", **env).stdout) is painted


def test_words_of_states_are_those_of_the_server() -> None:
    def choices(name: str) -> set[str]:
        slots = table.COMMANDS[name].syntax().options
        return set(next(slot.choices for slot in slots if "--state" in slot.names))

    assert choices("graphs") == {state.value for state in GraphState}
    assert choices("tasks") == {state.value for state in State}


def test_a_table_is_laid_out_by_what_characters_take() -> None:
    class Screen:
        def isatty(self) -> bool:
            return False

    lines = layout.table([["日本", "x"], ["a", "y"], ["e\u0301", "z"]], Screen())  # type: ignore[arg-type]
    assert lines == ["日本  x", "a     y", "e\u0301     z"]
    assert layout.cut("日本語です", 7) == "日本..."
    assert layout.fitted([4, 50, 50], 40) == [4, 16, 16]
    assert layout.fitted([50, 50], 5) == [8, 8]


def _plain(text: str) -> str:
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[36m"):
        text = text.replace(code, "")
    return text.replace("\r", "")

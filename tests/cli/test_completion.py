"""Completion on Tab: in a real bash; for zsh and fish by their own parser where they are, and by the table of commands.

What a shell would offer is asked of the very function that Tab calls.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from taskyard.cli import completing, shells, table
from tests.cli.program import PROGRAM
from tests.cli.waiting import DEADLINE_SECONDS
from tests.cli.yard import Yard, at_home

WORK = {"task": {"payload": {"command": ["true"]}}}
GRAPH_STATES = ["running", "blocked", "failed", "finished", "canceling", "canceled"]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bash") / "completion.bash"
    file.write_text(shells.bash())
    return file


@pytest.fixture(scope="module")
def id(shared: Yard) -> str:
    document = {"name": "completed", "tasks": {"build": WORK, "bundle it": WORK, "test": WORK}}
    return shared.told("submit", "-", document=json.dumps(document))


def tab(script: Path, words: list[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> list[str]:
    """Press Tab in bash behind some words."""
    line = (
        'source $1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _taskyard; printf \'%s\\n\' "${COMPREPLY[@]}"'
    )
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"compopt() {{ :; }}; {line}", "bash", str(script), *words],
        env={**(env or os.environ), "PATH": path},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [one for one in done.stdout.splitlines() if one]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["taskyard", "sub"], ["submit"]),
        (["taskyard", "--v"], ["--version"]),
        (["taskyard", "bots", ""], ["events", "set", "free"]),
        (["taskyard", "token", "re"], ["revoke", "rekey"]),
        (["taskyard", "graphs", "--st"], ["--state"]),
        (["taskyard", "graphs", "--state", ""], GRAPH_STATES),
        (["taskyard", "graphs", "--state", "=", "b"], ["blocked"]),
        (["taskyard", "graphs", "--state", "="], GRAPH_STATES),
        (["taskyard", "graphs", "-o", "js"], ["json", "jsonl"]),
        (["taskyard", "graphs", "--name", ""], []),
        (["taskyard", "bots", "set", "b", "--no-q"], ["--no-quarantine"]),
        (["taskyard", "bots", "--no-q"], []),
        (["taskyard", "completion", ""], ["bash", "zsh", "fish"]),
        (["taskyard", "completion", "bash", ""], []),
        (["taskyard", "nonsense", ""], []),
    ],
)
def test_bash_offers_commands_options_and_words(words: list[str], offered: list[str], script: Path) -> None:
    assert tab(script, words) == offered


def test_bash_offers_files_where_a_file_is_wanted(script: Path, tmp_path: Path) -> None:
    (tmp_path / "nightly.yaml").touch()
    assert tab(script, ["taskyard", "run", "ni"], cwd=tmp_path) == ["nightly.yaml"]
    assert tab(script, ["taskyard", "run", "--logs", "ni"], cwd=tmp_path) == ["nightly.yaml"]
    assert tab(script, ["taskyard", "extend", "x", "ni"], cwd=tmp_path) == ["nightly.yaml"]


def test_bash_offers_ids_and_labels_of_the_server(script: Path, shared: Yard, id: str) -> None:
    assert tab(script, ["taskyard", "tasks", id[:12]], shared.env) == [id]
    assert tab(script, ["taskyard", "logs", id[:12]], shared.env) == [f"{id}/"]
    assert tab(script, ["taskyard", "show", f"{id}/bu"], shared.env) == [f"{id}/build", f"{id}/bundle\\ it"]
    assert tab(script, ["taskyard", "cancel", id, f"{id}/t"], shared.env) == [f"{id}/test"]
    assert tab(script, ["taskyard", "bots", "--pool", "def"], shared.env) == ["default"]


def test_a_server_that_is_not_there_offers_nothing_and_says_nothing(script: Path, tmp_path: Path) -> None:
    env = at_home(tmp_path) | {"TASKYARD_URL": "http://127.0.0.1:1"}
    assert tab(script, ["taskyard", "show", ""], env) == []


def test_profiles_are_offered_without_any_server(script: Path, tmp_path: Path) -> None:
    (tmp_path / ".config/taskyard").mkdir(parents=True)
    (tmp_path / ".config/taskyard/config.toml").write_text('[profiles.lab]\nurl = "http://lab"\n')
    assert tab(script, ["taskyard", "graphs", "--profile", ""], at_home(tmp_path)) == ["lab"]


@pytest.mark.parametrize("shell", shells.SCRIPTS)
def test_a_script_has_every_command_and_option(shell: str) -> None:
    text = shells.SCRIPTS[shell]()
    for name, command in table.COMMANDS.items():
        assert name in text
        for slot in command.syntax().options:
            spelled = [f"-l {one[2:]} " if one.startswith("--") else f"-s {one[1:]} " for one in slot.names]
            assert [one for one in (spelled if shell == "fish" else slot.names) if one not in text] == []
            assert " ".join(slot.choices) in text


@pytest.mark.parametrize("shell", shells.SCRIPTS)
def test_a_script_is_one_of_its_shell(shell: str, tmp_path: Path) -> None:
    text = shells.SCRIPTS[shell]()
    # Whether or not the shell is here, nothing is left open.
    assert text.count('"') % 2 == 0
    if shell != "fish":
        assert len(re.findall(r"^\s*case ", text, re.MULTILINE)) == len(re.findall(r"^\s*esac", text, re.MULTILINE))
    file = tmp_path / "script"
    file.write_text(text)
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(file)], check=True, timeout=DEADLINE_SECONDS)


def test_what_values_are_completed_with_is_known() -> None:
    kinds = {slot.about.completes for command in table.COMMANDS.values() for slot in command.syntax().slots}
    assert kinds - {"", shells.FILE} <= completing.KINDS

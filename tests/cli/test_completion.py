"""Completion: in a real bash; for zsh and fish through the requests that their scripts make."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from taskyard.cli.commands import completion
from taskyard.cli.main import COMMANDS, PROGRAM, names_below
from taskyard.cli.options import Context
from tests.cli.program import PROGRAM as EXECUTABLE
from tests.cli.program import taskyard
from tests.cli.server_process import ServerProcess, home_env
from tests.cli.waiting import DEADLINE_SECONDS, until

WORK = {"task": {"payload": {"command": ["true"]}}}
GRAPH_STATES = ["running", "blocked", "failed", "finished", "canceling", "canceled"]
#: The answer that makes bash complete file names.
FILES = ["compopt -o default"]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bash") / "completion.bash"
    file.write_text(taskyard("completion", "bash").stdout)
    return file


@pytest.fixture(scope="module")
def id(shared_server: ServerProcess) -> str:
    document = {"name": "completed", "tasks": {"build": WORK, "bundle it": WORK, "test": WORK}}
    return shared_server.output("submit", "-", document=json.dumps(document))


def tab(script: Path, words: list[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> list[str]:
    """Press Tab in bash after some words."""
    line = (
        'source $1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _taskyard_completion taskyard; '
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    path = f"{EXECUTABLE.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"compopt() {{ echo compopt $*; }}; complete() {{ :; }}; {line}", "bash", str(script), *words],
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
        (["taskyard", "bots", ""], names_below("bots")),
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
    assert tab(script, ["taskyard", "run", "ni"], cwd=tmp_path) == FILES
    assert tab(script, ["taskyard", "run", "--logs", "ni"], cwd=tmp_path) == FILES
    assert tab(script, ["taskyard", "extend", "x", "ni"], cwd=tmp_path) == FILES


def offered(script: Path, words: list[str], env: Mapping[str, str]) -> list[str]:
    """Press Tab until something is offered: on a slow machine the server may answer too late for the first Tab."""
    found: list[str] = []

    def has_offers() -> bool:
        found[:] = tab(script, words, env)
        return bool(found)

    until(has_offers, f"offers after {words}")
    return found


def test_bash_offers_ids_and_labels_of_the_server(script: Path, shared_server: ServerProcess, id: str) -> None:
    assert offered(script, ["taskyard", "tasks", id[:12]], shared_server.env) == [id]
    assert offered(script, ["taskyard", "logs", id[:12]], shared_server.env) == [id]
    assert offered(script, ["taskyard", "story", id[:12]], shared_server.env) == ["compopt -o nospace", f"{id}/"]
    assert offered(script, ["taskyard", "show", f"{id}/bu"], shared_server.env) == [f"{id}/build", f"{id}/bundle\\ it"]
    assert offered(script, ["taskyard", "cancel", id, f"{id}/t"], shared_server.env) == [f"{id}/test"]
    assert offered(script, ["taskyard", "bots", "--pool", "def"], shared_server.env) == ["default"]


def test_a_server_that_is_not_there_offers_nothing_and_says_nothing(script: Path, tmp_path: Path) -> None:
    env = home_env(tmp_path) | {"TASKYARD_URL": "http://127.0.0.1:1"}
    assert tab(script, ["taskyard", "show", ""], env) == []


def test_profiles_are_offered_without_any_server(script: Path, tmp_path: Path) -> None:
    (tmp_path / ".config/taskyard").mkdir(parents=True)
    (tmp_path / ".config/taskyard/config.toml").write_text('[profiles.lab]\nurl = "http://lab"\n')
    assert tab(script, ["taskyard", "graphs", "--profile", ""], home_env(tmp_path)) == ["lab"]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_shell_is_offered_every_command_and_option(shell: str, tmp_path: Path) -> None:
    def offered(*words: str) -> str:
        asked = {"_TASKYARD_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(["taskyard", *words])}
        incomplete = {"COMP_CWORD": words[-1] if shell == "fish" else str(len(words))}
        return taskyard(env=home_env(tmp_path) | asked | incomplete).stdout

    for first in ("graphs", "bots", "token"):
        assert first in offered(first[:2])
    for option in ("--state", "--tag", "--watch", "--output", "--profile"):
        assert option in offered("graphs", option)
    assert "rotate" in offered("token", "ro")


def test_every_option_of_every_command_is_offered() -> None:
    for name, entry in COMMANDS.items():
        command = entry.load()
        context = command.make_context(name, [], parent=Context(PROGRAM), resilient_parsing=True)
        offered = {one.value for one in command.shell_complete(context, "-")}
        options = [param for param in command.params if isinstance(param, click.Option)]
        assert {name for param in options for name in (*param.opts, *param.secondary_opts)} <= offered, name


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_script_is_one_of_its_shell(shell: str, tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(taskyard("completion", shell).stdout)
    assert "taskyard" in file.read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(file)], check=True, timeout=DEADLINE_SECONDS)

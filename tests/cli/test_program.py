"""The program itself: its version, its help, and its answers to wrong command lines."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, taskyard
from tests.each_row import each_row


def test_version_is_the_package_s() -> None:
    answer = taskyard("--version")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"{version('taskyard')}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_names_the_commands_and_shows_examples(arguments: list[str]) -> None:
    answer = taskyard(*arguments)
    assert answer.returncode == 0
    for part in ("run ", "completion", "--version", "taskyard run examples/release.yaml", "Exit codes: 0 ok"):
        assert part in answer.stdout


def test_help_of_run_names_its_options() -> None:
    answer = taskyard("run", "--help")
    assert answer.returncode == 0
    for part in ("FILE", "-j, --jobs N", "-o, --output", "table, json, jsonl, name"):
        assert part in " ".join(answer.stdout.split())


@each_row(
    ("arguments", "told"),
    [
        (["rnu"], 'Did you mean "run"?'),
        (["run"], "FILE"),
        (["run", "x.yaml", "--jobs", "0"], "must be from 1 to 1000"),
        (["run", "x.yaml", "--jobs", "many"], "--jobs"),
        (["run", "x.yaml", "--colour"], "--colour"),
        (["run", "--colour", "x.yaml"], "--colour"),
        (["run", "--colour"], "--colour"),
        (["run", "x.yaml", "-o", "xml"], "-o"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_a_wrong_command_line_is_an_error_with_exit_code_2(arguments: list[str], told: str) -> None:
    answer = taskyard(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("shell", "sign"),
    [
        ("bash", "-F _taskyard_completion taskyard"),
        ("zsh", "#compdef taskyard"),
        ("fish", "complete --no-files --command taskyard"),
    ],
)
def test_completion_prints_a_script_that_calls_the_program(shell: str, sign: str) -> None:
    answer = taskyard("completion", shell)
    assert answer.returncode == 0
    assert sign in answer.stdout
    assert f"_TASKYARD_COMPLETE={shell}_complete" in answer.stdout


def test_the_completion_script_is_good_bash(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(taskyard("completion", "bash").stdout)
    subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        ("['--version']", {"click", "rich", "yaml", "taskyard.core.graph", "taskyard.embedded"}),
        ("['run', '/nowhere']", {"rich", "yaml", "taskyard.core.graph", "taskyard.embedded"}),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(arguments: str, heavy: set[str]) -> None:
    program = f"import sys; from taskyard import main; main._call({arguments}); print(*sys.modules, file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr.split()
    assert "taskyard.main" in loaded
    assert heavy.isdisjoint(loaded)


def test_the_module_is_installed_as_a_program() -> None:
    assert PROGRAM.exists()

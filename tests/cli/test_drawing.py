"""The live view on a pseudo-terminal."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.program import PLAIN_ENV, PROGRAM, graph, script
from tests.cli.waiting import DEADLINE_SECONDS, read_until


@contextmanager
def terminal(folder: Path, tasks: dict[str, object], **env: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a run on a terminal; yield it and the side of the user."""
    (folder / "graph.json").write_text(graph(tasks))
    person, program_side = pty.openpty()
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [str(PROGRAM), "run", "graph.json", "--jobs", "2"]
    env = PLAIN_ENV | {"TERM": "xterm-256color"} | env
    with subprocess.Popen(
        command, cwd=folder, env=env, stdin=program_side, stdout=program_side, stderr=program_side
    ) as program:
        os.close(program_side)
        try:
            yield program, person
        finally:
            program.kill()
            os.close(person)


def held(folder: Path) -> dict[str, object]:
    """A task that ends when the test writes to `go`, and a dependent."""
    os.mkfifo(folder / "go")
    return {"held": script("read line < go", cwd="."), "after": script("true", "held")}


def test_a_terminal_sees_a_bar_and_what_runs_and_then_the_summary(tmp_path: Path) -> None:
    with terminal(tmp_path, held(tmp_path)) as (program, person):
        seen = read_until(person, "0/2", program) + read_until(person, "held", program)
        (tmp_path / "go").write_text("go\n")
        seen += read_until(person, "2 successful", program)
        assert program.wait(DEADLINE_SECONDS) == 0
    assert "━" in seen
    assert "\x1b[" in seen
    assert "successful  held (" in seen
    assert "trial: finished in " in seen


def test_a_failure_is_shown_at_once_with_its_last_lines_and_no_markup_is_obeyed(tmp_path: Path) -> None:
    hostile = r"printf '\033]0;owned\007[bold]last words[/bold] \033[5mblink\n'; exit 1"
    with terminal(tmp_path, held(tmp_path) | {"bad": script(hostile)}) as (program, person):
        seen = read_until(person, "last words", program)
        (tmp_path / "go").write_text("go\n")
        seen += read_until(person, "trial: blocked", program)
        assert program.wait(DEADLINE_SECONDS) == 3
    assert "failed      bad (exit code 1" in seen
    assert "  | [bold]last words[/bold] blink" in seen
    assert "\x1b]0" not in seen
    assert "\x1b[5m" not in seen


def test_an_interrupted_run_says_what_it_is_stopping(tmp_path: Path) -> None:
    with terminal(tmp_path, held(tmp_path)) as (program, person):
        read_until(person, "held", program)
        program.send_signal(signal.SIGINT)
        seen = read_until(person, "trial: canceled", program)
        assert program.wait(DEADLINE_SECONDS) == 130
    assert "stopping    held" in seen


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_a_terminal_gets_plain_lines(env: dict[str, str], tmp_path: Path) -> None:
    with terminal(tmp_path, held(tmp_path), **env) as (program, person):
        seen = read_until(person, "running     held", program)
        (tmp_path / "go").write_text("go\n")
        seen += read_until(person, "2 successful", program)
        assert program.wait(DEADLINE_SECONDS) == 0
    assert seen.count("running     held") == 1
    assert "\x1b" not in seen

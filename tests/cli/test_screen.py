"""The live view on a terminal of 100 x 30 while tasks move fast: every line once, and one bar."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli import live_view_stress
from tests.cli.program import PLAIN_ENV, PROGRAM, ROOT, graph, script
from tests.cli.screen import Screen
from tests.cli.terminal import on_terminal, terminal
from tests.cli.waiting import DEADLINE_SECONDS, read_until

#: How often fast moves are tried: races depend on chance.
ROUNDS = 8


@contextmanager
def shown(command: list[str], folder: Path) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    """Start a program that draws on a terminal of 100 x 30; its input is a pipe."""
    with terminal(100, 30) as (person, program_side):
        env = PLAIN_ENV | {"TERM": "xterm-256color"}
        with subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=program_side, stderr=program_side
        ) as program:
            os.close(program_side)
            try:
                yield Screen(program, person, 100, 30), program
            finally:
                program.kill()


def test_fast_moves_lose_no_line_and_leave_one_bar() -> None:
    wanted = [live_view_stress.line(number) for number in range(live_view_stress.LINES)]
    for seed in range(ROUNDS):
        with shown([sys.executable, "-m", "tests.cli.live_view_stress", str(seed)], ROOT) as (screen, program):
            screen.until(lambda one: live_view_stress.OVER in one.lines() and one.bars() == 1, "all lines and one bar")
            assert screen.lines()[: len(wanted)] == wanted, f"seed {seed}"
            assert program.stdin is not None
            program.stdin.close()
            assert screen.to_the_end() == 0
            assert screen.bars() == 0, f"seed {seed}"


def test_a_run_shows_the_end_of_every_task_once_and_takes_its_bar_away(tmp_path: Path) -> None:
    tasks = {f"t{number}": script(f"sleep 0.0{number % 4}") for number in range(16)}
    (tmp_path / "graph.json").write_text(graph(tasks))
    for _ in range(2):
        with shown([str(PROGRAM), "run", "graph.json", "--jobs", "6"], tmp_path) as (screen, _program):
            assert screen.to_the_end() == 0
        ended = sorted(line.split()[1] for line in screen.lines() if line.startswith("successful "))
        assert (ended, screen.bars()) == (sorted(tasks), 0)


def test_a_run_says_what_holds_it_when_nothing_moves(tmp_path: Path) -> None:
    later = {"task": {"not_before": "1h", "payload": {"command": ["true"]}}}
    (tmp_path / "graph.json").write_text(
        json.dumps({"name": "late", "tasks": {"first": script("true"), "later": later}})
    )
    said = "late is running: later is pending: it may start in "
    with shown([str(PROGRAM), "run", "graph.json"], tmp_path) as (screen, program):
        screen.until(lambda one: any(line.startswith(f"  {said}") for line in one.lines()), "what holds the graph")
        screen.until(lambda one: one.bars() == 1, "one bar")
        program.send_signal(signal.SIGINT)
        assert screen.to_the_end() == 130
    command = [str(PROGRAM), "run", "graph.json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=PLAIN_ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as program:
        assert program.stderr is not None
        read_until(program.stderr.fileno(), f"\n{said}", program)
        program.send_signal(signal.SIGINT)
        assert program.wait(DEADLINE_SECONDS) == 130


def test_a_typed_answer_leaves_one_bar(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    asks = {"task": {"payload": {"approval": "Ship it?"}}}
    after = script("read line < go", "ask", cwd=".")
    (tmp_path / "graph.json").write_text(json.dumps({"tasks": {"ask": asks, "after": after}}))
    with on_terminal(["run", "graph.json"], PLAIN_ENV, tmp_path, 100, 30) as (program, person):
        screen = Screen(program, person, 100, 30)
        screen.until(lambda one: any("ask asks: Ship it?" in line for line in one.lines()), "the question")
        os.write(person, b"maybe\n\n")
        screen.until(lambda one: sum("answer y or n" in line for line in one.lines()) == 2, "what can be answered")
        os.write(person, b"y\n")
        screen.until(lambda one: one.bars() == 1 and any(line.endswith(" after") for line in one.lines()), "a bar")
        (tmp_path / "go").write_text("go\n")
        assert screen.to_the_end() == 0
        assert screen.bars() == 0
        assert "y" in screen.lines()

"""`submit --wait`: what a terminal shows, and how a wait ends."""

import fcntl
import json
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

from tests.cli.program import PROGRAM
from tests.cli.screen import Screen
from tests.cli.server_process import ServerProcess, server_process
from tests.cli.waiting import DEADLINE_SECONDS, read_until

STAYS = {"name": "[bold]graph[/bold]", "tasks": {"a": {"task": {"payload": {"command": ["true"]}}}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("yard")) as one:
        yield one


@contextmanager
def waiting(server: ServerProcess, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Wait on a terminal for a graph that no bot takes; yield the program and the side of the user."""
    (server.folder / "stays.json").write_text(json.dumps(STAYS))
    person, program_side = pty.openpty()
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [str(PROGRAM), "submit", "--wait", "stays.json", *arguments]
    env = server.env | {"TERM": "xterm-256color"}
    with subprocess.Popen(
        command, cwd=server.folder, env=env, stdin=program_side, stdout=program_side, stderr=program_side
    ) as program:
        os.close(program_side)
        try:
            yield program, person
        finally:
            program.kill()
            os.close(person)


def test_a_terminal_shows_a_bar_until_the_graph_is_canceled(server: ServerProcess) -> None:
    with waiting(server) as (program, person):
        seen = read_until(person, "0/1", program)
        with server.client as client:
            newest = next(iter(client.graphs()))
            client.cancel_graph(newest.id)
        assert "[bold]graph[/bold]: canceled: 1 canceled" in read_until(person, newest.id, program)
        assert program.wait(DEADLINE_SECONDS) == 3
    assert "━" in seen
    assert "[bold]graph[/bold]" in seen


def test_an_interrupted_wait_does_not_stop_the_graph(server: ServerProcess) -> None:
    with waiting(server) as (program, person):
        read_until(person, "0/1", program)
        program.send_signal(signal.SIGINT)
        assert program.wait(DEADLINE_SECONDS) == 130
    with server.client as client:
        assert next(iter(client.graphs())).state == "running"


def test_a_wait_outlives_a_server_that_is_started_again(tmp_path: Path) -> None:
    with server_process(tmp_path) as first:
        port = first.url.rpartition(":")[2]
        with waiting(first) as (program, person):
            read_until(person, "0/1", program)
            first.program.send_signal(signal.SIGTERM)
            assert first.program.wait(DEADLINE_SECONDS) == 0
            with server_process(tmp_path, port=port):
                with first.client as client:
                    client.cancel_graph(next(iter(client.graphs())).id)
                assert Screen(program, person, 80, 24).to_the_end() == 3


def test_a_wait_says_what_holds_a_graph_in_which_nothing_moves(server: ServerProcess) -> None:
    with waiting(server) as (program, person):
        screen = Screen(program, person, 80, 24)
        said = "  [bold]graph[/bold] is running: a is waiting: there is no bot"
        screen.until(lambda one: said in one.lines() and one.bars() == 1, "what holds the graph, under one bar")
    with subprocess.Popen(
        [str(PROGRAM), "submit", "--wait", "stays.json"], cwd=server.folder, env=server.env, stderr=subprocess.PIPE
    ) as program:
        assert program.stderr is not None
        read_until(program.stderr.fileno(), f"{said.strip()}\n", program)
        program.send_signal(signal.SIGINT)
        assert program.wait(DEADLINE_SECONDS) == 130


def test_a_graph_that_starts_later_is_not_shown_as_moving(server: ServerProcess) -> None:
    document = json.dumps({"tasks": {"later": {"task": {"not_before": "1h", "payload": {"command": ["true"]}}}}})
    shown = server.output("show", server.output("submit", "-", document=document))
    assert "running, no task runs now\n" in shown
    assert "later is pending: it may start in " in shown

"""A signal ends a run: its tasks end first, and the exit code is 130."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskyard.embedded.interrupts import SAME_INTERRUPT_SECONDS
from tests.cli.program import PLAIN_ENV, PROGRAM, graph, script
from tests.cli.waiting import DEADLINE_SECONDS, is_gone, read_fifo, read_until, until


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    """Do not ignore signals, so that child processes do not either; a shell in the background may ignore them."""
    before = {number: signal.signal(number, _not_ignored) for number in (signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _not_ignored(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def start_program(
    task: dict[str, object], folder: Path, *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a run of one task; yield it with the pid that the task wrote to the pipe `told`."""
    os.mkfifo(folder / "told")
    tasks = {"task": task, "after": script("true", "task"), "other": script("touch other", cwd=".")}
    (folder / "graph.json").write_text(graph(tasks))
    command = [str(PROGRAM), "run", "graph.json", "--jobs", "1", *options]
    env = PLAIN_ENV | {"TMPDIR": str(folder)}  # a killed run leaves its folder there
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        try:
            yield program, int(read_fifo(folder / "told", program))
        finally:
            program.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_runs_and_then_the_program(number: signal.Signals, tmp_path: Path) -> None:
    with start_program(script("echo $$ > told; sleep 1000", cwd="."), tmp_path) as (program, pid):
        program.send_signal(number)
        said, talked = program.communicate(timeout=DEADLINE_SECONDS)
    assert program.returncode == 130
    until(lambda: is_gone(pid), "the end of the task")
    assert said.startswith(b"trial: canceled in ")
    assert b"3 canceled\n" in said
    assert not (tmp_path / "other").exists()
    assert b"stopping    task" in talked
    assert b"Traceback" not in talked


def test_a_signal_that_was_ignored_when_the_program_started_stays_ignored(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    os.mkfifo(tmp_path / "go")
    with start_program(script("echo $$ > told; read line < go", cwd="."), tmp_path) as (program, _):
        program.send_signal(signal.SIGHUP)
        (tmp_path / "go").write_text("go\n")
        assert program.wait(DEADLINE_SECONDS) == 0


def test_a_second_signal_kills_tasks_that_ignore_the_first(tmp_path: Path) -> None:
    deaf = script("trap '' TERM; echo $$ > told; while :; do sleep 1000; done", cwd=".", grace="1h")
    with start_program(deaf, tmp_path) as (program, pid):
        assert program.stderr
        program.send_signal(signal.SIGINT)
        read_until(program.stderr.fileno(), "stopping    task (Ctrl-C again kills it)", program)
        shown = time.monotonic()
        until(
            lambda: time.monotonic() > shown + SAME_INTERRUPT_SECONDS,
            "a moment in which a second signal is a second wish",
        )
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=DEADLINE_SECONDS)
    assert program.returncode == 130
    until(lambda: is_gone(pid), "the end of the task")


def test_a_run_that_is_killed_takes_what_it_ran_with_it(tmp_path: Path) -> None:
    deaf = script("trap '' TERM; echo $$ > told; while :; do sleep 1000; done", cwd=".")
    with start_program(deaf, tmp_path) as (program, pid):
        program.kill()
        program.wait(DEADLINE_SECONDS)
        until(lambda: is_gone(pid), "the end of the task")


def test_two_signals_at_once_count_as_one(tmp_path: Path) -> None:
    slow = script("trap 'sleep 0.2; echo heard > proof; exit 0' TERM; echo $$ > told; sleep 1000 & wait", cwd=".")
    with start_program(slow, tmp_path) as (program, _):
        program.send_signal(signal.SIGTERM)
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=DEADLINE_SECONDS)
    assert (tmp_path / "proof").read_text() == "heard\n"


def test_a_task_that_ends_well_while_it_is_stopped_is_canceled_all_the_same(tmp_path: Path) -> None:
    polite = script("trap 'exit 0' TERM; echo $$ > told; sleep 1000 & wait", cwd=".")
    with start_program(polite, tmp_path, "-o", "json") as (program, _):
        program.send_signal(signal.SIGTERM)
        said, _ = program.communicate(timeout=DEADLINE_SECONDS)
    assert said.count(b'"state": "canceled"') == 4


def test_a_closed_stdout_does_not_change_the_exit_code(tmp_path: Path) -> None:
    waits = script("echo $$ > told; read line < go", cwd=".")
    os.mkfifo(tmp_path / "go")
    with start_program(waits, tmp_path) as (program, _):
        assert program.stdout
        assert program.stderr
        program.stdout.close()
        (tmp_path / "go").write_text("go\n")
        talked = program.stderr.read()
        assert program.wait(DEADLINE_SECONDS) == 0
    assert talked.splitlines()[-1].startswith(b"successful  ")


def test_a_closed_stderr_does_not_end_the_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    first = script("echo $$ > told; read line < go", cwd=".")
    second = script("echo done > proof", "first", cwd=".")
    (tmp_path / "graph.json").write_text(graph({"first": first, "second": second}))
    os.mkfifo(tmp_path / "told")
    command = [str(PROGRAM), "run", "graph.json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=PLAIN_ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stderr
        read_fifo(tmp_path / "told", program)
        program.stderr.close()
        (tmp_path / "go").write_text("go\n")
        assert program.wait(DEADLINE_SECONDS) == 0
    assert (tmp_path / "proof").read_text() == "done\n"


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_reason_to_fail(closing: str, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(graph({"a": script("echo done > proof", cwd=".")}))
    done = subprocess.run(
        ["sh", "-c", f"{PROGRAM} run graph.json {closing}"],
        cwd=tmp_path,
        env=PLAIN_ENV,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, (tmp_path / "proof").read_text()) == (0, "done\n"), done.stderr


def test_an_outcome_that_cannot_be_written_is_an_error_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(graph({"a": script("true")}))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(PROGRAM), "run", "graph.json"],
            cwd=tmp_path,
            env=PLAIN_ENV,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == b"taskyard: cannot write to stdout: No space left on device"

"""Runs that the runner is told of ahead begin in their turn, and one that is not to begin never does."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.bot.ipc import RecallRuns, SetExpiry, StopRun
from tests.bot.running import TestedRunner


@pytest.fixture
def runner() -> Iterator[TestedRunner]:
    with TestedRunner() as made:
        yield made


def test_each_begins_when_the_one_before_has_ended(runner: TestedRunner, tmp_path: Path) -> None:
    file = tmp_path / "said"
    for run in range(1, 6):
        runner.start(run, "/bin/sh", "-c", f"echo {run} >> {file}; sleep 0.01; echo {run} >> {file}", parallel_max=1)
    assert [runner.ended(run).exit_code for run in range(1, 6)] == [0] * 5
    assert file.read_text().split() == ["1", "1", "2", "2", "3", "3", "4", "4", "5", "5"]
    assert runner.ended(5).waited_s > runner.ended(2).waited_s > 0


def test_one_that_begins_at_once_makes_others_wait_and_their_ends_are_told(runner: TestedRunner) -> None:
    runner.start(1, "/bin/sleep", "1000")
    runner.start(2, "/bin/sleep", "1000")
    runner.start(3, "/bin/true", parallel_max=1)
    runner.tell(StopRun(2))
    assert runner.ended(2).reason == "stopped"
    runner.tell(StopRun(1))
    assert (runner.ended(3).exit_code, runner.ended(3).reason) == (0, None)


def test_one_that_cannot_be_started_does_not_hold_up_the_next(runner: TestedRunner) -> None:
    runner.start(1, "/no/such/program", parallel_max=1)
    runner.start(2, "/bin/echo", "here", parallel_max=1)
    assert (runner.ended(1).exit_code, runner.ended(2).exit_code, runner.printed(2)) == (127, 0, b"here\n")


def test_one_that_is_stopped_or_not_held_while_it_waits_never_begins(runner: TestedRunner, tmp_path: Path) -> None:
    runner.start(1, "/bin/sleep", "1000", parallel_max=1)
    for run in (2, 3):
        runner.start(run, "/usr/bin/touch", str(tmp_path / "begun"), parallel_max=1)
    runner.start(4, "/bin/true", until=time.monotonic() + 0.05, parallel_max=1)
    runner.tell(StopRun(2), SetExpiry(runs={3: time.monotonic()}))
    ends = [(runner.ended(run).exit_code, runner.ended(run).reason) for run in (2, 3, 4)]
    assert ends == [(None, "stopped"), (None, "lease_over"), (None, "lease_over")]
    runner.tell(StopRun(1))
    runner.ended(1)
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_recalled_while_it_waits_never_begins_and_one_that_has_begun_goes_on(
    runner: TestedRunner, tmp_path: Path
) -> None:
    runner.start(1, "/bin/sleep", "1000", parallel_max=1)
    runner.started(1)
    for run in (2, 3):
        runner.start(run, "/usr/bin/touch", str(tmp_path / "begun"), parallel_max=1)
    runner.tell(RecallRuns([1, 2, 3, 99]))
    assert [(runner.ended(run).exit_code, runner.ended(run).reason) for run in (2, 3)] == [(None, "recalled")] * 2
    runner.tell(StopRun(1))
    assert runner.ended(1).reason == "stopped"
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_held_longer_while_it_waits_still_begins(runner: TestedRunner) -> None:
    runner.start(1, "/bin/sh", "-c", "sleep 0.3", parallel_max=1)
    runner.start(2, "/bin/true", until=time.monotonic() + 0.1, parallel_max=1)
    runner.tell(SetExpiry(runs={2: time.monotonic() + 1000}))
    assert (runner.ended(2).exit_code, runner.ended(2).reason) == (0, None)


def test_what_waits_is_dropped_when_the_agent_is_gone(runner: TestedRunner, tmp_path: Path) -> None:
    runner.start(1, "/bin/sh", "-c", "echo here; sleep 1000", parallel_max=1)
    runner.start(2, "/usr/bin/touch", str(tmp_path / "begun"), parallel_max=1)
    runner.hear_print(1, b"here")
    runner.end.close()
    assert runner.process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []

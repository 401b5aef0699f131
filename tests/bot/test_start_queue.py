"""Queued runs begin in their turn, and a run that may not begin any more never does."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.bot.ipc import RecallRuns, SetExpiry, StopRun
from tests.bot.runner_process import DEADLINE_S, RunnerUnderTest


@pytest.fixture
def runner() -> Iterator[RunnerUnderTest]:
    with RunnerUnderTest() as made:
        yield made


def test_each_queued_run_begins_when_the_one_before_has_ended(runner: RunnerUnderTest, tmp_path: Path) -> None:
    file = tmp_path / "log"
    for run in range(1, 6):
        runner.start(run, "/bin/sh", "-c", f"echo {run} >> {file}; sleep 0.01; echo {run} >> {file}", parallel_max=1)
    assert [runner.ended(run).exit_code for run in range(1, 6)] == [0] * 5
    assert file.read_text().split() == ["1", "1", "2", "2", "3", "3", "4", "4", "5", "5"]
    assert runner.ended(5).waited_s > runner.ended(2).waited_s > 0


def test_runs_that_start_at_once_count_for_the_queue(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sleep", "1000")
    runner.start(2, "/bin/sleep", "1000")
    runner.start(3, "/bin/true", parallel_max=1)
    runner.send(StopRun(2))
    assert runner.ended(2).reason == "stopped"
    runner.send(StopRun(1))
    assert (runner.ended(3).exit_code, runner.ended(3).reason) == (0, None)


def test_a_run_that_cannot_be_started_does_not_block_the_queue(runner: RunnerUnderTest) -> None:
    runner.start(1, "/no/such/program", parallel_max=1)
    runner.start(2, "/bin/echo", "here", parallel_max=1)
    assert (runner.ended(1).exit_code, runner.ended(2).exit_code, runner.printed(2)) == (127, 0, b"here\n")


def test_a_queued_run_that_is_stopped_or_expires_never_begins(runner: RunnerUnderTest, tmp_path: Path) -> None:
    runner.start(1, "/bin/sleep", "1000", parallel_max=1)
    for run in (2, 3):
        runner.start(run, "/usr/bin/touch", str(tmp_path / "begun"), parallel_max=1)
    runner.start(4, "/bin/true", until=time.monotonic() + 0.05, parallel_max=1)
    runner.send(StopRun(2), SetExpiry(runs={3: time.monotonic()}))
    ends = [(runner.ended(run).exit_code, runner.ended(run).reason) for run in (2, 3, 4)]
    assert ends == [(None, "stopped"), (None, "lease_over"), (None, "lease_over")]
    runner.send(StopRun(1))
    runner.ended(1)
    assert list(tmp_path.iterdir()) == []


def test_a_recalled_run_never_begins_and_one_that_has_begun_goes_on(runner: RunnerUnderTest, tmp_path: Path) -> None:
    runner.start(1, "/bin/sleep", "1000", parallel_max=1)
    runner.started(1)
    for run in (2, 3):
        runner.start(run, "/usr/bin/touch", str(tmp_path / "begun"), parallel_max=1)
    runner.send(RecallRuns([1, 2, 3, 99]))
    assert [(runner.ended(run).exit_code, runner.ended(run).reason) for run in (2, 3)] == [(None, "recalled")] * 2
    runner.send(StopRun(1))
    assert runner.ended(1).reason == "stopped"
    assert list(tmp_path.iterdir()) == []


def test_a_queued_run_whose_lease_is_extended_still_begins(runner: RunnerUnderTest) -> None:
    runner.start(1, "/bin/sh", "-c", "sleep 0.3", parallel_max=1)
    runner.start(2, "/bin/true", until=time.monotonic() + 0.1, parallel_max=1)
    runner.send(SetExpiry(runs={2: time.monotonic() + 1000}))
    assert (runner.ended(2).exit_code, runner.ended(2).reason) == (0, None)


def test_queued_runs_are_dropped_when_the_agent_is_gone(runner: RunnerUnderTest, tmp_path: Path) -> None:
    runner.start(1, "/bin/sh", "-c", "echo here; sleep 1000", parallel_max=1)
    runner.start(2, "/usr/bin/touch", str(tmp_path / "begun"), parallel_max=1)
    runner.wait_for_output(1, b"here")
    runner.end.close()
    assert runner.process.wait(DEADLINE_S) == 0
    assert list(tmp_path.iterdir()) == []

"""A runner that is frozen alone: the agent notices, says so, takes nothing, and goes on when the runner does."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskyard.bot.agent import RUNNER_FROZEN
from taskyard.bot.runner_client import FROZEN_SECONDS, PING_SECONDS, Heartbeat
from tests.bot.running import wait_for_end, wait_until_stopped
from tests.bot.yard import Yard, bot, served


@pytest.fixture
def yard() -> Iterator[Yard]:
    with served(Yard()) as one:
        yield one


def number_in(yard: Yard, task: str) -> int:
    """Wait for a task to print a number."""
    yard.until(lambda: yard.printed.get(task, b"").endswith(b"\n"), "it prints")
    return int(yard.printed[task])


def runner_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def frozen(yard: Yard, runner: int) -> Iterator[None]:
    """Freeze a runner, and wait until the bot has said so."""
    os.kill(runner, signal.SIGSTOP)
    try:
        wait_until_stopped(runner)
        yard.until(lambda: yard.hellos[-1].maintenance == RUNNER_FROZEN, "it says that its runner is frozen")
        yield
    finally:
        os.kill(runner, signal.SIGCONT)


def test_a_frozen_runner_is_told_nothing_is_renewed_and_all_goes_on_afterwards(yard: Yard, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    task = yard.add({"script": f"echo $$; until [ -e {gate} ]; do sleep 0.1; done"})
    with bot(yard, tmp_path / "state", slots=2):
        runner = runner_of(number_in(yard, task))
        with frozen(yard, runner):
            yard.until(lambda: yard.troubles, "the event of the bot")
            assert yard.troubles[0].text.startswith(f"the runner, process {runner}, does not answer")
            polls = len(yard.polls)
            after = yard.add({"script": "true"})  # a server that does not heed it gives it all the same
            yard.until(
                lambda: any(after in {one.task for one in leases} for leases in yard.given.values()), "it is given"
            )
            assert not [one for poll in yard.polls[polls:] for one in poll.renewals]
            assert after not in yard.reports
        yard.until(lambda: yard.hellos[-1].maintenance is None, "it says that all is well")
        gate.touch()
        assert {yard.report(one).signal for one in (task, after)} == {"succeed"}


@pytest.mark.parametrize("kind", ["program", "call"])
def test_a_time_out_is_kept_though_the_runner_is_frozen(yard: Yard, tmp_path: Path, kind: str) -> None:
    program = {"script": "echo $$; sleep 1000", "timeout": "6s", "grace": "0s"}
    call = {"python": "tests.bot.agent_functions:say_pid_and_sleep", "timeout": "6s"}
    task = yard.add(program if kind == "program" else call)
    with bot(yard, tmp_path / "state"):
        pid = number_in(yard, task)
        with frozen(yard, runner_of(pid)):
            wait_for_end(pid)
        assert (yard.report(task).signal, yard.report(task).reason) == ("fail", "timed_out")


def test_a_runner_that_does_not_answer_is_noticed_in_seconds() -> None:
    heartbeat, now = Heartbeat(), 100.0
    assert heartbeat.tick(now)
    heartbeat.answered()
    asked_at = None
    for _ in range(1_000):
        now += 0.05
        if heartbeat.tick(now):
            asked_at = now
        if heartbeat.is_frozen:
            break
    assert asked_at is not None
    assert asked_at == pytest.approx(100.0 + PING_SECONDS, abs=0.1)
    assert now == pytest.approx(100.0 + PING_SECONDS + FROZEN_SECONDS, abs=0.2)
    heartbeat.answered()
    assert not heartbeat.is_frozen


def test_an_agent_that_was_frozen_itself_does_not_blame_the_runner() -> None:
    heartbeat = Heartbeat()
    assert heartbeat.tick(100.0)
    heartbeat.tick(100.0 + 3_600)
    assert not heartbeat.is_frozen
